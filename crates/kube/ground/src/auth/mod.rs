//! Who asks, and whether they may: delegated authentication and authorization.
//!
//! A server of ours does not know users itself. It believes the cluster's front proxy (which sends the user in headers
//! and proves itself by its certificate), certificates of the cluster's client authority, and bearer tokens that the
//! API server vouches for ([`TokenReviewer`]); whether the user may do what they ask is the API server's word too
//! ([`Authorizer`]). [`Gate`] puts both in front of a service. What cannot be decided is refused.
//!
//! The pieces that need no API server — [`user_of_certificate`], [`FrontProxyRules`], the [`Authenticator`] chain with
//! another [`Tokens`] — serve the embedded API server as well.

pub mod account;
mod authenticate;
mod authorize;
mod certificate;
mod delegation;
mod front_proxy;
mod gate;
mod impersonate;
mod review;
mod token;
mod user;

#[cfg(test)]
mod tests;

pub use authenticate::{Authenticator, Expirations, TokenError, Tokens, Unauthenticated};
pub use authorize::{Access, Authorizer, AuthorizerConfig, Decision, PathPatternError};
pub use certificate::{
    CertificateError, common_name, organizations_of_request, user_of_certificate,
};
pub use delegation::{Delegation, DelegationConfig, FrontProxyFiles, LookupError};
pub use front_proxy::{FrontProxy, FrontProxyRules};
pub use gate::{ActsFor, Filters, Gate, Refusal};
pub use impersonate::{Habits, Impersonation, Judge};
pub use review::ReviewError;
pub use token::TokenReviewer;
pub use user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, UserInfo};
