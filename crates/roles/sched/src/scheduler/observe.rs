//! What happens in the cluster, told object by object.

use super::Scheduler;
use crate::cluster::PodId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource, node_changes, pod_changes};
use crate::model::devices::{DeviceClass, ResourceClaim, ResourceSlice, TaintRule};
use crate::model::{
    ControllerKind, CsiDriver, CsiNode, CsiStorageCapacity, DisruptionBudget, Key, Namespace, Node,
    NodeMetric, PersistentVolume, Pod, PodGroup, Service, StorageClass, Symbol, VolumeAttachment,
    VolumeClaim, Workload,
};
use crate::time::Time;

/// An object as it is now, or that it has gone. Whether it is new, the core knows.
#[derive(Debug, Clone)]
pub enum Observation {
    Pod(Box<Pod>),
    /// By UID.
    PodGone(Box<str>),
    Node(Box<Node>),
    NodeGone(Symbol),
    Namespace(Namespace),
    NamespaceGone(Symbol),
    Service(Service),
    ServiceGone(Key),
    Workload(Workload),
    WorkloadGone(ControllerKind, Symbol, Symbol),
    Budget(DisruptionBudget),
    BudgetGone(Key),
    Group(PodGroup),
    GroupGone(Key),
    Volume(Box<PersistentVolume>),
    VolumeGone(Box<str>),
    Claim(Box<VolumeClaim>),
    ClaimGone(Key),
    StorageClass(StorageClass),
    StorageClassGone(Box<str>),
    CsiNode(CsiNode),
    CsiNodeGone(Symbol),
    CsiDriver(CsiDriver),
    CsiDriverGone(Box<str>),
    CsiCapacity(CsiStorageCapacity),
    CsiCapacityGone(Key),
    Attachment(VolumeAttachment),
    AttachmentGone(Box<str>),
    ResourceClaim(Box<ResourceClaim>),
    ResourceClaimGone(Key),
    ResourceSlice(Box<ResourceSlice>),
    ResourceSliceGone(Box<str>),
    DeviceClass(DeviceClass),
    DeviceClassGone(Box<str>),
    TaintRule(Box<TaintRule>),
    TaintRuleGone(Box<str>),
    NodeMetric(Box<NodeMetric>),
    NodeMetricGone(Symbol),
}

impl Scheduler {
    pub fn observe(&mut self, observation: Observation, now: Time) {
        let began = self.engine.stopwatch.now();
        self.take_in(observation, now);
        self.engine.stopwatch.observed(began);
    }

    fn take_in(&mut self, observation: Observation, now: Time) {
        match observation {
            Observation::Pod(pod) => self.pod_set(*pod, now),
            Observation::PodGone(uid) => {
                if let Some(id) = self.cluster.pods.find(&uid) {
                    self.pod_gone(id, now);
                }
            }
            Observation::Node(node) => self.node_set(*node, now),
            Observation::NodeGone(name) => self.node_gone(name, now),
            Observation::Namespace(namespace) => self.cluster.set_namespace(namespace),
            Observation::NamespaceGone(name) => self.cluster.remove_namespace(name),
            Observation::Service(service) => self.cluster.owners.set_service(service),
            Observation::ServiceGone((namespace, name)) => {
                self.cluster.owners.remove_service(namespace, &name)
            }
            Observation::Workload(workload) => self.cluster.owners.set_workload(workload),
            Observation::WorkloadGone(kind, namespace, name) => {
                self.cluster.owners.remove_workload(kind, namespace, name);
            }
            Observation::Budget(budget) => {
                let key = (budget.namespace, budget.name.clone());
                self.cluster.budgets.insert(key, budget);
            }
            Observation::Group(group) => {
                let key = (group.namespace, group.name.clone());
                let known = self.cluster.groups.insert(key, group).is_some();
                self.set(Resource::PodGroup, known, Change::Unknown, now);
            }
            Observation::GroupGone(key) => {
                self.cluster.groups.remove(&key);
            }
            Observation::BudgetGone(key) => {
                self.cluster.budgets.remove(&key);
            }
            other => self.storage_set(other, now),
        }
    }

    fn storage_set(&mut self, observation: Observation, now: Time) {
        let storage = &mut self.cluster.storage;
        match observation {
            Observation::Volume(volume) => {
                let new = (*volume).clone();
                let old = storage.volumes.insert(volume.name.clone(), *volume);
                let change = Change::Volume(old.as_ref(), Some(&new));
                self.set(Resource::PersistentVolume, old.is_some(), change, now);
            }
            Observation::VolumeGone(name) => {
                storage.volumes.remove(&name);
            }
            Observation::Claim(claim) => {
                let new = (*claim).clone();
                let old = storage
                    .claims
                    .insert((claim.namespace, claim.name.clone()), *claim);
                let change = Change::Claim(old.as_ref(), Some(&new));
                self.set(Resource::PersistentVolumeClaim, old.is_some(), change, now);
                if let Some(old) = &old {
                    self.check_provisioning(old, &new, now);
                }
                self.check_bindings(now);
            }
            Observation::ClaimGone(key) => {
                storage.claims.remove(&key);
            }
            Observation::StorageClass(class) => {
                let old = storage.classes.insert(class.name.clone(), class.clone());
                let change = Change::StorageClass(old.as_ref(), Some(&class));
                self.set(Resource::StorageClass, old.is_some(), change, now);
            }
            Observation::StorageClassGone(name) => {
                storage.classes.remove(&name);
            }
            Observation::CsiNode(node) => {
                let old = storage.nodes.insert(node.name, node.clone());
                let change = Change::CsiNode(old.as_ref(), Some(&node));
                self.set(Resource::CsiNode, old.is_some(), change, now);
            }
            Observation::CsiNodeGone(name) => {
                storage.nodes.remove(&name);
            }
            Observation::CsiDriver(driver) => {
                let old = storage.drivers.insert(driver.name.clone(), driver.clone());
                let change = Change::CsiDriver(old.as_ref(), Some(&driver));
                self.set(Resource::CsiDriver, old.is_some(), change, now);
            }
            Observation::CsiDriverGone(name) => {
                storage.drivers.remove(&name);
            }
            Observation::CsiCapacity(capacity) => {
                let key = (capacity.namespace, capacity.name.clone());
                let old = storage.capacities.insert(key, capacity.clone());
                let change = Change::CsiCapacity(old.as_ref(), Some(&capacity));
                self.set(Resource::CsiStorageCapacity, old.is_some(), change, now);
            }
            Observation::CsiCapacityGone(key) => {
                storage.capacities.remove(&key);
            }
            Observation::Attachment(attachment) => {
                let old = storage
                    .attachments
                    .insert(attachment.name.clone(), attachment.clone());
                let change = Change::Attachment(old.as_ref(), Some(&attachment));
                self.set(Resource::VolumeAttachment, old.is_some(), change, now);
            }
            Observation::AttachmentGone(name) => {
                if let Some(old) = storage.attachments.remove(&name) {
                    let event = ClusterEvent::new(Resource::VolumeAttachment, Action::DELETE);
                    self.wake(event, Change::Attachment(Some(&old), None), None, None, now);
                }
            }
            Observation::ResourceClaim(claim) => {
                let key = (claim.namespace, claim.name.clone());
                if claim.allocation.is_some() {
                    self.cluster.devices.forget(&key);
                    if let Some(owner) = claim.owner.as_deref().filter(|_| claim.is_extended) {
                        let name = format!("<extended-resources>/{owner}").into();
                        self.cluster.devices.forget(&(claim.namespace, name));
                    }
                }
                let new = (*claim).clone();
                let old = self.cluster.devices.set_claim(key, *claim);
                let change = Change::ResourceClaim(old.as_ref(), Some(&new));
                self.set(Resource::ResourceClaim, old.is_some(), change, now);
                self.check_bindings(now);
            }
            Observation::ResourceClaimGone(key) => {
                self.cluster.devices.remove_claim(&key);
                self.gone(Resource::ResourceClaim, now);
            }
            Observation::ResourceSlice(mut slice) => {
                slice.switch(&self.cluster.features);
                let known = self.cluster.devices.set_slice(*slice);
                self.set(Resource::ResourceSlice, known, Change::Unknown, now);
            }
            Observation::ResourceSliceGone(name) => {
                self.cluster.devices.remove_slice(&name);
                self.gone(Resource::ResourceSlice, now);
            }
            Observation::DeviceClass(class) => {
                let classes = &mut self.cluster.devices.classes;
                let old = classes.insert(class.name.clone(), class.clone());
                self.cluster.forget_verdicts();
                let change = Change::DeviceClass(old.as_ref(), Some(&class));
                self.set(Resource::DeviceClass, old.is_some(), change, now);
            }
            Observation::DeviceClassGone(name) => {
                self.cluster.devices.classes.remove(&name);
                self.cluster.forget_verdicts();
            }
            // Devices are told of with their taints, whoever put them there.
            Observation::TaintRule(rule) => {
                let devices = &mut self.cluster.devices;
                devices.rules.insert(rule.name.clone(), *rule);
                if !self.cluster.features.taint_rules {
                    return;
                }
                self.set(Resource::ResourceSlice, true, Change::Unknown, now);
            }
            Observation::TaintRuleGone(name) => {
                self.cluster.devices.rules.remove(&name);
                if !self.cluster.features.taint_rules {
                    return;
                }
                self.set(Resource::ResourceSlice, true, Change::Unknown, now);
            }
            Observation::NodeMetric(metric) => {
                let old = self.cluster.metrics.insert(metric.node, *metric);
                self.set(Resource::NodeMetric, old.is_some(), Change::Unknown, now);
            }
            Observation::NodeMetricGone(name) => {
                self.cluster.metrics.remove(&name);
            }
            _ => {}
        }
    }

    fn set(&mut self, resource: Resource, known: bool, change: Change<'_>, now: Time) {
        let action = if known { Action::UPDATE } else { Action::ADD };
        self.wake(ClusterEvent::new(resource, action), change, None, None, now);
    }

    fn gone(&mut self, resource: Resource, now: Time) {
        self.wake(
            ClusterEvent::new(resource, Action::DELETE),
            Change::Unknown,
            None,
            None,
            now,
        );
    }

    fn node_set(&mut self, node: Node, now: Time) {
        let name = node.name;
        let old = self.cluster.set_node(node);
        if !self.queue.listens() && !self.engine.stopwatch.is_on() {
            return;
        }
        let Some(new) = self
            .cluster
            .nodes
            .find(name)
            .and_then(|id| self.cluster.nodes.object(id))
            .cloned()
        else {
            return;
        };
        let events = match &old {
            Some(old) => node_changes(old, &new),
            None => vec![ClusterEvent::new(Resource::Node, Action::ADD)],
        };
        for event in events {
            self.wake(
                event,
                Change::Node(old.as_deref(), Some(&new)),
                None,
                None,
                now,
            );
        }
    }

    fn node_gone(&mut self, name: Symbol, now: Time) {
        if let Some(old) = self.cluster.remove_node(name) {
            let event = ClusterEvent::new(Resource::Node, Action::DELETE);
            self.wake(event, Change::Node(Some(&old), None), None, None, now);
        }
    }

    fn pod_set(&mut self, pod: Pod, now: Time) {
        match (self.cluster.pods.find(&pod.uid), pod.node) {
            (known, Some(node)) => self.assigned(known, pod, node, now),
            (None, None) => {
                if self.profile_of(&pod).is_some() {
                    let (priority, nominated) = (pod.priority, pod.nominated);
                    let event = ClusterEvent::new(Resource::UnscheduledPod, Action::ADD);
                    self.engine.stopwatch.told(event);
                    let id = self.cluster.insert_pod(pod);
                    self.nominations.set(id, nominated);
                    {
                        let (queue, gate) = self.queue_and_gate(now);
                        queue.add(id, priority, now, &gate);
                    }
                    self.tell_member(id, now);
                }
            }
            (Some(id), None) => self.pending_changed(id, pod, now),
        }
    }

    /// A pod that has a node.
    fn assigned(&mut self, known: Option<PodId>, pod: Pod, node: Symbol, now: Time) {
        let row = self.cluster.node_row(node);
        let Some(id) = known else {
            let id = self.cluster.insert_pod(pod);
            self.cluster.place(id, row);
            self.tell_added(id, now);
            return;
        };
        let Some(record) = self.cluster.pods.get(id) else {
            return;
        };
        let was_assigned = record.place.is_some() && !record.assumed;
        let old = std::sync::Arc::clone(&record.pod);
        if record.place.is_some_and(|place| place != row) {
            self.cluster.unplace(id);
        }
        self.cluster.replace_pod(id, pod);
        if self
            .cluster
            .pods
            .get(id)
            .is_some_and(|record| record.place.is_none())
        {
            self.cluster.place(id, row);
        }
        self.cluster.set_assumed(id, false);
        if !was_assigned {
            let event = ClusterEvent::new(Resource::UnscheduledPod, Action::DELETE);
            self.engine.stopwatch.told(event);
            self.queue.remove(id);
            self.nominations.set(id, None);
            self.tell_added(id, now);
            return;
        }
        let event = ClusterEvent::new(Resource::AssignedPod, Action::UPDATE);
        self.engine.stopwatch.told(event);
        if !self.queue.listens() {
            return;
        }
        let Some(new) = self
            .cluster
            .pods
            .get(id)
            .map(|record| std::sync::Arc::clone(&record.pod))
        else {
            return;
        };
        for event in pod_changes(&old, &new) {
            self.wake(event, Change::Pod(Some(&old), Some(&new)), None, None, now);
        }
    }

    /// A gang may be complete with it.
    fn tell_member(&mut self, id: PodId, now: Time) {
        let Some(pod) = self
            .cluster
            .pods
            .get(id)
            .map(|record| std::sync::Arc::clone(&record.pod))
        else {
            return;
        };
        if pod.spec.group.is_some() {
            let event = ClusterEvent::new(Resource::UnscheduledPod, Action::ADD);
            self.wake(event, Change::Pod(None, Some(&pod)), None, None, now);
        }
    }

    fn tell_added(&mut self, id: PodId, now: Time) {
        self.engine.stopwatch.told(ClusterEvent::ASSIGNED_POD_ADD);
        if !self.queue.listens() {
            return;
        }
        if let Some(pod) = self
            .cluster
            .pods
            .get(id)
            .map(|record| std::sync::Arc::clone(&record.pod))
        {
            self.wake(
                ClusterEvent::ASSIGNED_POD_ADD,
                Change::Pod(None, Some(&pod)),
                None,
                None,
                now,
            );
        }
    }

    /// A pod without a node that we know already.
    fn pending_changed(&mut self, id: PodId, pod: Pod, now: Time) {
        let Some(record) = self.cluster.pods.get(id) else {
            return;
        };
        if record.place.is_some() {
            // We have given it a node; what comes now is from before the API server knew.
            let ends = pod.terminating && !record.pod.terminating;
            let assumed = record.assumed;
            self.cluster.replace_pod(id, pod);
            if assumed && ends {
                // It was about to be bound: its room is free at once.
                self.queue.done(id);
                self.release(id, now);
            }
            return;
        }
        let old = std::sync::Arc::clone(&record.pod);
        if old.resource_version == pod.resource_version && !old.resource_version.is_empty() {
            return;
        }
        let event = ClusterEvent::new(Resource::UnscheduledPod, Action::UPDATE);
        self.engine.stopwatch.told(event);
        // A nomination of ours that the API server does not know yet stays.
        if old.nominated.is_some() || pod.nominated.is_some() {
            self.nominations.set(id, pod.nominated);
        }
        let lost = old.nominated.is_some() && old.nominated != pod.nominated;
        self.queue.set_priority(id, pod.priority);
        self.cluster.replace_pod(id, pod);
        self.nominations.changed(id);
        self.wake_itself(id, &old, now);
        if lost {
            let change = Change::Pod(Some(&old), None);
            self.wake(
                ClusterEvent::ASSIGNED_POD_DELETE,
                change,
                Some(old.priority),
                None,
                now,
            );
        }
    }

    fn pod_gone(&mut self, id: PodId, now: Time) {
        self.queue.remove(id);
        let promised = self.nominations.of(id);
        self.nominations.set(id, None);
        self.preempting.remove(&id);
        self.tell_of_gone(id);
        self.release(id, now);
        let Some(record) = self.cluster.remove_pod(id) else {
            return;
        };
        let gone = self.as_placed(&record);
        let change = Change::Pod(Some(&gone), None);
        if record.pod.node.is_none() {
            let event = ClusterEvent::new(Resource::UnscheduledPod, Action::DELETE);
            self.engine.stopwatch.told(event);
        }
        if record.place.is_some() {
            self.wake(ClusterEvent::ASSIGNED_POD_DELETE, change, None, None, now);
        } else if promised.is_some() || record.pod.nominated.is_some() {
            let ceiling = Some(record.pod.priority);
            self.wake(
                ClusterEvent::ASSIGNED_POD_DELETE,
                change,
                ceiling,
                None,
                now,
            );
        }
    }

    /// The pod's object with the node that it was given.
    pub(super) fn as_placed(&self, record: &crate::cluster::PodRecord) -> Pod {
        let mut pod = Pod::clone(&record.pod);
        pod.node = record.place.map(|node| self.cluster.nodes.name(node));
        pod
    }
}
