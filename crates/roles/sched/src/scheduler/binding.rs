//! From the choice of a node to the binding: what has to be awaited and written first.

use std::sync::Arc;
use std::time::Duration;

use super::failure::Nominating;
use super::{GivenUp, Scheduler, UnderWay};
use crate::action::{Action, ActionKind, ActionResult, EventRecord, EventType, NominatedNode};
use crate::cluster::PodId;
use crate::framework::diagnosis::Diagnosis;
use crate::framework::events::{Change, ClusterEvent};
use crate::framework::plugin::{Plugin, PluginSet};
use crate::framework::state::{Context, CycleState};
use crate::framework::status::{Code, Refusal};
use crate::framework::stopwatch::{Ending, Point};
use crate::model::devices::{Allocation, ResourceClaim};
use crate::model::{Key, Pod, VolumeClaim};
use crate::plugins::dynamic_resources::{self, ClaimPlan, ExtendedClaim};
use crate::plugins::gang_scheduling;
use crate::plugins::volume_binding::{self, VolumePlan};
use crate::time::Time;
use plimsoll_golang::GoDuration;

/// No plugin may have a pod wait for longer than that.
const LONGEST_PERMIT: Duration = Duration::from_secs(15 * 60);

/// What a plugin asks for, within that bound.
fn at_most(asked: Duration) -> Duration {
    asked.min(LONGEST_PERMIT)
}

/// A pod that has a node and is on its way to be bound.
#[derive(Debug)]
pub(super) struct Binding {
    plan: VolumePlan,
    /// With the devices that it gets now, if it has none yet.
    claims: Vec<(Key, Option<Allocation>)>,
    /// A claim that is still to be made.
    extended: Option<ExtendedClaim>,
    pub(super) stage: Stage,
    profile: usize,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Others of its gang have to find nodes as well.
    Permit {
        plugin: Plugin,
        since: Time,
        deadline: Time,
    },
    Writing {
        left: usize,
    },
    /// Claims have to be bound by those who do that.
    Claims {
        keys: Vec<Key>,
        deadline: Time,
    },
    /// Devices have to be made ready by those who do that.
    Devices {
        deadline: Time,
    },
}

impl Scheduler {
    /// Takes what the pod needs at its node beside room. What is to be written, up to the binding itself.
    pub(super) fn reserve(
        &mut self,
        id: PodId,
        profile: usize,
        state: &CycleState,
        now: Time,
    ) -> Vec<Action> {
        let began = self.engine.stopwatch.now();
        let ClaimPlan { claims, extended } = self.claim_plan(id, profile, state, now);
        let mut binding = Binding {
            plan: self.volume_plan(id, profile, state, now),
            claims,
            extended,
            stage: Stage::Writing { left: 0 },
            profile,
        };
        let Some(record) = self.cluster.pods.get(id) else {
            return Vec::new();
        };
        let Some(node) = record.place.map(|node| self.cluster.nodes.name(node)) else {
            return Vec::new();
        };
        self.cluster.storage.assume(&binding.plan, node);
        for (key, allocation) in &binding.claims {
            if let Some(allocation) = allocation {
                self.cluster
                    .devices
                    .assume(key.clone(), allocation.devices.clone());
            }
        }
        if let Some(extended) = &binding.extended {
            let devices = extended.allocation.devices.clone();
            self.cluster.devices.assume(extended.key.clone(), devices);
        }
        let watch = &mut self.engine.stopwatch;
        watch.point(Point::Reserve, Ending::Success, profile, began);
        let began = watch.now();
        let waits = self.must_wait(id, profile);
        let ending = match waits {
            Some(_) => Ending::Wait,
            None => Ending::Success,
        };
        let watch = &mut self.engine.stopwatch;
        watch.point(Point::Permit, ending, profile, began);
        if let Some((plugin, timeout)) = waits {
            binding.stage = Stage::Permit {
                plugin,
                since: now,
                deadline: now.after(at_most(timeout)),
            };
            self.bindings.insert(id, binding);
            // Whoever is tried with the rest of its group knows at the end of this cycle.
            let alone = self.group_of(id, profile).is_none();
            let told = alone && self.cluster.features.expected_node;
            return told
                .then(|| self.expect_node(id))
                .flatten()
                .into_iter()
                .collect();
        }
        self.queue.settle(id);
        let mut actions = self.permit_gang(id);
        actions.extend(self.write_volumes(id, binding));
        actions
    }

    fn volume_plan(&self, id: PodId, profile: usize, state: &CycleState, now: Time) -> VolumePlan {
        let (Some(volumes), Some(record)) = (&state.volumes, self.cluster.pods.get(id)) else {
            return VolumePlan::default();
        };
        let profile = &self.engine.profiles[profile];
        let node = record
            .place
            .and_then(|node| self.cluster.nodes.object(node));
        let context = Context {
            cluster: &self.cluster,
            profile,
            pod: &record.pod,
            class: self.cluster.classes.get(record.class),
            now,
        };
        match node {
            Some(node) if profile.reserve.contains(&Plugin::VolumeBinding) => {
                volume_binding::plan(&context, volumes, node).unwrap_or_default()
            }
            _ => VolumePlan::default(),
        }
    }

    /// The claims that have to be written, with devices for those that have none.
    fn claim_plan(&self, id: PodId, profile: usize, state: &CycleState, now: Time) -> ClaimPlan {
        let (Some(claims), Some(record)) = (&state.claims, self.cluster.pods.get(id)) else {
            return ClaimPlan::default();
        };
        let profile = &self.engine.profiles[profile];
        let Some(node) = record
            .place
            .filter(|_| profile.reserve.contains(&Plugin::DynamicResources))
        else {
            return ClaimPlan::default();
        };
        let context = Context {
            cluster: &self.cluster,
            profile,
            pod: &record.pod,
            class: self.cluster.classes.get(record.class),
            now,
        };
        dynamic_resources::reserve(&context, claims, node)
    }

    /// Which plugin has the pod wait, and for how long at most.
    fn must_wait(&self, id: PodId, profile: usize) -> Option<(Plugin, Duration)> {
        let gangs = Plugin::GangScheduling;
        let permit = &self.engine.profiles[profile].permit;
        let waits = permit.contains(&gangs) && gang_scheduling::lacks_company(&self.cluster, id);
        waits.then_some((gangs, gang_scheduling::PERMIT_TIMEOUT))
    }

    /// The gang is complete: those of it that have been waiting may go on.
    fn permit_gang(&mut self, id: PodId) -> Vec<Action> {
        let Some(record) = self.cluster.pods.get(id) else {
            return Vec::new();
        };
        if record.pod.spec.group.is_none() {
            return Vec::new();
        }
        let (namespace, group) = (record.pod.namespace(), record.pod.spec.group.clone());
        let mut waiting: Vec<PodId> = self
            .bindings
            .iter()
            .filter(|(_, binding)| matches!(binding.stage, Stage::Permit { .. }))
            .map(|(other, _)| *other)
            .filter(|other| {
                self.cluster.pods.get(*other).is_some_and(|record| {
                    record.pod.namespace() == namespace && record.pod.spec.group == group
                })
            })
            .collect();
        waiting.sort_unstable();
        let mut actions = Vec::new();
        for other in waiting {
            if let Some(binding) = self.bindings.remove(&other) {
                self.queue.settle(other);
                actions.extend(self.write_volumes(other, binding));
            }
        }
        actions
    }

    /// Tells the API server which node it will be, as long as that is not for sure.
    fn expect_node(&mut self, id: PodId) -> Option<Action> {
        let record = self.cluster.pods.get(id)?;
        let pod = Arc::clone(&record.pod);
        let node = self.cluster.node_name(record.place?).into();
        let pod = self.pod_ref(&pod);
        Some(self.action(ActionKind::PatchStatus {
            pod,
            condition: None,
            nominated: NominatedNode::Set(node),
        }))
    }

    fn write_volumes(&mut self, id: PodId, mut binding: Binding) -> Vec<Action> {
        let Some(record) = self.cluster.pods.get(id) else {
            return Vec::new();
        };
        let pod = Arc::clone(&record.pod);
        let Some(node) = record.place else {
            return Vec::new();
        };
        let node_name: Box<str> = self.cluster.node_name(node).into();
        let began = self.engine.stopwatch.now();
        let no_claims = binding.claims.is_empty() && binding.extended.is_none();
        let is_ready = binding.plan == VolumePlan::default() && no_claims;
        let ending = match is_ready {
            true => Ending::Skip,
            false => Ending::Success,
        };
        let watch = &mut self.engine.stopwatch;
        watch.point(Point::PreBindPreFlight, ending, binding.profile, began);
        if is_ready {
            let began = watch.now();
            watch.point(Point::PreBind, Ending::Success, binding.profile, began);
            return vec![self.bind(&pod, node_name)];
        }
        let mut kinds = Vec::new();
        for (volume, claim) in &binding.plan.bindings {
            let found = self.cluster.storage.volumes.get(volume);
            kinds.push(ActionKind::BindVolume {
                volume: volume.clone(),
                resource_version: found
                    .map(|volume| volume.resource_version.clone())
                    .unwrap_or_default(),
                namespace: self.cluster.names.text(claim.namespace).into(),
                claim: claim.name.clone(),
                claim_uid: claim.uid.clone(),
            });
        }
        for claim in &binding.plan.provisions {
            kinds.push(ActionKind::SelectNode {
                namespace: self.cluster.names.text(claim.namespace).into(),
                claim: claim.name.clone(),
                resource_version: claim.resource_version.clone(),
                node: node_name.clone(),
            });
        }
        binding.stage = Stage::Writing { left: kinds.len() };
        self.bindings.insert(id, binding);
        let mut actions = Vec::new();
        if self.cluster.features.expected_node {
            actions.extend(self.expect_node(id));
        }
        match kinds.is_empty() {
            true => actions.extend(self.write_claims(id, &pod)),
            false => actions.extend(self.pre_bind(&pod, Plugin::VolumeBinding, kinds)),
        }
        actions
    }

    /// Claims for devices are written when all volumes are there: one plugin after the other.
    fn write_claims(&mut self, id: PodId, pod: &Arc<Pod>) -> Vec<Action> {
        let Some(binding) = self.bindings.get(&id) else {
            return Vec::new();
        };
        let mut kinds = Vec::new();
        for (key, allocation) in &binding.claims {
            if let Some(claim) = self.cluster.devices.claims().get(key) {
                kinds.push(ActionKind::ReserveClaim {
                    namespace: self.cluster.names.text(key.0).into(),
                    claim: key.1.clone(),
                    uid: claim.uid.clone(),
                    resource_version: claim.resource_version.clone(),
                    allocation: allocation.clone(),
                    pod: self.pod_ref(pod),
                });
            }
        }
        if let Some(extended) = &binding.extended {
            kinds.push(ActionKind::CreateClaim {
                pod: self.pod_ref(pod),
                requests: extended.requests.clone(),
                allocation: extended.allocation.clone(),
                mappings: extended.mappings.clone(),
            });
        }
        if let Some(binding) = self.bindings.get_mut(&id) {
            binding.stage = Stage::Writing { left: kinds.len() };
        }
        self.pre_bind(pod, Plugin::DynamicResources, kinds)
    }

    /// What is to be written before the binding, on behalf of a plugin.
    fn pre_bind(&mut self, pod: &Pod, plugin: Plugin, kinds: Vec<ActionKind>) -> Vec<Action> {
        let mut actions = Vec::new();
        for kind in kinds {
            let action = self.action(kind);
            let pod = Arc::clone(&pod.uid);
            self.under_way
                .insert(action.id, UnderWay::PreBind { pod, plugin });
            actions.push(action);
        }
        actions
    }

    /// A write that binding waits for has ended.
    pub(super) fn pre_bound(
        &mut self,
        id: PodId,
        plugin: Plugin,
        result: ActionResult,
        now: Time,
    ) -> Vec<Action> {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return Vec::new();
        };
        let error = match result {
            ActionResult::Done => None,
            ActionResult::Gone => Some("not found".to_owned()),
            ActionResult::Failed(error) => Some(error),
        };
        if let Some(error) = error {
            let doing = match plugin {
                Plugin::VolumeBinding => "binding volumes: ",
                _ => "",
            };
            return self.give_up(id, plugin, &format!("{doing}{error}"), now);
        }
        let Stage::Writing { left } = &mut binding.stage else {
            return Vec::new();
        };
        *left -= 1;
        if *left > 0 {
            return Vec::new();
        }
        if plugin == Plugin::DynamicResources {
            return self.await_devices(id, now);
        }
        let seconds = self.engine.profiles[binding.profile]
            .args
            .volume_binding
            .bind_timeout_seconds;
        let claims = binding
            .plan
            .bindings
            .iter()
            .map(|(_, claim)| claim)
            .chain(&binding.plan.provisions);
        binding.stage = Stage::Claims {
            keys: claims
                .map(|claim| (claim.namespace, claim.name.clone()))
                .collect(),
            deadline: now.after(Duration::from_secs(seconds)),
        };
        self.check_bindings(now);
        self.take_actions()
    }

    /// Goes on with pods whose claims are bound by now, and gives up on those that have waited too long.
    pub(super) fn check_bindings(&mut self, now: Time) {
        if self.bindings.is_empty() {
            return;
        }
        let mut ids: Vec<PodId> = self.bindings.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(binding) = self.bindings.get(&id) else {
                continue;
            };
            match &binding.stage {
                Stage::Writing { .. } => {}
                Stage::Permit {
                    plugin,
                    since,
                    deadline,
                } if *deadline <= now => {
                    let (plugin, waited) = (*plugin, deadline.since(*since));
                    let actions = self.not_permitted(id, plugin, waited, now);
                    self.outbox.extend(actions);
                }
                Stage::Permit { .. } => {}
                Stage::Devices { .. } => {
                    let actions = self.check_devices(id, now);
                    self.outbox.extend(actions);
                }
                Stage::Claims { keys, deadline } => {
                    let storage = &self.cluster.storage;
                    let bound = keys.iter().all(|key| {
                        storage
                            .claims
                            .get(key)
                            .is_some_and(|claim| !claim.volume.is_empty() && claim.bind_completed)
                    });
                    if bound {
                        let actions = self.volumes_are_there(id, now);
                        self.outbox.extend(actions);
                    } else if *deadline <= now {
                        let actions = self.give_up(
                            id,
                            Plugin::VolumeBinding,
                            "binding volumes: context deadline exceeded",
                            now,
                        );
                        self.outbox.extend(actions);
                    }
                }
            }
        }
    }

    /// A pod has waited on Permit for too long: its node is free again, and it goes back to the queue as refused.
    fn not_permitted(
        &mut self,
        id: PodId,
        plugin: Plugin,
        waited: Duration,
        now: Time,
    ) -> Vec<Action> {
        let Some(record) = self.cluster.pods.get(id) else {
            return Vec::new();
        };
        self.gave_up.push(GivenUp {
            uid: Arc::clone(&record.pod.uid),
            is_refused: true,
        });
        let placed = self.take_back(id);
        let reason = format!(
            "rejected due to timeout after waiting {} at plugin {}",
            GoDuration::from(waited),
            plugin.name()
        );
        let diagnosis = Diagnosis {
            all_nodes: 1,
            absent: Some(Refusal::worded(Code::Unschedulable, reason)),
            ..Diagnosis::default()
        };
        let message = diagnosis.message(&self.engine.statuses, &self.cluster.names);
        let actions = self.fail(
            id,
            "Unschedulable",
            &message,
            Nominating::Clear,
            PluginSet::of(plugin),
            PluginSet::EMPTY,
            now,
        );
        // It is in the queue again before others hear of the room that it has left.
        if let Some(placed) = placed {
            self.tell_of_room(id, &placed, now);
        }
        actions
    }

    /// Whoever makes volumes may give the node back that was chosen for a claim: then another one has to be found.
    pub(super) fn check_provisioning(&mut self, old: &VolumeClaim, new: &VolumeClaim, now: Time) {
        let Some(node) = old
            .selected_node
            .filter(|_| old.selected_node != new.selected_node)
        else {
            return;
        };
        let mut stopped: Vec<PodId> = Vec::new();
        for (id, binding) in &self.bindings {
            let mut provisions = binding.plan.provisions.iter();
            let waits = matches!(binding.stage, Stage::Claims { .. })
                && provisions.any(|claim| claim.uid == new.uid);
            let place = self.cluster.pods.get(*id).and_then(|record| record.place);
            if waits && place.is_some_and(|place| self.cluster.nodes.name(place) == node) {
                stopped.push(*id);
            }
        }
        stopped.sort_unstable();
        for id in stopped {
            let error = match new.is_annotated {
                true => format!(
                    "binding volumes: provisioning failed for PVC {:?}",
                    new.name
                ),
                false => format!(
                    "binding volumes: selectedNode annotation reset for PVC {:?}",
                    new.name
                ),
            };
            let actions = self.give_up(id, Plugin::VolumeBinding, &error, now);
            self.outbox.extend(actions);
        }
    }

    fn volumes_are_there(&mut self, id: PodId, now: Time) -> Vec<Action> {
        let Some(record) = self.cluster.pods.get(id) else {
            return Vec::new();
        };
        let pod = Arc::clone(&record.pod);
        let actions = self.write_claims(id, &pod);
        match actions.is_empty() {
            true => self.await_devices(id, now),
            false => actions,
        }
    }

    /// Its devices may have to become ready yet.
    fn await_devices(&mut self, id: PodId, now: Time) -> Vec<Action> {
        let Some(binding) = self.bindings.get(&id) else {
            return Vec::new();
        };
        // What has just been written may not have come back yet.
        let waits = binding.claims.iter().any(|(key, given)| {
            let claim = self.cluster.devices.claims().get(key);
            claim.is_some_and(ResourceClaim::has_conditions)
                || given.as_ref().is_some_and(Allocation::has_conditions)
        });
        if !waits {
            return self.all_is_there(id);
        }
        let Some(record) = self.cluster.pods.get(id) else {
            return Vec::new();
        };
        let pod = Arc::clone(&record.pod);
        let node = record.place.map_or("", |node| self.cluster.node_name(node));
        let note = format!("waiting for binding conditions for device on node {node}");
        let event = self.event(
            &pod,
            EventType::Normal,
            "BindingConditionsPending",
            "Scheduling",
            note,
        );
        if let Some(binding) = self.bindings.get_mut(&id) {
            let args = &self.engine.profiles[binding.profile].args;
            binding.stage = Stage::Devices {
                deadline: now.after(args.devices.binding_timeout),
            };
        }
        let mut actions = vec![event];
        actions.extend(self.check_devices(id, now));
        actions
    }

    fn check_devices(&mut self, id: PodId, now: Time) -> Vec<Action> {
        let Some(Binding {
            claims,
            stage: Stage::Devices { deadline },
            ..
        }) = self.bindings.get(&id)
        else {
            return Vec::new();
        };
        let late = *deadline <= now;
        let mut waiting = false;
        for (key, _) in claims {
            match self
                .cluster
                .devices
                .claims()
                .get(key)
                .map(|claim| claim.is_ready())
            {
                Some(Ok(true)) => {}
                Some(Err(error)) => {
                    return self.give_up(id, Plugin::DynamicResources, &error, now);
                }
                Some(Ok(false)) | None => waiting = true,
            }
        }
        match waiting {
            false => self.all_is_there(id),
            true if late => {
                let error = "device binding timeout: context deadline exceeded";
                self.give_up(id, Plugin::DynamicResources, error, now)
            }
            true => Vec::new(),
        }
    }

    fn all_is_there(&mut self, id: PodId) -> Vec<Action> {
        if let Some(binding) = self.bindings.remove(&id) {
            self.cluster.storage.forget(&binding.plan);
        }
        self.bind_placed(id).into_iter().collect()
    }

    /// The next moment at which somebody will have waited too long.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let deadlines = self
            .bindings
            .values()
            .filter_map(|binding| match &binding.stage {
                Stage::Permit { deadline, .. }
                | Stage::Claims { deadline, .. }
                | Stage::Devices { deadline } => Some(*deadline),
                Stage::Writing { .. } => None,
            });
        deadlines.min()
    }

    fn bind_placed(&mut self, id: PodId) -> Option<Action> {
        let record = self.cluster.pods.get(id)?;
        let pod = Arc::clone(&record.pod);
        let node = self.cluster.node_name(record.place?).into();
        Some(self.bind(&pod, node))
    }

    /// Whether it has a node, and something has to be written before it can be bound.
    pub(super) fn is_being_prepared(&self, id: PodId) -> bool {
        self.bindings.contains_key(&id)
    }

    /// A victim that is not bound yet is stopped on its way there; nothing has to be deleted.
    pub(super) fn stop_binding(
        &mut self,
        victim: &Pod,
        preemptor: &Pod,
        node: &str,
        now: Time,
    ) -> Vec<Action> {
        let Some(id) = self.cluster.pods.find(&victim.uid) else {
            return Vec::new();
        };
        let plan = self.bindings.get(&id).map(|binding| &binding.plan);
        let plugin = match plan {
            Some(plan) if *plan != VolumePlan::default() => Plugin::VolumeBinding,
            _ => Plugin::DynamicResources,
        };
        let record = EventRecord {
            regarding: self.pod_ref(victim),
            related: Some(self.pod_ref(preemptor)),
            kind: EventType::Normal,
            reason: "Preempted",
            action: "Preempting",
            note: format!(
                "Preempted by pod {} on node {node} (in kube-scheduler memory).",
                preemptor.uid
            ),
            controller: self
                .cluster
                .names
                .text(preemptor.spec.scheduler_name)
                .into(),
        };
        let mut actions = vec![self.action(ActionKind::Event(record))];
        let error = format!("preempted by {}", Plugin::DefaultPreemption.name());
        actions.extend(self.give_up(id, plugin, &error, now));
        actions
    }

    fn give_up(&mut self, id: PodId, plugin: Plugin, error: &str, now: Time) -> Vec<Action> {
        if let Some(record) = self.cluster.pods.get(id) {
            self.gave_up.push(GivenUp {
                uid: Arc::clone(&record.pod.uid),
                is_refused: false,
            });
        }
        self.release(id, now);
        let message = format!("running PreBind plugin {:?}: {error}", plugin.name());
        let none = PluginSet::EMPTY;
        self.fail(
            id,
            "SchedulerError",
            &message,
            Nominating::Clear,
            none,
            none,
            now,
        )
    }

    /// Whoever goes while its volumes are awaited is told of once more.
    pub(super) fn tell_of_gone(&mut self, id: PodId) {
        let binding = self.bindings.get(&id);
        let record = binding
            .filter(|binding| matches!(binding.stage, Stage::Claims { .. }))
            .and_then(|_| self.cluster.pods.get(id));
        let Some(pod) = record.map(|record| Arc::clone(&record.pod)) else {
            return;
        };
        let note = format!(
            "running PreBind plugin {:?}: binding volumes: pod does not exist any more: pod {:?} not found",
            Plugin::VolumeBinding.name(),
            pod.name
        );
        let event = self.failure_event(&pod, note);
        self.outbox.push(event);
    }

    /// Takes back what a pod was given, and tells others of the room.
    pub(super) fn release(&mut self, id: PodId, now: Time) {
        if let Some(placed) = self.take_back(id) {
            self.tell_of_room(id, &placed, now);
        }
    }

    /// The pod as it was at its node, if it was there by our word alone.
    pub(super) fn take_back(&mut self, id: PodId) -> Option<Pod> {
        let began = self.engine.stopwatch.now();
        self.forget_reserved(id);
        let record = self.cluster.pods.get(id)?;
        if !record.assumed {
            return None;
        }
        let placed = self.as_placed(record);
        if let Some(profile) = self.profile_of(&placed) {
            let watch = &mut self.engine.stopwatch;
            watch.point(Point::Unreserve, Ending::Success, profile, began);
        }
        self.cluster.unplace(id);
        self.cluster.set_assumed(id, false);
        Some(placed)
    }

    fn tell_of_room(&mut self, id: PodId, placed: &Pod, now: Time) {
        let change = Change::Pod(Some(placed), None);
        self.wake(
            ClusterEvent::ASSIGNED_POD_DELETE,
            change,
            None,
            Some(id),
            now,
        );
    }

    /// Volumes and devices that nobody has been told about.
    pub(super) fn forget_reserved(&mut self, id: PodId) {
        if let Some(binding) = self.bindings.remove(&id) {
            self.cluster.storage.forget(&binding.plan);
            let made = binding.extended.iter().map(|extended| &extended.key);
            for key in binding.claims.iter().map(|(key, _)| key).chain(made) {
                self.cluster.devices.forget(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_plugin_waits_longer_than_a_quarter_of_an_hour() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        assert_eq!(at_most(minutes(5)), minutes(5));
        assert_eq!(at_most(minutes(60)), minutes(15));
        assert_eq!(at_most(Duration::MAX), minutes(15));
    }
}
