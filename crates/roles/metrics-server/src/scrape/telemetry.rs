//! How scraping goes, for the server's own metrics and health.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_metrics::Histogram;
use tokio::time::Instant;

/// Seconds; what Prometheus' clients have by default.
const REQUEST_BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Why a scrape came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The node has no address of the wanted types.
    Address,
    /// Nobody listens there, the name is unknown, the way is blocked.
    Connect,
    Tls,
    Timeout,
    /// The connection broke in the middle, or what came was no HTTP.
    Protocol,
    /// Answered, but not with 200.
    Status,
    TooLarge,
    /// The page is no exposition text.
    Malformed,
    /// Our own credentials cannot be had.
    Credentials,
}

impl Reason {
    pub const ALL: [Self; 9] = [
        Self::Address,
        Self::Connect,
        Self::Tls,
        Self::Timeout,
        Self::Protocol,
        Self::Status,
        Self::TooLarge,
        Self::Malformed,
        Self::Credentials,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Credentials => "credentials",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub succeeded: u64,
    pub failed: u64,
    /// Series of good pages that were passed over because they lack the labels that say whose they are.
    pub unlabelled: u64,
}

/// Clones tell the same.
#[derive(Debug, Clone)]
pub struct Telemetry(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    resolution: Duration,
    request_bounds: Arc<[f64]>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    nodes: BTreeMap<Arc<str>, Requests>,
    totals: Totals,
    failures: [u64; Reason::ALL.len()],
    ticks: Histogram,
    /// When the oldest scrape was due that has not ended; `None`: all that were due have.
    behind_since: Option<Instant>,
    /// When whoever starts scrapes was last seen at work; `None`: it has not begun.
    turned: Option<Instant>,
}

#[derive(Debug)]
struct Requests {
    durations: Histogram,
    last: f64,
}

impl Telemetry {
    pub fn new(resolution: Duration) -> Self {
        let ticks = Histogram::new(tick_bounds(resolution));
        let state = State {
            nodes: BTreeMap::new(),
            totals: Totals::default(),
            failures: Default::default(),
            ticks,
            behind_since: None,
            turned: None,
        };
        Self(Arc::new(Shared {
            resolution,
            request_bounds: REQUEST_BOUNDS.into(),
            state: Mutex::new(state),
        }))
    }

    /// A scrape has ended. `at` is in seconds since the epoch.
    pub fn ended(&self, node: &Arc<str>, took: Duration, at: f64, outcome: Result<u64, Reason>) {
        let mut state = self.0.state.lock();
        match outcome {
            Ok(unlabelled) => {
                state.totals.succeeded += 1;
                state.totals.unlabelled += unlabelled;
            }
            Err(reason) => {
                state.totals.failed += 1;
                state.failures[reason as usize] += 1;
            }
        }
        let bounds = &self.0.request_bounds;
        let requests = state
            .nodes
            .entry(Arc::clone(node))
            .or_insert_with(|| Requests {
                durations: Histogram::new(Arc::clone(bounds)),
                last: 0.0,
            });
        requests.durations.observe(took.as_secs_f64());
        requests.last = at;
    }

    /// The node is gone, and so are its series.
    pub fn forget(&self, node: &str) {
        self.0.state.lock().nodes.remove(node);
    }

    /// Every node had its turn; the slowest took so long from when it was due.
    pub fn round(&self, took: Duration) {
        self.0.state.lock().ticks.observe(took.as_secs_f64());
    }

    /// Whoever starts scrapes is at work.
    pub fn turn(&self, now: Instant, behind_since: Option<Instant>) {
        let mut state = self.0.state.lock();
        state.turned = Some(now);
        state.behind_since = behind_since;
    }

    /// Are figures collected as often as they should be? That kubelets do not answer is not what is asked here: a
    /// scrape that failed has ended.
    pub fn is_timely(&self, now: Instant) -> bool {
        let late = self.0.resolution * 3 / 2;
        let state = self.0.state.lock();
        let within = |since: Instant| now.saturating_duration_since(since) <= late;
        state.turned.is_none_or(within) && state.behind_since.is_none_or(within)
    }

    pub fn totals(&self) -> Totals {
        self.0.state.lock().totals
    }

    pub fn failures(&self) -> impl Iterator<Item = (Reason, u64)> + use<> {
        let counts = self.0.state.lock().failures;
        std::iter::zip(Reason::ALL, counts)
    }

    pub fn ticks(&self) -> Histogram {
        self.0.state.lock().ticks.clone()
    }

    /// Each node that was asked: how long its requests took, and when the last one ended in seconds since the epoch.
    pub fn visit_nodes(&self, show: &mut dyn FnMut(&str, &Histogram, f64)) {
        for (name, requests) in &self.0.state.lock().nodes {
            show(name, &requests.durations, requests.last);
        }
    }
}

/// The usual bounds and some around the resolution, where a round becomes too long.
fn tick_bounds(resolution: Duration) -> Arc<[f64]> {
    let resolution = resolution.as_secs_f64();
    let mut bounds = REQUEST_BOUNDS.to_vec();
    if resolution > 10.0 {
        let half_way = 10.0 + (resolution - 10.0) / 2.0;
        bounds.extend([half_way, resolution, 1.5 * resolution, 2.0 * resolution]);
    }
    bounds.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOLUTION: Duration = Duration::from_secs(15);

    #[test]
    fn bounds_of_rounds_follow_the_resolution() {
        let last_four = |seconds| {
            let bounds = tick_bounds(Duration::from_secs(seconds));
            bounds[bounds.len() - 4..].to_vec()
        };
        assert_eq!(last_four(15), [12.5, 15.0, 22.5, 30.0]);
        assert_eq!(last_four(60), [35.0, 60.0, 90.0, 120.0]);
        assert_eq!(last_four(10), [1.0, 2.5, 5.0, 10.0]);
    }

    #[test]
    fn a_histogram_counts_up_to_and_including_its_bounds() {
        let mut histogram = Histogram::new([1.0, 2.0].into());
        for value in [0.5, 1.0, 1.5, 2.5] {
            histogram.observe(value);
        }
        assert_eq!(
            histogram.cumulative().collect::<Vec<_>>(),
            [(1.0, 2), (2.0, 3)]
        );
        assert_eq!((histogram.count(), histogram.sum()), (4, 5.5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_counted_of_scrapes() {
        let telemetry = Telemetry::new(RESOLUTION);
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        telemetry.ended(&a, Duration::from_millis(20), 1.0, Ok(3));
        telemetry.ended(&b, Duration::from_secs(10), 2.0, Err(Reason::Timeout));
        telemetry.forget("a");
        let mut seen = Vec::new();
        telemetry.visit_nodes(&mut |name, durations, last| {
            seen.push((name.to_owned(), durations.count(), last));
        });
        assert_eq!(seen, [("b".to_owned(), 1, 2.0)]);
        let totals = telemetry.totals();
        assert_eq!(
            (totals.succeeded, totals.failed, totals.unlabelled),
            (1, 1, 3)
        );
        let failures = telemetry.failures().filter(|(_, count)| *count > 0);
        assert_eq!(failures.collect::<Vec<_>>(), [(Reason::Timeout, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn late_is_who_stands_still_or_falls_behind() {
        let telemetry = Telemetry::new(RESOLUTION);
        let began = Instant::now();
        let timely = |tenths: u64| telemetry.is_timely(began + Duration::from_millis(tenths * 100));
        assert!(timely(10_000), "nothing was begun");
        telemetry.turn(began, None);
        assert!(timely(225) && !timely(226));
        telemetry.turn(began + Duration::from_secs(20), Some(began));
        assert!(!timely(226), "a scrape that was due does not end");
        telemetry.turn(began + Duration::from_secs(20), None);
        assert!(timely(226));
    }
}
