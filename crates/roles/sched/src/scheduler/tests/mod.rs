//! Whole cycles, on a cluster that does what it is told.

use super::*;
use crate::action::{ActionResult, NominatedNode};
use crate::model::decode;

mod preemption;
mod waiting;

/// A cluster that does what it is told: binds, evicts and patches at once.
struct World {
    scheduler: Scheduler,
    now: Time,
    version: u64,
    /// What was written, a line each.
    log: Vec<String>,
    /// Bindings fail with that.
    bind_error: Option<String>,
}

fn world() -> World {
    world_with(|profile| profile)
}

fn world_with(change: impl FnOnce(Profile) -> Profile) -> World {
    let mut names = Names::default();
    let name = names.intern("default-scheduler");
    let config = Config {
        profiles: vec![change(Profile::standard(name))],
        queue: QueueConfig::default(),
        seed: 7,
    };
    World {
        scheduler: Scheduler::new(config, names),
        now: Time::from_secs(1_000_000),
        version: 0,
        log: Vec::new(),
        bind_error: None,
    }
}

impl World {
    fn node(&mut self, name: &str, cpu: &str) {
        self.node_json(&format!(
            r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{{"cpu":"{cpu}","memory":"8Gi","pods":"10"}}}}}}"#
        ));
    }

    fn node_json(&mut self, json: &str) {
        let node = decode::node(json.as_bytes(), self.scheduler.names_mut()).unwrap();
        self.scheduler
            .observe(Observation::Node(Box::new(node)), self.now);
    }

    fn pod(&mut self, name: &str, spec: &str) {
        self.version += 1;
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"d","uid":"{name}","resourceVersion":"{}","labels":{{"app":"{name}"}}}},"spec":{spec}}}"#,
            self.version
        );
        let pod = decode::pod(json.as_bytes(), self.scheduler.names_mut()).unwrap();
        self.scheduler
            .observe(Observation::Pod(Box::new(pod)), self.now);
    }

    fn asking(&mut self, name: &str, cpu: &str, more: &str) {
        self.pod(
            name,
            &format!(
                r#"{{"containers":[{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]{more}}}"#
            ),
        );
    }

    fn delete(&mut self, name: &str) {
        self.scheduler
            .observe(Observation::PodGone(name.into()), self.now);
    }

    /// Runs until nobody is ready, at one moment.
    fn run(&mut self) -> &mut Self {
        while let Some(cycle) = self.scheduler.step(self.now) {
            self.execute(cycle.actions);
        }
        let more = self.scheduler.take_actions();
        self.execute(more);
        self
    }

    fn execute(&mut self, actions: Vec<Action>) {
        for action in actions {
            let result = self.write(&action.kind);
            let next = self.scheduler.finished(action.id, result, self.now);
            self.execute(next);
        }
    }

    fn write(&mut self, kind: &ActionKind) -> ActionResult {
        match kind {
            ActionKind::Bind { pod, node } => {
                if let Some(error) = self.bind_error.take() {
                    self.log.push(format!("{} not bound", pod.name));
                    return ActionResult::Failed(error);
                }
                self.log.push(format!("bind {} {node}", pod.name));
                let id = self.scheduler.cluster.pods.find(&pod.uid).unwrap();
                let mut object = Pod::clone(&self.scheduler.cluster.pods.get(id).unwrap().pod);
                object.node = Some(self.scheduler.names_mut().intern(node));
                self.version += 1;
                object.resource_version = self.version.to_string().into();
                self.scheduler
                    .observe(Observation::Pod(Box::new(object)), self.now);
            }
            ActionKind::PatchStatus {
                pod,
                condition,
                nominated,
            } => {
                if let Some(condition) = condition {
                    self.log.push(format!(
                        "{} {}: {}",
                        pod.name, condition.reason, condition.message
                    ));
                }
                if *nominated != NominatedNode::Keep {
                    self.log
                        .push(format!("{} nominated {nominated:?}", pod.name));
                }
                let id = self.scheduler.cluster.pods.find(&pod.uid).unwrap();
                let mut object = Pod::clone(&self.scheduler.cluster.pods.get(id).unwrap().pod);
                match nominated {
                    NominatedNode::Keep => {}
                    NominatedNode::Clear => object.nominated = None,
                    NominatedNode::Set(node) => {
                        object.nominated = Some(self.scheduler.names_mut().intern(node))
                    }
                }
                if let Some(condition) = condition {
                    object.unscheduled = Some(Box::new(crate::model::Condition {
                        reason: condition.reason.into(),
                        message: condition.message.clone(),
                        observed_generation: condition.observed_generation,
                    }));
                }
                self.version += 1;
                object.resource_version = self.version.to_string().into();
                self.scheduler
                    .observe(Observation::Pod(Box::new(object)), self.now);
            }
            ActionKind::BindVolume { volume, claim, .. } => {
                self.log.push(format!("volume {volume} for {claim}"));
            }
            ActionKind::ReserveClaim {
                claim, allocation, ..
            } => {
                let devices = allocation.iter().flat_map(|allocation| &allocation.devices);
                let devices: Vec<_> = devices.map(|device| device.id.device.to_string()).collect();
                self.log
                    .push(format!("reserve {claim} [{}]", devices.join(" ")));
            }
            ActionKind::CreateClaim { pod, .. } => {
                self.log.push(format!("make a claim for {}", pod.name));
            }
            ActionKind::DeleteClaim { claim, .. } => self.log.push(format!("delete {claim}")),
            ActionKind::PatchGroup {
                name, condition, ..
            } => {
                self.log.push(format!("group {name} {}", condition.reason));
            }
            ActionKind::DeallocateClaim { claim, .. } => {
                self.log.push(format!("deallocate {claim}"))
            }
            ActionKind::SelectNode { claim, node, .. } => {
                self.log.push(format!("provide {claim} at {node}"));
            }
            ActionKind::Event(event) => {
                self.log.push(format!(
                    "event {} {}: {}",
                    event.regarding.name, event.reason, event.note
                ));
            }
            ActionKind::Evict { victim, .. } => {
                self.log.push(format!("evict {}", victim.name));
                self.delete(&victim.name.clone());
            }
        }
        ActionResult::Done
    }

    #[track_caller]
    fn check(&mut self, expected: &[&str]) {
        let log: Vec<_> = self
            .log
            .drain(..)
            .filter(|line| !line.starts_with("event"))
            .collect();
        assert_eq!(log, expected);
    }
}

#[test]
fn a_pod_is_bound_and_told() {
    let mut world = world();
    world.node("n", "2");
    world.asking("p", "1", "");
    world.run();
    assert_eq!(
        world.log,
        [
            "bind p n",
            "event p Scheduled: Successfully assigned d/p to n"
        ]
    );
    assert!(world.scheduler.queue.is_idle());
    assert_eq!(world.scheduler.under_way(), 0);
}

#[test]
fn without_nodes_the_words_are_others() {
    let mut world = world();
    world.asking("p", "1", "");
    let cycle = world.scheduler.step(world.now).unwrap();
    world.execute(cycle.actions);
    world.check(&["p Unschedulable: no nodes available to schedule pods"]);
    // Retried after every back-off until there is a node.
    assert!(world.scheduler.step(world.now).is_none());
    world.node("n", "2");
    world.now = world.scheduler.next_wakeup().unwrap();
    world.run().check(&["bind p n"]);
}

#[test]
fn reasons_are_counted_and_preemption_says_why_it_does_not_help() {
    let mut world = world();
    for name in ["a", "b", "c", "d"] {
        world.node(name, "2");
        world.asking(
            &format!("on-{name}"),
            "1500m",
            &format!(r#","nodeName":"{name}""#),
        );
    }
    world.node_json(r#"{"metadata":{"name":"e"},"spec":{"unschedulable":true},"status":{"allocatable":{"cpu":"2","pods":"10"}}}"#);
    world.asking("p", "1", "");
    world.run().check(&[
        "p Unschedulable: 0/5 nodes are available: 1 node(s) were unschedulable, 4 Insufficient cpu. \
         no new claims to deallocate, preemption: 0/5 nodes are available: 1 Preemption is not helpful for scheduling, \
         4 No preemption victims found for incoming pod.",
    ]);
}

#[test]
fn a_pod_refused_by_its_named_nodes() {
    let mut world = world();
    world.node("a", "2");
    world.node("b", "2");
    world.asking("big", "3", r#","affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
        {"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}]}}}"#);
    world.run().check(&[
        "big Unschedulable: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
         no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    ]);
}

#[test]
fn a_refusal_before_claims_were_asked_ends_oddly() {
    let mut world = world();
    world.node("a", "2");
    let field =
        |name: &str| format!(r#"{{"key":"metadata.name","operator":"In","values":["{name}"]}}"#);
    world.asking("odd", "1", &format!(r#","affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[
        {{"matchFields":[{},{}]}}]}}}}}}"#, field("a"), field("b")));
    world.run().check(&[
        "odd Unschedulable: 0/1 nodes are available: pod affinity terms conflict. not found",
    ]);
}

#[test]
fn room_that_becomes_free_wakes_who_waits_for_it() {
    let mut world = world();
    world.node("n", "2");
    world.asking("first", "2", "");
    world.asking("second", "2", "");
    world.run();
    world.log.clear();
    assert!(world.scheduler.step(world.now).is_none());
    world.delete("first");
    world.run().check(&["bind second n"]);
}

#[test]
fn a_gate_holds_until_it_is_gone() {
    let mut world = world();
    world.node("n", "2");
    world.asking("p", "1", r#","schedulingGates":[{"name":"g"}]"#);
    world.run().check(&[]);
    assert_eq!(world.scheduler.queue.lengths().gated, 1);
    world.asking("p", "1", "");
    world.run().check(&["bind p n"]);
}

#[test]
fn a_failed_binding_frees_the_room_and_is_tried_again_later() {
    let mut world = world();
    world.node("n", "2");
    world.asking("p", "2", "");
    world.bind_error = Some("conflict".to_owned());
    world.run();
    world.check(&[
        "p not bound",
        "p SchedulerError: running Bind plugin \"DefaultBinder\": conflict",
    ]);
    assert!(world.scheduler.step(world.now).is_none());
    world.now = world.scheduler.next_wakeup().unwrap();
    world.run().check(&["bind p n"]);
}

#[test]
fn an_extender_that_cannot_bind_speaks_for_itself() {
    let mut world = world();
    world.scheduler.engine.extenders = vec![Rule {
        binds: true,
        ..Rule::default()
    }];
    world.node("n", "2");
    world.asking("p", "2", "");
    world.bind_error = Some("boom".to_owned());
    world.run();
    world.check(&["p not bound", "p SchedulerError: boom"]);
}

#[test]
fn a_deleted_pod_is_skipped_with_a_word() {
    let mut world = world();
    world.node("n", "2");
    world.version += 1;
    let json = br#"{"metadata":{"name":"p","namespace":"d","uid":"p","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
    let pod = decode::pod(json, world.scheduler.names_mut()).unwrap();
    world
        .scheduler
        .observe(Observation::Pod(Box::new(pod)), world.now);
    world.run();
    assert_eq!(
        world.log,
        ["event p FailedScheduling: skip schedule deleting pod: d/p"]
    );
}

#[test]
fn pods_of_other_schedulers_are_not_ours_until_they_are_placed() {
    let mut world = world();
    world.node("n", "2");
    world.asking("p", "2", r#","schedulerName":"other""#);
    world.run().check(&[]);
    world.asking("p", "2", r#","schedulerName":"other","nodeName":"n""#);
    world.asking("q", "1", "");
    world.run();
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("Insufficient cpu"))
    );
}

#[test]
fn explanations_have_all_refusals_and_the_numbers() {
    let mut world = world();
    world.node("small", "1");
    world.node("big", "4");
    world.node_json(r#"{"metadata":{"name":"shut"},"spec":{"unschedulable":true},"status":{"allocatable":{"cpu":"1","memory":"8Gi","pods":"10"}}}"#);
    world.asking("p", "2", "");
    world.run();
    let explanation = world.scheduler.explain("p", world.now).unwrap();
    assert_eq!(explanation.node.as_deref(), Some("big"));
    let of = |name: &str| {
        explanation
            .nodes
            .iter()
            .find(|node| node.node == name)
            .unwrap()
    };
    assert!(of("big").fits() && of("big").total > 0);
    let refusals: Vec<_> = of("shut")
        .refusals
        .iter()
        .map(|finding| finding.plugin)
        .collect();
    assert_eq!(
        refusals,
        [Plugin::NodeUnschedulable, Plugin::NodeResourcesFit]
    );
    let shortage = &of("small").shortages[0];
    assert_eq!(
        (shortage.asked, shortage.taken, shortage.there),
        (2000, 0, 1000)
    );
}
