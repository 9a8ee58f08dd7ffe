//! How actions ended, and what follows from it.

use std::sync::Arc;

use super::failure::Nominating;
use super::{Scheduler, UnderWay};
use crate::action::{Action, ActionId, ActionKind, ActionResult, EventRecord, EventType, PodRef};
use crate::cluster::PodId;
use crate::framework::plugin::PluginSet;
use crate::framework::stopwatch::{Ending, Point};
use crate::time::Time;

impl Scheduler {
    /// Tells how an action ended. What is to be done next, if anything.
    pub fn finished(&mut self, id: ActionId, result: ActionResult, now: Time) -> Vec<Action> {
        let Some(under_way) = self.under_way.remove(&id) else {
            return Vec::new();
        };
        let (UnderWay::Bind { pod }
        | UnderWay::PreBind { pod, .. }
        | UnderWay::Evict { preemptor: pod, .. }) = &under_way;
        let Some(pod) = self.cluster.pods.find(pod) else {
            return Vec::new();
        };
        match under_way {
            UnderWay::Bind { .. } => self.bound(pod, result, now),
            UnderWay::PreBind { plugin, .. } => self.pre_bound(pod, plugin, result, now),
            UnderWay::Evict { victim, node, .. } => self.evicted(&victim, pod, &node, result, now),
        }
    }

    fn bound(&mut self, id: PodId, result: ActionResult, now: Time) -> Vec<Action> {
        let Some(record) = self.cluster.pods.get(id) else {
            return Vec::new();
        };
        let pod = Arc::clone(&record.pod);
        let error = match result {
            ActionResult::Done => {
                let Some(node) = record.place else {
                    return Vec::new();
                };
                let note = format!(
                    "Successfully assigned {}/{} to {}",
                    self.cluster.names.text(pod.namespace()),
                    pod.name,
                    self.cluster.node_name(node)
                );
                self.queue.done(id);
                if let Some(profile) = self.profile_of(&pod) {
                    // Nobody has anything to do after it.
                    let watch = &mut self.engine.stopwatch;
                    let began = watch.now();
                    watch.point(Point::PostBind, Ending::Success, profile, began);
                }
                return vec![self.event(&pod, EventType::Normal, "Scheduled", "Binding", note)];
            }
            ActionResult::Gone => "pod is gone".to_owned(),
            ActionResult::Failed(error) => error,
        };
        let class = record.class;
        if !record.assumed {
            // Confirmed or deleted in the meantime: whoever told us that has seen to the rest.
            self.queue.done(id);
            return Vec::new();
        }
        self.release(id, now);
        let mut extenders = self.engine.extenders.iter();
        let message = match extenders.any(|rule| rule.binds && rule.concerns(&self.cluster, class))
        {
            true => error,
            false => format!("running Bind plugin \"DefaultBinder\": {error}"),
        };
        self.fail(
            id,
            "SchedulerError",
            &message,
            Nominating::Clear,
            PluginSet::EMPTY,
            PluginSet::EMPTY,
            now,
        )
    }

    fn evicted(
        &mut self,
        victim: &PodRef,
        preemptor: PodId,
        node: &str,
        result: ActionResult,
        now: Time,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let failed = matches!(result, ActionResult::Failed(_));
        if result == ActionResult::Done
            && let Some(pod) = self
                .cluster
                .pods
                .get(preemptor)
                .map(|record| Arc::clone(&record.pod))
        {
            let record = EventRecord {
                regarding: victim.clone(),
                related: Some(self.pod_ref(&pod)),
                kind: EventType::Normal,
                reason: "Preempted",
                action: "Preempting",
                note: format!("Preempted by pod {} on node {node}", pod.uid),
                controller: self.cluster.names.text(pod.spec.scheduler_name).into(),
            };
            actions.push(self.action(ActionKind::Event(record)));
        }
        let Some(preempting) = self.preempting.get_mut(&preemptor) else {
            return actions;
        };
        preempting.running -= 1;
        preempting.failed |= failed;
        if preempting.running > 0 {
            return actions;
        }
        if preempting.failed {
            self.preempting.remove(&preemptor);
            let (queue, gate) = self.queue_and_gate(now);
            queue.activate(preemptor, now, &gate);
            return actions;
        }
        match preempting.last.take() {
            Some(last) => {
                preempting.running = 1;
                let node = preempting.node.clone();
                actions.push(self.start_eviction(preemptor, &node, last));
            }
            None => {
                self.preempting.remove(&preemptor);
            }
        }
        actions
    }
}
