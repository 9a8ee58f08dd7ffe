//! Authenticates bearer tokens by TokenReview.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use plimsoll_waiting::Repeated;

use super::authenticator::{TokenError, Tokens};
use super::review_cache::{Answers, Attempts, persistently};
use super::user::UserInfo;
use plimsoll_metrics::Exposition;

/// Tokens come from outside: whoever sends many must not fill our memory.
const REMEMBERED: usize = 4096;

/// Asks the API server by TokenReview.
#[derive(Debug, Clone)]
pub struct TokenReviewer {
    client: Client,
    audiences: Vec<String>,
    lasts: Duration,
    answers: Arc<Answers<Outcome>>,
    attempts: Arc<Attempts>,
    trouble: Arc<Mutex<Repeated>>,
}

#[derive(Clone)]
struct Client(kube::Client);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[derive(Debug, Clone)]
struct Outcome {
    user: Option<UserInfo>,
    /// What the API server had to say about a token it does not know.
    error: Option<String>,
}

impl TokenReviewer {
    /// Answers are remembered for `lasts` (10 s is usual), good ones and bad ones; failures to get one are not. A
    /// token counts only if it is for one of the `audiences`, where there are some.
    pub fn new(client: kube::Client, audiences: Vec<String>, lasts: Duration) -> Self {
        Self {
            client: Client(client),
            audiences,
            lasts,
            answers: Arc::new(Answers::new(REMEMBERED)),
            attempts: Arc::default(),
            trouble: Arc::default(),
        }
    }

    async fn review(&self, token: &str) -> Result<Option<UserInfo>, TokenError> {
        let digest = self.answers.digest(&[token.as_bytes()]);
        let reviews: Api<TokenReview> = Api::all(self.client.0.clone());
        let question = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: (!self.audiences.is_empty()).then(|| self.audiences.clone()),
            },
            ..TokenReview::default()
        };
        let audiences = self.audiences.clone();
        let lasts = self.lasts;
        let attempts = Arc::clone(&self.attempts);
        let ask = async move {
            let params = PostParams::default();
            let answer = persistently(&attempts, || reviews.create(&params, &question)).await?;
            Ok(outcome(answer.status.unwrap_or_default(), &audiences))
        };
        let answer = self.answers.answer(digest, ask, move |_| Some(lasts)).await;
        match answer {
            Ok(Outcome {
                user: None,
                error: Some(error),
            }) => Err(TokenError(error)),
            Ok(outcome) => {
                if let Some(over) = self.trouble.lock().well() {
                    let failures = over.failures;
                    tracing::info!(failures, "tokens are reviewed again");
                }
                Ok(outcome.user)
            }
            Err(error) => {
                if let Some(said) = self.trouble.lock().failed() {
                    let (error, times) = (error.explained(), said.times);
                    tracing::warn!(
                        error,
                        times,
                        "cannot have a token reviewed; nobody who shows one gets in"
                    );
                }
                Err(TokenError(error.to_string()))
            }
        }
    }
}

fn outcome(status: TokenReviewStatus, audiences: &[String]) -> Outcome {
    let error = status.error.filter(|error| !error.is_empty());
    let told = status.audiences.unwrap_or_default();
    // A reviewer that knows of no audiences tells none: the token is then for all that were asked about.
    let meant = audiences.is_empty()
        || told.is_empty()
        || audiences.iter().any(|audience| told.contains(audience));
    if status.authenticated != Some(true) || !meant {
        return Outcome { user: None, error };
    }
    let user = status.user.unwrap_or_default();
    let user = UserInfo {
        name: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    };
    Outcome {
        user: Some(user),
        error: None,
    }
}

impl Tokens for TokenReviewer {
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<UserInfo>, TokenError>> {
        self.review(token).boxed()
    }

    fn write(&self, page: &mut Exposition) {
        self.attempts.write(page, "authn");
        self.answers.usage.write(page);
    }
}
