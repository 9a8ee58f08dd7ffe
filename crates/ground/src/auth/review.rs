//! Questions to the API server whose answers are remembered.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;

use crate::cache::Expiring;

/// For one question, all attempts together.
const WITHIN: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGER: f64 = 1.5;
const JITTER: f64 = 0.2;
const ATTEMPTS: usize = 5;

/// The API server gave no answer; clones share it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReviewError {
    #[error("{0}")]
    Failed(Arc<kube::Error>),
    #[error("the API server did not answer within {} s", WITHIN.as_secs())]
    Timeout,
    #[error("the question was dropped")]
    Dropped,
    #[error("the API server's answer is both yes and no")]
    Contradiction,
}

/// Asks until there is an answer, as often and as long as is reasonable.
pub(super) async fn persistently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, ReviewError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let attempts = async {
        let mut wait = FIRST_WAIT;
        for _ in 1..ATTEMPTS {
            match ask().await {
                Err(error) if is_passing(&error) => {}
                outcome => return outcome,
            }
            tokio::time::sleep(wait.mul_f64(1.0 + JITTER * fastrand::f64())).await;
            wait = wait.mul_f64(LONGER);
        }
        ask().await
    };
    match tokio::time::timeout(WITHIN, attempts).await {
        Ok(outcome) => outcome.map_err(|error| ReviewError::Failed(Arc::new(error))),
        Err(_) => Err(ReviewError::Timeout),
    }
}

/// May it go better next time? A server that refuses connections is down, and asking again only delays the refusal.
fn is_passing(error: &kube::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match error {
        kube::Error::Api(status) => {
            let waits = status.details.as_ref().map(|d| d.retry_after_seconds);
            matches!(status.code, 429 | 500 | 504) || waits.is_some_and(|seconds| seconds > 0)
        }
        other => {
            let mut cause: Option<&(dyn Error + 'static)> = Some(other);
            while let Some(error) = cause {
                if let Some(io) = error.downcast_ref::<std::io::Error>()
                    && matches!(
                        io.kind(),
                        ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof
                    )
                {
                    return true;
                }
                cause = error.source();
            }
            false
        }
    }
}

/// Questions by their digest: what is remembered of a token must not be the token.
pub(super) type Digest = [u8; 32];

type Flight<V> = Shared<BoxFuture<'static, Result<V, ReviewError>>>;

/// Answers, remembered for a while. However many want to know the same thing at once, it is asked once.
#[derive(Debug)]
pub(super) struct Answers<V: Clone> {
    remembered: Mutex<Expiring<Digest, V>>,
    being_asked: Mutex<HashMap<Digest, Flight<V>>>,
    secret: hmac::Key,
}

impl<V: Clone + Send + Sync + 'static> Answers<V> {
    pub fn new(capacity: usize) -> Self {
        let random = SystemRandom::new();
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        // Without randomness there would be no TLS either; then the digest only has to tell questions apart.
        let secret = secret.unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, &[]));
        Self {
            remembered: Mutex::new(Expiring::new(capacity)),
            being_asked: Mutex::default(),
            secret,
        }
    }

    /// Parts are told apart: `["ab", "c"]` is not `["a", "bc"]`.
    pub fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.secret);
        for part in parts {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    /// The remembered answer, or the one to `ask`, which is remembered for as long as `lasts` says. The question is
    /// pursued even if whoever asked it first goes away: others may be waiting for the same answer.
    pub async fn answer(
        self: &Arc<Self>,
        digest: Digest,
        ask: impl Future<Output = Result<V, ReviewError>> + Send + 'static,
        lasts: impl FnOnce(&V) -> Option<Duration> + Send + 'static,
    ) -> Result<V, ReviewError> {
        if let Some(known) = self.remembered.lock().get(&digest) {
            return Ok(known.clone());
        }
        let flight = {
            let mut being_asked = self.being_asked.lock();
            let flight = being_asked.entry(digest).or_insert_with(|| {
                let asked = Asked {
                    answers: Arc::clone(self),
                    digest,
                };
                let task = tokio::spawn(async move {
                    let answer = ask.await;
                    if let Ok(value) = &answer
                        && let Some(lasts) = lasts(value)
                    {
                        let mut remembered = asked.answers.remembered.lock();
                        remembered.insert(digest, value.clone(), lasts);
                    }
                    answer
                });
                let outcome = task.map(|ended| ended.unwrap_or(Err(ReviewError::Dropped)));
                outcome.boxed().shared()
            });
            flight.clone()
        };
        flight.await
    }
}

/// A question that is being asked as long as this lives.
struct Asked<V: Clone> {
    answers: Arc<Answers<V>>,
    digest: Digest,
}

impl<V: Clone> Drop for Asked<V> {
    fn drop(&mut self) {
        self.answers.being_asked.lock().remove(&self.digest);
    }
}
