//! The chain of authenticators: front proxy, client certificate, bearer token, anonymous.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, request};
use parking_lot::Mutex;

use super::request_header::{FrontProxy, RequestHeaderConfig};
use super::user::UserInfo;
use super::x509::{common_name, seconds_left, user_of_certificate};
use crate::{CaBundle, Peer};
use plimsoll_metrics::{Exposition, Histogram};

/// Half an hour to a year.
const LEFT: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// Whose token is this?
pub trait Tokens: fmt::Debug + Send + Sync {
    /// `Ok(None)`: it is nobody's.
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<UserInfo>, TokenError>>;

    /// What is counted of it, where something is.
    fn write(&self, _: &mut Exposition) {}
}

/// The question could not be answered, which is no reason to let anybody in.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(pub String);

/// Credentials were given, and none of them will do. Clients hear `401 Unauthorized`; why is for the log.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .reasons.join("; "))]
pub struct Unauthenticated {
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Authenticator {
    pub front_proxy: FrontProxy,
    /// Whose certificates name users.
    pub client_ca: CaBundle,
    pub tokens: Option<Arc<dyn Tokens>>,
    /// Those without any credentials are let in as nobody in particular.
    pub anonymous: bool,
    /// How long certificates that name users are good for.
    pub expirations: CertificateExpiration,
}

/// How long the certificates are good for that requests came with. Clones count the same.
#[derive(Debug, Clone)]
pub struct CertificateExpiration(Arc<Mutex<Histogram>>);

impl Default for CertificateExpiration {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Histogram::new(LEFT.into()))))
    }
}

impl CertificateExpiration {
    fn observe(&self, leaf: &[u8]) {
        if let Some(left) = seconds_left(leaf) {
            self.0.lock().observe(left);
        }
    }

    fn write(&self, page: &mut Exposition) {
        let name = "apiserver_client_certificate_expiration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] How long the certificates of those who asked are still good for.",
        );
        page.histogram(name, &[], &self.0.lock());
    }
}

impl Authenticator {
    /// What is counted of it.
    pub(super) fn write(&self, page: &mut Exposition) {
        self.expirations.write(page);
        if let Some(tokens) = &self.tokens {
            tokens.write(page);
        }
    }

    /// Finds out who asks, by the request's headers and its [`Peer`]. Afterwards the headers hold no credentials and
    /// nothing that claims to come from a front proxy, whoever sent it.
    pub async fn authenticate(
        &self,
        head: &mut request::Parts,
    ) -> Result<UserInfo, Unauthenticated> {
        let rules = self.front_proxy.rules();
        let outcome = self.ask_all(head, &rules).await;
        rules.strip(&mut head.headers);
        if outcome.is_ok() {
            head.headers.remove(AUTHORIZATION);
        }
        outcome
    }

    async fn ask_all(
        &self,
        head: &request::Parts,
        rules: &RequestHeaderConfig,
    ) -> Result<UserInfo, Unauthenticated> {
        // One that has no say is passed over; one that objects does not keep the next from being asked.
        let mut reasons = Vec::new();
        if let Some(peer) = head.extensions.get::<Peer>() {
            let by_proxy = self.by_front_proxy(peer, &head.headers, rules);
            match by_proxy.transpose() {
                Some(Ok(user)) => return Ok(user.authenticated()),
                Some(Err(reason)) => reasons.push(reason),
                None => {}
            }
            match self.by_certificate(peer).transpose() {
                Some(Ok(user)) => return Ok(user.authenticated()),
                Some(Err(reason)) => reasons.push(reason),
                None => {}
            }
        }
        if let Some(tokens) = &self.tokens
            && let Some(token) = bearer_token(&head.headers)
        {
            match tokens.user(&token).await {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => reasons.push("invalid bearer token".to_owned()),
                Err(TokenError(reason)) => reasons.push(reason),
            }
        }
        match reasons.is_empty() && self.anonymous {
            true => Ok(UserInfo::anonymous()),
            false => Err(Unauthenticated { reasons }),
        }
    }

    fn by_front_proxy(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        rules: &RequestHeaderConfig,
    ) -> Result<Option<UserInfo>, String> {
        let Some(leaf) = peer.certificates.first() else {
            return Ok(None);
        };
        if self.front_proxy.trust.is_empty() {
            return Ok(None);
        }
        let verified = peer.verified_by(&self.front_proxy.trust);
        verified.map_err(|error| format!("not a front proxy's certificate: {error}"))?;
        let name = common_name(leaf).map_err(|error| error.to_string())?;
        if !rules.allows(&name) {
            return Err(format!(
                "x509: subject with cn={name} is not in the allowed list"
            ));
        }
        Ok(rules.user(headers))
    }

    fn by_certificate(&self, peer: &Peer) -> Result<Option<UserInfo>, String> {
        let Some(leaf) = peer.certificates.first() else {
            return Ok(None);
        };
        if self.client_ca.is_empty() {
            return Ok(None);
        }
        let verified = peer.verified_by(&self.client_ca);
        verified.map_err(|error| format!("verifying the client's certificate failed: {error}"))?;
        self.expirations.observe(leaf);
        user_of_certificate(leaf).map_err(|error| error.to_string())
    }
}

/// What follows `Bearer`; `None` where nothing does, or the scheme is another.
///
/// Bytes that are no text make a token that nobody has, not somebody without one.
fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let value = String::from_utf8_lossy(headers.get(AUTHORIZATION)?.as_bytes());
    let mut parts = value.trim().splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}
