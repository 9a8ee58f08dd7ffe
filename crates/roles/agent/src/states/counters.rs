//! How following the cluster goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_metrics::{Exposition, Histogram};

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    /// Answers of the kubelet.
    pub pod_lists: Counter,
    pub pod_list_failures: Counter,
    pub kubelet_settings_failures: Counter,
    pub volume_failures: Counter,
    /// To the kubelet.
    pub requests: Requests,
}

/// How long requests took, by path and by what was answered.
#[derive(Debug, Default)]
pub struct Requests(Mutex<BTreeMap<(&'static str, String), Histogram>>);

impl Requests {
    /// `code` is empty where nobody answered.
    pub(super) fn took(&self, path: &'static str, code: &str, time: Duration) {
        // As Koordinator's agent counts them: from a millisecond on, each four times the last.
        let bounds = || Arc::from([0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096]);
        let mut requests = self.0.lock();
        let of = requests.entry((path, code.to_owned()));
        of.or_insert_with(|| Histogram::new(bounds()))
            .observe(time.as_secs_f64());
    }

    /// Koordinator's family of it; empty where nothing was asked.
    pub fn page(&self) -> String {
        let requests = self.0.lock();
        let mut page = Exposition::default();
        if !requests.is_empty() {
            let name = "koordlet_kubelet_request_duration_seconds";
            page.family(name, "histogram", "How long the kubelet took to answer.");
            for ((path, code), histogram) in &*requests {
                let labels = [("code", code.as_str()), ("path", path), ("verb", "get")];
                page.histogram(name, &labels, histogram);
            }
        }
        page.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_by_what_was_answered() {
        let requests = Requests::default();
        assert_eq!(requests.page(), "");
        requests.took("/pods/", "200", Duration::from_millis(3));
        requests.took("/pods/", "200", Duration::from_secs(9));
        requests.took("/configz", "403", Duration::from_millis(1));
        let page = requests.page();
        for line in [
            "# TYPE koordlet_kubelet_request_duration_seconds histogram",
            r#"koordlet_kubelet_request_duration_seconds_bucket{code="200",path="/pods/",verb="get",le="0.001"} 0"#,
            r#"koordlet_kubelet_request_duration_seconds_bucket{code="200",path="/pods/",verb="get",le="0.004"} 1"#,
            r#"koordlet_kubelet_request_duration_seconds_bucket{code="200",path="/pods/",verb="get",le="+Inf"} 2"#,
            r#"koordlet_kubelet_request_duration_seconds_count{code="403",path="/configz",verb="get"} 1"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }
}
