use super::*;
use crate::fixture::{World, container, cpus, quota as us, wanted};
use crate::input::{Capabilities, ContainerUsage};
use serde_json::{Value as Json, json};

const POD: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda.slice";
const CONTAINER: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda.slice/cri-containerd-ca.scope";
const SECOND: Duration = Duration::from_secs(1);

/// A pod with a limit of one core, and what the kernel has of it.
fn world(policy: Json, quota_us: i64) -> World {
    World::new(8)
        .policy(json!({"cpuBurstStrategy": policy}))
        .pod(
            "a",
            "LS",
            "Burstable",
            container("a", json!({}), json!({"cpu": "1"})),
        )
        .has(CONTAINER, Knob::CpuQuota, us(quota_us))
        .has(POD, Knob::CpuQuota, us(quota_us))
}

fn throttled(mut world: World, share: f64) -> World {
    let usage = ContainerUsage {
        cpu: Some(1.0),
        throttled: Some(share),
    };
    world.usage.containers.insert("ca".into(), usage);
    world
}

fn plan_with(state: &mut State, world: &World) -> Plan {
    let mut windows = Windows::default();
    windows.take(&world.input(), SECOND);
    let mut metrics = Metrics::default();
    match state.plan(&world.input(), &windows, SECOND, &mut metrics) {
        Outcome::Plan(plan) => plan,
        Outcome::Keep(note) => panic!("{note:?}"),
    }
}

fn plan(world: &World) -> Plan {
    plan_with(&mut State::default(), world)
}

#[track_caller]
fn check_burst(limit: Option<i64>, policy: &str, percent: i64, expected: i64) {
    let config = CpuBurst {
        policy: Some(policy.into()),
        burst_percent: Some(percent),
        ..CpuBurst::default()
    };
    assert_eq!(burst_of(limit, &config), expected);
}

#[test]
fn bursts() {
    check_burst(Some(1000), "auto", 1000, 1_000_000);
    check_burst(Some(1500), "cpuBurstOnly", 33, 49_500);
    check_burst(Some(1000), "cfsQuotaBurstOnly", 1000, 0);
    check_burst(Some(1000), "none", 1000, 0);
    check_burst(Some(1000), "odd", 1000, 0);
    check_burst(None, "auto", 1000, 0);
    check_burst(Some(0), "auto", 1000, 0);
    check_burst(Some(1000), "auto", -5, 0);
    check_burst(Some(i64::MAX), "auto", i64::MAX, i64::MAX);
}

/// As koordlet 1.8.0 computed them.
#[test]
fn bursts_are_those_of_the_original() {
    let mut rows = 0;
    for line in include_str!("../../../testdata/burst.jsonl").lines() {
        let row: Json = serde_json::from_str(line).unwrap();
        let number = |field: &str| row[field].as_i64().unwrap();
        let policy = row["policy"].as_str().unwrap();
        check_burst(
            Some(number("limit")),
            policy,
            number("percent"),
            number("burst"),
        );
        rows += 1;
    }
    assert!(rows >= 100);
}

#[test]
fn a_burst_is_no_more_than_the_quota_where_the_kernel_says_so() {
    let mut world = world(json!({"policy": "cpuBurstOnly"}), 100_000);
    let found = plan(&world);
    assert_eq!(
        wanted(&found, CONTAINER, Knob::CpuBurst),
        Some(Value::Number(100_000))
    );
    assert_eq!(
        wanted(&found, POD, Knob::CpuBurst),
        Some(Value::Number(100_000))
    );
    // A pod without a quota may save up whatever its containers may.
    world = world.has(POD, Knob::CpuQuota, us(-1));
    assert_eq!(
        wanted(&plan(&world), POD, Knob::CpuBurst),
        Some(Value::Number(100_000))
    );
    world.kernel.capabilities = Capabilities::v1();
    let found = plan(&world);
    assert_eq!(
        wanted(&found, CONTAINER, Knob::CpuBurst),
        Some(Value::Number(1_000_000))
    );
    assert_eq!(
        wanted(&found, POD, Knob::CpuBurst),
        Some(Value::Number(1_000_000))
    );
}

#[track_caller]
fn check_quota(policy: &str, share: f64, now: i64, expected: i64) {
    let world = throttled(world(json!({"policy": policy}), now), share);
    let plan = plan(&world);
    assert_eq!(wanted(&plan, CONTAINER, Knob::CpuQuota), Some(us(expected)));
    assert_eq!(wanted(&plan, POD, Knob::CpuQuota), Some(us(expected)));
}

#[test]
fn quotas_move_in_steps_between_limit_and_ceiling() {
    check_quota("auto", 0.5, 100_000, 120_000);
    check_quota("cfsQuotaBurstOnly", 0.01, 120_000, 144_000);
    check_quota("auto", 0.5, 290_000, 300_000);
    check_quota("auto", 0.5, 300_000, 300_000);
    check_quota("auto", 0.0, 144_000, 144_000);
    check_quota("none", 0.5, 144_000, 100_000);
    check_quota("cpuBurstOnly", 0.5, 144_000, 100_000);
    // A limit that was raised wins.
    check_quota("auto", 0.0, 50_000, 100_000);
}

#[test]
fn a_busy_node_takes_back() {
    let mut world = throttled(world(json!({"policy": "auto"}), 144_000), 0.5);
    world.usage.node_cpu = Some(4.0);
    assert_eq!(
        wanted(&plan(&world), CONTAINER, Knob::CpuQuota),
        Some(us(115_200))
    );
    // Nine tenths of the threshold: nothing more is given.
    world.usage.node_cpu = Some(3.6);
    assert_eq!(
        wanted(&plan(&world), CONTAINER, Knob::CpuQuota),
        Some(us(144_000))
    );
    world.usage.node_cpu = Some(3.59);
    assert_eq!(
        wanted(&plan(&world), CONTAINER, Knob::CpuQuota),
        Some(us(172_800))
    );
    world.usage.node_cpu = None;
    assert_eq!(
        wanted(&plan(&world), CONTAINER, Knob::CpuQuota),
        Some(us(144_000))
    );
}

#[test]
fn the_share_pool_is_without_pods_that_have_their_own() {
    let mut world = world(json!({"policy": "auto"}), 100_000)
        .pod(
            "lsr",
            "LSR",
            "Guaranteed",
            container("lsr", json!({"cpu": "4"}), json!({"cpu": "4"})),
        )
        .pod("be", "BE", "BestEffort", json!({}))
        .uses("lsr", 3.0, 0.0)
        .uses("be", 2.0, 0.0);
    world.usage.node_cpu = Some(6.0);
    let mut windows = Windows::default();
    windows.take(&world.input(), SECOND);
    // One core of four.
    assert_eq!(
        SharePool::of(&world.input(), &windows, SECOND),
        SharePool::Idle(0.25)
    );
    let policy = json!({"cpuBurstStrategy": {"sharePoolThresholdPercent": 25}});
    world.policy = crate::Policy::of(&policy);
    assert_eq!(
        SharePool::of(&world.input(), &windows, SECOND),
        SharePool::Overloaded(0.25)
    );
}

#[test]
fn a_pod_says_for_itself() {
    let mut world = throttled(world(json!({"policy": "none"}), 100_000), 0.5);
    world.pods.clear();
    let mut own = container("a", json!({}), json!({"cpu": "1"}));
    own["metadata"] = json!({"annotations": {"koordinator.sh/cpuBurst": "{\"policy\":\"auto\",\"cfsQuotaBurstPercent\":110}"}});
    let spoken = world.clone().pod("a", "LS", "Burstable", own.clone());
    assert_eq!(
        wanted(&plan(&spoken), CONTAINER, Knob::CpuQuota),
        Some(us(110_000))
    );
    own["metadata"] = json!({"annotations": {"koordinator.sh/cpuBurst": "no JSON"}});
    let odd = world.pod("a", "LS", "Burstable", own);
    assert_eq!(
        wanted(&plan(&odd), CONTAINER, Knob::CpuQuota),
        Some(us(100_000))
    );
}

#[test]
fn who_uses_more_for_too_long_is_lowered() {
    let policy = json!({"policy": "auto", "cfsQuotaBurstPeriodSeconds": 10});
    let mut world = throttled(world(policy.clone(), 100_000), 0.5);
    world.usage.containers.get_mut("ca").unwrap().cpu = Some(3.0);
    let mut state = State::default();
    let mut seen = Vec::new();
    for _ in 0..12 {
        let plan = plan_with(&mut state, &world);
        world.apply(&plan);
        let Some(Value::Quota {
            quota_us: Some(quota),
            ..
        }) = wanted(&plan, CONTAINER, Knob::CpuQuota)
        else {
            panic!("no quota")
        };
        seen.push(quota);
        world.tick();
    }
    assert!(seen.iter().any(|quota| *quota > 100_000), "{seen:?}");
    assert_eq!(seen.last(), Some(&100_000), "{seen:?}");
    // Less than the limit with a limiter makes no sense, and lowers.
    let mut world = throttled(world.policy(json!({"cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": 10, "cfsQuotaBurstPercent": 90}})), 0.5);
    world = world.has(CONTAINER, Knob::CpuQuota, us(144_000));
    assert_eq!(
        wanted(&plan(&world), CONTAINER, Knob::CpuQuota),
        Some(us(100_000))
    );
}

#[test]
fn who_is_left_alone() {
    let limits = || container("x", json!({}), json!({"cpu": "1"}));
    for qos in ["LSE", "LSR", "BE"] {
        let world = World::new(4).pod("x", qos, "Burstable", limits());
        assert_eq!(plan(&world).effects, []);
    }
    let mut own = limits();
    own["metadata"] =
        json!({"annotations": {"scheduling.koordinator.sh/resource-status": "{\"cpuset\":\"1\"}"}});
    let world = World::new(4)
        .pod("x", "", "Burstable", own)
        .has("/x", Knob::Cpuset, cpus("0"));
    assert!(plan(&world).effects.iter().all(|one| !matches!(
        one.target,
        Target::Cgroup {
            knob: Knob::CpuQuota,
            ..
        }
    )));
    let mut done = limits();
    done["status"] = json!({"phase": "Succeeded"});
    assert_eq!(
        plan(&World::new(4).pod("x", "LS", "Burstable", done)).effects,
        []
    );
}
