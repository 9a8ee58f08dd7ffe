use super::*;
use crate::action::{ActionResult, NominatedNode};
use crate::model::decode;

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
fn less_important_pods_make_room() {
    let mut world = world();
    world.node("n", "2");
    world.asking("low", "1500m", r#","nodeName":"n""#);
    world.asking("other", "500m", r#","nodeName":"n","priority":3"#);
    world.asking("high", "1", r#","priority":10"#);
    world.run();
    assert!(
        world
            .log
            .contains(&"event low Preempted: Preempted by pod high on node n".to_owned()),
        "{:?}",
        world.log
    );
    world.check(&[
        "evict low",
        "high Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        "high nominated Set(\"n\")",
        "bind high n",
    ]);
}

#[test]
fn several_victims_go_before_the_last_wakes_the_preemptor() {
    let mut world = world();
    world.node("n", "3");
    for name in ["a", "b", "c"] {
        world.asking(name, "1", r#","nodeName":"n""#);
    }
    world.asking("high", "3", r#","priority":10"#);
    let cycle = world.scheduler.step(world.now).unwrap();
    let evictions: Vec<_> = cycle
        .actions
        .iter()
        .filter(|action| matches!(action.kind, ActionKind::Evict { .. }))
        .map(|action| action.id)
        .collect();
    assert_eq!(evictions.len(), 2);
    // Not tried while victims are still being evicted, whatever happens.
    world.delete("a");
    assert!(world.scheduler.step(world.now).is_none());
    world
        .scheduler
        .finished(evictions[0], ActionResult::Done, world.now);
    let last = world
        .scheduler
        .finished(evictions[1], ActionResult::Done, world.now);
    assert!(
        last.iter()
            .any(|action| matches!(action.kind, ActionKind::Evict { .. }))
    );
    world.delete("b");
    world.execute(last);
    world.run();
    assert!(
        world.log.contains(&"bind high n".to_owned()),
        "{:?}",
        world.log
    );
}

#[test]
fn who_may_never_preempt_says_so() {
    let mut world = world();
    world.node("n", "1");
    world.asking("low", "1", r#","nodeName":"n""#);
    world.asking("p", "1", r#","priority":10,"preemptionPolicy":"Never""#);
    world.run().check(&[
        "p Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
         preemption: not eligible due to preemptionPolicy=Never.",
    ]);
}

#[test]
fn a_budget_protects_where_there_is_a_choice() {
    let mut world = world();
    for node in ["a", "b"] {
        world.node(node, "1");
        world.asking(
            &format!("on-{node}"),
            "1",
            &format!(r#","nodeName":"{node}""#),
        );
    }
    let budget = decode::disruption_budget(
        br#"{"metadata":{"name":"b","namespace":"d"},"spec":{"selector":{"matchLabels":{"app":"on-a"}}},"status":{"disruptionsAllowed":0}}"#,
        world.scheduler.names_mut(),
    );
    world
        .scheduler
        .observe(Observation::Budget(budget.unwrap()), world.now);
    world.asking("high", "1", r#","priority":10"#);
    world.run();
    assert!(
        world.log.contains(&"evict on-b".to_owned()),
        "{:?}",
        world.log
    );
}

#[test]
fn nominated_pods_keep_their_place_from_those_below() {
    let mut world = world();
    world.node("n", "2");
    world.asking("low", "2", r#","nodeName":"n""#);
    world.asking("high", "2", r#","priority":10"#);
    let cycle = world.scheduler.step(world.now).unwrap();
    let eviction = cycle
        .actions
        .iter()
        .find(|action| matches!(action.kind, ActionKind::Evict { .. }))
        .unwrap()
        .id;
    // The room is free, but promised.
    world.asking("sneaky", "2", r#","priority":5"#);
    world
        .scheduler
        .finished(eviction, ActionResult::Done, world.now);
    world.delete("low");
    world.run();
    assert!(
        world.log.contains(&"bind high n".to_owned()),
        "{:?}",
        world.log
    );
    assert!(!world.log.iter().any(|line| line.starts_with("bind sneaky")));
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

fn claim(volume: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"c","namespace":"d","uid":"c","annotations":{{{more}}}}},"spec":{{"storageClassName":"late","volumeName":"{volume}",
            "resources":{{"requests":{{"storage":"1Gi"}}}}}}}}"#
    )
}

impl World {
    fn claim(&mut self, json: &str) {
        let claim = decode::volume_claim(json.as_bytes(), self.scheduler.names_mut()).unwrap();
        self.scheduler
            .observe(Observation::Claim(Box::new(claim)), self.now);
    }

    fn with_late_class(provisioner: &str) -> Self {
        let mut world = world();
        world.node("n", "2");
        let json = format!(
            r#"{{"metadata":{{"name":"late"}},"provisioner":"{provisioner}","volumeBindingMode":"WaitForFirstConsumer"}}"#
        );
        let class = decode::storage_class(json.as_bytes(), world.scheduler.names_mut()).unwrap();
        world
            .scheduler
            .observe(Observation::StorageClass(class), world.now);
        world.claim(&claim("", ""));
        world
    }

    fn user(&mut self, name: &str) {
        self.asking(
            name,
            "1",
            r#","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]"#,
        );
    }
}

#[test]
fn a_pod_is_bound_when_its_claims_are() {
    let mut world = World::with_late_class("x");
    world.user("p");
    world
        .run()
        .check(&["p nominated Set(\"n\")", "provide c at n"]);
    world.claim(&claim("v", r#""pv.kubernetes.io/bind-completed":"yes""#));
    world.run().check(&["bind p n"]);
}

#[test]
fn claims_that_do_not_come_are_not_awaited_for_ever() {
    let mut world = World::with_late_class("x");
    world.user("p");
    world
        .run()
        .check(&["p nominated Set(\"n\")", "provide c at n"]);
    world.now = world.now.after(Duration::from_secs(600));
    world.run();
    let failed = "p SchedulerError: running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(
        world.log.iter().filter(|line| *line == failed).count(),
        1,
        "{:?}",
        world.log
    );
}

#[test]
fn two_pods_do_not_get_the_same_volume() {
    let mut world = World::with_late_class("kubernetes.io/no-provisioner");
    let json = br#"{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"storageClassName":"late"},"status":{"phase":"Available"}}"#;
    let volume = decode::persistent_volume(json, world.scheduler.names_mut()).unwrap();
    world
        .scheduler
        .observe(Observation::Volume(Box::new(volume)), world.now);
    world.claim(&claim("", "").replace(r#""name":"c""#, r#""name":"other""#));
    world.user("p");
    world.asking(
        "q",
        "1",
        r#","volumes":[{"persistentVolumeClaim":{"claimName":"other"}}]"#,
    );
    world.run();
    let bound: Vec<_> = world
        .log
        .iter()
        .filter(|line| line.starts_with("volume"))
        .collect();
    assert_eq!(bound, ["volume v for c"]);
    assert!(world.log.iter().any(|line| {
        line.starts_with(
            "q Unschedulable: 0/1 nodes are available: 1 node(s) didn't find available",
        )
    }));
}

#[test]
fn a_gang_is_bound_together() {
    let mut world = world_with(Profile::with_gangs);
    world.node("n", "3");
    let group = decode::pod_group(
        br#"{"metadata":{"name":"g","namespace":"d"},"spec":{"schedulingPolicy":{"gang":{"minCount":2}}}}"#,
        world.scheduler.names_mut(),
    );
    let member = r#","schedulingGroup":{"podGroupName":"g"}"#;
    world.asking("a", "1", member);
    world.run().check(&[]);
    world
        .scheduler
        .observe(Observation::Group(group.unwrap()), world.now);
    world.run().check(&[]);
    world.asking("b", "1", member);
    let first = world.scheduler.step(world.now).unwrap();
    assert!(
        !first
            .actions
            .iter()
            .any(|action| matches!(action.kind, ActionKind::Bind { .. }))
    );
    world.execute(first.actions);
    world.run();
    world.log.retain(|line| line.starts_with("bind"));
    world.check(&["bind a n", "bind b n"]);
}

#[test]
fn half_a_gang_gives_its_room_back() {
    let mut world = world_with(Profile::with_gangs);
    world.node("n", "1");
    let group = decode::pod_group(
        br#"{"metadata":{"name":"g","namespace":"d"},"spec":{"schedulingPolicy":{"gang":{"minCount":2}}}}"#,
        world.scheduler.names_mut(),
    );
    world
        .scheduler
        .observe(Observation::Group(group.unwrap()), world.now);
    for name in ["a", "b"] {
        world.asking(name, "1", r#","schedulingGroup":{"podGroupName":"g"}"#);
    }
    world.run();
    assert!(!world.log.iter().any(|line| line.starts_with("bind")));
    world.log.clear();
    world.now = world.now.after(Duration::from_secs(300));
    world.run();
    let rejected = "a Unschedulable: 0/1 nodes are available: 1 rejected due to timeout after waiting 5m0s at plugin GangScheduling.";
    assert!(world.log.contains(&rejected.to_owned()), "{:?}", world.log);
}

impl World {
    fn with_devices() -> Self {
        let mut world = world();
        world.node("n", "4");
        let class = decode::device_class(br#"{"metadata":{"name":"gpu"}}"#).unwrap();
        world
            .scheduler
            .observe(Observation::DeviceClass(class), world.now);
        let slice = decode::resource_slice(
            br#"{"metadata":{"name":"s"},"spec":{"driver":"d.io","nodeName":"n","pool":{"name":"n","generation":1,"resourceSliceCount":1},
                "devices":[{"name":"one"}]}}"#,
            world.scheduler.names_mut(),
        );
        world.scheduler.observe(
            Observation::ResourceSlice(Box::new(slice.unwrap())),
            world.now,
        );
        world
    }

    fn resource_claim(&mut self, name: &str, status: &str) {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"d","uid":"{name}"}},"status":{status},
                "spec":{{"devices":{{"requests":[{{"name":"q","exactly":{{"deviceClassName":"gpu"}}}}]}}}}}}"#
        );
        let claim = decode::resource_claim(json.as_bytes(), self.scheduler.names_mut()).unwrap();
        self.scheduler
            .observe(Observation::ResourceClaim(Box::new(claim)), self.now);
    }

    fn claiming(&mut self, name: &str, claim: &str) {
        self.asking(
            name,
            "1",
            &format!(r#","resourceClaims":[{{"name":"r","resourceClaimName":"{claim}"}}]"#),
        );
    }
}

#[test]
fn a_device_goes_to_one_claim_only() {
    let mut world = World::with_devices();
    world.claiming("p", "a");
    // Without its claim, a pod is not even queued.
    world.run().check(&[]);
    world.resource_claim("a", "{}");
    world.resource_claim("b", "{}");
    world
        .run()
        .check(&["p nominated Set(\"n\")", "reserve a [one]", "bind p n"]);
    world.claiming("q", "b");
    world.run();
    let refused = "q Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, \
                   preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert!(world.log.contains(&refused.to_owned()), "{:?}", world.log);
}

#[test]
fn a_claim_that_is_elsewhere_is_taken_back() {
    let mut world = World::with_devices();
    world.resource_claim(
        "a",
        r#"{"allocation":{"devices":{},"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["gone"]}]}]}}}"#,
    );
    world.claiming("p", "a");
    world.run();
    assert!(
        world.log.contains(&"deallocate a".to_owned()),
        "{:?}",
        world.log
    );
    assert!(world.log.iter().any(|line| {
        line.starts_with("p Unschedulable: 0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of ResourceClaim completed, ")
    }));
    world.log.clear();
    world.resource_claim("a", "{}");
    world.run();
    assert!(
        world.log.contains(&"bind p n".to_owned()),
        "{:?}",
        world.log
    );
}
