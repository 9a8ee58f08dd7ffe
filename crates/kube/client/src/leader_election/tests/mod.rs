//! The protocol in a simulated world, step by step, and against a Lease.

mod lease;
mod simulation;
mod steps;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::*;

pub fn config(identity: &str) -> Config {
    Config::new("kube-system", "plimsoll-scheduler", identity)
}

pub fn spec(lease: &Lease) -> &LeaseSpec {
    lease.spec.as_ref().unwrap()
}

pub fn holder(lease: &Lease) -> &str {
    spec(lease).holder_identity.as_deref().unwrap_or_default()
}

/// The Lease in an API server: versions, and nothing else that matters here.
#[derive(Debug, Default)]
pub struct Server {
    pub lease: Option<Lease>,
    version: u64,
    pub gets: usize,
    pub puts: usize,
}

impl Server {
    pub fn answer(&mut self, action: &Action) -> Answer {
        match action {
            Action::Get => {
                self.gets += 1;
                match &self.lease {
                    Some(lease) => Answer::Lease(Box::new(lease.clone())),
                    None => Answer::NotFound,
                }
            }
            Action::Create(_) if self.lease.is_some() => Answer::Conflict,
            Action::Create(lease) => self.store(lease),
            Action::Put(lease) => {
                self.puts += 1;
                match &self.lease {
                    None => Answer::NotFound,
                    Some(current) => {
                        let same =
                            current.metadata.resource_version == lease.metadata.resource_version;
                        match same {
                            true => self.store(lease),
                            false => Answer::Conflict,
                        }
                    }
                }
            }
            Action::Sleep(_) | Action::End => panic!("not a request: {action:?}"),
        }
    }

    fn store(&mut self, lease: &Lease) -> Answer {
        self.version += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Answer::Lease(Box::new(lease))
    }

    /// Somebody changes it behind everybody's back.
    pub fn touch(&mut self, change: impl FnOnce(&mut Lease)) {
        let mut lease = self.lease.clone().unwrap();
        change(&mut lease);
        self.store(&lease);
    }
}

#[test]
fn parameters_that_will_not_do() {
    let check = |change: fn(&mut Config)| {
        let mut config = config("a");
        change(&mut config);
        config.check()
    };
    assert_eq!(check(|_| {}), Ok(()));
    let error = |change| check(change).unwrap_err().to_string();
    assert_eq!(
        error(|c| c.lease_duration = Duration::from_secs(10)),
        "leaseDuration must be greater than renewDeadline"
    );
    assert_eq!(
        error(|c| c.renew_deadline = Duration::from_millis(2400)),
        "renewDeadline must be greater than retryPeriod*JitterFactor"
    );
    assert_eq!(
        error(|c| c.retry_period = Duration::ZERO),
        "retryPeriod must be greater than zero"
    );
    assert_eq!(error(|c| c.identity.clear()), "Lock identity is empty");
    error(|c| c.name.clear());
    let (one, two) = (new_identity(), new_identity());
    assert!(one.contains('_') && one != two);
}
