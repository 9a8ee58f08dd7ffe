//! Metrics of repeated background work, with the names of client-go's work queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use plimsoll_metrics::{Exposition, Histogram};

/// Ten nanoseconds to ten seconds, as Go's arithmetic has them.
const BOUNDS: [f64; 10] = [
    1e-8,
    1e-7,
    1e-6,
    9.999999999999999e-6,
    9.999999999999999e-5,
    1e-3,
    1e-2,
    0.1,
    1.0,
    10.0,
];

/// Clones count the same.
#[derive(Debug, Clone)]
pub struct WorkqueueMetrics(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    name: &'static str,
    done: Mutex<Done>,
    under_way: AtomicI64,
}

#[derive(Debug)]
struct Done {
    took: Histogram,
    waited: Histogram,
    again: u64,
    since: Option<Instant>,
}

impl WorkqueueMetrics {
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Counts {
            name,
            done: Mutex::new(Done {
                took: Histogram::new(BOUNDS.into()),
                waited: Histogram::new(BOUNDS.into()),
                again: 0,
                since: None,
            }),
            under_way: AtomicI64::new(0),
        }))
    }

    /// Does it, and counts it. What fails is done again.
    pub fn run<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let began = Instant::now();
        self.0.done.lock().since = Some(began);
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        let outcome = work();
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        let mut done = self.0.done.lock();
        done.since = None;
        done.took.observe(began.elapsed().as_secs_f64());
        // What there is to do is done at once.
        done.waited.observe(0.0);
        done.again += u64::from(outcome.is_err());
        outcome
    }

    /// All of them, family by family.
    pub fn write_all(works: &[Self], page: &mut Exposition) {
        let mut gauge = |name: &str, kind: &str, help: &str, of: &dyn Fn(&Counts) -> f64| {
            page.family(name, kind, help);
            for Self(counts) in works {
                page.sample(name, &[("name", counts.name)], of(counts));
            }
        };
        gauge(
            "workqueue_adds_total",
            "counter",
            "[BETA] Times that there was something to do.",
            &|counts| counts.done.lock().took.count() as f64,
        );
        gauge(
            "workqueue_depth",
            "gauge",
            "[BETA] What is to be done.",
            &|counts| counts.under_way.load(Ordering::Relaxed) as f64,
        );
        let running = |counts: &Counts| {
            let since = counts.done.lock().since;
            since.map_or(0.0, |since| since.elapsed().as_secs_f64())
        };
        gauge(
            "workqueue_longest_running_processor_seconds",
            "gauge",
            "[BETA] How long what is being done has taken so far.",
            &running,
        );
        gauge(
            "workqueue_retries_total",
            "counter",
            "[BETA] Times that something has to be done again.",
            &|counts| counts.done.lock().again as f64,
        );
        gauge(
            "workqueue_unfinished_work_seconds",
            "gauge",
            "[BETA] How long everything that is being done has taken so far.",
            &running,
        );
        let name = "workqueue_queue_duration_seconds";
        page.family(
            name,
            "histogram",
            "[BETA] Time that things waited to be done.",
        );
        for Self(counts) in works {
            page.histogram(name, &[("name", counts.name)], &counts.done.lock().waited);
        }
        let name = "workqueue_work_duration_seconds";
        page.family(
            name,
            "histogram",
            "[BETA] Time that things took to be done.",
        );
        for Self(counts) in works {
            page.histogram(name, &[("name", counts.name)], &counts.done.lock().took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done() {
        let work = WorkqueueMetrics::new("w");
        work.run(|| Ok::<_, ()>(())).unwrap();
        work.run(|| Err::<(), _>(())).unwrap_err();
        let mut page = Exposition::default();
        WorkqueueMetrics::write_all(&[work], &mut page);
        let page = page.finish();
        for line in [
            "workqueue_adds_total{name=\"w\"} 2\n",
            "workqueue_depth{name=\"w\"} 0\n",
            "workqueue_retries_total{name=\"w\"} 1\n",
            "workqueue_queue_duration_seconds_bucket{name=\"w\",le=\"9.999999999999999e-06\"} 2\n",
            "workqueue_work_duration_seconds_count{name=\"w\"} 2\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
