//! How requests were answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_apimachinery::kept::Keepsake;
use plimsoll_metrics::{Exposition, Histogram};

const BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Bytes.
const SIZES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// How many of the smallest bounds the shorter list leaves out.
const TOO_FINE: usize = 2;

/// What a request was, as far as it is counted by. Nothing of it is a client's to choose freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    pub component: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub scope: &'static str,
    pub verb: &'static str,
}

/// Clones count the same.
#[derive(Debug, Clone, Default)]
pub struct Requests(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    answered: Mutex<Answered>,
    read_only: AtomicI64,
    mutating: AtomicI64,
}

#[derive(Debug, Default)]
struct Answered {
    totals: BTreeMap<(Labels, u16), u64>,
    durations: BTreeMap<Labels, Histogram>,
    /// The same, where it is held against an objective.
    coarse: BTreeMap<Labels, Histogram>,
    sizes: BTreeMap<Labels, Histogram>,
    /// Those who were sent away to protect the rest, by what they were told.
    terminated: BTreeMap<(Labels, u16), u64>,
    /// Those of them whose time was up; whoever worked for them has stopped.
    too_late: u64,
}

/// Counts as being answered as long as it lives.
#[derive(Debug)]
pub struct UnderWay {
    requests: Requests,
    mutating: bool,
    labels: Option<Labels>,
}

impl UnderWay {
    pub fn is(&mut self, labels: Labels) {
        self.labels = Some(labels);
    }
}

impl Keepsake for UnderWay {
    /// Sizes are of interest where something is read.
    fn ends(&mut self, sent: u64) {
        let reads = |labels: &Labels| matches!(labels.verb, "GET" | "LIST");
        let Some(labels) = self.labels.filter(reads) else {
            return;
        };
        let mut answered = self.requests.0.answered.lock();
        let sizes = answered.sizes.entry(labels);
        sizes
            .or_insert_with(|| Histogram::new(SIZES.into()))
            .observe(sent as f64);
    }
}

impl Requests {
    pub fn begin(&self, mutating: bool) -> UnderWay {
        self.gauge(mutating).fetch_add(1, Ordering::Relaxed);
        UnderWay {
            requests: self.clone(),
            mutating,
            labels: None,
        }
    }

    fn gauge(&self, mutating: bool) -> &AtomicI64 {
        match mutating {
            true => &self.0.mutating,
            false => &self.0.read_only,
        }
    }

    pub fn answered(&self, labels: Labels, code: u16, took: Duration) {
        let mut answered = self.0.answered.lock();
        *answered.totals.entry((labels, code)).or_default() += 1;
        answered
            .durations
            .entry(labels)
            .or_insert_with(|| Histogram::new(BOUNDS.into()))
            .observe(took.as_secs_f64());
        // Nobody promises anything for a watch. That of a single object is none.
        if labels.verb == "WATCH" && labels.scope != "resource" {
            return;
        }
        answered
            .coarse
            .entry(labels)
            .or_insert_with(|| Histogram::new(BOUNDS[TOO_FINE..].into()))
            .observe(took.as_secs_f64());
    }

    /// Its time was up. It is no answered request, whatever was said to the client.
    pub fn too_late(&self, labels: Labels, code: u16) {
        self.0.answered.lock().too_late += 1;
        self.terminated(labels, code);
    }

    /// It was cut short for the sake of others.
    pub fn terminated(&self, labels: Labels, code: u16) {
        // By the server, whatever it was on its way to.
        let labels = Labels {
            component: "apiserver",
            ..labels
        };
        let mut answered = self.0.answered.lock();
        *answered.terminated.entry((labels, code)).or_default() += 1;
    }

    pub fn write(&self, page: &mut Exposition) {
        let name = "apiserver_current_inflight_requests";
        page.family(name, "gauge", "[STABLE] Requests that are being answered.");
        for (kind, mutating) in [("mutating", true), ("readOnly", false)] {
            let count = self.gauge(mutating).load(Ordering::Relaxed);
            page.sample(name, &[("request_kind", kind)], count as f64);
        }
        let answered = self.0.answered.lock();
        let name = "apiserver_request_duration_seconds";
        page.family(
            name,
            "histogram",
            "[STABLE] Time until an answer began, by what was asked for.",
        );
        for (labels, histogram) in &answered.durations {
            page.histogram(name, &labels.pairs(), histogram);
        }
        // The second is its old name.
        for name in [
            "apiserver_request_sli_duration_seconds",
            "apiserver_request_slo_duration_seconds",
        ] {
            page.family(
                name,
                "histogram",
                "[ALPHA] Time until an answer began, to be held against an objective.",
            );
            for (labels, histogram) in &answered.coarse {
                page.histogram(name, &labels.pairs_of_reads(), histogram);
            }
        }
        if !answered.sizes.is_empty() {
            let name = "apiserver_response_sizes";
            page.family(
                name,
                "histogram",
                "[STABLE] Bytes of answers to those who read, by what was asked for.",
            );
            for (labels, histogram) in &answered.sizes {
                page.histogram(name, &labels.pairs_of_reads(), histogram);
            }
        }
        if answered.too_late > 0 {
            let name = "apiserver_request_post_timeout_total";
            let help = "[ALPHA] What became of the work for requests whose time was up.";
            page.family(name, "counter", help);
            let labels = [("source", "timeout-handler"), ("status", "ok")];
            page.sample(name, &labels, answered.too_late as f64);
        }
        if !answered.terminated.is_empty() {
            let name = "apiserver_request_terminations_total";
            let help = "[ALPHA] Requests that were cut short for the sake of others.";
            page.family(name, "counter", help);
            for ((labels, code), count) in &answered.terminated {
                write_by_code(page, name, *code, &labels.pairs_of_reads(), *count);
            }
        }
        let name = "apiserver_request_total";
        page.family(
            name,
            "counter",
            "[STABLE] Requests, by what was asked for and the status of the answer.",
        );
        for ((labels, code), count) in &answered.totals {
            write_by_code(page, name, *code, &labels.pairs(), *count);
        }
    }
}

fn write_by_code(
    page: &mut Exposition,
    name: &str,
    code: u16,
    labels: &[(&str, &str)],
    count: u64,
) {
    let code = code.to_string();
    let mut pairs = vec![("code", code.as_str())];
    pairs.extend_from_slice(labels);
    page.sample(name, &pairs, count as f64);
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let gauge = self.requests.gauge(self.mutating);
        gauge.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Labels {
    /// Whoever reads changes nothing, not even for a try.
    fn pairs_of_reads(&self) -> Vec<(&'static str, &'static str)> {
        let pairs = self.pairs().into_iter();
        pairs.filter(|(key, _)| *key != "dry_run").collect()
    }

    fn pairs(&self) -> [(&'static str, &'static str); 8] {
        [
            ("component", self.component),
            ("dry_run", ""),
            ("group", self.group),
            ("resource", self.resource),
            ("scope", self.scope),
            ("subresource", self.subresource),
            ("verb", self.verb),
            ("version", self.version),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered() {
        let requests = Requests::default();
        let labels = Labels {
            component: "apiserver",
            group: "metrics.k8s.io",
            version: "v1beta1",
            resource: "nodes",
            subresource: "",
            scope: "cluster",
            verb: "LIST",
        };
        let mut under_way = requests.begin(false);
        requests.answered(labels, 200, Duration::from_millis(3));
        requests.answered(labels, 404, Duration::from_secs(70));
        let mut page = Exposition::default();
        requests.write(&mut page);
        let page = page.finish();
        for line in [
            "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1\n",
            "apiserver_request_total{code=\"404\",component=\"apiserver\",dry_run=\"\",group=\"metrics.k8s.io\",resource=\"nodes\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1beta1\"} 1\n",
            "apiserver_request_sli_duration_seconds_bucket{component=\"apiserver\",group=\"metrics.k8s.io\",resource=\"nodes\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1beta1\",le=\"0.05\"} 1\n",
            "version=\"v1beta1\",le=\"60\"} 1\n",
            "version=\"v1beta1\",le=\"+Inf\"} 2\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        let watch = Labels {
            verb: "WATCH",
            ..labels
        };
        requests.answered(watch, 405, Duration::from_millis(3));
        let probe = Labels {
            component: "",
            subresource: "/healthz",
            ..labels
        };
        requests.terminated(probe, 429);
        requests.too_late(labels, 504);
        under_way.is(labels);
        under_way.ends(2500);
        drop(under_way);
        let mut page = Exposition::default();
        requests.write(&mut page);
        let page = page.finish();
        for line in [
            "{request_kind=\"readOnly\"} 0\n",
            "apiserver_request_post_timeout_total{source=\"timeout-handler\",status=\"ok\"} 1\n",
            "apiserver_request_terminations_total{code=\"504\",component=\"apiserver\",group=\"metrics.k8s.io\",resource=\"nodes\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1beta1\"} 1\n",
            "apiserver_response_sizes_bucket{component=\"apiserver\",group=\"metrics.k8s.io\",resource=\"nodes\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1beta1\",le=\"10000\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        let watches: Vec<&str> = page.lines().filter(|line| line.contains("WATCH")).collect();
        assert!(watches.iter().all(|line| !line.contains("_sli_")), "{page}");
        assert!(
            watches
                .iter()
                .any(|line| line.starts_with("apiserver_request_duration_"))
        );
        let probe = "apiserver_request_terminations_total{code=\"429\",component=\"apiserver\"";
        assert!(page.contains(probe), "{page}");
    }
}
