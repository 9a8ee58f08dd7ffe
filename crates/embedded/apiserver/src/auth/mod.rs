//! Who asks, and whether they may. [`Authority`] answers both; everything below it knows nothing of connections.

mod aggregate;
mod authenticate;
pub mod bootstrap;
mod coverage;
mod escalation;
pub mod front_proxy;
mod impersonate;
mod jwt;
mod rbac;
mod review_validation;
mod reviews;
mod rules;
pub mod service_account;
#[cfg(test)]
mod tests;
mod token_request;
mod tokens;

use std::sync::Arc;

use http::HeaderMap;
use jiff::Timestamp;
use plimsoll_serving::auth::ImpersonationModeCache;
use serde_json::Value;

pub use authenticate::ignored_token_warning;
pub use jwt::{KeyError, SigningKey};
pub use plimsoll_serving::auth::MASTERS;
pub use plimsoll_serving::auth::UserInfo as User;
pub use reviews::{Review, user_info};
pub use rules::Rule;

use crate::kinds::Lookup;
use crate::request::{RequestInfo, ResourcePath};
use crate::status::{StatusError, Subject};
use crate::store::Store;
use plimsoll_golang::strconv::quote;
use rbac::PolicyCache;
use rules::{Action, Target};
use tokens::{StaticTokens, Tokens};

/// Who issues the tokens of service accounts, and whom they are meant for, unless said otherwise.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

#[derive(Debug)]
pub struct Config {
    pub static_tokens: Vec<(String, User)>,
    /// Signs the tokens of service accounts.
    pub signing_key: SigningKey,
    pub issuer: String,
    pub clock: fn() -> Timestamp,
}

/// Authentication, authorization and everything that is asked about them.
#[derive(Debug)]
pub struct Authority {
    tokens: Tokens,
    policy: PolicyCache,
    habits: ImpersonationModeCache,
    clock: fn() -> Timestamp,
}

impl Authority {
    /// What it decides by is in `store`.
    pub fn new(config: Config, store: &Store) -> Self {
        let known = StaticTokens::new(config.static_tokens);
        let audiences = vec![config.issuer.clone()];
        Self {
            tokens: Tokens::new(known, config.signing_key, config.issuer, audiences),
            policy: PolicyCache::new(store),
            habits: ImpersonationModeCache::default(),
            clock: config.clock,
        }
    }

    /// The ClusterRoles that gather the rules of others, and what they gather.
    pub fn gathered_rules(&self) -> Vec<(String, Arc<[Rule]>)> {
        let policy = self.policy.policy();
        let gathered = policy.gathered().iter();
        gathered
            .map(|(name, rules)| (name.clone(), rules.clone()))
            .collect()
    }

    /// `certificate` is the peer's own, in DER, and only if it was found to be signed by the client CA.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: Option<&[u8]>,
        world: &dyn Lookup,
    ) -> Result<User, StatusError> {
        authenticate::authenticate(&self.tokens, headers, certificate, (self.clock)(), world)
    }

    /// The user as whom `request` is to be made: `user`, unless the headers name another and that is permitted. The
    /// headers are then to be taken away ([`plimsoll_serving::auth::Impersonation::strip`]).
    pub fn impersonate(
        &self,
        user: User,
        headers: &HeaderMap,
        request: &RequestInfo,
    ) -> Result<User, StatusError> {
        impersonate::resolve(self, &self.habits, user, headers, action_of(request))
    }

    pub fn authorize(&self, user: &User, request: &RequestInfo) -> Result<(), StatusError> {
        self.confirm(user, action_of(request))
    }

    /// For a request that does the work of another verb, too: the same request of that verb has to be allowed.
    pub fn authorize_also(
        &self,
        user: &User,
        request: &RequestInfo,
        verb: &'static str,
    ) -> Result<(), StatusError> {
        let other = RequestInfo {
            verb,
            ..request.clone()
        };
        self.authorize(user, &other)
    }

    /// For a create, update or patch of a role or binding, on the object as it would be stored, before its validation;
    /// passes for any other resource. `old` is `None` on creation.
    pub fn check_escalation(
        &self,
        user: &User,
        request: &ResourcePath,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), StatusError> {
        if request.group != rbac::GROUP || user.in_group(MASTERS) {
            return Ok(());
        }
        let policy = self.policy.policy();
        escalation::check(&policy, user, request, object, old)
    }

    /// The answer to a TokenRequest posted to `serviceaccounts/{name}/token`.
    pub fn token_request(
        &self,
        namespace: &str,
        name: &str,
        request: Value,
        world: &dyn Lookup,
    ) -> Result<Value, StatusError> {
        let now = (self.clock)();
        token_request::answer(&self.tokens, namespace, name, request, now, world)
    }

    /// The answer to a review, given the question as it was decoded. `namespace` is that of the request's path.
    pub fn review(
        &self,
        review: Review,
        namespace: &str,
        object: Value,
        user: &User,
        world: &dyn Lookup,
    ) -> Result<Value, StatusError> {
        review.answer(self, namespace, object, user, world)
    }

    /// `/openid/v1/jwks`.
    pub fn public_keys(&self) -> Value {
        self.tokens.key.public_set()
    }

    fn confirm(&self, user: &User, action: Action<'_>) -> Result<(), StatusError> {
        if user.in_group(MASTERS) {
            return Ok(());
        }
        let decision = self.policy.policy().decide(user, action);
        if decision.allowed() {
            return Ok(());
        }
        Err(forbidden(user, action, &decision.reason()))
    }
}

fn action_of(request: &RequestInfo) -> Action<'_> {
    let on = match &request.resource {
        None => Target::Path(&request.path),
        Some(path) => Target::Resource {
            group: &path.group,
            resource: &path.resource,
            subresource: &path.subresource,
            namespace: &path.namespace,
            name: &path.name,
        },
    };
    let verb = request.verb;
    Action { verb, on }
}

/// The refusal of an action; `reason` may be empty.
fn forbidden(user: &User, action: Action<'_>, reason: &str) -> StatusError {
    let (user, verb) = (quote(&user.name), action.verb);
    let (subject, name, what) = match action.on {
        Target::Path(path) => {
            let what = format!("User {user} cannot {verb} path {}", quote(path));
            let (group, kind) = ("", "");
            (Subject { group, kind }, "", what)
        }
        Target::Resource {
            group,
            resource,
            subresource,
            namespace,
            name,
        } => {
            let full = match subresource {
                "" => quote(resource),
                _ => quote(&format!("{resource}/{subresource}")),
            };
            let scope = match namespace {
                "" => "at the cluster scope".to_owned(),
                _ => format!("in the namespace {}", quote(namespace)),
            };
            let what = format!(
                "User {user} cannot {verb} resource {full} in API group {} {scope}",
                quote(group)
            );
            let kind = resource;
            (Subject { group, kind }, name, what)
        }
    };
    // Nothing in a refusal may look like HTML.
    let what = what.replace('&', "&amp;");
    let mut what = what.replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        what = format!("{what}: {reason}");
    }
    StatusError::forbidden(subject, name, &what)
}
