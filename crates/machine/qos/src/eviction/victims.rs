//! Who may go for a feature, and who goes first.

use std::cmp::Reverse;

use plimsoll_api::names;
use plimsoll_plan::EvictionScope;

use super::feature::Feature;
use super::needs::{Amounts, Need, Resource, request};
use crate::input::{Input, Origin, PodView};

#[derive(Debug, Clone)]
pub struct Victim<'a> {
    pub pod: &'a PodView,
    /// What its end releases of what the feature is after.
    pub releases: Amounts,
}

/// The agent's own pod, pods of the node's own files and pods of the cluster itself are never evicted.
pub fn is_spared(pod: &PodView, own: Option<&str>) -> bool {
    pod.critical || pod.origin == Origin::Static || own == Some(&*pod.uid)
}

/// In the order in which they go.
pub fn victims<'a>(feature: Feature, input: &Input<'a>, need: &Need) -> Vec<Victim<'a>> {
    match feature {
        Feature::BeCpu | Feature::BeMemory => best_effort(feature, input, need),
        _ => by_priority(feature, input, need),
    }
}

fn used(pod: &PodView, input: &Input<'_>, scope: EvictionScope) -> Option<i64> {
    let usage = input.usage?.value;
    match scope {
        EvictionScope::Cpu => Some((usage.pod_cpu(&pod.uid)? * 1000.0) as i64),
        EvictionScope::Memory => Some(usage.pod_memory(&pod.uid)? as i64),
    }
}

/// Pods that are labelled as best effort, whatever else they say but which features may evict them.
fn best_effort<'a>(feature: Feature, input: &Input<'a>, need: &Need) -> Vec<Victim<'a>> {
    let scope = feature.scope();
    let pods = input.all_pods().iter();
    let pods = pods.filter(|pod| pod.is_be() && pod.allows(feature.name()));
    let mut found: Vec<(&PodView, i64)> = pods
        .map(|pod| (pod, used(pod, input, scope).unwrap_or(0)))
        .collect();
    let priority = |pod: &PodView| pod.priority.unwrap_or(0);
    match scope {
        EvictionScope::Cpu => {
            let share = |pod: &PodView, used: i64| match pod.lent(names::BATCH_CPU) {
                0 => 0.0,
                asked => used as f64 / asked as f64,
            };
            found.sort_by(|(a, used_a), (b, used_b)| {
                let shares = share(b, *used_b).total_cmp(&share(a, *used_a));
                let order = priority(a).cmp(&priority(b));
                order.then(shares).then_with(|| b.name.cmp(&a.name))
            });
        }
        EvictionScope::Memory => found.sort_by(|(a, used_a), (b, used_b)| {
            let key = |pod: &PodView, used| (priority(pod), Reverse(used));
            let order = key(a, *used_a).cmp(&key(b, *used_b));
            order.then_with(|| b.name.cmp(&a.name))
        }),
    }
    let victims = found.into_iter().map(|(pod, used)| Victim {
        releases: released(feature, pod, used, need),
        pod,
    });
    victims.collect()
}

/// Pods up to a priority that may be evicted and whose usage is known.
fn by_priority<'a>(feature: Feature, input: &Input<'a>, need: &Need) -> Vec<Victim<'a>> {
    let policy = &input.policy.threshold;
    let most = match feature {
        Feature::Cpu | Feature::Memory => policy.evict_priority,
        _ => policy.allocatable_evict_priority,
    };
    let Some(most) = most else {
        return Vec::new();
    };
    let scope = feature.scope();
    let pods = input.all_pods().iter().filter(|pod| {
        let enabled = pod.labels.get(names::LABEL_EVICTION_ENABLED);
        pod.is_active()
            && pod.allows(feature.name())
            && pod.priority_or_default() <= most
            && enabled.is_some_and(|enabled| **enabled == *"true")
    });
    let mut found: Vec<_> = pods
        .filter_map(|pod| {
            let used = used(pod, input, scope)?;
            let size = match feature {
                Feature::Cpu | Feature::Memory => used,
                _ => request(pod, scope == EvictionScope::Cpu).1,
            };
            let first = pod.annotations.eviction_priority.given();
            let key = (
                first.copied().unwrap_or(0),
                pod.priority_or_default(),
                pod.rank(),
                Reverse(size),
            );
            Some((key, pod, used))
        })
        .collect();
    found.sort_by(|(a, first, _), (b, second, _)| {
        a.cmp(b).then_with(|| first.name.cmp(&second.name))
    });
    let victims = found.into_iter().map(|(_, pod, used)| Victim {
        releases: released(feature, pod, used, need),
        pod,
    });
    victims.collect()
}

/// What a pod's end releases of what a feature is after.
pub fn releases(feature: Feature, input: &Input<'_>, pod: &PodView, need: &Need) -> Amounts {
    let used = used(pod, input, feature.scope()).unwrap_or(0);
    released(feature, pod, used, need)
}

fn released(feature: Feature, pod: &PodView, used: i64, need: &Need) -> Amounts {
    let (resource, amount) = match feature {
        Feature::BeCpu => (Resource::BatchCpu, pod.lent(names::BATCH_CPU)),
        Feature::Cpu => (Resource::Cpu, used),
        Feature::BeMemory | Feature::Memory => (Resource::Memory, used),
        Feature::CpuAllocatable | Feature::MemoryAllocatable => {
            // Only what is lent can be given back.
            let class = pod.classes.effective_priority();
            let lent = |needed: &Resource| needed.class() == Some(class);
            if !need.amounts.keys().any(lent) {
                return Amounts::new();
            }
            request(pod, feature == Feature::CpuAllocatable)
        }
    };
    [(resource, amount)].into()
}
