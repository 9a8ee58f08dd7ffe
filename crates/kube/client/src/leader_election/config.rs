//! The parameters of an election.

use std::time::Duration;

/// Tries to acquire are this much further apart, at most, than those to renew.
pub(super) const JITTER: f64 = 1.2;

#[derive(Debug, Clone)]
pub struct Config {
    /// Of the Lease.
    pub namespace: String,
    pub name: String,
    /// Unlike any other candidate's; see [`new_identity`].
    pub identity: String,
    /// How long others wait, after the last change they saw, before they take over.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    /// Give the lease back when asked to stop, so that others need not wait.
    pub release_on_stop: bool,
}

impl Config {
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_stop: true,
        }
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        if self.lease_duration <= self.renew_deadline {
            return Err(ConfigError::LeaseDuration);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            return Err(ConfigError::RenewDeadline);
        }
        if self.retry_period.is_zero() {
            return Err(ConfigError::RetryPeriod);
        }
        if self.identity.is_empty() {
            return Err(ConfigError::Identity);
        }
        if self.name.is_empty() || self.namespace.is_empty() {
            return Err(ConfigError::Lock);
        }
        Ok(())
    }

    /// For one request to the API server.
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseDuration,
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    RenewDeadline,
    #[error("retryPeriod must be greater than zero")]
    RetryPeriod,
    #[error("Lock identity is empty")]
    Identity,
    #[error("Lock must not be nil.")]
    Lock,
}

/// The host's name and something that tells this process from others on it.
pub fn new_identity() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    format!("{host}_{}", uuid::Uuid::new_v4())
}
