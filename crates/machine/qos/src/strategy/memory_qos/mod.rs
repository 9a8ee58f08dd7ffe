//! Protects memory of pods by their requests, and throttles containers before they reach their limits.

use std::collections::BTreeMap;

use plimsoll_api::names;
use plimsoll_api::node_slo::{Class, MemoryQos, ResourceQosStrategy, none, parse};
use plimsoll_api::priority::{KubeQos, QosClass};
use plimsoll_api::quantity::Quantity;
use plimsoll_plan::{Asker, CgroupPath, Knob, Plan, Reason, Target, Value};
use serde_json::Value as Json;

use crate::input::{ContainerView, Input, NodeView, PodView};
use crate::strategy::Outcome;

const POLICY: &str = "resourceQOSStrategy.memoryQOS";

pub fn plan(input: &Input<'_>) -> Outcome {
    let Some(node) = input.node.filter(|node| !node.allocatable.is_empty()) else {
        return Outcome::Keep(None);
    };
    let strategy = &input.policy.qos;
    let mut sums = Sums::default();
    let mut below = Vec::new();
    for pod in input.all_pods().iter().filter(|pod| pod.is_active()) {
        let Some((memory, policy)) = of_pod(pod, strategy) else {
            continue;
        };
        sums.add(pod, &memory);
        below.push((pod, memory, policy));
    }
    let mut plan = Plan::empty(Asker::MemoryQos);
    tiers(&mut plan, node, strategy, &sums);
    for (pod, memory, policy) in &below {
        of_pod_cgroup(&mut plan, pod, memory, policy);
    }
    for (pod, memory, policy) in &below {
        for container in pod.main_containers() {
            if let Some(path) = &container.cgroup {
                let page = input.kernel.capabilities.page_size;
                let high = high(pod, container, node, memory, page);
                of_container(&mut plan, pod, container, path, memory, policy, high);
            }
        }
    }
    Outcome::Plan(plan)
}

/// The class's settings, with what the pod itself says over them.
fn of_pod(pod: &PodView, strategy: &ResourceQosStrategy) -> Option<(MemoryQos, &'static str)> {
    let qos = pod.classes.effective_qos();
    let class = strategy.class(qos)?.memory.clone().unwrap_or_default();
    let Some(own) = pod.annotations.memory_qos.given() else {
        return Some((class, POLICY));
    };
    let base = match own.policy.as_deref() {
        // Nothing else that it says counts.
        Some("none") => return Some((built_in(&none()), names::ANNOTATION_MEMORY_QOS)),
        Some("auto") => built_in(&defaults(qos)),
        _ => class,
    };
    Some((base.with(&own.memory), names::ANNOTATION_MEMORY_QOS))
}

fn defaults(qos: QosClass) -> Json {
    match qos {
        QosClass::Lse | QosClass::Lsr => Class::Lsr,
        QosClass::Ls | QosClass::None => Class::Ls,
        QosClass::Be => Class::Be,
        QosClass::System => Class::System,
    }
    .defaults()
}

fn built_in(class: &Json) -> MemoryQos {
    parse(&class["memoryQOS"], "memoryQOS").unwrap_or_default()
}

/// Bytes; nothing counts as nothing. Best-effort pods ask for memory that is lent.
fn request(pod: &PodView) -> i64 {
    if !pod.is_be() {
        return pod.requests.get("memory").map_or(0, Quantity::value);
    }
    let main = pod.main_containers();
    let asked = main.filter_map(|one| one.requests.get(names::BATCH_MEMORY));
    asked.fold(0, |sum: i64, one| sum.saturating_add(one.value().max(0)))
}

fn share(amount: i64, percent: i64) -> i64 {
    let share = i128::from(amount) * i128::from(percent) / 100;
    i64::try_from(share).unwrap_or(if percent < 0 { i64::MIN } else { i64::MAX })
}

/// What is kept for a pod, or a container, that asks for so much: at all costs, and while others can give way.
fn kept(asked: i64, memory: &MemoryQos) -> (Option<i64>, Option<i64>) {
    let min = memory
        .min_limit_percent
        .map(|percent| share(asked, percent));
    let low = memory
        .low_limit_percent
        .map(|percent| share(asked, percent));
    let low = match (min, low) {
        (Some(min), Some(low)) if low > 0 => Some(low.max(min)),
        _ => low,
    };
    (min, low)
}

/// Of tiers: the sums of their pods; the tier of guaranteed pods has all others below it.
#[derive(Default)]
struct Sums {
    by_tier: BTreeMap<u8, (Option<i64>, Option<i64>)>,
}

const TIERS: [KubeQos; 3] = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];

fn number(qos: KubeQos) -> u8 {
    match qos {
        KubeQos::Guaranteed => 0,
        KubeQos::Burstable => 1,
        KubeQos::BestEffort => 2,
    }
}

impl Sums {
    fn add(&mut self, pod: &PodView, memory: &MemoryQos) {
        let asked = request(pod);
        let tier = number(pod.classes.kube_qos);
        let tiers = if tier == 0 { vec![0] } else { vec![0, tier] };
        for tier in tiers {
            let (min, low) = self.by_tier.entry(tier).or_default();
            // In a tier what is kept for low is not raised to what is kept for good.
            for (sum, percent) in [
                (min, memory.min_limit_percent),
                (low, memory.low_limit_percent),
            ] {
                if let Some(percent) = percent {
                    *sum = Some(sum.unwrap_or(0).saturating_add(share(asked, percent)));
                }
            }
        }
    }
}

fn tiers(plan: &mut Plan, node: &NodeView, strategy: &ResourceQosStrategy, sums: &Sums) {
    for tier in TIERS {
        let class = match tier {
            KubeQos::Guaranteed => strategy.class(QosClass::Lsr),
            KubeQos::Burstable => strategy.class(QosClass::Ls),
            KubeQos::BestEffort => strategy.class(QosClass::Be),
        };
        let Some(class) = class else {
            continue;
        };
        let path: CgroupPath = node.layout.tier(tier).into();
        let sum = sums.by_tier.get(&number(tier)).copied();
        let (min, low) = sum.unwrap_or_default();
        let why = Reason::new("memory_qos_tier").by(POLICY);
        let mut put = Putter {
            plan,
            path: &path,
            why,
        };
        put.bytes(Knob::MemoryMin, min);
        put.bytes(Knob::MemoryLow, low);
        if let Some(memory) = &class.memory {
            put.priorities(memory);
        }
    }
}

fn of_pod_cgroup(plan: &mut Plan, pod: &PodView, memory: &MemoryQos, policy: &'static str) {
    let asked = request(pod);
    let (min, low) = kept(asked, memory);
    let why = Reason::new("memory_qos_pod")
        .by(policy)
        .with("request_bytes", asked as f64);
    let mut put = Putter {
        plan,
        path: &pod.cgroup,
        why,
    };
    put.bytes(Knob::MemoryMin, min);
    put.bytes(Knob::MemoryLow, low);
    put.watermarks(memory);
    put.priorities(memory);
    page_cache(&mut put, pod, memory);
}

/// Page cache that a pod's processes leave behind is limited for the pod as a whole.
fn page_cache(put: &mut Putter<'_>, pod: &PodView, memory: &MemoryQos) {
    let enable = memory.page_cache_enable.as_ref().and_then(switch);
    let limit = match pod.is_be() {
        false => pod.limits.get("memory").map_or(0, Quantity::value),
        true => {
            let limits = pod.main_containers();
            let limits = limits.map(|one| one.limits.get(names::BATCH_MEMORY));
            let limits: Option<Vec<i64>> = limits.map(|limit| Some(limit?.value())).collect();
            limits.map_or(0, |all| all.into_iter().fold(0, i64::saturating_add))
        }
    };
    let size = memory.page_cache_limit_size.as_ref().and_then(bytes);
    let size = match size {
        Some(size) if limit > 0 => Some(size.min(limit)),
        Some(size) => Some(size),
        None => {
            let percent = memory.page_cache_limit_percent.filter(|_| limit > 0);
            percent.map(|percent| share(limit, percent))
        }
    };
    match (enable, size) {
        (None, None) => {}
        (Some(false), _) | (None, Some(i64::MIN..=0)) => {
            put.value(Knob::PageCacheLimitEnable, Value::Switch(false));
        }
        (_, size) => {
            if let Some(size) = size.filter(|size| *size > 0) {
                put.bytes(Knob::PageCacheLimitSize, Some(size));
                let sync = memory.page_cache_reclaim_sync.as_ref().and_then(switch);
                let sync = Value::Switch(sync.unwrap_or(false));
                put.value(Knob::PageCacheLimitSync, sync);
            }
            put.value(Knob::PageCacheLimitEnable, Value::Switch(true));
        }
    }
}

fn switch(value: &Json) -> Option<bool> {
    value.as_bool().or_else(|| Some(value.as_i64()? != 0))
}

fn bytes(value: &Json) -> Option<i64> {
    match value {
        Json::String(text) => text.parse::<Quantity>().ok().map(|size| size.value()),
        other => other.as_i64(),
    }
}

fn container_amounts(pod: &PodView, container: &ContainerView) -> (i64, Option<i64>) {
    let name = if pod.is_be() {
        names::BATCH_MEMORY
    } else {
        "memory"
    };
    let asked = container.requests.get(name).map_or(0, Quantity::value);
    let limit = container.limits.get(name).map(Quantity::value);
    (asked.max(0), limit.filter(|limit| *limit > 0))
}

/// Where a container is throttled: between its request and its limit, or what the node has.
fn high(
    pod: &PodView,
    container: &ContainerView,
    node: &NodeView,
    memory: &MemoryQos,
    page: u64,
) -> Option<Option<i64>> {
    let percent = memory.throttling_percent?;
    if percent == 0 {
        return Some(None);
    }
    let (asked, limit) = container_amounts(pod, container);
    let allocatable = node.allocatable.get("memory").map_or(0, Quantity::value);
    let limit = limit.unwrap_or(allocatable);
    let high = asked.saturating_add(share(limit.saturating_sub(asked), percent));
    let page = i64::try_from(page).unwrap_or(4096).max(1);
    let high = high / page * page;
    let (min, _) = kept(asked, memory);
    let high = match min {
        Some(min) if high > 0 => high.max(min),
        _ => high,
    };
    Some(Some(high))
}

fn of_container(
    plan: &mut Plan,
    pod: &PodView,
    container: &ContainerView,
    path: &CgroupPath,
    memory: &MemoryQos,
    policy: &'static str,
    high: Option<Option<i64>>,
) {
    let (asked, limit) = container_amounts(pod, container);
    let (min, low) = kept(asked, memory);
    let why = Reason::new("memory_qos_container")
        .by(policy)
        .with("request_bytes", asked as f64)
        .with("limit_bytes", limit.unwrap_or(-1) as f64);
    let mut put = Putter { plan, path, why };
    put.bytes(Knob::MemoryMin, min);
    put.bytes(Knob::MemoryLow, low);
    match high {
        None => {}
        Some(None) => put.value(Knob::MemoryHigh, Value::Bytes(None)),
        Some(high) => put.bytes(Knob::MemoryHigh, high),
    }
    put.watermarks(memory);
    put.priorities(memory);
}

/// Wants values of one cgroup.
struct Putter<'a> {
    plan: &'a mut Plan,
    path: &'a CgroupPath,
    why: Reason,
}

impl Putter<'_> {
    fn value(&mut self, knob: Knob, value: Value) {
        self.plan
            .want(Target::cgroup(self.path, knob), value, self.why);
    }

    /// Less than nothing is left out.
    fn bytes(&mut self, knob: Knob, bytes: Option<i64>) {
        if let Some(Ok(bytes)) = bytes.map(u64::try_from) {
            self.value(knob, Value::Bytes(Some(bytes)));
        }
    }

    fn number(&mut self, knob: Knob, number: Option<i64>) {
        if let Some(number) = number {
            self.value(knob, Value::Number(number));
        }
    }

    fn watermarks(&mut self, memory: &MemoryQos) {
        self.number(Knob::WmarkRatio, memory.wmark_ratio);
        self.number(Knob::WmarkScaleFactor, memory.wmark_scale_permill);
        self.number(Knob::WmarkMinAdj, memory.wmark_min_adj);
    }

    fn priorities(&mut self, memory: &MemoryQos) {
        self.number(Knob::MemoryPriority, memory.priority);
        self.number(Knob::UsePriorityOom, memory.priority_enable);
        self.number(Knob::OomGroup, memory.oom_kill_group);
    }
}

#[cfg(test)]
mod tests;
