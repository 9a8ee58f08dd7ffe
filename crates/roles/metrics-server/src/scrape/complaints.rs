//! What is said of scrapes that fail: enough to act on, and not every time.

use std::collections::HashMap;

use parking_lot::Mutex;
use plimsoll_waiting::Episode;
use tokio::time::Instant;

use super::fault::Fault;
use super::telemetry::Reason;

/// Of failures for the same reason one is told, and again at growing intervals.
#[derive(Debug)]
pub(super) struct Complaints {
    began: Instant,
    told: Mutex<HashMap<Reason, Episode>>,
}

impl Default for Complaints {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            told: Mutex::default(),
        }
    }
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
        let now = now.saturating_duration_since(self.began);
        let mut told = self.told.lock();
        let said = told.entry(reason).or_default().failed(now)?;
        Some(said.times - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_of_many() {
        let complaints = Complaints::default();
        let began = Instant::now();
        let tells =
            |reason, seconds| complaints.tells(reason, began + Duration::from_secs(seconds));
        assert_eq!(tells(Reason::Tls, 0), Some(0));
        assert_eq!(tells(Reason::Tls, 1), None);
        assert_eq!(tells(Reason::Tls, 9), None);
        assert_eq!(tells(Reason::Timeout, 9), Some(0));
        assert_eq!(tells(Reason::Tls, 10), Some(2));
        assert_eq!(tells(Reason::Tls, 39), None);
        assert_eq!(tells(Reason::Tls, 40), Some(1));
        // After a calm it is news.
        assert_eq!(tells(Reason::Tls, 400), Some(0));
    }
}
