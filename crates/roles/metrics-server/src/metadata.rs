//! Which nodes there are to scrape, and which pods to show figures of.
//!
//! Nothing of the objects is kept but what is shown or needed to reach a kubelet.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::metadata::PartialObjectMeta;
use kube::runtime::watcher;
use plimsoll_client::reflector::{CacheSync, Reflector, ReflectorStatus, Sink};
use plimsoll_client::shutdown::Shutdown;
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedSender;

use crate::history::Workload;
use crate::labels::Labels;
use crate::store::Store;

/// A node may name another path to its figures.
const PATH: &str = "metrics.k8s.io/resource-metrics-path";

/// What it takes to reach a kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    pub name: Arc<str>,
    /// Type and address, in the node's order.
    pub addresses: Vec<(String, String)>,
    pub port: Option<u16>,
    pub path: Option<String>,
    pub ready: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// It is to be scraped, and like this.
    Put(NodeInfo),
    Gone(Arc<str>),
}

/// Starts to follow both; figures of nodes go to `changes`, everything that is shown to the store.
pub fn spawn(
    client: &kube::Client,
    store: &Store,
    changes: UnboundedSender<NodeChange>,
    gate: &CacheSync,
    shutdown: &Shutdown,
) -> [ReflectorStatus; 2] {
    let nodes = Nodes {
        store: store.clone(),
        changes,
        known: BTreeMap::new(),
    };
    let pods = Pods(store.clone());
    let running = watcher::Config::default().fields("status.phase=Running");
    [
        Reflector::<SlimNode>::all("nodes", client.clone()).feed(nodes, gate, shutdown.clone()),
        Reflector::<PartialObjectMeta<Pod>>::all("pods", client.clone())
            .with(running)
            .feed(pods, gate, shutdown.clone()),
    ]
}

/// A node without most of what it says about itself.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SlimNode {
    metadata: ObjectMeta,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    addresses: Vec<SlimAddress>,
    conditions: Vec<SlimCondition>,
    daemon_endpoints: SlimEndpoints,
}

#[derive(Debug, Clone, Deserialize)]
struct SlimAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Debug, Clone, Deserialize)]
struct SlimCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimEndpoints {
    kubelet_endpoint: SlimEndpoint,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct SlimEndpoint {
    port: i64,
}

impl k8s_openapi::Resource for SlimNode {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Node";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "nodes";
    type Scope = ClusterResourceScope;
}

impl k8s_openapi::Metadata for SlimNode {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl SlimNode {
    fn info(&self) -> NodeInfo {
        let status = &self.status;
        let addresses = status.addresses.iter();
        let path = self.metadata.annotations.as_ref();
        let path = path.and_then(|annotations| annotations.get(PATH));
        let mut conditions = status.conditions.iter();
        let port = u16::try_from(status.daemon_endpoints.kubelet_endpoint.port);
        NodeInfo {
            name: self.metadata.name.as_deref().unwrap_or_default().into(),
            addresses: addresses
                .map(|one| (one.kind.clone(), one.address.clone()))
                .collect(),
            port: port.ok().filter(|port| *port != 0),
            path: path.filter(|path| !path.is_empty()).cloned(),
            ready: conditions.any(|one| one.kind == "Ready" && one.status == "True"),
        }
    }
}

fn labels(meta: &ObjectMeta) -> Labels {
    meta.labels.iter().flatten().collect()
}

struct Nodes {
    store: Store,
    changes: UnboundedSender<NodeChange>,
    /// What was told last, `None` of those that are not selected; and whether the list that is being fetched has it.
    known: BTreeMap<Arc<str>, (Option<NodeInfo>, bool)>,
}

impl Nodes {
    fn put(&mut self, node: &SlimNode) {
        let info = node.info();
        let labels = labels(&node.metadata);
        let selected = self.store.settings().selects(&labels);
        self.store.put_node(&info.name, labels);
        let name = Arc::clone(&info.name);
        let wanted = selected.then_some(info);
        let before = self
            .known
            .insert(Arc::clone(&name), (wanted.clone(), true))
            .and_then(|(before, _)| before);
        // Nobody hears it any more when everything stops.
        let _ = match wanted {
            Some(info) if before.as_ref() != Some(&info) => {
                self.changes.send(NodeChange::Put(info))
            }
            None if before.is_some() => self.changes.send(NodeChange::Gone(name)),
            _ => Ok(()),
        };
    }

    fn remove(&mut self, name: &str) {
        self.store.remove_node(name);
        if let Some((name, _)) = self.known.remove_entry(name) {
            let _ = self.changes.send(NodeChange::Gone(name));
        }
    }
}

impl Sink<SlimNode> for Nodes {
    fn begin(&mut self) {
        for (_, listed) in self.known.values_mut() {
            *listed = false;
        }
    }

    fn listed(&mut self, node: SlimNode) {
        self.put(&node);
    }

    fn end(&mut self) {
        let gone = self.known.iter().filter(|(_, (_, listed))| !listed);
        let gone: Vec<Arc<str>> = gone.map(|(name, _)| Arc::clone(name)).collect();
        for name in gone {
            self.remove(&name);
        }
    }

    fn apply(&mut self, node: SlimNode) {
        self.put(&node);
    }

    fn delete(&mut self, node: SlimNode) {
        self.remove(node.metadata.name.as_deref().unwrap_or_default());
    }
}

struct Pods(Store);

impl Pods {
    fn put(&self, pod: &PartialObjectMeta<Pod>) {
        let (namespace, name) = names(&pod.metadata);
        let labels = labels(&pod.metadata);
        match self.0.settings().history {
            Some(_) => self
                .0
                .put_owned_pod(name, labels, Workload::of(&pod.metadata)),
            None => self.0.put_pod(namespace, name, labels),
        }
    }
}

fn names(meta: &ObjectMeta) -> (&str, &str) {
    (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

impl Sink<PartialObjectMeta<Pod>> for Pods {
    fn begin(&mut self) {
        self.0.begin_pods();
    }

    fn listed(&mut self, pod: PartialObjectMeta<Pod>) {
        self.put(&pod);
    }

    fn end(&mut self) {
        self.0.end_pods();
    }

    fn apply(&mut self, pod: PartialObjectMeta<Pod>) {
        self.put(&pod);
    }

    fn delete(&mut self, pod: PartialObjectMeta<Pod>) {
        let (namespace, name) = names(&pod.metadata);
        self.0.remove_pod(namespace, name);
    }
}

#[cfg(test)]
#[path = "metadata_tests.rs"]
mod tests;
