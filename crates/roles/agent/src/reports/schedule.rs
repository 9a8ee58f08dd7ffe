//! When to report: regularly, and sooner when usage has moved.

use std::time::Duration;

use plimsoll_api::node_metric::CollectPolicy;
use plimsoll_client::rate_limiter::TokenBucket;
use plimsoll_predict::Amount;
use tokio::time::Instant;

/// Unless the manager says otherwise, and the least it can say.
const EVERY: Duration = Duration::from_secs(60);
const LEAST: Duration = Duration::from_secs(30);
/// However much moves: reports a second, and how many in a row.
const RATE: (f64, u32) = (0.1, 2);
/// Nodes that were started together should not report together: each interval is up to this share shorter.
const JITTER: f64 = 0.1;

#[derive(Debug)]
pub struct ReportSchedule {
    /// A report is sent early when usage has changed by more than this share of the node; 0: never.
    threshold: f64,
    bucket: TokenBucket,
    reported: Option<(Instant, Amount)>,
    shorter: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    Regular,
    Early,
}

impl ReportSchedule {
    pub fn new(threshold: f64) -> Self {
        Self {
            threshold,
            bucket: TokenBucket::new(RATE.0, RATE.1),
            reported: None,
            shorter: 0.0,
        }
    }

    /// Whether to report now that the node uses `usage` of `capacity`; if so, a report counts as begun.
    pub fn due(
        &mut self,
        now: Instant,
        interval: Duration,
        usage: Amount,
        capacity: Amount,
    ) -> Option<ReportKind> {
        let due = match self.reported {
            None => ReportKind::Regular,
            Some((at, _)) if now.duration_since(at) >= interval.mul_f64(1.0 - self.shorter) => {
                ReportKind::Regular
            }
            Some((_, reported)) if self.moved(reported, usage, capacity) => ReportKind::Early,
            Some(_) => return None,
        };
        self.bucket.try_take(now).then_some(due)
    }

    /// Forgets the last report, as after the object was deleted.
    pub fn reset(&mut self) {
        self.reported = None;
    }

    /// The report has reached the cluster.
    pub fn reported(&mut self, now: Instant, usage: Amount) {
        self.reported = Some((now, usage));
        self.shorter = fastrand::f64() * JITTER;
    }

    fn moved(&self, reported: Amount, usage: Amount, capacity: Amount) -> bool {
        let far = |reported: f64, now: f64, whole: f64| {
            whole > 0.0 && (reported - now).abs() > whole * self.threshold
        };
        self.threshold > 0.0
            && (far(reported.cpu, usage.cpu, capacity.cpu)
                || far(reported.memory, usage.memory, capacity.memory))
    }
}

pub fn interval(collect: &CollectPolicy) -> Duration {
    let seconds = collect.report_interval_seconds;
    let asked = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    asked.map_or(EVERY, |seconds| Duration::from_secs(seconds).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Amount = Amount {
        cpu: 10.0,
        memory: 1000.0,
    };

    fn used(cpu: f64, memory: f64) -> Amount {
        Amount { cpu, memory }
    }

    #[tokio::test(start_paused = true)]
    async fn regularly_and_early() {
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let mut schedule = ReportSchedule::new(0.05);
        let mut due = |seconds: u64, usage: Amount| {
            let found = schedule.due(after(seconds), EVERY, usage, NODE);
            if found.is_some() {
                schedule.reported(after(seconds), usage);
            }
            found
        };
        assert_eq!(due(0, used(1.0, 100.0)), Some(ReportKind::Regular));
        assert_eq!(due(30, used(1.4, 149.0)), None);
        assert_eq!(due(31, used(1.6, 100.0)), Some(ReportKind::Early));
        assert_eq!(due(33, used(1.6, 151.0)), Some(ReportKind::Early));
        // However much it moves, there is a limit to how often that is reported.
        assert_eq!(due(35, used(9.0, 900.0)), None);
        assert_eq!(due(42, used(9.0, 900.0)), Some(ReportKind::Early));
        assert_eq!(due(90, used(9.0, 900.0)), None);
        assert_eq!(due(103, used(9.0, 900.0)), Some(ReportKind::Regular));
        schedule.reset();
        let again = schedule.due(after(104), EVERY, used(9.0, 900.0), NODE);
        assert_eq!(again, Some(ReportKind::Regular));
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_failed_is_tried_again_within_the_rate() {
        let mut schedule = ReportSchedule::new(0.0);
        let start = Instant::now();
        let mut attempts = 0;
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            attempts += u32::from(schedule.due(now, EVERY, NODE, NODE).is_some());
        }
        assert!((10..=12).contains(&attempts), "{attempts}");
    }

    #[test]
    fn what_the_manager_asks_for() {
        let asked = |seconds| {
            interval(&CollectPolicy {
                report_interval_seconds: seconds,
                ..CollectPolicy::default()
            })
            .as_secs()
        };
        assert_eq!(
            (
                asked(None),
                asked(Some(120)),
                asked(Some(5)),
                asked(Some(-1))
            ),
            (60, 120, 30, 60)
        );
    }
}
