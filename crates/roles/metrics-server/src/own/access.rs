//! Who was let in, and how long it took to find out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_serving::auth::Refusal;

use plimsoll_metrics::{Exposition, Histogram};

/// Doubling from a millisecond to 16 seconds.
const BOUNDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

/// Clones count the same.
#[derive(Debug, Clone, Default)]
pub struct AccessCounts(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    authentication: BTreeMap<&'static str, Histogram>,
    authorization: BTreeMap<&'static str, Histogram>,
    users: BTreeMap<&'static str, u64>,
}

impl AccessCounts {
    /// It was found out who asks, or was not.
    pub fn identified(&self, outcome: Result<&str, &Refusal>, took: Duration) {
        let mut counts = self.0.lock();
        let result = match outcome {
            // Whoever may not act as somebody else is still somebody.
            Ok(_) | Err(Refusal::Forbidden { .. } | Refusal::BadRequest(_)) => "success",
            Err(_) => "error",
        };
        observe(&mut counts.authentication, result, took);
        if let Ok(user) = outcome {
            *counts.users.entry(shortened(user)).or_default() += 1;
        }
    }

    /// It was decided whether they may.
    pub fn judged(&self, outcome: Result<(), &Refusal>, took: Duration) {
        let result = match outcome {
            Ok(()) => "allowed",
            Err(Refusal::Forbidden { .. }) => "no-opinion",
            Err(_) => "error",
        };
        let mut counts = self.0.lock();
        observe(&mut counts.authorization, result, took);
    }

    pub fn write(&self, page: &mut Exposition) {
        let counts = self.0.lock();
        if !counts.users.is_empty() {
            let name = "authenticated_user_requests";
            page.family(name, "counter", "[ALPHA] Requests by who sent them.");
            for (user, count) in &counts.users {
                page.sample(name, &[("username", user)], *count as f64);
            }
        }
        let kinds = [
            (
                &counts.authentication,
                "authentication_attempts",
                "authentication_duration_seconds",
                "finding out who asks",
            ),
            (
                &counts.authorization,
                "authorization_attempts_total",
                "authorization_duration_seconds",
                "deciding whether they may",
            ),
        ];
        for (results, total, duration, what) in kinds {
            if results.is_empty() {
                continue;
            }
            page.family(
                total,
                "counter",
                &format!("[ALPHA] Times of {what}, by what came of it."),
            );
            for (result, histogram) in results {
                page.sample(total, &[("result", result)], histogram.count() as f64);
            }
            page.family(
                duration,
                "histogram",
                &format!("[ALPHA] Time that {what} took."),
            );
            for (result, histogram) in results {
                page.histogram(duration, &[("result", result)], histogram);
            }
        }
    }
}

fn observe(into: &mut BTreeMap<&'static str, Histogram>, result: &'static str, took: Duration) {
    into.entry(result)
        .or_insert_with(|| Histogram::new(BOUNDS.into()))
        .observe(took.as_secs_f64());
}

/// There are few of them, whoever asks.
fn shortened(user: &str) -> &'static str {
    match user {
        "admin" => "admin",
        "client" => "client",
        "kube_proxy" => "kube_proxy",
        "kubelet" => "kubelet",
        "system:serviceaccount:kube-system:default" => "system:serviceaccount:kube-system:default",
        user if user.contains('@') => "email_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted() {
        let counts = AccessCounts::default();
        let mut page = Exposition::default();
        counts.write(&mut page);
        assert_eq!(page.finish(), "");
        counts.identified(Ok("admin"), Duration::from_millis(3));
        counts.identified(Ok("jane@example.com"), Duration::ZERO);
        let refusal = Refusal::BadRequest(String::new());
        counts.identified(Err(&refusal), Duration::ZERO);
        counts.judged(Ok(()), Duration::from_secs(20));
        counts.judged(Err(&refusal), Duration::ZERO);
        let mut page = Exposition::default();
        counts.write(&mut page);
        let page = page.finish();
        for line in [
            "authenticated_user_requests{username=\"admin\"} 1\n",
            "authenticated_user_requests{username=\"email_id\"} 1\n",
            "authentication_attempts{result=\"success\"} 3\n",
            "authentication_duration_seconds_bucket{result=\"success\",le=\"0.002\"} 2\n",
            "authorization_attempts_total{result=\"allowed\"} 1\n",
            "authorization_attempts_total{result=\"error\"} 1\n",
            "authorization_duration_seconds_bucket{result=\"allowed\",le=\"16.384\"} 0\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
