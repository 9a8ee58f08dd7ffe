use plimsoll_api::priority::QosClass;
use plimsoll_plan::{Effect, Knob};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::fixture::{BE, World, container, cpus, quota, wanted};
use crate::input::{Capabilities, ContainerUsage, PodView, Resctrl};
use crate::policy::Policy;
use crate::settings::Gates;

/// Everything that there is.
fn all_on() -> Settings {
    let mut settings = Settings::default();
    for gate in Gates::NAMES {
        settings.gates.set(gate, *gate != "BECPUManager");
    }
    settings
}

fn of(planned: &Planned, asker: Asker) -> Option<&Plan> {
    planned.plans.iter().find(|plan| plan.asker == asker)
}

fn suppressed() -> World {
    World::new(8)
        .policy(json!({"resourceUsedThresholdWithBE": {"enable": true}}))
        .pod("be", "BE", "BestEffort", json!({}))
        .has(BE, Knob::Cpuset, cpus("0-7"))
        .has(BE, Knob::CpuQuota, quota(-1))
}

#[test]
fn nothing_is_planned_before_everything_is_known() {
    let world = suppressed();
    let input = world.input();
    let mut nothing = World::new(8);
    nothing.node = crate::input::NodeView::default();
    for lacking in [
        Input {
            pods: None,
            ..input
        },
        Input {
            usage: None,
            ..input
        },
        Input {
            node: None,
            ..input
        },
        Input {
            node: Some(&nothing.node),
            ..input
        },
    ] {
        let planned = Planner::new(all_on()).plan(&lacking);
        assert_eq!((planned.plans.len(), planned.gate.open), (0, false));
        assert!(!planned.gate.waiting.is_empty());
        assert_eq!(planned.evictions, EvictionRound::default());
    }
    // An empty list of pods is known, too.
    let mut empty = world.clone();
    empty.pods.clear();
    assert!(Planner::new(all_on()).plan(&empty.input()).gate.open);
}

#[test]
fn what_is_off_is_given_back() {
    let world = suppressed();
    let mut settings = Settings::koordlet();
    settings.gates.be_cpu_suppress = false;
    let planned = Planner::new(settings).plan(&world.input());
    assert_eq!(
        of(&planned, Asker::CpuSuppress),
        Some(&Plan::empty(Asker::CpuSuppress))
    );
    assert_eq!(
        of(&planned, Asker::MemoryQos),
        Some(&Plan::empty(Asker::MemoryQos))
    );
}

#[test]
fn measured_too_often_means_off() {
    let settings = Settings {
        interval: Duration::from_millis(500),
        ..Settings::koordlet()
    };
    assert_eq!(Planner::new(settings).plan(&suppressed().input()).plans, []);
}

#[test]
fn the_last_plan_is_held_and_then_given_back() {
    let mut world = suppressed();
    let mut planner = Planner::new(Settings::default());
    planner.plan(&world.input());
    let planned = planner.plan(&world.input());
    let first = of(&planned, Asker::CpuSuppress).unwrap().clone();
    assert!(!first.effects.is_empty());
    assert_eq!(planned.metrics.be_suppress_cpu_cores, [("cpuset", 6.0)]);
    // The sampler is away; everything else is there.
    for second in 0..=40 {
        world.tick();
        world.usage.node_cpu = Some(8.0);
        let input = Input {
            usage: None,
            ..world.input()
        };
        let planned = planner.plan(&input);
        let plan = of(&planned, Asker::CpuSuppress).unwrap();
        let expected = if second <= 30 {
            &first
        } else {
            &Plan::empty(Asker::CpuSuppress)
        };
        assert_eq!(plan, expected, "{second}");
        let held: Vec<&str> = planned.gate.held.iter().map(|(name, _)| *name).collect();
        assert_eq!(held, ["cpu-suppress", "cpu-burst"]);
        assert_eq!(planned.metrics.be_suppress_cpu_cores, [("cpuset", 6.0)]);
    }
    let back = planner.plan(&world.input());
    assert_eq!(
        wanted(of(&back, Asker::CpuSuppress).unwrap(), BE, Knob::Cpuset),
        Some(cpus("0,4"))
    );
}

#[test]
fn old_pods_count_as_unknown() {
    let world = suppressed();
    let mut planner = Planner::new(Settings::default());
    planner.plan(&world.input());
    let mut input = world.input();
    input.now += Duration::from_secs(20);
    let usage = input.usage.as_mut().unwrap();
    usage.at = input.now;
    assert_eq!(planner.plan(&input).gate.waiting, []);
    input.now += Duration::from_secs(1);
    let waiting = planner.plan(&input).gate.waiting;
    assert_eq!(
        (waiting[0].source, waiting[0].age),
        (Source::Pods, Some(Duration::from_secs(21)))
    );
}

#[test]
fn a_policy_as_koordinators_manager_writes_it() {
    let spec = json!({
        "cpuBurstStrategy": {"cfsQuotaBurstPercent": 300, "cfsQuotaBurstPeriodSeconds": -1, "cpuBurstPercent": 1000, "policy": "none", "sharePoolThresholdPercent": 50},
        "extensions": {"Object": {}},
        "resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": false}}},
        "resourceUsedThresholdWithBE": {
            "cpuEvictPolicy": "evictByRealLimit", "cpuSuppressPolicy": "cpuset", "cpuSuppressThresholdPercent": 65,
            "enable": false, "memoryEvictThresholdPercent": 70,
        },
        "systemStrategy": {"totalNetworkBandwidth": "0"},
    });
    let world = suppressed().policy(spec);
    let planned = Planner::new(all_on()).plan(&world.input());
    assert_eq!(planned.notes, []);
    let suppress = of(&planned, Asker::CpuSuppress).unwrap();
    assert_eq!(wanted(suppress, BE, Knob::Cpuset), Some(cpus("0-7")));
    assert_eq!(planned.evictions.evictions, []);
}

#[test]
fn what_the_planner_wants_to_know() {
    let world = suppressed().pod(
        "ls",
        "LS",
        "Burstable",
        container("ls", json!({}), json!({"cpu": "1"})),
    );
    let planner = Planner::new(Settings::default());
    let reads = planner.reads(&world.input());
    let quotas = reads.iter().filter(|one| {
        matches!(
            one,
            Target::Cgroup {
                knob: Knob::CpuQuota,
                ..
            }
        )
    });
    assert_eq!((reads.len(), quotas.count()), (4, 3));
}

#[test]
fn annotations_that_make_no_sense_are_named() {
    let bad = json!({"metadata": {"annotations": {"koordinator.sh/cpuBurst": "{"}}});
    let mut world = suppressed();
    for number in 0..200 {
        world = world.pod(&format!("bad{number}"), "LS", "Burstable", bad.clone());
    }
    let planned = Planner::new(Settings::default()).plan(&world.input());
    assert_eq!(planned.notes.len(), MOST_NOTES);
    assert_eq!(&*planned.notes[0].about, "ns/bad0");
}

fn figure() -> impl Strategy<Value = Json> {
    prop_oneof![
        4 => (0..120_i64).prop_map(Json::from),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(-1), Just(0), any::<i64>()].prop_map(Json::from),
    ]
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = Json> {
    proptest::sample::select(words).prop_map(Json::from)
}

fn fields(names: &'static [&'static str]) -> impl Strategy<Value = Json> {
    let some = proptest::collection::vec(proptest::option::of(figure()), names.len());
    some.prop_map(move |values| {
        let named = names.iter().zip(values);
        let given = named.filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
        given.collect::<serde_json::Map<_, _>>().into()
    })
}

fn joined(parts: impl Strategy<Value = (Json, Json)>) -> impl Strategy<Value = Json> {
    parts.prop_map(|(mut first, second)| {
        plimsoll_api::json::merge(&mut first, &second);
        first
    })
}

/// Any policy, with numbers that make no sense among them.
fn any_policy() -> impl Strategy<Value = Json> {
    let threshold = fields(&[
        "cpuSuppressThresholdPercent",
        "cpuSuppressMinPercent",
        "memoryEvictThresholdPercent",
        "memoryEvictLowerPercent",
        "cpuEvictBESatisfactionUpperPercent",
        "cpuEvictBESatisfactionLowerPercent",
        "cpuEvictBEUsageThresholdPercent",
        "cpuEvictTimeWindowSeconds",
        "cpuEvictThresholdPercent",
        "cpuEvictLowerPercent",
        "cpuAllocatableEvictThresholdPercent",
        "cpuAllocatableEvictLowerPercent",
        "memoryAllocatableEvictThresholdPercent",
        "memoryAllocatableEvictLowerPercent",
    ]);
    let threshold = joined((threshold, (any::<bool>(), word(&["cpuset", "cfsQuota", "odd"]), 0..9999_i32).prop_map(
        |(enable, policy, priority)| json!({
            "enable": enable, "cpuSuppressPolicy": policy,
            "evictEnabledPriorityThreshold": priority, "allocatableEvictPriorityThreshold": priority,
        }),
    )));
    let burst = fields(&[
        "cpuBurstPercent",
        "cfsQuotaBurstPercent",
        "cfsQuotaBurstPeriodSeconds",
        "sharePoolThresholdPercent",
    ]);
    let burst = joined((
        burst,
        word(&["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly", "odd"])
            .prop_map(|policy| json!({"policy": policy})),
    ));
    let memory = fields(&[
        "minLimitPercent",
        "lowLimitPercent",
        "throttlingPercent",
        "wmarkRatio",
        "wmarkScalePermill",
        "wmarkMinAdj",
        "priorityEnable",
        "priority",
        "oomKillGroup",
        "pageCacheLimitPercent",
        "pageCacheLimitSize",
    ]);
    let resctrl = fields(&["catRangeStartPercent", "catRangeEndPercent", "mbaPercent"]);
    let class = (memory, resctrl, any::<bool>()).prop_map(|(memory, resctrl, enable)| {
        let mut class =
            json!({"memoryQOS": memory, "resctrlQOS": resctrl, "cpuQOS": {"enable": enable}});
        class["memoryQOS"]["enable"] = enable.into();
        class["resctrlQOS"]["enable"] = enable.into();
        class
    });
    let system = fields(&[
        "minFreeKbytesFactor",
        "watermarkScaleFactor",
        "memcgReapBackGround",
        "schedIdleSaverWmark",
    ]);
    let classes = proptest::collection::vec(class, 3);
    (threshold, burst, classes, system).prop_map(|(threshold, burst, classes, system)| json!({
        "resourceUsedThresholdWithBE": threshold,
        "cpuBurstStrategy": burst,
        "resourceQOSStrategy": {"lsrClass": classes[0], "lsClass": classes[1], "beClass": classes[2]},
        "systemStrategy": system,
    }))
}

fn any_pod() -> impl Strategy<Value = (usize, usize, i64, i64, f64, f64, u8)> {
    (
        0..6_usize,
        0..3_usize,
        0..5000_i64,
        0..5000_i64,
        0.0..4.0,
        0.0..1.0,
        0..8_u8,
    )
}

prop_compose! {
    fn any_world()(
        policy in any_policy(),
        pods in proptest::collection::vec(any_pod(), 0..6),
        count in 1..17_u32,
        used in 0.0..20.0,
        v2: bool,
        static_policy: bool,
        reserved in 0..3_u32,
    ) -> World {
        let mut world = World::new(count);
        world.policy = Policy::of(&policy);
        for (number, (qos, kube, request, limit, cpu, throttled, flags)) in pods.into_iter().enumerate() {
            let name = format!("p{number}");
            let mut rest = container(
                &name,
                json!({"cpu": format!("{request}m"), "kubernetes.io/batch-cpu": request, "memory": request * 1_000_000}),
                if limit == 0 { json!({}) } else { json!({"cpu": format!("{limit}m"), "memory": limit * 1_000_000}) },
            );
            if flags & 1 != 0 {
                let list = number as u32 % count;
                rest["metadata"] = json!({"annotations": {"scheduling.koordinator.sh/resource-status": json!({"cpuset": list.to_string()}).to_string()}});
            }
            let qos = ["LSE", "LSR", "LS", "BE", "SYSTEM", ""][qos];
            let kube = ["Guaranteed", "Burstable", "BestEffort"][kube];
            world = world.pod(&name, qos, kube, rest).uses(&name, cpu, cpu * 1e9);
            let usage = ContainerUsage { cpu: Some(cpu), throttled: (flags & 2 != 0).then_some(throttled) };
            world.usage.containers.insert(format!("c{name}").into(), usage);
            let quotas = if flags & 4 != 0 { -1 } else { (limit * 100).max(1000) };
            let pod = world.pods[number].clone();
            world = world.has(&pod.cgroup, Knob::CpuQuota, quota(quotas));
            world = world.has(pod.containers[0].cgroup.as_ref().unwrap(), Knob::CpuQuota, quota(quotas));
        }
        world.usage.node_cpu = Some(used);
        world.usage.node_memory = Some(used * 3e9);
        world.usage.best_effort_cpu = Some(used / 2.0);
        world.usage.best_effort_real_limit = Some(used * 100.0);
        world.node.static_cpu_manager = static_policy;
        world.node.reserved_cpus = (0..reserved.min(count)).collect();
        world.node.share_pools = vec![world.node.all_cpus()];
        world.kernel.capabilities = if v2 { Capabilities::v2() } else { Capabilities::v1() };
        world.kernel.resctrl = Some(Resctrl { l3_mask: "7ff".into(), l3_ids: [0, 1].into(), memory_bandwidth: true, ..Resctrl::default() });
        let all = format!("0-{}", count - 1);
        world.has(BE, Knob::Cpuset, cpus(&all)).has(BE, Knob::CpuQuota, quota(-1))
    }
}

/// CPUs that nobody else may have.
fn exclusive(pods: &[PodView]) -> Vec<u32> {
    let lse = pods.iter().filter(|pod| pod.classes.qos == QosClass::Lse);
    lse.filter_map(|pod| pod.own_cpus())
        .flat_map(|cpus| cpus.0.clone())
        .collect()
}

fn check_effect(world: &World, plan: &Plan, effect: &Effect) -> Result<(), TestCaseError> {
    for (_, figure) in effect.why.figures() {
        prop_assert!(figure.is_finite(), "{:?}", effect);
    }
    let Target::Cgroup { path, knob } = &effect.target else {
        return Ok(());
    };
    match (knob, &effect.value) {
        (Knob::CpuIdle, _) => prop_assert!(false, "idle is never wanted"),
        (Knob::Cpuset, Value::Cpus(set)) => {
            prop_assert!(!set.is_empty());
            let all = world.node.all_cpus();
            prop_assert!(set.0.is_subset(&all.0));
            // A tier must have the CPUs of its pods.
            if plan.asker == Asker::CpuSuppress && **path != *BE {
                let taken = exclusive(&world.pods);
                prop_assert!(
                    !set.0
                        .iter()
                        .any(|cpu| taken.contains(cpu) || world.node.reserved_cpus.0.contains(cpu))
                );
            }
        }
        (Knob::CpuQuota, Value::Quota { quota_us, .. }) => {
            prop_assert!(quota_us.is_none_or(|quota| quota >= 1000));
        }
        (Knob::CpuBurst, Value::Number(burst)) => {
            prop_assert!(*burst >= 0);
            let target = Target::cgroup(path, Knob::CpuQuota);
            let planned = plan
                .effects
                .iter()
                .find(|one| one.target == target)
                .map(|one| &one.value);
            let present = planned.or_else(|| world.kernel.value(&target));
            if let (
                Some(Value::Quota {
                    quota_us: Some(quota),
                    ..
                }),
                true,
            ) = (present, world.kernel.capabilities.burst_within_quota)
            {
                prop_assert!(*burst as u64 <= *quota, "{effect:?} {quota}");
            }
        }
        (
            Knob::MemoryMin | Knob::MemoryLow | Knob::MemoryHigh | Knob::PageCacheLimitSize,
            value,
        ) => {
            prop_assert!(matches!(value, Value::Bytes(_)));
        }
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn plans_keep_what_must_never_be_broken(world in any_world()) {
        let mut planner = Planner::new(all_on());
        let planned = planner.plan(&world.input());
        prop_assert!(planned.gate.open);
        for plan in &planned.plans {
            let mut targets: Vec<&Target> = plan.effects.iter().map(|one| &one.target).collect();
            targets.sort();
            targets.dedup();
            prop_assert_eq!(targets.len(), plan.effects.len(), "something is wanted twice by {}", plan.asker);
            for effect in &plan.effects {
                check_effect(&world, plan, effect)?;
            }
        }
        let askers: std::collections::BTreeSet<_> = planned.plans.iter().map(|plan| plan.asker).collect();
        prop_assert_eq!(askers.len(), planned.plans.len());
    }

    #[test]
    fn a_steady_world_comes_to_rest(mut world in any_world()) {
        // Limiters save and spend by time, and who is throttled grows for as long as he may.
        let burst = &mut world.policy.burst.burst;
        burst.quota_period_seconds = Some(-1);
        burst.quota_percent = burst.quota_percent.map(|percent| percent.min(500));
        let mut settings = all_on();
        settings.evictions_per_minute = Some(0);
        let mut planner = Planner::new(settings);
        let mut last = Vec::new();
        for _ in 0..80 {
            let planned = planner.plan(&world.input());
            for plan in &planned.plans {
                world.apply(plan);
            }
            last = planned.plans;
            world.tick();
        }
        let values = world.kernel.values.clone();
        let next = planner.plan(&world.input()).plans;
        for (plan, before) in next.iter().zip(&last) {
            let effects = |plan: &Plan| plan.effects.iter().map(|one| (one.target.clone(), one.value.clone())).collect::<Vec<_>>();
            prop_assert_eq!(effects(plan), effects(before), "{}", plan.asker);
            world.apply(plan);
        }
        prop_assert_eq!(&world.kernel.values, &values);
    }
}
