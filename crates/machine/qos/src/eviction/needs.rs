//! What has to be released, by each feature's own rule.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::names;
use plimsoll_api::node_slo::ThresholdStrategy;
use plimsoll_api::priority::PriorityClass;
use plimsoll_api::quantity::Quantity;
use plimsoll_plan::Reason;

use super::feature::Feature;
use crate::input::{Input, NodeView, PodView, finite};
use crate::windows::Windows;

/// How far usage goes below its threshold where nobody says.
const BUFFER_PERCENT: i64 = 2;
const MOST_SATISFACTION_LOWER: i64 = 60;
const MOST_SATISFACTION_UPPER: i64 = 100;
const BE_USAGE_PERCENT: i64 = 90;
/// Pods of production are never evicted for what is allocatable.
const MOST_ALLOCATABLE_PRIORITY: i32 = 7999;

/// What is released. CPU in thousandths of a core, memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Cpu,
    MidCpu,
    BatchCpu,
    Memory,
    MidMemory,
    BatchMemory,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::MidCpu => names::MID_CPU,
            Self::BatchCpu => names::BATCH_CPU,
            Self::Memory => "memory",
            Self::MidMemory => names::MID_MEMORY,
            Self::BatchMemory => names::BATCH_MEMORY,
        }
    }

    /// The class that it is lent to.
    pub fn class(self) -> Option<PriorityClass> {
        match self {
            Self::MidCpu | Self::MidMemory => Some(PriorityClass::Mid),
            Self::BatchCpu | Self::BatchMemory => Some(PriorityClass::Batch),
            Self::Cpu | Self::Memory => None,
        }
    }
}

pub type Amounts = BTreeMap<Resource, i64>;

/// What has to be released, and why. No amounts: nothing has to.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    pub amounts: Amounts,
    pub why: Reason,
}

/// The resource that a pod's class asks for, and how much of it.
pub fn request(pod: &PodView, cpu: bool) -> (Resource, i64) {
    let resource = match (pod.classes.effective_priority(), cpu) {
        (PriorityClass::Mid, true) => Resource::MidCpu,
        (PriorityClass::Mid, false) => Resource::MidMemory,
        (PriorityClass::Batch, true) => Resource::BatchCpu,
        (PriorityClass::Batch, false) => Resource::BatchMemory,
        (_, true) => Resource::Cpu,
        (_, false) => Resource::Memory,
    };
    let amount = match resource {
        Resource::Cpu => pod.requests.get("cpu").map_or(0, Quantity::milli),
        Resource::Memory => pod.requests.get("memory").map_or(0, Quantity::value),
        lent => pod.lent(lent.name()),
    };
    (resource, amount)
}

/// `Err`: the policy makes no sense for this feature.
pub fn check(feature: Feature, policy: &ThresholdStrategy) -> Result<(), String> {
    match feature {
        Feature::BeCpu => satisfaction(policy),
        Feature::Cpu => {
            band(
                "cpuEvict",
                policy.cpu_evict_percent,
                policy.cpu_evict_lower_percent,
                Some(BUFFER_PERCENT),
            )?;
            evict_priority(policy)
        }
        Feature::BeMemory | Feature::Memory => {
            band(
                "memoryEvict",
                policy.memory_evict_percent,
                policy.memory_evict_lower_percent,
                Some(BUFFER_PERCENT),
            )?;
            match feature {
                Feature::Memory => evict_priority(policy),
                _ => Ok(()),
            }
        }
        Feature::CpuAllocatable | Feature::MemoryAllocatable => {
            let (name, from, to) = allocatable_band(feature, policy);
            band(name, from, to, None)?;
            match policy.allocatable_evict_priority {
                None => Err("allocatableEvictPriorityThreshold is not set".to_owned()),
                Some(priority) if priority > MOST_ALLOCATABLE_PRIORITY => Err(format!(
                    "allocatableEvictPriorityThreshold is {priority}, and must be at most {MOST_ALLOCATABLE_PRIORITY}"
                )),
                Some(_) => Ok(()),
            }
        }
    }
}

fn evict_priority(policy: &ThresholdStrategy) -> Result<(), String> {
    match policy.evict_priority {
        Some(_) => Ok(()),
        None => Err("evictEnabledPriorityThreshold is not set".to_owned()),
    }
}

fn allocatable_band(
    feature: Feature,
    policy: &ThresholdStrategy,
) -> (&'static str, Option<i64>, Option<i64>) {
    match feature {
        Feature::CpuAllocatable => (
            "cpuAllocatableEvict",
            policy.cpu_allocatable_evict_percent,
            policy.cpu_allocatable_evict_lower_percent,
        ),
        _ => (
            "memoryAllocatableEvict",
            policy.memory_allocatable_evict_percent,
            policy.memory_allocatable_evict_lower_percent,
        ),
    }
}

fn band(name: &str, from: Option<i64>, to: Option<i64>, buffer: Option<i64>) -> Result<(), String> {
    let Some(from) = from else {
        return Err(format!("{name}ThresholdPercent is not set"));
    };
    if from < 0 {
        return Err(format!(
            "{name}ThresholdPercent is {from}, and must not be negative"
        ));
    }
    let default = buffer.map(|buffer| from.saturating_sub(buffer));
    let Some(to) = to.or(default) else {
        return Err(format!("{name}LowerPercent is not set"));
    };
    if to >= from {
        return Err(format!(
            "{name}LowerPercent is {to}, and must be less than {name}ThresholdPercent, which is {from}"
        ));
    }
    Ok(())
}

fn satisfaction(policy: &ThresholdStrategy) -> Result<(), String> {
    let (Some(lower), Some(upper)) = (
        policy.be_satisfaction_lower_percent,
        policy.be_satisfaction_upper_percent,
    ) else {
        return Err(
            "cpuEvictBESatisfactionLowerPercent or cpuEvictBESatisfactionUpperPercent is not set"
                .to_owned(),
        );
    };
    if !(1..=MOST_SATISFACTION_LOWER).contains(&lower) {
        return Err(format!(
            "cpuEvictBESatisfactionLowerPercent is {lower}, and must be above 0 and at most {MOST_SATISFACTION_LOWER}"
        ));
    }
    if !(1..MOST_SATISFACTION_UPPER).contains(&upper) {
        return Err(format!(
            "cpuEvictBESatisfactionUpperPercent is {upper}, and must be above 0 and below {MOST_SATISFACTION_UPPER}"
        ));
    }
    if upper < lower {
        return Err(format!(
            "cpuEvictBESatisfactionUpperPercent is {upper}, and must not be below cpuEvictBESatisfactionLowerPercent, which is {lower}"
        ));
    }
    Ok(())
}

/// `None`: nothing has to be released, or what it takes to tell is not known.
pub fn need(
    feature: Feature,
    input: &Input<'_>,
    node: &NodeView,
    windows: &Windows,
    interval: Duration,
) -> Option<Need> {
    let policy = &input.policy.threshold;
    match feature {
        Feature::BeCpu => by_satisfaction(input, node, windows, interval),
        Feature::Cpu => {
            let window = window(policy, interval, 1);
            let since = input.now.saturating_sub(window);
            let recent = input.now.saturating_sub(interval.saturating_mul(2));
            let average = windows.node_cpu.average(since).map(|(used, _)| used);
            let used = average.or_else(|| windows.node_cpu.last(recent))?;
            let capacity = node.cpu_milli();
            let amount = by_usage(
                (used * 1000.0) as i64,
                capacity,
                policy.cpu_evict_percent?,
                policy.cpu_evict_lower_percent,
            )?;
            let why = Reason::new("node_cpu_usage")
                .by("resourceUsedThresholdWithBE.cpuEvictThresholdPercent")
                .with("used_cores", used)
                .with("capacity_milli", capacity as f64)
                .with("release_milli", amount as f64);
            Some(Need {
                amounts: [(Resource::Cpu, amount)].into(),
                why,
            })
        }
        Feature::BeMemory | Feature::Memory => {
            let used = finite(input.usage?.value.node_memory)?;
            let capacity = node.memory();
            let amount = by_usage(
                used as i64,
                capacity,
                policy.memory_evict_percent?,
                policy.memory_evict_lower_percent,
            )?;
            let why = Reason::new("node_memory_usage")
                .by("resourceUsedThresholdWithBE.memoryEvictThresholdPercent")
                .with("used_bytes", used)
                .with("capacity_bytes", capacity as f64)
                .with("release_bytes", amount as f64);
            Some(Need {
                amounts: [(Resource::Memory, amount)].into(),
                why,
            })
        }
        Feature::CpuAllocatable | Feature::MemoryAllocatable => {
            by_allocatable(feature, input, node)
        }
    }
}

/// The policy's window, where it is longer than so many intervals.
fn window(policy: &ThresholdStrategy, interval: Duration, intervals: u32) -> Duration {
    let seconds = policy.cpu_evict_window_seconds.unwrap_or_default();
    let wanted = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    wanted.max(interval.saturating_mul(intervals))
}

/// How far back any feature looks.
pub fn longest_window(policy: &ThresholdStrategy, interval: Duration) -> Duration {
    window(policy, interval, 2).min(Duration::from_secs(3600))
}

fn by_usage(used: i64, capacity: i64, from: i64, to: Option<i64>) -> Option<i64> {
    let percent = used.saturating_mul(100).checked_div(capacity)?;
    if percent < from {
        return None;
    }
    let to = to.unwrap_or_else(|| from.saturating_sub(BUFFER_PERCENT));
    let over = i128::from(capacity) * i128::from(percent.saturating_sub(to)) / 100;
    let over = i64::try_from(over).unwrap_or(i64::MAX);
    (over > 0).then_some(over)
}

/// How well best-effort pods are served: what they may use of what they ask for.
fn by_satisfaction(
    input: &Input<'_>,
    node: &NodeView,
    windows: &Windows,
    interval: Duration,
) -> Option<Need> {
    let policy = &input.policy.threshold;
    let window = window(policy, interval, 2);
    let since = input.now.saturating_sub(window);
    let (used, count) = windows.be_usage.average(since)?;
    let (requested, requests) = windows.be_request.average(since)?;
    let (real, limits) = windows.be_real_limit.average(since)?;
    let count = count.min(requests).min(limits) as u64;
    if count.saturating_mul(interval.as_secs()) < window.as_secs() / 3 {
        return None;
    }
    let by_allocatable = policy.cpu_evict_policy.as_deref() == Some("evictByAllocatable");
    let limit = |real: f64| match by_allocatable {
        true => lent_milli(node),
        false => real,
    };
    if !is_busy(used, limit(real), policy.be_usage_percent) {
        return None;
    }
    let mut release = to_satisfy(requested, limit(real), policy)?;
    let recent = input.now.saturating_sub(interval.saturating_mul(2));
    let now = |window: &crate::windows::Window| window.last(recent).unwrap_or(0.0);
    let limit_now = limit(now(&windows.be_real_limit));
    if !is_busy(now(&windows.be_usage), limit_now, policy.be_usage_percent) {
        return None;
    }
    let requested_now = now(&windows.be_request);
    if requested_now != requested || limit_now != limit(real) {
        release = release.min(to_satisfy(requested_now, limit_now, policy)?);
    }
    let why = Reason::new("be_cpu_satisfaction")
        .by("resourceUsedThresholdWithBE.cpuEvictBESatisfactionLowerPercent")
        .with("limit_milli", limit_now)
        .with("request_milli", requested_now)
        .with("used_milli", now(&windows.be_usage))
        .with("release_milli", release as f64);
    Some(Need {
        amounts: [(Resource::BatchCpu, release)].into(),
        why,
    })
}

/// Thousandths of a core that are lent to batch; negative: the node does not say. None of it counts as very little, so that a
/// share of it can be told.
fn lent_milli(node: &NodeView) -> f64 {
    match node.allocatable.get(names::BATCH_CPU).map(Quantity::value) {
        None | Some(i64::MIN..=-1) => -1.0,
        Some(0) => 1.0,
        Some(milli) => milli as f64,
    }
}

fn is_busy(used: f64, limit: f64, percent: Option<i64>) -> bool {
    if limit <= 0.0 {
        return false;
    }
    // Less than a core is scarce, whatever is used of it.
    limit < 1000.0 || used / limit >= percent.unwrap_or(BE_USAGE_PERCENT) as f64 / 100.0
}

fn to_satisfy(requested: f64, limit: f64, policy: &ThresholdStrategy) -> Option<i64> {
    if requested <= 0.0 {
        return None;
    }
    let satisfied = limit / requested;
    if satisfied > policy.be_satisfaction_lower_percent? as f64 / 100.0 {
        return None;
    }
    let gap = policy.be_satisfaction_upper_percent? as f64 / 100.0 - satisfied;
    let release = (requested * gap) as i64;
    (release > 0).then_some(release)
}

/// More has been promised than there is, since what is lent has shrunk.
fn by_allocatable(feature: Feature, input: &Input<'_>, node: &NodeView) -> Option<Need> {
    let policy = &input.policy.threshold;
    let priority = policy.allocatable_evict_priority?;
    let (_, from, to) = allocatable_band(feature, policy);
    let (from, to) = (from? as f64 / 100.0, to? as f64 / 100.0);
    let cpu = feature == Feature::CpuAllocatable;
    let mut asked = Amounts::new();
    let pods = input.all_pods().iter();
    for pod in pods.filter(|pod| pod.priority_or_default() <= priority) {
        let (resource, amount) = request(pod, cpu);
        let sum = asked.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
    let mut amounts = Amounts::new();
    for (resource, asked) in asked {
        let there = node.allocatable.get(resource.name());
        let there = there.map_or(0, |there| match resource {
            Resource::Cpu => there.milli(),
            _ => there.value(),
        });
        let amount = if there == 0 {
            asked
        } else {
            let (asked, there) = (asked as f64, there as f64);
            let share = asked / there;
            match (share > from, cpu) {
                (false, _) => continue,
                (true, true) => (asked - to * there) as i64,
                (true, false) => ((share - to) * there) as i64,
            }
        };
        if amount > 0 {
            amounts.insert(resource, amount);
        }
    }
    let why = Reason::new("lent_more_than_there_is")
        .by(match cpu {
            true => "resourceUsedThresholdWithBE.cpuAllocatableEvictThresholdPercent",
            false => "resourceUsedThresholdWithBE.memoryAllocatableEvictThresholdPercent",
        })
        .with("threshold_percent", from * 100.0)
        .with("lower_percent", to * 100.0);
    (!amounts.is_empty()).then_some(Need { amounts, why })
}
