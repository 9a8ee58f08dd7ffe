use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::needs::{Amounts, Resource};
use super::*;
use crate::fixture::{World, container};
use crate::policy::Policy;
use crate::settings::Gates;

const GIB: f64 = (1_u64 << 30) as f64;

fn threshold(rest: Json) -> Json {
    let mut spec = json!({"resourceUsedThresholdWithBE": {"enable": true}});
    plimsoll_api::json::merge(&mut spec["resourceUsedThresholdWithBE"], &rest);
    spec
}

fn settings(mut settings: Settings, gates: &[&str]) -> Settings {
    settings.gates = Gates::default();
    for gate in gates {
        assert!(settings.gates.set(gate, true));
    }
    settings
}

/// A best-effort pod that asks for batch CPU and uses memory.
fn batch(world: World, name: &str, priority: i32, milli: i64, gib: f64) -> World {
    let mut rest = container(
        name,
        json!({"kubernetes.io/batch-cpu": milli, "kubernetes.io/batch-memory": "1Gi"}),
        json!({}),
    );
    rest["spec"]["priority"] = priority.into();
    rest["metadata"] = json!({"labels": {"koordinator.sh/eviction-enabled": "true"}});
    let cores = milli as f64 / 1000.0;
    world
        .pod(name, "BE", "BestEffort", rest)
        .uses(name, cores, gib * GIB)
}

/// After the quiet time of the start.
fn round(state: &mut State, world: &World, settings: &Settings) -> EvictionRound {
    state.started = Some(Duration::ZERO);
    let mut windows = Windows::default();
    let keep = longest_window(&world.policy.threshold, settings.interval);
    windows.take(&world.input(), keep);
    state.begin(world.now);
    state.plan(&world.input(), &windows, settings)
}

fn names(round: &EvictionRound) -> Vec<&str> {
    round.evictions.iter().map(|one| &*one.name).collect()
}

#[track_caller]
fn check(world: &World, settings: &Settings, expected: &[&str]) {
    let found = round(&mut State::default(), world, settings);
    assert_eq!(names(&found), expected, "{:?}", found.notes);
}

fn memory_world(used_gib: f64, policy: Json) -> World {
    let mut world = World::new(8).policy(threshold(policy));
    world.usage.node_memory = Some(used_gib * GIB);
    batch(world, "a", 5500, 1000, 1.0)
}

#[test]
fn memory_goes_from_the_threshold_to_two_percent_below() {
    let gates = settings(Settings::koordlet(), &["BEMemoryEvict"]);
    // 69 % of 64 GiB.
    check(&memory_world(44.7, json!({})), &gates, &[]);
    let world = batch(memory_world(45.0, json!({})), "b", 5500, 1000, 1.2);
    // 2 % are 1.28 GiB: the larger first, and then one more.
    check(&world, &gates, &["b", "a"]);
    let world = batch(
        memory_world(45.0, json!({"memoryEvictLowerPercent": 69})),
        "b",
        5500,
        1000,
        1.2,
    );
    check(&world, &gates, &["b"]);
    check(&memory_world(60.0, json!({"enable": false})), &gates, &[]);
    let odd = round(
        &mut State::default(),
        &memory_world(60.0, json!({"memoryEvictLowerPercent": 70})),
        &gates,
    );
    assert_eq!(odd.notes.len(), 1);
}

#[test]
fn the_least_important_goes_first() {
    let gates = settings(Settings::koordlet(), &["BEMemoryEvict"]);
    let mut world = memory_world(50.0, json!({}));
    for (name, priority, gib) in [
        ("p", 5100, 0.5),
        ("q", 5100, 0.75),
        ("zero", 5000, 0.0),
        ("zz", 5000, 0.0),
    ] {
        world = batch(world, name, priority, 0, gib);
    }
    let found = round(&mut State::default(), &world, &gates);
    assert_eq!(names(&found), ["zz", "zero", "q", "p", "a"]);
    assert_eq!(
        message(&found.evictions[0]),
        "trigger by koordlet feature BEMemoryEvict, kill pod: zz"
    );
    // Who holds nothing need not go.
    let ours = settings(Settings::default(), &["BEMemoryEvict"]);
    check(&world, &ours, &["q", "p", "a"]);
}

fn satisfaction_world(limit: f64, policy: Json) -> World {
    let mut spec =
        json!({"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 60});
    plimsoll_api::json::merge(&mut spec, &policy);
    let mut world = World::new(8).policy(threshold(spec));
    world.usage.best_effort_cpu = Some(limit / 1000.0);
    world.usage.best_effort_real_limit = Some(limit);
    let world = batch(world, "a", 5500, 4000, 1.0);
    batch(batch(world, "b", 5400, 1000, 1.0), "c", 5500, 3000, 1.0)
        .uses("a", 4.0, 0.0)
        .uses("c", 6.0, 0.0)
}

#[test]
fn best_effort_cpu_by_satisfaction() {
    let gates = settings(Settings::koordlet(), &["BECPUEvict"]);
    // 3200 of 8000 is 40 %; up to 60 % is 1600.
    check(&satisfaction_world(3200.0, json!({})), &gates, &["b", "c"]);
    check(&satisfaction_world(3201.0, json!({})), &gates, &[]);
    let mut world = satisfaction_world(3000.0, json!({}));
    // They do not use what they may.
    world.usage.best_effort_cpu = Some(2.69);
    check(&world, &gates, &[]);
    // What is left of it is less than a core: it counts as used.
    let mut world = satisfaction_world(999.0, json!({}));
    world.usage.best_effort_cpu = Some(0.0);
    check(&world, &gates, &["b", "c"]);
    let mut world = satisfaction_world(8000.0, json!({"cpuEvictPolicy": "evictByAllocatable"}));
    check(&world, &gates, &[]);
    world
        .node
        .allocatable
        .insert("kubernetes.io/batch-cpu".into(), "0".parse().unwrap());
    check(&world, &gates, &["b", "c", "a"]);
    let mut unknown = satisfaction_world(3200.0, json!({}));
    unknown.usage.best_effort_real_limit = None;
    check(&unknown, &gates, &[]);
}

#[test]
fn settings_of_satisfaction_are_checked() {
    for (lower, upper, fine) in [
        (1, 1, true),
        (60, 99, true),
        (0, 50, false),
        (61, 70, false),
        (40, 100, false),
        (40, 39, false),
    ] {
        let policy = Policy::of(&threshold(json!({
            "cpuEvictBESatisfactionLowerPercent": lower, "cpuEvictBESatisfactionUpperPercent": upper,
        })));
        assert_eq!(
            needs::check(Feature::BeCpu, &policy.threshold).is_ok(),
            fine,
            "{lower} {upper}"
        );
    }
    let policy = Policy::of(&threshold(json!({
        "cpuAllocatableEvictThresholdPercent": 100, "cpuAllocatableEvictLowerPercent": 90, "allocatableEvictPriorityThreshold": 8000,
    })));
    needs::check(Feature::CpuAllocatable, &policy.threshold).unwrap_err();
    needs::check(Feature::Cpu, &policy.threshold).unwrap_err();
}

#[test]
fn cpu_by_usage() {
    let policy =
        threshold(json!({"cpuEvictThresholdPercent": 50, "evictEnabledPriorityThreshold": 5500}));
    let gates = settings(Settings::koordlet(), &["CPUEvict"]);
    let mut world = World::new(10).policy(policy);
    world.usage.node_cpu = Some(5.0);
    let mut world = batch(batch(world, "a", 5500, 100, 1.0), "b", 5600, 9000, 1.0);
    // 2 % are 200; b is too important.
    check(&world, &gates, &["a"]);
    world.usage.node_cpu = Some(4.99);
    check(&world, &gates, &[]);
    world.usage.node_cpu = Some(9.0);
    // Nobody who does not allow it, whose usage is not known, or who has ended.
    for rest in [
        json!({"metadata": {"labels": {"koordinator.sh/eviction-enabled": "false"}}}),
        json!({"metadata": {"annotations": {"koordinator.sh/eviction-policy": "no JSON"}}}),
        json!({"metadata": {"annotations": {"koordinator.sh/eviction-policy": "[\"BECPUEvict\"]"}}}),
        json!({"status": {"phase": "Failed"}}),
    ] {
        let mut rest = rest;
        let labels = json!({"metadata": {"labels": {"koordinator.sh/eviction-enabled": "true"}}, "spec": {"priority": 5000}});
        let mut whole = labels;
        plimsoll_api::json::merge(&mut whole, &rest.take());
        let world = world
            .clone()
            .pod("x", "BE", "BestEffort", whole)
            .uses("x", 5.0, 0.0);
        check(&world, &gates, &["a"]);
    }
}

#[test]
fn cpu_that_was_lent_and_is_gone() {
    let policy = threshold(json!({
        "cpuAllocatableEvictThresholdPercent": 100, "cpuAllocatableEvictLowerPercent": 80, "allocatableEvictPriorityThreshold": 5999,
    }));
    let gates = settings(Settings::koordlet(), &["CPUAllocatableEvict"]);
    let mut world = World::new(10).policy(policy);
    for (name, milli) in [("a", 1000), ("b", 3000), ("c", 2000)] {
        world = batch(world, name, 5500, milli, 1.0);
    }
    let lend = |world: &mut World, milli: &str| {
        let allocatable = &mut world.node.allocatable;
        allocatable.insert("kubernetes.io/batch-cpu".into(), milli.parse().unwrap());
    };
    lend(&mut world, "6000");
    check(&world, &gates, &[]);
    lend(&mut world, "5000");
    // 6000 down to 4000.
    check(&world, &gates, &["b"]);
    // Nothing is lent any more: all of it has to go.
    lend(&mut world, "0");
    check(&world, &gates, &["b", "c", "a"]);
    world.node.allocatable.remove("kubernetes.io/batch-cpu");
    check(&world, &gates, &["b", "c", "a"]);
}

#[test]
fn memory_by_usage_counts_bytes() {
    let gates = settings(Settings::koordlet(), &["MemoryEvict"]);
    let mut world = memory_world(
        50.0,
        json!({"evictEnabledPriorityThreshold": 5999, "memoryEvictLowerPercent": 69}),
    );
    for name in ["b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        world = batch(world, name, 5500, 100, 1.0);
    }
    // 78 % − 69 % of 64 GiB are 5.76 GiB: six pods of one.
    let found = round(&mut State::default(), &world, &gates);
    assert_eq!(found.evictions.len(), 6);
    assert_eq!(found.evictions[0].releases, 1 << 30);
}

#[test]
fn after_a_round_there_is_quiet() {
    let gates = settings(Settings::koordlet(), &["BEMemoryEvict"]);
    let mut world = memory_world(60.0, json!({}));
    let mut state = State::default();
    assert_eq!(names(&round(&mut state, &world, &gates)), ["a"]);
    for _ in 0..3 {
        world.tick();
        assert_eq!(names(&round(&mut state, &world, &gates)), [""; 0]);
    }
    world.tick();
    // Its containers are stopped again.
    assert_eq!(names(&round(&mut state, &world, &gates)), ["a"]);
    let api = settings(Settings::default(), &["BEMemoryEvict"]);
    let mut state = State::default();
    assert_eq!(names(&round(&mut state, &world, &api)), ["a"]);
    // By the API it is asked for once in two minutes.
    for second in 1..=120 {
        world.tick();
        let expected: &[&str] = if second == 120 { &["a"] } else { &[] };
        assert_eq!(
            names(&round(&mut state, &world, &api)),
            expected,
            "{second}"
        );
    }
}

#[test]
fn cpu_is_quiet_at_the_start() {
    let gates = settings(Settings::koordlet(), &["BECPUEvict"]);
    let mut world = satisfaction_world(3200.0, json!({}));
    let mut state = State::default();
    let mut windows = Windows::default();
    for second in 0..=20 {
        windows.take(&world.input(), Duration::from_secs(10));
        state.begin(world.now);
        let found = state.plan(&world.input(), &windows, &gates);
        assert_eq!(found.evictions.is_empty(), second < 20, "{second}");
        world.tick();
    }
}

#[test]
fn who_could_not_be_evicted_makes_room_for_others() {
    let api = settings(Settings::default(), &["BEMemoryEvict"]);
    let mut world = batch(
        memory_world(45.0, json!({"memoryEvictLowerPercent": 69})),
        "b",
        5400,
        100,
        1.0,
    );
    let mut state = State::default();
    assert_eq!(names(&round(&mut state, &world, &api)), ["b"]);
    state.failed(&"b".into(), world.now);
    world.tick();
    assert_eq!(names(&round(&mut state, &world, &api)), ["a"]);
}

#[test]
fn pods_on_their_way_out_count() {
    let api = settings(Settings::default(), &["BEMemoryEvict"]);
    let mut world = batch(
        memory_world(45.0, json!({"memoryEvictLowerPercent": 69})),
        "b",
        5400,
        100,
        1.0,
    );
    world.pods[1].deleting = true;
    check(&world, &api, &[]);
    world.pods[1].phase = crate::input::Phase::Failed;
    check(&world, &api, &["a"]);
}

#[test]
fn no_more_than_the_budget() {
    let mut api = settings(Settings::default(), &["BEMemoryEvict"]);
    api.evictions_per_minute = Some(2);
    let mut world = memory_world(60.0, json!({}));
    for name in ["b", "c", "d"] {
        world = batch(world, name, 5500, 100, 1.0);
    }
    let mut state = State::default();
    let found = round(&mut state, &world, &api);
    assert_eq!((found.evictions.len(), found.notes.len()), (2, 1));
    world.now += Duration::from_secs(59);
    assert_eq!(round(&mut state, &world, &api).evictions.len(), 0);
    world.now += Duration::from_secs(1);
    assert_eq!(round(&mut state, &world, &api).evictions.len(), 2);
}

#[test]
fn what_one_feature_releases_counts_for_the_next() {
    let policy =
        threshold(json!({"evictEnabledPriorityThreshold": 9999, "memoryEvictLowerPercent": 66}));
    let mut world = World::new(8).policy(policy);
    world.usage.node_memory = Some(45.0 * GIB);
    // 4 % are 2.56 GiB.
    let mut prod = container("prod", json!({}), json!({}));
    prod["metadata"] = json!({"labels": {"koordinator.sh/eviction-enabled": "true"}});
    prod["spec"]["priority"] = 9000.into();
    let mut second = container("second", json!({}), json!({}));
    second["metadata"] = prod["metadata"].clone();
    second["spec"]["priority"] = 9001.into();
    let world = batch(world, "be", 5500, 100, 1.0)
        .pod("prod", "LS", "Burstable", prod)
        .pod("second", "LS", "Burstable", second)
        .uses("prod", 0.0, 1.0 * GIB)
        .uses("second", 0.0, 1.0 * GIB);
    let both = ["BEMemoryEvict", "MemoryEvict"];
    // koordlet compares all that has been released with what the second still needed: 2 with 1.56.
    check(
        &world,
        &settings(Settings::koordlet(), &both),
        &["be", "prod"],
    );
    check(
        &world,
        &settings(Settings::default(), &both),
        &["be", "prod", "second"],
    );
}

/// As koordlet 1.8.0 chose them.
#[test]
fn victims_are_those_of_the_original() {
    let mut rows = 0;
    for line in include_str!("../../testdata/evict.jsonl").lines() {
        let row: Json = serde_json::from_str(line).unwrap();
        let sizes: Vec<[i64; 2]> = serde_json::from_value(row["sizes"].clone()).unwrap();
        let mut world = World::new(1);
        for number in 0..sizes.len() {
            world = batch(world, &format!("p{number}"), 5500, 0, 0.0);
        }
        let tasks = row["tasks"].as_array().unwrap().iter().map(|task| {
            let kind = task["kind"].as_u64().unwrap() as usize;
            let (feature, resource) = match kind {
                0 => (Feature::BeMemory, Resource::Memory),
                _ => (Feature::MemoryAllocatable, Resource::BatchMemory),
            };
            let order: Vec<usize> =
                serde_json::from_value(task["order"].clone()).unwrap_or_default();
            let victims = order.into_iter().map(|number| victims::Victim {
                pod: &world.pods[number],
                releases: [(resource, sizes[number][kind])].into(),
            });
            let amounts = [(resource, task["need"].as_i64().unwrap())].into();
            let why = plimsoll_plan::Reason::new("test");
            Task {
                feature,
                need: needs::Need { amounts, why },
                victims: victims.collect(),
            }
        });
        let tasks: Vec<Task<'_>> = tasks.collect();
        let size = |task: &Task<'_>, pod: &PodView| {
            let number = world
                .pods
                .iter()
                .position(|one| one.uid == pod.uid)
                .unwrap();
            let (resource, kind) = match task.feature {
                Feature::BeMemory => (Resource::Memory, 0),
                _ => (Resource::BatchMemory, 1),
            };
            [(resource, sizes[number][kind])].into()
        };
        let chosen = Selection::new(&tasks, size).like_koordlet(|_| Standing::Candidate);
        let found: Vec<&str> = chosen.iter().map(|one| &*one.pod.name).collect();
        let expected: Vec<String> = serde_json::from_value(row["got"].clone()).unwrap_or_default();
        assert_eq!(found, expected, "{row}");
        rows += 1;
    }
    assert!(rows >= 100);
}

fn any_world() -> impl Strategy<Value = World> {
    let pod = (
        0..4_u8,
        4990..6010_i32,
        0..4000_i64,
        0..6_u32,
        any::<[bool; 5]>(),
    );
    let pods = proptest::collection::vec(pod, 0..10);
    (pods, 0..64_u32, 0..5000_i64, 0..100_i64, 0..100_i64).prop_map(|(pods, used, lent, from, to)| {
        let policy = threshold(json!({
            "memoryEvictThresholdPercent": from, "memoryEvictLowerPercent": to,
            "cpuEvictThresholdPercent": from, "cpuEvictLowerPercent": to,
            "cpuAllocatableEvictThresholdPercent": from, "cpuAllocatableEvictLowerPercent": to,
            "memoryAllocatableEvictThresholdPercent": from, "memoryAllocatableEvictLowerPercent": to,
            "cpuEvictBESatisfactionLowerPercent": to, "cpuEvictBESatisfactionUpperPercent": from,
            "evictEnabledPriorityThreshold": 5900, "allocatableEvictPriorityThreshold": 5950,
        }));
        let mut world = World::new(8).policy(policy);
        let amount = lent.to_string().parse().unwrap();
        world.node.allocatable.insert("kubernetes.io/batch-cpu".into(), amount);
        world.usage.node_memory = Some(f64::from(used) * GIB);
        world.usage.node_cpu = Some(f64::from(used) / 8.0);
        world.usage.best_effort_cpu = Some(lent as f64 / 1000.0);
        world.usage.best_effort_real_limit = Some(lent as f64);
        for (number, (kind, priority, milli, gib, [critical, fixed, deleting, enabled, known])) in pods.into_iter().enumerate() {
            let name = format!("p{number}");
            world = batch(world, &name, priority, milli, f64::from(gib));
            let pod = world.pods.last_mut().unwrap();
            pod.critical = critical && kind == 0;
            pod.deleting = deleting;
            if fixed && kind == 1 {
                pod.origin = crate::input::Origin::Static;
            }
            if !enabled {
                pod.labels.remove("koordinator.sh/eviction-enabled");
            }
            if !known {
                world.usage.pods.remove(&*name);
            }
            if kind == 3 {
                pod.classes.qos = plimsoll_api::priority::QosClass::Ls;
            }
        }
        world
    })
}

const ALL: [&str; 6] = [
    "BECPUEvict",
    "CPUAllocatableEvict",
    "CPUEvict",
    "BEMemoryEvict",
    "MemoryAllocatableEvict",
    "MemoryEvict",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn nobody_outside_the_policy_goes(world in any_world(), koordlet: bool) {
        let base = if koordlet { Settings::koordlet() } else { Settings::default() };
        let mut settings = settings(base, &ALL);
        settings.own_pod = Some("p0".into());
        let found = round(&mut State::default(), &world, &settings);
        let mut seen = BTreeSet::new();
        for eviction in &found.evictions {
            let pod = world.pods.iter().find(|pod| pod.uid == eviction.uid).unwrap();
            prop_assert!(!pod.critical && pod.origin == crate::input::Origin::Api && &*pod.uid != "p0");
            prop_assert!(seen.insert((eviction.scope, eviction.uid.clone())), "twice");
            match eviction.feature {
                "BECPUEvict" | "BEMemoryEvict" => prop_assert!(pod.is_be()),
                feature => {
                    let most = if feature.contains("Allocatable") { 5950 } else { 5900 };
                    prop_assert!(pod.priority_or_default() <= most);
                    prop_assert!(pod.labels.contains_key("koordinator.sh/eviction-enabled"));
                }
            }
            prop_assert!(koordlet || !pod.deleting);
        }
        if !koordlet {
            prop_assert!(found.evictions.len() <= 10);
        }
    }

    #[test]
    fn nobody_goes_in_vain(
        sizes in proptest::collection::vec((0..50_i64, 0..50_i64), 0..12),
        needs in proptest::collection::vec((0..2_u8, 1..200_i64), 1..4),
    ) {
        let mut world = World::new(1);
        for number in 0..sizes.len() {
            world = batch(world, &format!("p{number}"), 5500, 0, 0.0);
        }
        let tasks: Vec<Task<'_>> = needs.iter().map(|(kind, amount)| {
            let (feature, resource) = match kind {
                0 => (Feature::BeMemory, Resource::Memory),
                _ => (Feature::MemoryAllocatable, Resource::BatchMemory),
            };
            let victims = world.pods.iter().zip(&sizes).map(|(pod, (used, asked))| victims::Victim {
                pod,
                releases: [(resource, if *kind == 0 { *used } else { *asked })].into(),
            });
            let why = plimsoll_plan::Reason::new("test");
            Task { feature, need: needs::Need { amounts: [(resource, *amount)].into(), why }, victims: victims.collect() }
        }).collect();
        let own = |task: &Task<'_>, pod: &PodView| {
            let victim = task.victims.iter().find(|one| one.pod.uid == pod.uid);
            victim.map(|one| one.releases.clone()).unwrap_or_default()
        };
        let chosen = Selection::new(&tasks, own).smallest(|_| Standing::Candidate);
        let gone: BTreeSet<&str> = chosen.iter().map(|one| &*one.pod.uid).collect();
        prop_assert_eq!(gone.len(), chosen.len());
        let unmet = |gone: &BTreeSet<&str>| -> Vec<Amounts> {
            tasks.iter().map(|task| {
                let mut released = Amounts::new();
                for victim in task.victims.iter().filter(|one| gone.contains(&*one.pod.uid)) {
                    for (resource, amount) in &victim.releases {
                        *released.entry(*resource).or_default() += amount;
                    }
                }
                select::left(&task.need.amounts, Some(&released))
            }).collect()
        };
        let left = unmet(&gone);
        for uid in &gone {
            let mut fewer = gone.clone();
            fewer.remove(uid);
            prop_assert_ne!(&unmet(&fewer), &left, "{} is not needed", uid);
        }
        // Whatever is left, nobody who stays would lessen it.
        for (task, left) in tasks.iter().zip(&left) {
            for victim in task.victims.iter().filter(|one| !gone.contains(&*one.pod.uid)) {
                prop_assert!(left.is_empty() || victim.releases.values().all(|amount| *amount == 0));
            }
        }
    }
}
