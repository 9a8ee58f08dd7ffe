//! Follows the cluster, takes marked nodes, writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::runtime::watcher;
use parking_lot::Mutex;
use plimsoll_api::{eviction_wishes, node_metric, node_slo, node_topology};
use plimsoll_client::events::{Recorder, Reference};
use plimsoll_client::leader_election::NotLeading;
use plimsoll_client::node_slo::NodeSlo;
use plimsoll_client::reflector::{CacheSync, Change, Reader, Reflector};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_client::{evict, explain};
use serde_json::{Value, json};

use super::evictions::Evictions;
use super::failures::Failures;
use super::marked::Marked;
use super::node::{Known, Step, steps};
use super::objects::{Node, NodeMetric, Pod, Topology};
use crate::config::{COLOCATION_KEY, Config};
use crate::{amplification, normalization};

/// Silence is no event: everything is looked at this often.
const EVERY: Duration = Duration::from_secs(60);
/// A write that failed is tried again after this long.
const AGAIN: Duration = Duration::from_secs(5);
/// An eviction that was refused is tried again after this long.
const REFUSED_AGAIN: Duration = Duration::from_secs(11);
const MANAGER: &str = "plimsoll-manager";

pub struct Controller {
    client: kube::Client,
    writer: kube::Client,
    recorder: Recorder,
    gate: CacheSync,
    namespace: String,
    config_map: String,
}

impl Controller {
    /// It reads by `client`, and writes by `writer` alone.
    pub fn new(
        client: kube::Client,
        writer: kube::Client,
        config: &super::Config,
        recorder: Recorder,
        gate: CacheSync,
    ) -> Self {
        Self {
            client,
            writer,
            recorder,
            gate,
            namespace: config.namespace.clone(),
            config_map: config.config_map.clone(),
        }
    }

    /// Until told to stop.
    pub async fn run(self, shutdown: Shutdown) {
        let marked = Marked::default();
        let gate = self.gate.clone();
        let cluster = self.follow(&marked, &gate, &shutdown);
        tokio::select! {
            () = shutdown.begins() => return,
            () = gate.opens_at_last() => {}
        }
        tracing::info!(nodes = cluster.nodes.len(), "the manager is at work");
        let mut worker = Worker {
            cluster,
            marked: marked.clone(),
            client: self.writer,
            recorder: self.recorder,
            written: BTreeMap::new(),
            complained: BTreeMap::new(),
            failures: Failures::default(),
            evictions: Evictions::default(),
        };
        let mut tick = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = tick.tick() => worker.mark_all(),
                name = marked.next() => worker.visit(&name).await,
            }
        }
    }

    fn follow(&self, marked: &Marked, gate: &CacheSync, shutdown: &Shutdown) -> Cluster {
        let client = || self.client.clone();
        let config = Arc::new(Mutex::new(Arc::new(Config::default())));
        let nodes = {
            let marked = marked.clone();
            Reflector::<Node>::all("nodes", client())
                .on_change(move |change| marked.mark(&named(&change)))
        };
        let metrics = {
            let marked = marked.clone();
            Reflector::<NodeMetric>::all("nodemetrics", client())
                .on_change(move |change| marked.mark(&named(&change)))
        };
        let slos = {
            let marked = marked.clone();
            Reflector::<NodeSlo>::all("nodeslos", client())
                .on_change(move |change| marked.mark(&named(&change)))
        };
        let on_node: PodsByNode = Arc::default();
        let pods = {
            let (marked, on_node) = (marked.clone(), Arc::clone(&on_node));
            Reflector::<Pod>::all("pods", client()).on_change(move |change| {
                for node in on_node.lock().take(&change) {
                    marked.mark(&node);
                }
            })
        };
        let (nodes, _) = nodes.spawn(gate, shutdown.clone());
        let configs = {
            let (config, marked, nodes, recorder) = (
                Arc::clone(&config),
                marked.clone(),
                nodes.clone(),
                self.recorder.clone(),
            );
            let named =
                watcher::Config::default().fields(&format!("metadata.name={}", self.config_map));
            Reflector::<ConfigMap>::new(
                "the config map",
                Api::namespaced(client(), &self.namespace),
            )
            .with(named)
            .on_change(move |change| {
                take_config(&config, &change, &recorder);
                for node in nodes.snapshot().iter() {
                    marked.mark(node.metadata.name.as_deref().unwrap_or_default());
                }
            })
        };
        configs.spawn(gate, shutdown.clone());
        let (metrics, _) = metrics.spawn(gate, shutdown.clone());
        let (slos, _) = slos.spawn(gate, shutdown.clone());
        pods.spawn(gate, shutdown.clone());
        // Many clusters have no such objects: nobody waits for them.
        let topologies = {
            let marked = marked.clone();
            Reflector::<Topology>::all("noderesourcetopologies", client())
                .on_change(move |change| marked.mark(&named(&change)))
        };
        let (topologies, _) = topologies.spawn(&CacheSync::default(), shutdown.clone());
        Cluster {
            nodes,
            metrics,
            slos,
            topologies,
            on_node,
            config,
        }
    }
}

fn named<K: kube::Resource>(change: &Change<K>) -> String {
    let (Change::Added(object) | Change::Updated { new: object, .. } | Change::Deleted(object)) =
        change;
    object.meta().name.clone().unwrap_or_default()
}

/// A bad key is said once, where the operator looks; what held before still does.
fn take_config(config: &Mutex<Arc<Config>>, change: &Change<ConfigMap>, recorder: &Recorder) {
    let (map, data) = match change {
        Change::Added(map) | Change::Updated { new: map, .. } => (map, map.data.clone()),
        Change::Deleted(map) => (map, None),
    };
    for refused in Arc::make_mut(&mut config.lock()).update(&data.unwrap_or_default()) {
        let text = format!(
            "{} is not taken, what it said before still holds: {}",
            refused.key, refused.problem
        );
        tracing::warn!(
            key = refused.key,
            problem = refused.problem,
            "bad configuration"
        );
        // As Koordinator's manager calls it.
        let reason = match refused.key {
            COLOCATION_KEY => "ColocationCfgUnmarshalFailed",
            normalization::KEY => "CPUNormalizationCfgUnmarshalFailed",
            amplification::KEY => "ResourceAmplificationCfgUnmarshalFailed",
            _ => "SLOCfgUnmarshalFailed",
        };
        let map = Reference::of(map.as_ref());
        recorder.warning(&map, reason, "Configure", text);
    }
}

type PodsByNode = Arc<Mutex<Pods>>;

/// Which pods are on which node.
#[derive(Debug, Default)]
struct Pods(BTreeMap<String, BTreeMap<(String, String), Arc<Pod>>>);

impl Pods {
    /// Says which nodes it is about.
    fn take(&mut self, change: &Change<Pod>) -> Vec<String> {
        let (old, new) = match change {
            Change::Added(new) => (None, Some(new)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(old) => (Some(old), None),
        };
        let mut nodes = Vec::new();
        for (pod, stays) in [(old, false), (new, true)] {
            let Some(pod) = pod.filter(|pod| !pod.spec.node_name.is_empty()) else {
                continue;
            };
            let node = &*pod.spec.node_name;
            let meta = &pod.metadata;
            let key = (
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            );
            if stays {
                self.0
                    .entry(node.to_owned())
                    .or_default()
                    .insert(key, Arc::clone(pod));
            } else if let Some(pods) = self.0.get_mut(node) {
                pods.remove(&key);
                if pods.is_empty() {
                    self.0.remove(node);
                }
            }
            nodes.push(node.to_owned());
        }
        nodes
    }

    fn on(&self, node: &str) -> Vec<Arc<Pod>> {
        let pods = self.0.get(node);
        pods.map(|pods| pods.values().cloned().collect())
            .unwrap_or_default()
    }
}

struct Cluster {
    nodes: Reader<Node>,
    metrics: Reader<NodeMetric>,
    slos: Reader<NodeSlo>,
    topologies: Reader<Topology>,
    on_node: PodsByNode,
    config: Arc<Mutex<Arc<Config>>>,
}

struct Worker {
    cluster: Cluster,
    marked: Marked,
    /// For writes only.
    client: kube::Client,
    recorder: Recorder,
    written: BTreeMap<String, Timestamp>,
    /// What was last complained about, so that it is said once.
    complained: BTreeMap<String, Vec<String>>,
    failures: Failures,
    evictions: Evictions,
}

impl Worker {
    fn mark_all(&self) {
        for node in self.cluster.nodes.snapshot().iter() {
            self.marked
                .mark(node.metadata.name.as_deref().unwrap_or_default());
        }
    }

    async fn visit(&mut self, name: &str) {
        let outcome = match self.cluster.nodes.get("", name) {
            Some(node) => self.reconcile(name, node).await,
            None => self.forget(name).await,
        };
        let error = match outcome {
            Ok(wrote) => {
                if let Some(over) = self.failures.well(name, wrote) {
                    let (failures, seconds) = (over.failures, over.lasted.as_secs());
                    tracing::info!(failures, seconds, "nodes can be written about again");
                }
                return;
            }
            // The election says so, and what comes next.
            Err(error) if NotLeading::is_cause_of(&error) => return,
            Err(error) => error,
        };
        let trouble = explain(&error);
        match self.failures.failed(name) {
            Some(said) => {
                let (node, times) = (name, said.times);
                tracing::warn!(
                    node,
                    trouble,
                    times,
                    "cannot write about a node, trying again"
                );
            }
            None => tracing::debug!(node = name, trouble, "cannot write about a node"),
        }
        self.mark_later(name, AGAIN);
    }

    fn mark_later(&self, name: &str, after: Duration) {
        let (marked, name) = (self.marked.clone(), name.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            marked.mark(&name);
        });
    }

    /// Whether something was written.
    async fn reconcile(&mut self, name: &str, node: Arc<Node>) -> Result<bool, kube::Error> {
        let known = Known {
            metric: self.cluster.metrics.get("", name),
            slo: self.cluster.slos.get("", name),
            topology: self.cluster.topologies.get("", name),
            pods: self.cluster.on_node.lock().on(name),
            written: self.written.get(name).copied(),
            node,
        };
        let now = Timestamp::now();
        self.evict(name, &known, now).await?;
        let config = Arc::clone(&self.cluster.config.lock());
        let (steps, complaints) = steps(&known, &config, now);
        self.complain(&known.node, name, complaints);
        let writes = !steps.is_empty();
        for step in steps {
            self.take(name, step, now).await?;
        }
        Ok(writes)
    }

    /// Evicts what the node's agent asks for.
    async fn evict(
        &mut self,
        node: &str,
        known: &Known,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let annotations = known.metric.as_ref().and_then(|metric| {
            let all = metric.metadata.annotations.as_ref()?;
            all.get(eviction_wishes::ANNOTATION)
        });
        let wishes = annotations.map_or_else(Vec::new, |text| eviction_wishes::parse(text));
        let now = now.as_second();
        for (wish, pod) in self.evictions.due(node, wishes, &known.pods, now) {
            let (feature, reason) = (&wish.feature, &wish.reason);
            let about = Reference::of(pod.as_ref());
            let outcome = evict(&self.client, &wish.namespace, &wish.name, &wish.uid).await;
            self.evictions.tried(node, &wish.uid, outcome.is_ok(), now);
            match outcome {
                Ok(_) => {
                    let text = format!("evicted for node {node}: {feature}, {reason}");
                    tracing::warn!(
                        node,
                        namespace = wish.namespace,
                        pod = wish.name,
                        feature,
                        "evicted a pod"
                    );
                    self.recorder
                        .warning(&about, "evictPodSuccess", "Evict", text);
                }
                Err(error) if NotLeading::is_cause_of(&error) => return Err(error),
                Err(error) => {
                    let trouble = explain(&error);
                    let text = format!("node {node} asks for its eviction, in vain: {trouble}");
                    self.recorder.warning(&about, "evictPodFail", "Evict", text);
                    self.mark_later(node, REFUSED_AGAIN);
                }
            }
        }
        Ok(())
    }

    fn complain(&mut self, node: &Node, name: &str, complaints: Vec<String>) {
        if self.complained.get(name) == Some(&complaints)
            || (complaints.is_empty() && !self.complained.contains_key(name))
        {
            return;
        }
        for complaint in &complaints {
            tracing::warn!(node = name, complaint, "a node's own wish cannot be met");
            self.recorder.warning(
                &Reference::of(node),
                "ConfigRefused",
                "Configure",
                complaint.clone(),
            );
        }
        self.complained.insert(name.to_owned(), complaints);
    }

    async fn take(&mut self, name: &str, step: Step, now: Timestamp) -> Result<(), kube::Error> {
        match step {
            Step::CreateMetric { spec } => {
                self.create(node_metric::KIND, node_metric::PLURAL, name, spec)
                    .await
            }
            Step::ReplaceMetricSpec { spec } => {
                self.replace(node_metric::KIND, node_metric::PLURAL, name, spec)
                    .await
            }
            Step::CreateSlo { spec } => {
                self.create(node_slo::KIND, node_slo::PLURAL, name, spec)
                    .await
            }
            Step::ReplaceSloSpec { spec } => {
                self.replace(node_slo::KIND, node_slo::PLURAL, name, spec)
                    .await
            }
            Step::LendZones { patch } => self.lend_zones(name, patch).await,
            Step::Annotate { patch } => {
                let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
                let patched = nodes.patch(name, &params(), &Patch::Merge(patch)).await;
                patched.map(drop)
            }
            Step::Lend {
                node,
                status,
                reason,
            } => {
                tracing::debug!(node = name, reason, "what may be lent has changed");
                let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
                nodes
                    .patch_status(name, &params(), &Patch::Merge(status))
                    .await?;
                nodes.patch(name, &params(), &Patch::Merge(node)).await?;
                self.written.insert(name.to_owned(), now);
                Ok(())
            }
        }
    }

    async fn lend_zones(&self, name: &str, patch: Value) -> Result<(), kube::Error> {
        let kind = GroupVersionKind::gvk(
            node_topology::GROUP,
            node_topology::VERSION,
            node_topology::KIND,
        );
        let resource = ApiResource::from_gvk_with_plural(&kind, node_topology::PLURAL);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        match api.patch(name, &params(), &Patch::Merge(patch)).await {
            // Gone, or changed meanwhile; either way the copy will tell.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            other => other.map(drop),
        }
    }

    fn api(&self, kind: &str, plural: &str) -> (Api<DynamicObject>, ApiResource) {
        let kind = GroupVersionKind::gvk(node_metric::GROUP, node_metric::VERSION, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        (Api::all_with(self.client.clone(), &resource), resource)
    }

    async fn create(
        &self,
        kind: &str,
        plural: &str,
        name: &str,
        spec: Value,
    ) -> Result<(), kube::Error> {
        let (api, resource) = self.api(kind, plural);
        let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        match api.create(&params, &object).await {
            // It came into being meanwhile; the copy will tell.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Fields that are not wanted any more must go, which a merge would leave.
    async fn replace(
        &self,
        kind: &str,
        plural: &str,
        name: &str,
        spec: Value,
    ) -> Result<(), kube::Error> {
        let (api, _) = self.api(kind, plural);
        let patch = json!([{"op": "add", "path": "/spec", "value": spec}]);
        let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
        api.patch(name, &params(), &Patch::Json::<()>(patch))
            .await?;
        Ok(())
    }

    /// A node that is gone takes its objects with it.
    async fn forget(&mut self, name: &str) -> Result<bool, kube::Error> {
        self.written.remove(name);
        self.complained.remove(name);
        self.evictions.forget(name);
        let known = [
            (
                self.cluster.metrics.get("", name).is_some(),
                node_metric::KIND,
                node_metric::PLURAL,
            ),
            (
                self.cluster.slos.get("", name).is_some(),
                node_slo::KIND,
                node_slo::PLURAL,
            ),
        ];
        for (exists, kind, plural) in known {
            if exists {
                let (api, _) = self.api(kind, plural);
                match api.delete(name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => drop(other?),
                }
            }
        }
        Ok(known.iter().any(|(exists, ..)| *exists))
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
