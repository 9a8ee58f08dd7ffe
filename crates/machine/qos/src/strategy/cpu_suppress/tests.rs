use super::*;
use crate::fixture::{BE, World, container, cpus, quota as us, wanted};
use serde_json::{Value as Json, json};

const POD: &str = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbe.slice";
const CONTAINER: &str = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbe.slice/cri-containerd-cbe.scope";

fn policy(rest: Json) -> Json {
    let mut spec = json!({"resourceUsedThresholdWithBE": {"enable": true}});
    plimsoll_api::json::merge(&mut spec["resourceUsedThresholdWithBE"], &rest);
    spec
}

/// A latency-sensitive pod and a best-effort one.
fn world(count: u32, rest: Json) -> World {
    World::new(count)
        .policy(policy(rest))
        .pod("ls", "LS", "Burstable", json!({}))
        .pod("be", "BE", "BestEffort", json!({}))
}

fn plan(state: &mut State, world: &World) -> Plan {
    let mut metrics = Metrics::default();
    match state.plan(&world.input(), &Gates::default(), &mut metrics) {
        Outcome::Plan(plan) => plan,
        Outcome::Keep(note) => panic!("{note:?}"),
    }
}

fn room(world: &World) -> i64 {
    Room::of(&world.input(), &world.node).unwrap().milli
}

#[test]
fn room_is_what_others_leave() {
    let mut world = world(10, json!({}))
        .uses("ls", 2.0, 0.0)
        .uses("be", 3.0, 0.0);
    world.usage.node_cpu = Some(6.0);
    // 10 × 65 % − 2 of the pod − 1 of the system.
    assert_eq!(room(&world), 3500);
    // What is kept counts as used by the system.
    world.node.reserved_milli = 1500;
    assert_eq!(room(&world), 3000);
    // A pod that nobody knows counts as one that matters.
    let world = world.uses("gone", 0.5, 0.0);
    assert_eq!(room(&world), 2500);
}

#[test]
fn programs_of_the_host_count() {
    let mut world = world(10, json!({}));
    world.policy.host_applications = crate::Policy::of(&json!({"hostApplications": [
        {"name": "nginx", "qos": "LS"},
        {"name": "yarn", "qos": "BE", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "y"}},
        {"name": "odd", "qos": "BE"},
    ]}))
    .host_applications;
    world.usage.node_cpu = Some(4.0);
    let used = [("nginx", 1.0), ("yarn", 2.0), ("odd", 0.25)];
    world.usage.host_applications = used.map(|(name, cpu)| (name.into(), cpu)).into();
    // 6.5 − 1.25 − 0.75 of the system.
    assert_eq!(room(&world), 4500);
}

#[test]
fn at_least_the_least() {
    let mut world = world(10, json!({"cpuSuppressMinPercent": 20}));
    world.usage.node_cpu = Some(9.0);
    assert_eq!(room(&world), 2000);
}

#[test]
fn cpus_shrink_at_once_and_grow_in_steps() {
    let mut world = world(20, json!({})).has(BE, Knob::Cpuset, cpus("0-19"));
    let mut state = State::default();
    world.usage.node_cpu = Some(11.0);
    let first = plan(&mut state, &world);
    // 13 − 11 cores.
    assert_eq!(wanted(&first, BE, Knob::Cpuset), Some(cpus("0,10")));
    assert_eq!(wanted(&first, POD, Knob::Cpuset), Some(cpus("0,10")));
    assert_eq!(wanted(&first, CONTAINER, Knob::Cpuset), Some(cpus("0,10")));
    // A quota that somebody left is taken away.
    assert_eq!(wanted(&first, BE, Knob::CpuQuota), Some(us(-1)));
    world.apply(&first);
    world.usage.node_cpu = Some(0.0);
    let second = plan(&mut state, &world);
    assert_eq!(wanted(&second, BE, Knob::Cpuset), Some(cpus("0-1,10-11")));
    assert_eq!(wanted(&second, BE, Knob::CpuQuota), None);
}

#[test]
fn never_fewer_than_two_cpus() {
    for percent in [0, -10] {
        let world = world(
            8,
            json!({"cpuSuppressThresholdPercent": percent, "cpuSuppressPolicy": "odd"}),
        )
        .has(BE, Knob::Cpuset, cpus("0-7"));
        let plan = plan(&mut State::default(), &world);
        assert_eq!(wanted(&plan, BE, Knob::Cpuset), Some(cpus("0,4")));
    }
}

#[test]
fn cpus_of_others_are_left_alone() {
    let status = |list: &str| {
        json!({"metadata": {"annotations": {
            "scheduling.koordinator.sh/resource-status": format!("{{\"cpuset\":\"{list}\"}}"),
        }}})
    };
    let mut world = world(8, json!({"cpuSuppressThresholdPercent": 100}))
        .pod("lse", "LSE", "Guaranteed", status("1"))
        .pod("lsr", "LSR", "Guaranteed", status("2-3"))
        .has(BE, Knob::Cpuset, cpus("0-7"));
    world.node.reserved_cpus = "0".parse().unwrap();
    world.node.exclusive_system_cpus = "7".parse().unwrap();
    let found = |world: &World| wanted(&plan(&mut State::default(), world), BE, Knob::Cpuset);
    // More is wanted than the five there are: all of them, not only those of the LSR pod.
    assert_eq!(found(&world), Some(cpus("2-6")));
    world.usage.node_cpu = Some(5.0);
    // Three: one of the two of the LSR pod.
    assert_eq!(found(&world), Some(cpus("2,4-5")));
}

/// As koordlet 1.8.0 chose them, of CPUs of each owner.
#[test]
fn choices_are_those_of_the_original() {
    let mut rows = 0;
    for line in include_str!("../../../testdata/choose.jsonl").lines() {
        let row: Json = serde_json::from_str(line).unwrap();
        let number = |field: &str| row[field].as_i64().unwrap();
        let owners = row["owners"].as_array().unwrap();
        let (cores, all) = (
            number("cores") as u32,
            (number("nodes") * number("cores")) as u32,
        );
        let mut world = World::new(1);
        world.node.cpus = (0..owners.len() as u32)
            .map(|id| Cpu {
                id,
                core: id % all,
                socket: id % all / cores,
                node: id % all / cores,
            })
            .collect();
        for (id, owner) in owners.iter().enumerate() {
            match owner.as_str().unwrap() {
                "" => {}
                "reserved" => drop(world.node.reserved_cpus.0.insert(id as u32)),
                qos => {
                    let status = json!({"cpuset": id.to_string()}).to_string();
                    let annotations = json!({"scheduling.koordinator.sh/resource-status": status});
                    let rest = json!({"metadata": {"annotations": annotations}});
                    world = world.pod(&format!("p{id}"), qos, "Guaranteed", rest);
                }
            }
        }
        let old = number("old") as usize;
        let found = choose(&world.node, &world.pods, number("milli"), old);
        let expected: CpuSet = row["got"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect();
        assert_eq!(found.unwrap_or_default(), expected, "{row}");
        rows += 1;
    }
    assert!(rows >= 100);
}

#[test]
fn too_much_without_lsr_pods_changes_nothing() {
    let world =
        world(8, json!({"cpuSuppressThresholdPercent": 150})).has(BE, Knob::Cpuset, cpus("0-7"));
    let plan = plan(&mut State::default(), &world);
    assert_eq!(wanted(&plan, BE, Knob::Cpuset), None);
}

#[test]
fn the_last_choice_gives_way_to_a_pod_that_shares_with_nobody() {
    let mut world =
        world(8, json!({"cpuSuppressThresholdPercent": 0})).has(BE, Knob::Cpuset, cpus("0-7"));
    let mut state = State::default();
    assert_eq!(
        wanted(&plan(&mut state, &world), BE, Knob::Cpuset),
        Some(cpus("0,4"))
    );
    // Of the one CPU that is free there are too few.
    world.node.reserved_cpus = "1-3,5-7".parse().unwrap();
    world = world.pod(
        "lse",
        "LSE",
        "Guaranteed",
        json!({"metadata": {"annotations": {
            "scheduling.koordinator.sh/resource-status": "{\"cpuset\":\"4\"}",
        }}}),
    );
    assert_eq!(
        wanted(&plan(&mut state, &world), BE, Knob::Cpuset),
        Some(cpus("0"))
    );
}

#[test]
fn the_static_policy_holds_back_containers_only() {
    let mut world = world(8, json!({})).has(BE, Knob::Cpuset, cpus("0-7"));
    world.node.static_cpu_manager = true;
    world.usage.node_cpu = Some(4.0);
    let plan = plan(&mut State::default(), &world);
    assert_eq!(wanted(&plan, BE, Knob::Cpuset), Some(cpus("0-7")));
    assert_eq!(wanted(&plan, POD, Knob::Cpuset), Some(cpus("0-7")));
    assert_eq!(wanted(&plan, CONTAINER, Knob::Cpuset), Some(cpus("0,4")));
}

#[test]
fn a_pod_with_cpus_of_its_own_keeps_them() {
    let world = world(8, json!({"cpuSuppressThresholdPercent": 0}))
        .pod(
            "own",
            "BE",
            "BestEffort",
            json!({"metadata": {"annotations": {
                "scheduling.koordinator.sh/resource-status": "{\"cpuset\":\"5-6\"}",
            }}}),
        )
        .has(BE, Knob::Cpuset, cpus("0-7"));
    let plan = plan(&mut State::default(), &world);
    // A tier must have what its pods have.
    assert_eq!(wanted(&plan, BE, Knob::Cpuset), Some(cpus("0,4-6")));
    assert_eq!(wanted(&plan, POD, Knob::Cpuset), Some(cpus("0,4")));
    assert_eq!(
        plan.effects
            .iter()
            .filter(|one| one
                .target
                .cgroup_path()
                .is_some_and(|path| path.contains("podown")))
            .count(),
        0
    );
}

#[test]
fn quotas() {
    for (milli, now, cores, expected) in [
        (2000, 400_000, 10, 200_000),
        (-5, 400_000, 10, 2000),
        // One percent of ten cores is not worth a write.
        (2099, 200_000, 10, 200_000),
        (2100, 200_000, 10, 210_000),
        // The least is always written.
        (10, 2500, 10, 2000),
        (6000, 200_000, 10, 300_000),
        // Nothing limits the first step.
        (6000, -1, 10, 600_000),
        (0, -1, 0, 2000),
        (50, -1, 10, -1),
        (i64::MAX, -1, 10, i64::MAX / 1000),
    ] {
        assert_eq!(quota(milli, now, cores), expected, "{milli} {now} {cores}");
    }
}

#[test]
fn by_quota_the_cpus_are_all_there() {
    let mut world = world(10, json!({"cpuSuppressPolicy": "cfsQuota"}))
        .has(BE, Knob::CpuQuota, us(-1))
        .has(BE, Knob::Cpuset, cpus("0-1"));
    let mut state = State::default();
    world.usage.node_cpu = Some(4.5);
    let first = plan(&mut state, &world);
    assert_eq!(wanted(&first, BE, Knob::CpuQuota), Some(us(200_000)));
    assert_eq!(wanted(&first, BE, Knob::Cpuset), Some(cpus("0-9")));
    world.apply(&first);
    // The other policy takes it away again.
    world.policy = crate::Policy::of(&policy(json!({})));
    let second = plan(&mut state, &world);
    assert_eq!(wanted(&second, BE, Knob::CpuQuota), Some(us(-1)));
    world.apply(&second);
    plan(&mut state, &world);
    assert_eq!(wanted(&plan(&mut state, &world), BE, Knob::CpuQuota), None);
}

#[test]
fn off_means_all_cpus_that_are_nobodys() {
    let world = World::new(4)
        .pod(
            "be",
            "BE",
            "BestEffort",
            container("be", json!({}), json!({})),
        )
        .pod(
            "lse",
            "LSE",
            "Guaranteed",
            json!({"metadata": {"annotations": {
                "scheduling.koordinator.sh/resource-status": "{\"cpuset\":\"1\"}",
            }}}),
        );
    let plan = plan(&mut State::default(), &world);
    assert_eq!(wanted(&plan, BE, Knob::Cpuset), Some(cpus("0,2-3")));
    assert_eq!(wanted(&plan, CONTAINER, Knob::Cpuset), Some(cpus("0,2-3")));
}

#[test]
fn beside_the_manager_of_best_effort_cpus() {
    let world = World::new(4).pod(
        "be",
        "BE",
        "BestEffort",
        json!({"metadata": {"annotations": {
            "scheduling.koordinator.sh/resource-status": "{\"numaNodeResources\":[{\"node\":0}]}",
        }}}),
    );
    let gates = Gates {
        be_cpu_manager: true,
        ..Gates::default()
    };
    let outcome = State::default().plan(&world.input(), &gates, &mut Metrics::default());
    let Outcome::Plan(plan) = outcome else {
        panic!("no plan")
    };
    assert_eq!(wanted(&plan, POD, Knob::Cpuset), Some(cpus("0-3")));
    assert_eq!(wanted(&plan, CONTAINER, Knob::Cpuset), None);
}

#[test]
fn nothing_without_pods_or_readings() {
    let mut world = world(8, json!({}));
    let outcome = State::default().plan(&world.input(), &Gates::default(), &mut Metrics::default());
    assert!(matches!(outcome, Outcome::Keep(Some(_))));
    world.pods.clear();
    let outcome = State::default().plan(&world.input(), &Gates::default(), &mut Metrics::default());
    assert!(matches!(outcome, Outcome::Keep(None)));
}
