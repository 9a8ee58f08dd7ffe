//! Divides caches and memory bandwidth between classes of pods.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::node_slo::{ResctrlQos, ResourceQosStrategy};
use plimsoll_api::priority::QosClass;
use plimsoll_plan::{Asker, CgroupPath, Note, Plan, Reason, ResctrlKnob, Target, Value};

use crate::input::{Input, PodView, Resctrl};
use crate::strategy::Outcome;

const GROUPS: [&str; 3] = ["LSR", "LS", "BE"];
/// Eighths of a gigabyte a second that a group of cores of an EPYC can move, less a fifth, which is never reached.
const AMD_MOST: f64 = 25.0 * 8.0 * 0.8;
const AMD_NO_LIMIT: i64 = 2048;

/// A group is made for each class, whether it is enabled or not: one that is not has all caches.
pub fn plan(input: &Input<'_>) -> Outcome {
    let mut plan = Plan::empty(Asker::Resctrl);
    let Some(resctrl) = &input.kernel.resctrl else {
        return Outcome::Plan(plan);
    };
    let strategy = &input.policy.qos;
    for group in GROUPS {
        let policy = policy(group);
        let why = Reason::new("resctrl_class").by(policy);
        plan.want(target(group, ResctrlKnob::Exists), Value::Switch(true), why);
        let Some(class) = class(strategy, group) else {
            continue;
        };
        let why = Reason::new("resctrl_class")
            .by(policy)
            .with(
                "start_percent",
                class.cat_start_percent.unwrap_or(-1) as f64,
            )
            .with("end_percent", class.cat_end_percent.unwrap_or(-1) as f64)
            .with("bandwidth_percent", class.mba_percent.unwrap_or(-1) as f64);
        match l3_line(resctrl, class) {
            Ok(Some(line)) => plan.want(target(group, ResctrlKnob::L3), Value::Line(line), why),
            Ok(None) => {}
            Err(text) => plan.notes.push(Note {
                code: "resctrl_policy_refused",
                about: policy.into(),
                text,
            }),
        }
        if let Some(line) = bandwidth_line(resctrl, class) {
            plan.want(
                target(group, ResctrlKnob::MemoryBandwidth),
                Value::Line(line),
                why,
            );
        }
    }
    let mut added: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for pod in input.all_pods() {
        if let Some(group) = group_of(pod, strategy) {
            let there = resctrl.tasks.get(group);
            let threads = threads(input, pod);
            let new = threads.filter(|id| there.is_none_or(|there| !there.contains(id)));
            added.entry(group).or_default().extend(new);
        }
    }
    for (group, ids) in added.into_iter().filter(|(_, ids)| !ids.is_empty()) {
        let ids: Box<[u32]> = ids.into_iter().collect();
        let why = Reason::new("resctrl_threads")
            .by(policy(group))
            .with("threads", ids.len() as f64);
        plan.want(target(group, ResctrlKnob::Tasks), Value::Ids(ids), why);
    }
    Outcome::Plan(plan)
}

fn target(group: &str, knob: ResctrlKnob) -> Target {
    Target::Resctrl {
        group: group.into(),
        knob,
    }
}

fn policy(group: &str) -> &'static str {
    match group {
        "LSR" => "resourceQOSStrategy.lsrClass.resctrlQOS",
        "LS" => "resourceQOSStrategy.lsClass.resctrlQOS",
        _ => "resourceQOSStrategy.beClass.resctrlQOS",
    }
}

fn class<'a>(strategy: &'a ResourceQosStrategy, group: &str) -> Option<&'a ResctrlQos> {
    let class = match group {
        "LSR" => QosClass::Lsr,
        "LS" => QosClass::Ls,
        _ => QosClass::Be,
    };
    strategy.class(class)?.resctrl.as_ref()
}

/// `None`: it belongs to no class's group, or its class is not enabled.
fn group_of(pod: &PodView, strategy: &ResourceQosStrategy) -> Option<&'static str> {
    if pod.annotations.resctrl || !pod.is_active() {
        return None;
    }
    let group = match pod.classes.effective_qos() {
        QosClass::Lse | QosClass::Lsr => "LSR",
        QosClass::Ls => "LS",
        QosClass::Be => "BE",
        QosClass::System | QosClass::None => return None,
    };
    (class(strategy, group)?.enable == Some(true)).then_some(group)
}

fn threads<'a>(input: &Input<'a>, pod: &'a PodView) -> impl Iterator<Item = u32> + 'a {
    let threads = &input.kernel.threads;
    let containers = pod.main_containers().filter_map(|one| one.cgroup.as_ref());
    let paths = containers.chain(pod.sandbox.as_ref());
    let found = paths.filter_map(|path: &CgroupPath| threads.get(path));
    found.flat_map(|ids| ids.iter().copied())
}

/// `None`: caches cannot be divided here, or nobody says how.
fn l3_line(resctrl: &Resctrl, class: &ResctrlQos) -> Result<Option<Box<str>>, Box<str>> {
    let (Some(start), Some(end)) = (class.cat_start_percent, class.cat_end_percent) else {
        return Ok(None);
    };
    if resctrl.l3_mask.is_empty() || resctrl.l3_ids.is_empty() {
        return Ok(None);
    }
    let mask = l3_mask(&resctrl.l3_mask, start, end)?;
    Ok(Some(line("L3", resctrl, &format!("{mask:x}"))))
}

fn line(resource: &str, resctrl: &Resctrl, value: &str) -> Box<str> {
    let ids = resctrl.l3_ids.iter();
    let values: Vec<String> = ids.map(|id| format!("{id}={value}")).collect();
    format!("{resource}:{}", values.join(";")).into()
}

/// The ways of a cache between two shares of it.
fn l3_mask(whole: &str, start: i64, end: i64) -> Result<u64, Box<str>> {
    let bits = u32::from_str_radix(whole.trim(), 16)
        .ok()
        .filter(|mask| *mask > 0 && (u64::from(*mask) + 1).is_power_of_two())
        .ok_or_else(|| format!("the cache's mask {whole:?} makes no sense"))?;
    if start < 0 || end > 100 || end <= start {
        return Err(format!(
            "caches cannot be divided from {start} to {end} percent: must be from 0 to 100, the first below the second"
        )
        .into());
    }
    let ways = f64::from(bits.count_ones());
    let way = |percent: i64| (ways * percent as f64 / 100.0).ceil() as u32;
    let mask = (1_u64 << way(end)) - (1_u64 << way(start));
    match mask {
        0 => Err(format!("{start} to {end} percent of {ways} ways are none").into()),
        mask => Ok(mask),
    }
}

fn bandwidth_line(resctrl: &Resctrl, class: &ResctrlQos) -> Option<Box<str>> {
    let percent = class
        .mba_percent
        .filter(|percent| (1..=100).contains(percent))?;
    if !resctrl.memory_bandwidth || resctrl.l3_ids.is_empty() {
        return None;
    }
    let value = match (resctrl.is_amd, percent) {
        (true, 100) => AMD_NO_LIMIT,
        (true, percent) => (AMD_MOST * percent as f64 / 100.0) as i64,
        (false, percent) => (percent + 9) / 10 * 10,
    };
    Some(line("MB", resctrl, &value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::World;
    use serde_json::json;

    #[test]
    fn ways_of_a_cache() {
        for (whole, start, end, expected) in [
            ("3ff", 10, 80, Some(0xfe)),
            ("7ff", 10, 50, Some(0x3c)),
            ("7ff", 0, 30, Some(0xf)),
            ("fffff", 0, 100, Some(0xf_ffff)),
            ("ffffffff", 0, 100, Some(0xffff_ffff)),
            ("3fe", 0, 100, None),
            ("", 0, 100, None),
            ("0", 0, 100, None),
            ("3ff", 50, 50, None),
            ("3ff", -1, 50, None),
            ("3ff", 0, 101, None),
            // So narrow that no way is within.
            ("3", 1, 2, None),
        ] {
            assert_eq!(
                l3_mask(whole, start, end).ok(),
                expected,
                "{whole} {start} {end}"
            );
        }
    }

    #[test]
    fn bandwidth() {
        for (amd, percent, expected) in [
            (false, 90, Some("MB:0=90;1=90")),
            (false, 81, Some("MB:0=90;1=90")),
            (true, 100, Some("MB:0=2048;1=2048")),
            (true, 33, Some("MB:0=52;1=52")),
            (false, 0, None),
            (false, 101, None),
        ] {
            let resctrl = Resctrl {
                l3_ids: [0, 1].into(),
                memory_bandwidth: true,
                is_amd: amd,
                ..Resctrl::default()
            };
            let class = ResctrlQos {
                mba_percent: Some(percent),
                ..ResctrlQos::default()
            };
            assert_eq!(
                bandwidth_line(&resctrl, &class).as_deref(),
                expected,
                "{percent}"
            );
        }
    }

    #[test]
    fn groups_and_their_threads() {
        let on = json!({"enable": true, "catRangeEndPercent": 30});
        let mut world = World::new(4)
            .policy(json!({"resourceQOSStrategy": {"beClass": {"resctrlQOS": on}}}))
            .pod("be", "BE", "BestEffort", json!({}))
            .pod(
                "own",
                "BE",
                "BestEffort",
                json!({"metadata": {"annotations": {"node.koordinator.sh/resctrl": "{}"}}}),
            )
            .pod("ls", "LS", "Burstable", json!({}));
        for (pod, ids) in world.pods.iter().zip([[1, 2], [3, 4], [5, 6]]) {
            let path = pod.containers[0].cgroup.clone().unwrap();
            world.kernel.threads.insert(path, ids.into());
        }
        let tasks = [("BE".into(), BTreeSet::from([1]))];
        world.kernel.resctrl = Some(Resctrl {
            l3_mask: "7ff".into(),
            l3_ids: [0].into(),
            tasks: tasks.into(),
            ..Resctrl::default()
        });
        let Outcome::Plan(plan) = plan(&world.input()) else {
            panic!("no plan")
        };
        let found: Vec<(Target, Value)> = plan
            .effects
            .into_iter()
            .map(|one| (one.target, one.value))
            .collect();
        let expected = [
            (target("LSR", ResctrlKnob::Exists), Value::Switch(true)),
            (
                target("LSR", ResctrlKnob::L3),
                Value::Line("L3:0=7ff".into()),
            ),
            (target("LS", ResctrlKnob::Exists), Value::Switch(true)),
            (
                target("LS", ResctrlKnob::L3),
                Value::Line("L3:0=7ff".into()),
            ),
            (target("BE", ResctrlKnob::Exists), Value::Switch(true)),
            (target("BE", ResctrlKnob::L3), Value::Line("L3:0=f".into())),
            (target("BE", ResctrlKnob::Tasks), Value::Ids([2].into())),
        ];
        assert_eq!(found, expected);
        world.kernel.resctrl = None;
        let Outcome::Plan(none) = super::plan(&world.input()) else {
            panic!("no plan")
        };
        assert_eq!(none.effects, []);
    }
}
