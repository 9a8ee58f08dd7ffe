//! Authorization by SubjectAccessReview, with a few paths that are always allowed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use plimsoll_waiting::Repeated;

use super::review_cache::{Answers, Attempts, ReviewError, persistently};
use super::user::{MASTERS, UserInfo};
use plimsoll_metrics::Exposition;

const REMEMBERED: usize = 8192;
/// Longer questions are not remembered: their length is in the hands of whoever asks.
const LONGEST_REMEMBERED: usize = 10_000;

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Access {
    Resource(Box<ResourceAttributes>),
    Path(NonResourceAttributes),
}

impl Access {
    pub fn resource(attributes: ResourceAttributes) -> Self {
        Self::Resource(Box::new(attributes))
    }

    /// To a path that is no resource; the verb is the method in small letters.
    pub fn path(method: &http::Method, path: &str) -> Self {
        Self::Path(NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some(method.as_str().to_ascii_lowercase()),
        })
    }

    /// How much of it the client can choose freely.
    fn length(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Self::Path(path) => of(&path.path) + of(&path.verb),
            Self::Resource(r) => [
                &r.namespace,
                &r.verb,
                &r.group,
                &r.version,
                &r.resource,
                &r.subresource,
                &r.name,
            ]
            .into_iter()
            .map(of)
            .sum(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    /// Nobody allows it, or somebody forbids it; with what they said about it.
    Refused {
        reason: String,
    },
}

#[derive(Debug, Clone)]
pub struct AuthorizerConfig {
    /// Exact, or with a trailing `*`.
    pub always_allow_paths: Vec<String>,
    pub allowed_lasts: Duration,
    pub refused_lasts: Duration,
}

impl Default for AuthorizerConfig {
    fn default() -> Self {
        Self {
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).into(),
            allowed_lasts: Duration::from_secs(10),
            refused_lasts: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("only trailing * allowed in {0:?}")]
pub struct PathPatternError(pub String);

/// Asks the API server by SubjectAccessReview.
#[derive(Clone)]
pub struct Authorizer {
    client: kube::Client,
    paths: Arc<Paths>,
    allowed_lasts: Duration,
    refused_lasts: Duration,
    answers: Arc<Answers<SubjectAccessReviewStatus>>,
    attempts: Arc<Attempts>,
    trouble: Arc<Mutex<Repeated>>,
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizer")
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

impl Authorizer {
    pub fn new(client: kube::Client, config: AuthorizerConfig) -> Result<Self, PathPatternError> {
        Ok(Self {
            client,
            paths: Arc::new(Paths::new(&config.always_allow_paths)?),
            allowed_lasts: config.allowed_lasts,
            refused_lasts: config.refused_lasts,
            answers: Arc::new(Answers::new(REMEMBERED)),
            attempts: Arc::default(),
            trouble: Arc::default(),
        })
    }

    /// How the API server was asked.
    pub(super) fn write(&self, page: &mut Exposition) {
        self.attempts.write(page, "authz");
    }

    /// An error means that nobody knows, and that the answer is no.
    pub async fn decide(&self, user: &UserInfo, access: &Access) -> Result<Decision, ReviewError> {
        if user.in_group(MASTERS) || self.paths.allow(access) {
            return Ok(Decision::Allowed);
        }
        let spec = question(user, access);
        // Serialising plain strings and maps cannot fail; an empty text would be the same question for everybody.
        let Ok(text) = serde_json::to_vec(&spec) else {
            return Err(ReviewError::Dropped);
        };
        let digest = self.answers.digest(&[&text]);
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let attempts = Arc::clone(&self.attempts);
        let ask = async move {
            let question = SubjectAccessReview {
                spec,
                ..SubjectAccessReview::default()
            };
            let params = PostParams::default();
            let answer = persistently(&attempts, || reviews.create(&params, &question)).await?;
            Ok(answer.status.unwrap_or_default())
        };
        let short = access.length() < LONGEST_REMEMBERED;
        let (allowed, refused) = (self.allowed_lasts, self.refused_lasts);
        let lasts = move |status: &SubjectAccessReviewStatus| {
            short.then_some(if status.allowed { allowed } else { refused })
        };
        let status = self.answers.answer(digest, ask, lasts).await;
        let said = match &status {
            Ok(_) => {
                if let Some(over) = self.trouble.lock().well() {
                    let failures = over.failures;
                    tracing::info!(failures, "access is reviewed again");
                }
                None
            }
            Err(_) => self.trouble.lock().failed(),
        };
        let status = status.inspect_err(|error| {
            if let Some(said) = said {
                let (error, times) = (error.explained(), said.times);
                tracing::warn!(
                    error,
                    times,
                    "cannot have an access reviewed; it is refused"
                );
            }
        })?;
        match (status.allowed, status.denied.unwrap_or(false)) {
            (true, true) => Err(ReviewError::Contradiction),
            (true, false) => Ok(Decision::Allowed),
            (false, _) => Ok(Decision::Refused {
                reason: status.reason.unwrap_or_default(),
            }),
        }
    }
}

fn question(user: &UserInfo, access: &Access) -> SubjectAccessReviewSpec {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (resource_attributes, non_resource_attributes) = match access {
        Access::Resource(resource) => (Some((**resource).clone()), None),
        Access::Path(path) => (None, Some(path.clone())),
    };
    SubjectAccessReviewSpec {
        user: filled(&user.name),
        uid: filled(&user.uid),
        groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        resource_attributes,
        non_resource_attributes,
    }
}

/// Paths that are open to everybody.
#[derive(Debug, Default)]
struct Paths {
    exact: BTreeSet<String>,
    prefixes: Vec<String>,
}

impl Paths {
    fn new(patterns: &[String]) -> Result<Self, PathPatternError> {
        let mut paths = Self::default();
        for pattern in patterns {
            let path = pattern.strip_prefix('/').unwrap_or(pattern);
            match path.strip_suffix('*') {
                Some(prefix) if prefix.contains('*') => {
                    return Err(PathPatternError(path.to_owned()));
                }
                Some(prefix) => paths.prefixes.push(prefix.to_owned()),
                None if path.contains('*') => return Err(PathPatternError(path.to_owned())),
                None => {
                    paths.exact.insert(path.to_owned());
                }
            }
        }
        Ok(paths)
    }

    fn allow(&self, access: &Access) -> bool {
        let Access::Path(attributes) = access else {
            return false;
        };
        let path = attributes.path.as_deref().unwrap_or_default();
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.contains(path) || self.prefixes.iter().any(|p| path.starts_with(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_paths() {
        let patterns = ["/healthz", "/debug/*", "readyz"].map(str::to_owned);
        let paths = Paths::new(&patterns).unwrap();
        for (path, expect) in [
            ("/healthz", true),
            ("/healthz/", false),
            ("/healthz/ping", false),
            ("/readyz", true),
            ("/debug/pprof", true),
            ("/debug", false),
            ("/metrics", false),
            ("/", false),
        ] {
            let access = Access::path(&http::Method::GET, path);
            assert_eq!(paths.allow(&access), expect, "{path}");
        }
        let resource = Access::resource(ResourceAttributes::default());
        let everything = Paths::new(&["*".to_owned()]).unwrap();
        assert!(!everything.allow(&resource));
        assert!(everything.allow(&Access::path(&http::Method::GET, "/x")));
        for wrong in ["/a*b", "/a*/*"] {
            Paths::new(&[wrong.to_owned()]).unwrap_err();
        }
    }
}
