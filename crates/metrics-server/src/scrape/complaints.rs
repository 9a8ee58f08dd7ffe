//! What is said of scrapes that fail: enough to act on, and not every time.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::fault::Fault;
use super::telemetry::Reason;

/// Of failures for the same reason one is told so often.
const TELL_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<HashMap<Reason, Told>>);

#[derive(Debug)]
struct Told {
    at: Instant,
    /// Not told since.
    kept: u64,
}

impl Complaints {
    pub fn hear(&self, node: &str, ready: bool, fault: &Fault, now: Instant) {
        // Nobody is surprised by a node that is known to be down.
        if !ready {
            tracing::debug!(
                node,
                fault = fault.text(),
                "failed to scrape node that is not ready"
            );
            return;
        }
        let Some(kept) = self.tells(fault.reason(), now) else {
            tracing::debug!(node, fault = fault.text(), "failed to scrape node");
            return;
        };
        let reason = fault.reason().as_str();
        let (fault, advice) = (fault.text(), fault.advice());
        match kept {
            0 => tracing::warn!(node, reason, fault, advice, "failed to scrape node"),
            others => tracing::warn!(
                node,
                reason,
                fault,
                advice,
                others,
                "failed to scrape node, and others for the same reason"
            ),
        }
    }

    /// Whether to tell, and how many were not told before.
    fn tells(&self, reason: Reason, now: Instant) -> Option<u64> {
        let mut told = self.0.lock();
        match told.get_mut(&reason) {
            Some(told) if now.saturating_duration_since(told.at) < TELL_EVERY => {
                told.kept += 1;
                None
            }
            Some(told) => {
                told.at = now;
                Some(std::mem::take(&mut told.kept))
            }
            None => {
                told.insert(reason, Told { at: now, kept: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_of_many() {
        let complaints = Complaints::default();
        let began = Instant::now();
        let tells =
            |reason, seconds| complaints.tells(reason, began + Duration::from_secs(seconds));
        assert_eq!(tells(Reason::Tls, 0), Some(0));
        assert_eq!(tells(Reason::Tls, 1), None);
        assert_eq!(tells(Reason::Tls, 29), None);
        assert_eq!(tells(Reason::Timeout, 29), Some(0));
        assert_eq!(tells(Reason::Tls, 30), Some(2));
        assert_eq!(tells(Reason::Tls, 61), Some(0));
    }
}
