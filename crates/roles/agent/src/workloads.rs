//! Makes the plain values that the usage history takes from `ClusterState`.

use std::sync::Arc;

use plimsoll_api::names::BATCH_CPU;
use plimsoll_api::quantity::Quantity;
use plimsoll_history::{HostApplication, Pod, Workloads};
use plimsoll_predict::Amount;

use crate::states::{ClusterState, ClusterStateCell, Node, NodeSlo};

/// A static pod's cgroup goes by the hash of its manifest, the cluster's copy of it by a UID of its own.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// The value of `allocatable` before a webhook amplified it.
const RAW_ALLOCATABLE: &str = "node.koordinator.sh/raw-allocatable";

/// Reads a [`ClusterStateCell`]. Unchanged lists are shared, not made again.
#[derive(Debug)]
pub struct WorkloadsSource {
    cluster_state: ClusterStateCell,
    pods: Option<Arc<[crate::states::Pod]>>,
    slo: Option<Arc<NodeSlo>>,
    node: Option<Arc<Node>>,
    made: Workloads,
}

impl WorkloadsSource {
    pub fn new(cluster_state: ClusterStateCell) -> Self {
        Self {
            cluster_state,
            pods: None,
            slo: None,
            node: None,
            made: Workloads::default(),
        }
    }

    pub fn current(&mut self) -> Workloads {
        let cluster = self.cluster_state.current();
        if !same(self.pods.as_ref(), cluster.pods.as_ref()) {
            self.made.pods = pods(&cluster);
            self.pods.clone_from(&cluster.pods);
        }
        if !same(self.slo.as_ref(), Some(&cluster.node_slo)) {
            self.made.host_applications = host_applications(&cluster);
            self.slo = Some(cluster.node_slo);
        }
        if !same(self.node.as_ref(), cluster.node.as_ref()) {
            self.made.allocatable = cluster.node.as_deref().and_then(allocatable);
            self.node = cluster.node;
        }
        self.made.clone()
    }
}

fn same<T: ?Sized>(before: Option<&Arc<T>>, now: Option<&Arc<T>>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => Arc::ptr_eq(before, now),
        (before, now) => before.is_none() && now.is_none(),
    }
}

pub fn workloads(cluster: &ClusterState) -> Workloads {
    Workloads {
        pods: pods(cluster),
        host_applications: host_applications(cluster),
        allocatable: cluster.node.as_deref().and_then(allocatable),
    }
}

fn pods(cluster: &ClusterState) -> Option<Arc<[Pod]>> {
    let pods = cluster.pods.as_ref()?;
    Some(pods.iter().map(pod).collect())
}

fn pod(pod: &crate::states::Pod) -> Pod {
    let request = |name: &str| pod.requests.get(name);
    let containers = pod.containers.iter();
    Pod {
        uid: Arc::clone(&pod.uid),
        config_hash: pod.annotations.get(CONFIG_HASH).cloned(),
        priority: pod.classes.effective_priority(),
        qos: pod.classes.effective_qos(),
        created: pod.created,
        terminating: pod.terminating,
        ended: pod.has_ended(),
        request: Amount {
            cpu: request("cpu").map_or(0.0, units),
            memory: request("memory").map_or(0.0, units),
        },
        batch_cpu: request(BATCH_CPU).map_or(0, Quantity::value),
        containers: containers.filter_map(|one| one.id.clone()).collect(),
    }
}

fn host_applications(cluster: &ClusterState) -> Arc<[HostApplication]> {
    let all = cluster.node_slo.host_applications.iter();
    all.map(|application| HostApplication {
        name: application.name.clone(),
        cgroups: application.cgroups.clone(),
    })
    .collect()
}

fn units(quantity: &Quantity) -> f64 {
    quantity.nanos() as f64 / 1e9
}

/// What pods can be given: by the annotation that keeps the original where somebody amplified it.
fn allocatable(node: &Node) -> Option<Amount> {
    let raw: Option<serde_json::Map<String, serde_json::Value>> = node
        .annotations
        .get(RAW_ALLOCATABLE)
        .and_then(|text| serde_json::from_str(text).ok());
    let of = |name: &str| {
        let said = raw.as_ref().and_then(|raw| match raw.get(name)? {
            serde_json::Value::String(text) => text.parse::<Quantity>().ok(),
            number => number.to_string().parse().ok(),
        });
        said.as_ref()
            .or_else(|| node.allocatable.get(name))
            .map(units)
    };
    Some(Amount {
        cpu: of("cpu")?,
        memory: of("memory")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpu: &str, annotation: Option<&str>) -> Node {
        let allocatable = [("cpu", cpu), ("memory", "16Gi")];
        Node {
            allocatable: allocatable
                .map(|(name, value)| (name.into(), value.parse().unwrap()))
                .into(),
            annotations: annotation
                .map(|text| (RAW_ALLOCATABLE.into(), text.into()))
                .into_iter()
                .collect(),
            ..Node::default()
        }
    }

    #[test]
    fn the_original_of_allocatable_counts() {
        let gib = f64::from(1 << 30);
        for (annotation, cpu, memory) in [
            (None, 4.0, 16.0 * gib),
            (Some(r#"{"cpu":"2500m","memory":"8Gi"}"#), 2.5, 8.0 * gib),
            (Some(r#"{"cpu":2}"#), 2.0, 16.0 * gib),
            (Some(r#"{"cpu":"no"}"#), 4.0, 16.0 * gib),
            (Some("no"), 4.0, 16.0 * gib),
        ] {
            let found = allocatable(&node("4", annotation));
            assert_eq!(found, Some(Amount { cpu, memory }), "{annotation:?}");
        }
        assert_eq!(allocatable(&Node::default()), None);
    }

    #[test]
    fn what_has_not_changed_is_shared() {
        let cluster_state = ClusterStateCell::default();
        let mut source = WorkloadsSource::new(cluster_state.clone());
        assert!(source.current().pods.is_none());
        cluster_state.update(|cluster| cluster.pods = Some(Arc::new([])));
        let first = source.current();
        cluster_state.update(|cluster| cluster.node = Some(Arc::new(node("4", None))));
        let second = source.current();
        let pods = |of: &Workloads| of.pods.clone().unwrap();
        assert!(Arc::ptr_eq(&pods(&first), &pods(&second)));
        assert!(Arc::ptr_eq(
            &first.host_applications,
            &second.host_applications
        ));
        assert_eq!(second.allocatable.map(|amount| amount.cpu), Some(4.0));
        cluster_state.update(|cluster| cluster.pods = Some(Arc::new([])));
        assert!(!Arc::ptr_eq(&pods(&second), &pods(&source.current())));
    }
}
