//! What a service account's token says of it, and the names that accounts and nodes go by as users.

pub use plimsoll_serving::auth::service_account::{groups, user_name};

pub(super) const EXTRA_CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
pub(super) const EXTRA_POD_NAME: &str = "authentication.kubernetes.io/pod-name";
pub(super) const EXTRA_POD_UID: &str = "authentication.kubernetes.io/pod-uid";
pub(crate) const EXTRA_NODE_NAME: &str = "authentication.kubernetes.io/node-name";
pub(super) const EXTRA_NODE_UID: &str = "authentication.kubernetes.io/node-uid";
