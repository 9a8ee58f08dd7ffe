//! Bearer tokens: those handed in at the start, and those of service accounts.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use ring::digest;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::jwt::{self, JwtError, SigningKey};
use super::rules::quoted_list;
use super::{User, service_account};
use crate::kinds::Lookup;
use plimsoll_golang::strconv::quote;

/// Clocks may differ by so much, and what was deleted may be used for so long.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// How many tokens are remembered as well signed.
const REMEMBERED: usize = 4096;

type Digest = [u8; 32];

/// Tokens that are simply known. They are compared by digest, so the time it takes says nothing about them.
#[derive(Debug, Default)]
pub struct StaticTokens(FxHashMap<Digest, User>);

impl StaticTokens {
    pub fn new(tokens: impl IntoIterator<Item = (String, User)>) -> Self {
        let tokens = tokens.into_iter().filter(|(token, _)| !token.is_empty());
        Self(tokens.map(|(token, user)| (sha256(&token), user)).collect())
    }

    fn user(&self, digest: &Digest) -> Option<&User> {
        self.0.get(digest)
    }
}

fn sha256(text: &str) -> Digest {
    let mut out = Digest::default();
    out.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    out
}

/// The claims of a service account's token. Fields in the order of their names, as the original writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default, deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    #[serde(default)]
    pub exp: i64,
    #[serde(default)]
    pub iat: i64,
    #[serde(default)]
    pub iss: String,
    #[serde(default)]
    pub jti: String,
    #[serde(default, rename = "kubernetes.io")]
    pub kubernetes: Bound,
    #[serde(default)]
    pub nbf: i64,
    #[serde(default)]
    pub sub: String,
}

/// Whose token it is, and with what it ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bound {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    #[serde(default)]
    pub serviceaccount: Reference,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reference {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(from)? {
        Either::One(one) => vec![one],
        Either::Many(many) => many,
    })
}

/// Why a token is refused; told only in token reviews.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("invalid bearer token")]
    Unknown,
    #[error(transparent)]
    Jwt(JwtError),
    #[error("token audiences {} is invalid for the target audiences {}", quoted_list(.has), quoted_list(.wanted))]
    Audience {
        has: Vec<String>,
        wanted: Vec<String>,
    },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("service account token is issued in the future")]
    FromTheFuture,
    #[error("serviceaccounts {} not found", quote(.0))]
    NoAccount(String),
    #[error("service account {0} has been deleted")]
    AccountDeleted(String),
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("{what} UID ({actual}) does not match {claim} ({claimed})")]
    OtherUid {
        what: &'static str,
        claim: &'static str,
        actual: String,
        claimed: String,
    },
}

impl TokenError {
    /// As a token review tells it: where it was looked at as a service account's, both that and the plain refusal.
    pub fn review_text(&self) -> String {
        match self {
            Self::Unknown => self.to_string(),
            other => format!("[{}, {other}]", Self::Unknown),
        }
    }
}

/// Knows whose a token is.
#[derive(Debug)]
pub struct Tokens {
    known: StaticTokens,
    pub(super) key: SigningKey,
    pub(super) issuer: String,
    /// What a token for this server must be meant for.
    pub(super) audiences: Vec<String>,
    /// Signatures are slow to check and do not change.
    checked: Mutex<FxHashMap<Digest, Arc<Claims>>>,
}

impl Tokens {
    pub fn new(
        known: StaticTokens,
        key: SigningKey,
        issuer: String,
        audiences: Vec<String>,
    ) -> Self {
        Self {
            known,
            key,
            issuer,
            audiences,
            checked: Mutex::default(),
        }
    }

    /// The user, and which of the audiences asked for the token is meant for. Empty `wanted`: this server's.
    pub fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
        now: Timestamp,
        world: &dyn Lookup,
    ) -> Result<(User, Vec<String>), TokenError> {
        let wanted = if wanted.is_empty() {
            &self.audiences
        } else {
            wanted
        };
        let digest = sha256(token);
        if let Some(user) = self.known.user(&digest) {
            // These are meant for this server.
            let audiences = intersection(&self.audiences, wanted);
            if audiences.is_empty() {
                return Err(TokenError::Unknown);
            }
            return Ok((user.clone(), audiences));
        }
        let claims = self.checked_claims(token, digest)?;
        let audiences = intersection(&claims.aud, wanted);
        if audiences.is_empty() {
            return Err(TokenError::Audience {
                has: claims.aud.clone(),
                wanted: wanted.to_vec(),
            });
        }
        claims.check_time(now)?;
        claims.check_objects(now, world)?;
        Ok((claims.user(), audiences))
    }

    fn checked_claims(&self, token: &str, digest: Digest) -> Result<Arc<Claims>, TokenError> {
        if let Some(claims) = self.checked.lock().get(&digest) {
            return Ok(Arc::clone(claims));
        }
        let unverified = jwt::unverified_claims(token).map_err(|_| TokenError::Unknown)?;
        if unverified["iss"] != self.issuer {
            return Err(TokenError::Unknown);
        }
        let claims = self.key.verify(token).map_err(|problem| match problem {
            JwtError::Malformed => TokenError::Unknown,
            other => TokenError::Jwt(other),
        })?;
        let claims = Claims::deserialize(claims).map_err(|_| TokenError::Unknown)?;
        let claims = Arc::new(claims);
        let mut checked = self.checked.lock();
        if checked.len() >= REMEMBERED {
            checked.clear();
        }
        checked.insert(digest, Arc::clone(&claims));
        Ok(claims)
    }
}

fn intersection(has: &[String], wanted: &[String]) -> Vec<String> {
    let common = has.iter().filter(|one| wanted.contains(one));
    common.cloned().collect()
}

impl Claims {
    fn check_time(&self, now: Timestamp) -> Result<(), TokenError> {
        let (now, leeway) = (now.as_second(), LEEWAY.as_secs());
        if self.nbf != 0 && now.saturating_add(leeway) < self.nbf {
            return Err(TokenError::NotYet);
        }
        if self.exp != 0 && now.saturating_sub(leeway) > self.exp {
            return Err(TokenError::Expired);
        }
        if self.iat != 0 && now.saturating_add(leeway) < self.iat {
            return Err(TokenError::FromTheFuture);
        }
        Ok(())
    }

    /// The account and whatever else the token is bound to must still be there, and be the same.
    fn check_objects(&self, now: Timestamp, world: &dyn Lookup) -> Result<(), TokenError> {
        let bound = &self.kubernetes;
        let namespace = &bound.namespace;
        let account = &bound.serviceaccount;
        let found = world
            .get("serviceaccounts", namespace, &account.name)
            .ok_or_else(|| TokenError::NoAccount(account.name.clone()))?;
        same_uid(&found, account, "service account", "claim")?;
        if deleted(&found, now) {
            let name = format!("{namespace}/{}", account.name);
            return Err(TokenError::AccountDeleted(name));
        }
        // A pod's node is only told about; it may be gone.
        let node = bound.node.as_ref().filter(|_| bound.pod.is_none());
        let references = [
            (
                "secrets",
                namespace.as_str(),
                bound.secret.as_ref(),
                "secret",
                "service account secret ref claim",
            ),
            (
                "pods",
                namespace,
                bound.pod.as_ref(),
                "pod",
                "service account pod ref claim",
            ),
            ("nodes", "", node, "node", "service account node ref claim"),
        ];
        for (resource, namespace, reference, what, claim) in references {
            let Some(reference) = reference else { continue };
            let found = world.get(resource, namespace, &reference.name);
            let found = found.ok_or(TokenError::Invalidated)?;
            same_uid(&found, reference, what, claim)?;
            if deleted(&found, now) {
                return Err(TokenError::Invalidated);
            }
        }
        Ok(())
    }

    fn user(&self) -> User {
        let bound = &self.kubernetes;
        let account = &bound.serviceaccount;
        let mut user = User {
            name: service_account::user_name(&bound.namespace, &account.name),
            uid: account.uid.clone(),
            groups: service_account::groups(&bound.namespace),
            ..User::default()
        };
        let mut tell = |key: &str, value: String| user.extra.insert(key.to_owned(), vec![value]);
        if let Some(pod) = &bound.pod {
            tell(service_account::EXTRA_POD_NAME, pod.name.clone());
            tell(service_account::EXTRA_POD_UID, pod.uid.clone());
        }
        if !self.jti.is_empty() {
            let id = format!("JTI={}", self.jti);
            tell(service_account::EXTRA_CREDENTIAL_ID, id);
        }
        if let Some(node) = &bound.node {
            tell(service_account::EXTRA_NODE_NAME, node.name.clone());
            if !node.uid.is_empty() {
                tell(service_account::EXTRA_NODE_UID, node.uid.clone());
            }
        }
        user
    }
}

fn same_uid(
    object: &Value,
    reference: &Reference,
    what: &'static str,
    claim: &'static str,
) -> Result<(), TokenError> {
    let actual = object["metadata"]["uid"].as_str().unwrap_or_default();
    if actual == reference.uid {
        return Ok(());
    }
    Err(TokenError::OtherUid {
        what,
        claim,
        actual: actual.to_owned(),
        claimed: reference.uid.clone(),
    })
}

/// Deletion takes effect a little later than asked for.
fn deleted(object: &Value, now: Timestamp) -> bool {
    let time = object["metadata"]["deletionTimestamp"].as_str();
    let time = time.and_then(|time| time.parse::<Timestamp>().ok());
    time.is_some_and(|time| now.duration_since(time) > LEEWAY)
}
