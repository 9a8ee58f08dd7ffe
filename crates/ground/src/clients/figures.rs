//! How often the API server was asked what, how it answered, and how long that took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::metrics::{Histogram, Page};

const BOUNDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Counts of requests; clones count together.
#[derive(Debug, Clone, Default)]
pub struct RequestFigures(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// By method and status; `<error>` where there was no answer.
    answers: BTreeMap<(String, String), u64>,
    /// By method, until the answer begins.
    times: BTreeMap<String, Histogram>,
}

impl RequestFigures {
    pub fn count(&self, method: &str, status: Option<u16>, took: Duration) {
        let status = status.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let mut counts = self.0.lock();
        *counts
            .answers
            .entry((method.to_owned(), status))
            .or_default() += 1;
        counts
            .times
            .entry(method.to_owned())
            .or_insert_with(|| Histogram::new(BOUNDS.into()))
            .observe(took.as_secs_f64());
    }

    /// `host`: where the API server is, with its port.
    pub fn write(&self, page: &mut Page, host: &str) {
        let counts = self.0.lock();
        let name = "rest_client_request_duration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] Time until the API server began to answer, by method.",
        );
        for (method, histogram) in &counts.times {
            page.histogram(name, &[("host", host), ("verb", method)], histogram);
        }
        let name = "rest_client_requests_total";
        page.family(
            name,
            "counter",
            "[ALPHA] Requests to the API server, by method and status.",
        );
        for ((method, status), number) in &counts.answers {
            let labels = [
                ("code", status.as_str()),
                ("host", host),
                ("method", method),
            ];
            page.sample(name, &labels, *number as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told() {
        let figures = RequestFigures::default();
        figures.count("GET", Some(200), Duration::from_millis(20));
        figures.clone().count("GET", None, Duration::from_secs(90));
        let mut page = Page::default();
        figures.write(&mut page, "k:6443");
        let page = page.finish();
        for line in [
            "rest_client_requests_total{code=\"200\",host=\"k:6443\",method=\"GET\"} 1\n",
            "rest_client_requests_total{code=\"<error>\",host=\"k:6443\",method=\"GET\"} 1\n",
            "rest_client_request_duration_seconds_bucket{host=\"k:6443\",verb=\"GET\",le=\"0.025\"} 1\n",
            "rest_client_request_duration_seconds_bucket{host=\"k:6443\",verb=\"GET\",le=\"60\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}
