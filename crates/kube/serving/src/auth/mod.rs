//! Who asks, and whether they may: delegated authentication and authorization.
//!
//! A server of ours does not know users itself. It believes the cluster's front proxy (which sends the user in headers
//! and proves itself by its certificate), certificates of the cluster's client authority, and bearer tokens that the
//! API server vouches for ([`TokenReviewer`]); whether the user may do what they ask is the API server's word too
//! ([`Authorizer`]). [`AuthFilter`] puts both in front of a service. What cannot be decided is refused.
//!
//! The pieces that need no API server — [`user_of_certificate`], [`RequestHeaderConfig`], the [`Authenticator`] chain with
//! another [`Tokens`] — serve the embedded API server as well.

mod authenticator;
mod authorizer;
mod delegated;
mod filter;
mod impersonation;
mod request_header;
mod review_cache;
pub mod service_account;
mod token_review;
mod user;
mod x509;

#[cfg(test)]
mod tests;

pub use authenticator::{
    Authenticator, CertificateExpiration, TokenError, Tokens, Unauthenticated,
};
pub use authorizer::{Access, Authorizer, AuthorizerConfig, Decision, PathPatternError};
pub use delegated::{DelegatedAuth, DelegatedAuthConfig, FrontProxyFiles, LookupError};
pub use filter::{AuthFilter, FilterMetrics, Impersonator, Refusal};
pub use impersonation::{Impersonation, ImpersonationAuthorizer, ImpersonationModeCache};
pub use request_header::{FrontProxy, RequestHeaderConfig};
pub use review_cache::ReviewError;
pub use token_review::TokenReviewer;
pub use user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, UserInfo};
pub use x509::{CertificateError, common_name, organizations_of_request, user_of_certificate};
