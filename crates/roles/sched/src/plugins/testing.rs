//! One way to ask a plugin, for all tables of tests.

use std::sync::Arc;

use crate::cluster::{Cluster, NodeId, PodId};
use crate::framework::events::{Change, ClusterEvent};
use crate::framework::local;
use crate::framework::plugin::Plugin;
use crate::framework::profile::Profile;
use crate::framework::score;
use crate::framework::state::{Context, CycleState, PreFilter};
use crate::model::{Pod, decode};
use crate::plugins::{self, plans::Plans};
use crate::time::Time;

#[derive(Debug)]
pub struct Kit {
    pub cluster: Cluster,
    pub profile: Profile,
    pub now: Time,
    next: usize,
}

impl Default for Kit {
    fn default() -> Self {
        let mut cluster = Cluster::default();
        let name = cluster.names.intern("default-scheduler");
        Self {
            profile: Profile::standard(name),
            cluster,
            now: Time::from_secs(1_000_000),
            next: 0,
        }
    }
}

pub fn node(name: &str, allocatable: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{allocatable}}}}}"#)
}

pub fn pod(requests: &str) -> String {
    format!(r#"{{"spec":{{"containers":[{{"resources":{{"requests":{requests}}}}}]}}}}"#)
}

impl Kit {
    pub fn with_nodes(nodes: &[&str]) -> Self {
        let mut kit = Self::default();
        for json in nodes {
            kit.add_node(json);
        }
        kit
    }

    pub fn add_node(&mut self, json: &str) {
        let node = decode::node(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster.set_node(node);
        self.cluster.nodes.refresh_order();
    }

    pub fn add_claim(&mut self, json: &str) {
        let claim = decode::volume_claim(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster
            .storage
            .claims
            .insert((claim.namespace, claim.name.clone()), claim);
    }

    pub fn add_volume(&mut self, json: &str) {
        let volume = decode::persistent_volume(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster
            .storage
            .volumes
            .insert(volume.name.clone(), volume);
    }

    pub fn add_class(&mut self, json: &str) {
        let class = decode::storage_class(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster
            .storage
            .classes
            .insert(class.name.clone(), class);
    }

    pub fn add_csi_node(&mut self, json: &str) {
        let node = decode::csi_node(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster.storage.nodes.insert(node.name, node);
    }

    pub fn add_driver(&mut self, json: &str) {
        let driver = decode::csi_driver(json.as_bytes()).unwrap();
        self.cluster
            .storage
            .drivers
            .insert(driver.name.clone(), driver);
    }

    pub fn add_capacity(&mut self, json: &str) {
        let capacity =
            decode::csi_storage_capacity(json.as_bytes(), &mut self.cluster.names).unwrap();
        let key = (capacity.namespace, capacity.name.clone());
        self.cluster.storage.capacities.insert(key, capacity);
    }

    /// What a node uses, by a report of some age in seconds.
    pub fn set_metric(&mut self, node: &str, cpu: &str, memory: &str, age: i64) {
        let updated = jiff::Timestamp::from_microsecond(self.now.0 - age * 1_000_000).unwrap();
        let json = format!(
            r#"{{"metadata":{{"name":"{node}"}},"status":{{"updateTime":"{updated}","nodeMetric":
                {{"nodeUsage":{{"resources":{{"cpu":"{cpu}","memory":"{memory}"}}}}}}}}}}"#
        );
        let metric = decode::node_metric(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster.metrics.insert(metric.node, metric);
    }

    /// The same with whatever a report may have.
    pub fn set_report(&mut self, node: &str, usage: &str, pods: &str) {
        let updated = jiff::Timestamp::from_microsecond(self.now.0).unwrap();
        let json = format!(
            r#"{{"metadata":{{"name":"{node}"}},"status":{{"updateTime":"{updated}","nodeMetric":{usage},"podsMetric":{pods}}}}}"#
        );
        let metric = decode::node_metric(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster.metrics.insert(metric.node, metric);
    }

    pub fn add_resource_claim(&mut self, json: &str) {
        let claim = decode::resource_claim(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster
            .devices
            .set_claim((claim.namespace, claim.name.clone()), claim);
    }

    pub fn add_slice(&mut self, json: &str) {
        let slice = decode::resource_slice(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster.devices.set_slice(slice);
    }

    pub fn add_device_class(&mut self, json: &str) {
        let class = decode::device_class(json.as_bytes()).unwrap();
        self.cluster
            .devices
            .classes
            .insert(class.name.clone(), class);
    }

    pub fn add_attachment(&mut self, json: &str) {
        let attachment =
            decode::volume_attachment(json.as_bytes(), &mut self.cluster.names).unwrap();
        self.cluster
            .storage
            .attachments
            .insert(attachment.name.clone(), attachment);
    }

    /// Without a UID, it gets one of its own.
    pub fn decode_pod(&mut self, json: &str) -> Pod {
        let mut pod = decode::pod(json.as_bytes(), &mut self.cluster.names).unwrap();
        if pod.uid.is_empty() {
            self.next += 1;
            pod.uid = format!("uid-{}", self.next).into();
            pod.name = format!("pod-{}", self.next).into();
        }
        pod
    }

    pub fn add_pod(&mut self, json: &str) -> PodId {
        let pod = self.decode_pod(json);
        self.cluster.insert_pod(pod)
    }

    pub fn node(&self, name: &str) -> NodeId {
        self.cluster
            .nodes
            .find(self.cluster.names.find(name).unwrap())
            .unwrap()
    }

    pub fn place(&mut self, json: &str, node: &str) -> PodId {
        let id = self.add_pod(json);
        let node = self.node(node);
        self.cluster.place(id, node);
        id
    }

    pub fn with_context<R>(&mut self, json: &str, ask: impl FnOnce(&Context<'_>) -> R) -> R {
        self.prepared(Plugin::NodeName, json, |context, _| ask(context))
    }

    /// `Err`: refused before any node was looked at.
    fn asked<R>(
        &mut self,
        plugin: Plugin,
        json: &str,
        ask: impl FnOnce(&Context<'_>, &mut CycleState) -> R,
    ) -> Result<R, String> {
        let id = self.add_pod(json);
        let record = self.cluster.pods.get(id).unwrap().clone();
        let mut plans = Plans::default();
        plans.prepare(plugin, &mut self.cluster, &self.profile, 0, record.class);
        let pod = Arc::clone(&record.pod);
        let context = Context {
            cluster: &self.cluster,
            profile: &self.profile,
            pod: &pod,
            class: self.cluster.classes.get(record.class),
            now: self.now,
        };
        let mut state = CycleState::default();
        let answer =
            match plugins::pre_filter(plugin, &context, &plans, record.class, 0, &mut state) {
                PreFilter::Reject(refusal) => Err(format!(
                    "{:?}: {}",
                    refusal.code,
                    refusal.message(&context.cluster.names)
                )),
                _ => Ok(ask(&context, &mut state)),
            };
        self.cluster.remove_pod(id);
        answer
    }

    fn prepared<R>(
        &mut self,
        plugin: Plugin,
        json: &str,
        ask: impl FnOnce(&Context<'_>, &mut CycleState) -> R,
    ) -> R {
        self.asked(plugin, json, ask).unwrap()
    }

    pub fn verdict(&mut self, plugin: Plugin, pod: &str, node: &str) -> String {
        let node = self.node(node);
        let asked = self.asked(plugin, pod, |context, state| {
            match plugins::filter(plugin, context, state, node) {
                Ok(()) => "fits".to_owned(),
                Err(refusal) => format!(
                    "{:?}: {}",
                    refusal.code,
                    refusal.message(&context.cluster.names)
                ),
            }
        });
        asked.unwrap_or_else(|refusal| refusal)
    }

    #[track_caller]
    pub fn check(&mut self, plugin: Plugin, pod: &str, node: &str, expected: &str) {
        assert_eq!(self.verdict(plugin, pod, node), expected, "{pod} on {node}");
    }

    /// `None`: the plugin has nothing to say.
    pub fn scores(&mut self, plugin: Plugin, pod: &str) -> Option<Vec<(String, i64)>> {
        let nodes = self.cluster.nodes.order().to_vec();
        self.prepared(plugin, pod, |context, state| {
            let locals: Vec<_> = nodes
                .iter()
                .map(|node| local::scored(context, *node, false))
                .collect();
            let mut column = Vec::new();
            if !score::column(plugin, context, state, &nodes, &locals, &mut column) {
                return None;
            }
            let names = nodes
                .iter()
                .map(|node| context.cluster.node_name(*node).to_owned());
            Some(names.zip(column).collect())
        })
    }

    #[track_caller]
    pub fn check_scores(&mut self, plugin: Plugin, pod: &str, expected: &[(&str, i64)]) {
        let found = self.scores(plugin, pod).unwrap_or_default();
        let mut found: Vec<_> = found
            .iter()
            .map(|(name, score)| (name.as_str(), *score))
            .collect();
        let mut expected = expected.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    fn hint(
        &mut self,
        plugin: Plugin,
        pod: &str,
        happened: ClusterEvent,
        change: Change<'_>,
    ) -> bool {
        self.prepared(plugin, pod, |context, _| {
            plugins::may_help(plugin, context, happened, change)
        })
    }

    #[track_caller]
    pub fn check_node_hint(
        &mut self,
        plugin: Plugin,
        pod: &str,
        old: Option<&str>,
        new: &str,
        expected: bool,
    ) {
        use crate::framework::events::{Action, Resource, node_changes};
        let names = &mut self.cluster.names;
        let old = old.map(|json| decode::node(json.as_bytes(), names).unwrap());
        let new = decode::node(new.as_bytes(), names).unwrap();
        let events = match &old {
            Some(old) => node_changes(old, &new),
            None => vec![ClusterEvent::new(Resource::Node, Action::ADD)],
        };
        let change = Change::Node(old.as_ref(), Some(&new));
        let any = events
            .into_iter()
            .any(|event| self.hint(plugin, pod, event, change));
        assert_eq!(any, expected);
    }

    #[track_caller]
    pub fn check_pod_gone_hint(&mut self, plugin: Plugin, pod: &str, gone: &str, expected: bool) {
        let gone = self.decode_pod(gone);
        let change = Change::Pod(Some(&gone), None);
        assert_eq!(
            self.hint(plugin, pod, ClusterEvent::ASSIGNED_POD_DELETE, change),
            expected
        );
    }

    #[track_caller]
    pub fn check_pod_added_hint(&mut self, plugin: Plugin, pod: &str, added: &str, expected: bool) {
        let added = self.decode_pod(added);
        let change = Change::Pod(None, Some(&added));
        assert_eq!(
            self.hint(plugin, pod, ClusterEvent::ASSIGNED_POD_ADD, change),
            expected
        );
    }
}
