//! What pods wait for before they are bound: volumes, each other, devices.

use super::*;

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
    world.run();
    world.log.retain(|line| line.starts_with("bind"));
    // Whoever made it complete goes first.
    world.check(&["bind b n", "bind a n"]);
}

#[test]
fn half_a_gang_takes_no_room() {
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
    let alone = "b Unschedulable: pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, \
        one or more plugins asked to wait and no plugin rejected pod";
    assert!(world.log.contains(&alone.to_owned()), "{:?}", world.log);
    world.log.clear();
    // Somebody without a group may have the room.
    world.asking("c", "1", "");
    world.run();
    assert!(
        world.log.contains(&"bind c n".to_owned()),
        "{:?}",
        world.log
    );
    world.log.clear();
    world.node("m", "2");
    world.run();
    let bound = world.log.iter().filter(|line| line.starts_with("bind"));
    assert_eq!(bound.count(), 2, "{:?}", world.log);
}

impl World {
    /// Pods of a gang of two, tried one by one: a cycle that has to ask an extender cannot be one of several.
    fn with_half_a_gang() -> Self {
        let mut world = world_with(Profile::with_gangs);
        world.scheduler.engine.extenders = vec![Rule {
            binds: true,
            ..Rule::default()
        }];
        world.node("n", "1");
        let group = decode::pod_group(
            br#"{"metadata":{"name":"g","namespace":"d"},"spec":{"schedulingPolicy":{"gang":{"minCount":2}}}}"#,
            world.scheduler.names_mut(),
        );
        world
            .scheduler
            .observe(Observation::Group(group.unwrap()), world.now);
        world.member("a");
        world.member("b");
        world
    }

    fn member(&mut self, name: &str) {
        self.asking(name, "1", r#","schedulingGroup":{"podGroupName":"g"}"#);
    }
}

#[test]
fn half_a_gang_does_not_hold_its_nodes_for_ever() {
    let mut world = World::with_half_a_gang();
    let began = world.now;
    world.run();
    // The one that has the node says so, as long as it is not for sure.
    assert_eq!(world.log[0], "a nominated Set(\"n\")", "{:?}", world.log);
    assert_eq!(world.scheduler.take_given_up(), []);
    world.log.clear();
    world.delete("b");
    world.asking("c", "1", "");
    world.now = began.after(Duration::from_secs(299));
    world.run();
    assert!(
        !world.log.iter().any(|line| line.starts_with("bind")),
        "{:?}",
        world.log
    );
    world.log.clear();
    let deadline = began.after(Duration::from_secs(300));
    assert!(
        world
            .scheduler
            .next_wakeup()
            .is_some_and(|at| at <= deadline)
    );
    world.now = deadline;
    world.run().run();
    let late = "a Unschedulable: 0/1 nodes are available: 1 rejected due to timeout after waiting 5m0s at plugin GangScheduling.";
    let wanted = ["bind c n", late, "a nominated Clear"];
    world.log.retain(|line| wanted.contains(&line.as_str()));
    assert_eq!(world.log, wanted);
    assert_eq!(
        world.scheduler.take_given_up(),
        [GivenUp {
            uid: "a".into(),
            is_refused: true
        }]
    );
}

#[test]
fn what_is_kept_for_pods_that_wait_does_not_grow() {
    let mut world = World::with_half_a_gang();
    world.run();
    let kept = |world: &World| world.scheduler.queue.in_flight().1.count();
    for round in 0..50 {
        world.node("m", if round % 2 == 0 { "500m" } else { "600m" });
        world.asking("x", "100m", r#","nodeName":"m""#);
        world.delete("x");
        if round == 10 {
            assert!(kept(&world) > 0);
        }
    }
    assert!(kept(&world) < 10, "{}", kept(&world));
    // What came meanwhile is not lost on the pod: another of its gang has.
    world.member("b2");
    world.now = world.now.after(Duration::from_secs(300));
    world.scheduler.step(world.now);
    assert_eq!(world.scheduler.take_given_up().len(), 1);
    let id = world.scheduler.cluster.pods.find("a").unwrap();
    let room = world.scheduler.queue.get(id).unwrap().room;
    assert_ne!(room, crate::queue::Room::Unschedulable);
}

#[test]
fn a_gang_that_becomes_complete_is_bound_though_its_pods_were_tried_apart() {
    let mut world = World::with_half_a_gang();
    world.run();
    world.log.clear();
    world.now = world.now.after(Duration::from_secs(100));
    world.node("m", "1");
    world.run();
    world.log.retain(|line| line.starts_with("bind"));
    world.check(&["bind a n", "bind b m"]);
    assert_eq!(world.scheduler.queue.in_flight().0, 0);
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

    /// With a device that has to become ready once it is given.
    fn with_slow_device() -> Self {
        let mut world = Self::with_devices();
        let slice = decode::resource_slice(
            br#"{"metadata":{"name":"s"},"spec":{"driver":"d.io","nodeName":"n","pool":{"name":"n","generation":1,"resourceSliceCount":1},
                "devices":[{"name":"one","bindingConditions":["ready"]}]}}"#,
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

#[test]
fn devices_have_to_become_ready_even_if_what_was_written_comes_back_late() {
    let mut world = World::with_slow_device();
    world.resource_claim("c", "{}");
    world.claiming("p", "c");
    world.run();
    assert!(
        !world.log.iter().any(|line| line.starts_with("bind")),
        "{:?}",
        world.log
    );
    world.resource_claim(
        "c",
        r#"{"allocation":{"devices":{"results":[{"request":"q","driver":"d.io","pool":"n","device":"one","bindingConditions":["ready"]}]}},
            "reservedFor":[{"uid":"p"}],
            "devices":[{"driver":"d.io","pool":"n","device":"one","conditions":[{"type":"ready","status":"True"}]}]}"#,
    );
    world.run();
    assert!(
        world.log.contains(&"bind p n".to_owned()),
        "{:?}",
        world.log
    );
}

#[test]
fn devices_that_do_not_become_ready_are_given_back() {
    let mut world = World::with_slow_device();
    world.resource_claim("c", "{}");
    world.claiming("p", "c");
    world.run();
    let given = world.now.written();
    let waiting = format!(
        r#"{{"allocation":{{"allocationTimestamp":"{given}","devices":{{"results":[{{"request":"q","driver":"d.io","pool":"n",
            "device":"one","bindingConditions":["ready"]}}]}}}},"reservedFor":[{{"uid":"p"}}]}}"#
    );
    world.resource_claim("c", &waiting);
    world.run();
    world.log.clear();
    world.now = world.scheduler.next_wakeup().unwrap();
    world.run();
    let late = "p SchedulerError: running PreBind plugin \"DynamicResources\": device binding timeout: context deadline exceeded";
    assert!(world.log.contains(&late.to_owned()), "{:?}", world.log);
    // The second in which they were given has to be over as well.
    world.now = world.now.after(Duration::from_secs(11));
    world.run();
    assert!(
        world.log.contains(&"deallocate c".to_owned()),
        "{:?}",
        world.log
    );
}

/// Two devices on each of some of many nodes, and pods of which each takes one.
fn many_devices(threads: usize) -> Vec<String> {
    let mut world = world();
    world.scheduler = world.scheduler.with_parallelism(threads.into());
    let class = decode::device_class(
        br#"{"metadata":{"name":"gpu"},"spec":{"selectors":[{"cel":{"expression":"device.attributes['d.io'].size >= 2"}}]}}"#,
    );
    world
        .scheduler
        .observe(Observation::DeviceClass(class.unwrap()), world.now);
    for index in 0..110 {
        world.node(&format!("n{index}"), "4");
        if index % 5 > 0 {
            continue;
        }
        let size = index % 4;
        let json = format!(
            r#"{{"metadata":{{"name":"s{index}"}},"spec":{{"driver":"d.io","nodeName":"n{index}",
                "pool":{{"name":"n{index}","generation":1,"resourceSliceCount":1}},"devices":[
                {{"name":"one","attributes":{{"size":{{"int":{size}}}}}}},
                {{"name":"two","attributes":{{"size":{{"int":2}}}}}}]}}}}"#
        );
        let slice = decode::resource_slice(json.as_bytes(), world.scheduler.names_mut());
        world.scheduler.observe(
            Observation::ResourceSlice(Box::new(slice.unwrap())),
            world.now,
        );
    }
    for index in 0..36 {
        world.resource_claim(&format!("c{index}"), "{}");
        world.claiming(&format!("p{index}"), &format!("c{index}"));
    }
    world.run();
    world.log
}

#[test]
fn devices_are_the_same_with_any_number_of_threads() {
    let alone = many_devices(1);
    let count = |word: &str| alone.iter().filter(|line| line.starts_with(word)).count();
    // Of 22 nodes, 10 have two that are large enough, the others one.
    assert_eq!(count("bind"), 32);
    assert!(
        alone
            .iter()
            .any(|line| line.contains("cannot allocate all claims"))
    );
    for threads in [2, 16] {
        assert_eq!(many_devices(threads), alone, "{threads}");
    }
}
