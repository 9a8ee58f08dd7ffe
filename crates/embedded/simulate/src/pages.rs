//! What the kubelets of simulated nodes would say: `/nodes/NAME/metrics/resource`, all on one loopback port.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use parking_lot::Mutex;
use plimsoll_api::node_metric::NodeMetricStatus;
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_client::reflector::Key;

use rustc_hash::FxHashMap;

use crate::nodes;
use crate::pods::BoundPod;
use crate::reports::{self, Amount};
use crate::usage::{Model, requested_by};

/// What a node uses beside its pods: cores, bytes.
const CPU_OF_NODE: f64 = 0.12;
const MEMORY_OF_NODE: u64 = 700 << 20;
/// Counters of nodes count from here.
const BEGINNING: Timestamp = Timestamp::constant(1_700_000_000, 0);

/// Where metrics-server looks for another path than a kubelet's.
pub const PATH_ANNOTATION: &str = "metrics.k8s.io/resource-metrics-path";

pub fn path(node: &str) -> String {
    format!("/nodes/{node}/metrics/resource")
}

/// Clones know the same.
#[derive(Debug, Clone)]
pub struct Pages {
    port: u16,
    clock: fn() -> Timestamp,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    nodes: FxHashMap<u32, Node>,
    /// On which node a pod is.
    places: FxHashMap<Key, u32>,
}

#[derive(Debug, Default)]
struct Node {
    pods: BTreeMap<Key, Runs>,
    /// Core-seconds of pods that have ended: counters do not fall.
    ended: f64,
}

#[derive(Debug)]
struct Runs {
    since: Timestamp,
    model: Model,
    containers: Vec<String>,
    classes: (PriorityClass, QosClass),
    request: Amount,
}

impl Pages {
    /// Takes a free port.
    pub async fn bind(
        clock: fn() -> Timestamp,
    ) -> Result<(Self, plimsoll_serving::Bound), plimsoll_serving::BindError> {
        let bound = plimsoll_serving::Config::loopback().bind().await?;
        let pages = Self {
            port: bound.local_addr().port(),
            clock,
            known: Arc::default(),
        };
        Ok((pages, bound))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn spawn(&self, bound: plimsoll_serving::Bound) -> plimsoll_serving::Serving {
        let pages = self.clone();
        bound.spawn(tower::service_fn(move |request: Request<_>| {
            let answer = pages.answer(&request);
            std::future::ready(Ok::<_, Infallible>(answer))
        }))
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let mut parts = request.uri().path().split('/').skip(1);
        let page = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("nodes"), Some(name), Some("metrics"), Some("resource")) => {
                nodes::index(name).map(|node| self.page(node))
            }
            _ => None,
        };
        let Some(page) = page else {
            let mut response = Response::new(Full::from("there is no such simulated node\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let mut response = Response::new(Full::from(page));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// A pod as it is now.
    pub fn see(&self, pod: &BoundPod, node: u32) {
        let key = Key::of(pod);
        let since = pod.status.start_time.as_ref().map(|time| time.0);
        let Some(since) = since.filter(|_| pod.status.phase == "Running") else {
            return self.forget(&key);
        };
        let mut known = self.known.lock();
        known.places.insert(key.clone(), node);
        let containers = pod.spec.containers.iter();
        let containers = containers.map(|container| container.name.clone()).collect();
        let runs = Runs {
            since,
            model: Model::of_bound(pod),
            containers,
            classes: pod.classes(),
            request: Amount {
                cpu: requested_by(pod, "cpu"),
                memory: requested_by(pod, "memory"),
            },
        };
        known.nodes.entry(node).or_default().pods.insert(key, runs);
    }

    /// It is gone, or does not run any more.
    pub fn forget(&self, key: &Key) {
        let mut known = self.known.lock();
        let Some(node) = known.places.remove(key) else {
            return;
        };
        if let Some(node) = known.nodes.get_mut(&node)
            && let Some(runs) = node.pods.remove(key)
        {
            node.ended += runs.model.usage(runs.since, (self.clock)()).cpu_seconds;
        }
    }

    /// What the node's agent would report.
    pub fn report(&self, node: u32) -> NodeMetricStatus {
        let now = (self.clock)();
        let known = self.known.lock();
        let runs = known.nodes.get(&node).into_iter().flat_map(|one| &one.pods);
        let pods = runs.map(|(key, runs)| reports::Pod {
            namespace: &key.namespace,
            name: &key.name,
            since: runs.since,
            model: &runs.model,
            priority: runs.classes.0,
            qos: runs.classes.1,
            request: runs.request,
        });
        let system = Amount {
            cpu: CPU_OF_NODE,
            memory: MEMORY_OF_NODE as f64,
        };
        reports::status(&pods.collect::<Vec<_>>(), system, now)
    }

    fn page(&self, node: u32) -> String {
        let now = (self.clock)();
        let at = now.as_millisecond();
        let known = self.known.lock();
        let nothing = Node::default();
        let node = known.nodes.get(&node).unwrap_or(&nothing);
        let run = now.duration_since(BEGINNING).as_secs_f64();
        let mut cpu_of_node = CPU_OF_NODE * run + node.ended;
        let mut memory_of_node = MEMORY_OF_NODE;
        let (mut cpu, mut memory, mut start) = (String::new(), String::new(), String::new());
        for (key, runs) in &node.pods {
            let used = runs.model.usage(runs.since, now);
            cpu_of_node += used.cpu_seconds;
            memory_of_node += used.memory_bytes;
            let share = runs.containers.len().max(1);
            let since = runs.since.as_millisecond() as f64 / 1e3;
            for container in &runs.containers {
                let namespace = &key.namespace;
                let whose = format!(
                    "{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{}\"}}",
                    key.name
                );
                let seconds = used.cpu_seconds / share as f64;
                let bytes = used.memory_bytes / share as u64;
                // Memory takes whatever is written.
                let _ = writeln!(
                    cpu,
                    "container_cpu_usage_seconds_total{whose} {seconds:.6} {at}"
                );
                let _ = writeln!(
                    memory,
                    "container_memory_working_set_bytes{whose} {bytes} {at}"
                );
                let _ = writeln!(start, "container_start_time_seconds{whose} {since}");
            }
        }
        format!(
            "# TYPE container_cpu_usage_seconds_total counter\n{cpu}\
             # TYPE container_memory_working_set_bytes gauge\n{memory}\
             # TYPE container_start_time_seconds gauge\n{start}\
             # TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total {cpu_of_node:.6} {at}\n\
             # TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes {memory_of_node} {at}\n\
             # TYPE resource_scrape_error gauge\nresource_scrape_error 0\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, phase: &str) -> BoundPod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name,
                "annotations": {crate::CPU: "200m", crate::MEMORY: "64Mi"}},
            "spec": {"nodeName": "sim-0001", "containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z"},
        }))
        .unwrap()
    }

    fn clock() -> Timestamp {
        "2026-01-01T00:00:10Z".parse().unwrap()
    }

    fn value(page: &str, series: &str) -> f64 {
        let line = page.lines().find(|line| line.starts_with(series)).unwrap();
        let value = line[series.len()..].split_whitespace().next().unwrap();
        value.parse().unwrap()
    }

    #[tokio::test]
    async fn a_node_tells_what_its_pods_use() {
        let (pages, _bound) = Pages::bind(clock).await.unwrap();
        let node = "node_cpu_usage_seconds_total";
        let idle = value(&pages.page(1), node);
        pages.see(&pod("p", "Running"), 1);
        let page = pages.page(1);
        let cpu = "container_cpu_usage_seconds_total{container=\"a\",namespace=\"ns\",pod=\"p\"}";
        assert!((value(&page, cpu) - 1.0).abs() < 1e-3, "{page}");
        let memory =
            "container_memory_working_set_bytes{container=\"b\",namespace=\"ns\",pod=\"p\"}";
        assert_eq!(value(&page, memory), f64::from(32 << 20));
        assert!((value(&page, node) - idle - 2.0).abs() < 1e-3);
        pages.see(&pod("p", "Succeeded"), 1);
        let page = pages.page(1);
        assert!(!page.contains("pod=\"p\""));
        assert!(
            (value(&page, node) - idle - 2.0).abs() < 1e-3,
            "no counter falls"
        );
    }

    #[tokio::test]
    async fn other_paths() {
        let (pages, _bound) = Pages::bind(clock).await.unwrap();
        for (target, expected) in [
            ("/nodes/sim-0001/metrics/resource", 200),
            ("/nodes/other/metrics/resource", 404),
            ("/metrics", 404),
        ] {
            let request = Request::get(target).body(()).unwrap();
            assert_eq!(pages.answer(&request).status(), expected, "{target}");
        }
    }
}
