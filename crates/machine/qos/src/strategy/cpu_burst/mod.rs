//! Lets latency-sensitive containers use more than their limits for a while.
//!
//! A *burst* is what the kernel lets a container save up while it uses less than its quota. *Scaling the quota* raises the
//! quota itself in steps while a container is throttled and the node has room, and lowers it again.

mod limiter;
mod share_pool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::node_slo::CpuBurst;
use plimsoll_api::priority::QosClass;
use plimsoll_plan::{Asker, CgroupPath, Knob, Plan, Reason, Target, Value};

use crate::input::{ContainerKind, ContainerView, Input, PodView, finite};
use crate::metrics::{ContainerFigure, Metrics};
use crate::strategy::Outcome;
use crate::windows::Windows;

use limiter::Limiter;
use share_pool::SharePool;

const PERIOD_US: i64 = 100_000;
const LEAST_QUOTA_US: i64 = 1000;
const UP: f64 = 1.2;
const DOWN: f64 = 0.8;

const POLICY: &str = "cpuBurstStrategy.policy";
const ANNOTATION: &str = plimsoll_api::names::ANNOTATION_CPU_BURST;

#[derive(Debug, Clone, Default)]
pub struct State {
    limiters: BTreeMap<Arc<str>, Limiter>,
}

/// What happens to a container's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Up,
    Down,
    Stay,
    Reset,
}

impl State {
    /// Quotas of the containers that may be scaled, and of their pods.
    pub fn reads(input: &Input<'_>) -> Vec<Target> {
        let mut reads = Vec::new();
        for pod in input.all_pods().iter().filter(|pod| is_burstable(pod)) {
            let before = reads.len();
            for container in &pod.containers {
                if let Some((path, _)) = scaled(container) {
                    reads.push(Target::cgroup(path, Knob::CpuQuota));
                }
            }
            if reads.len() > before {
                reads.push(Target::cgroup(&pod.cgroup, Knob::CpuQuota));
            }
        }
        reads
    }

    pub fn plan(
        &mut self,
        input: &Input<'_>,
        windows: &Windows,
        interval: Duration,
        metrics: &mut Metrics,
    ) -> Outcome {
        let strategy = &input.policy.burst;
        let pool = SharePool::of(input, windows, interval);
        let mut plan = Plan::empty(Asker::CpuBurst);
        for pod in input.all_pods() {
            if !is_burstable(pod) || !pod.is_active() {
                continue;
            }
            let own = pod.annotations.cpu_burst.given();
            let (config, policy) = match own {
                Some(own) => (over(&strategy.burst, own), ANNOTATION),
                None => (strategy.burst.clone(), POLICY),
            };
            let quotas = self.scale(input, pod, &config, policy, pool, (&mut plan, metrics));
            burst(input, pod, &config, policy, &quotas, (&mut plan, metrics));
        }
        self.limiters
            .retain(|_, limiter| !limiter.has_expired(input.now));
        Outcome::Plan(plan)
    }

    /// Answers with the quotas that containers will have.
    fn scale<'a>(
        &mut self,
        input: &Input<'_>,
        pod: &'a PodView,
        config: &CpuBurst,
        policy: &'static str,
        pool: SharePool,
        (plan, metrics): (&mut Plan, &mut Metrics),
    ) -> BTreeMap<&'a str, i64> {
        let mut quotas = BTreeMap::new();
        // With CPUs of its own it needs no quota.
        if pod.own_cpus().is_some() {
            return quotas;
        }
        let mut moved = 0_i64;
        let mut any = None;
        for container in &pod.containers {
            let Some((path, base)) = scaled(container) else {
                continue;
            };
            let target = Target::cgroup(path, Knob::CpuQuota);
            let Some(now) = input.kernel.quota(&target) else {
                continue;
            };
            let wish = self.step(input, container, config);
            let step = pool.checked(wish);
            let ceiling = ceiling(base, config.quota_percent);
            let to = match step {
                Step::Up => times(now, UP),
                Step::Down => times(now, DOWN),
                Step::Stay => now,
                Step::Reset => base,
            };
            let to = to.min(ceiling).max(base);
            let why = Reason::new(match step {
                Step::Up => "quota_scaled_up",
                Step::Down => "quota_scaled_down",
                Step::Stay => "quota_scaled",
                Step::Reset => "quota_not_scaled",
            })
            .by(policy)
            .with("base_us", base as f64)
            .with("present_us", now as f64)
            .with("share_pool_percent", pool.percent());
            plan.want(target, limited(to), why);
            quotas.insert(&*container.name, to);
            moved = moved.saturating_add(to.saturating_sub(now));
            any = Some(why);
            if to != now {
                metrics
                    .container_scaled_cfs_quota_us
                    .push(figure(pod, container, to));
            }
        }
        let target = Target::cgroup(&pod.cgroup, Knob::CpuQuota);
        if let (Some(why), Some(now)) = (any, input.kernel.quota(&target))
            && now > 0
        {
            let to = now.saturating_add(moved).max(LEAST_QUOTA_US);
            plan.want(target, limited(to), why);
        }
        quotas
    }

    fn step(&mut self, input: &Input<'_>, container: &ContainerView, config: &CpuBurst) -> Step {
        let allowed = self.allowed(input, container, config);
        if !matches!(config.policy.as_deref(), Some("auto" | "cfsQuotaBurstOnly")) {
            return Step::Reset;
        }
        if !allowed {
            return Step::Down;
        }
        let throttled = container.id.as_ref().and_then(|id| {
            let usage = input.usage?.value.containers.get(id)?;
            finite(usage.throttled)
        });
        match throttled {
            Some(share) if share > 0.0 => Step::Up,
            _ => Step::Stay,
        }
    }

    fn allowed(&mut self, input: &Input<'_>, container: &ContainerView, config: &CpuBurst) -> bool {
        let Some(period) = config.quota_period_seconds.filter(|period| *period >= 0) else {
            return true;
        };
        let Some(percent) = config.quota_percent.filter(|percent| *percent >= 100) else {
            return false;
        };
        let (Some(id), Some(limit)) = (&container.id, container.cpu_limit_milli()) else {
            return false;
        };
        let used = input
            .usage
            .and_then(|usage| finite(usage.value.containers.get(id)?.cpu));
        let limit = limit as f64 / 1000.0;
        // Without a figure it counts as using all of its limit.
        let share = (used.unwrap_or(limit) / limit * 100.0) as i64;
        let fresh = || Limiter::new(id, period, percent, input.now);
        let limiter = self.limiters.entry(id.clone()).or_insert_with(fresh);
        if !limiter.is_for(period, percent) {
            *limiter = fresh();
        }
        limiter.allows(input.now, share)
    }
}

/// Pods with CPUs of their own and best-effort pods have no use for it.
fn is_burstable(pod: &PodView) -> bool {
    !matches!(
        pod.classes.qos,
        QosClass::Lse | QosClass::Lsr | QosClass::Be
    )
}

/// Where a container that may be scaled is, and the quota of its limit.
fn scaled(container: &ContainerView) -> Option<(&CgroupPath, i64)> {
    if container.kind != ContainerKind::Main || !container.running {
        return None;
    }
    let base = base_quota(container.cpu_limit_milli()?)?;
    Some((container.cgroup.as_ref()?, base))
}

/// `None`: no limit.
fn base_quota(limit_milli: i64) -> Option<i64> {
    let quota = limit_milli.saturating_mul(PERIOD_US / 1000);
    (quota > 0).then(|| quota.max(LEAST_QUOTA_US))
}

fn ceiling(base: i64, percent: Option<i64>) -> i64 {
    match percent {
        Some(percent) if percent > 100 => (base as f64 * percent as f64 / 100.0) as i64,
        _ => base,
    }
}

fn times(quota: i64, factor: f64) -> i64 {
    (quota as f64 * factor) as i64
}

fn limited(quota_us: i64) -> Value {
    Value::Quota {
        quota_us: u64::try_from(quota_us).ok(),
        period_us: u64::try_from(PERIOD_US).ok(),
    }
}

/// What a pod says over what the node says.
fn over(node: &CpuBurst, pod: &CpuBurst) -> CpuBurst {
    let policy = pod.policy.clone().filter(|policy| !policy.is_empty());
    CpuBurst {
        policy: policy.or_else(|| node.policy.clone()),
        burst_percent: pod.burst_percent.or(node.burst_percent),
        quota_percent: pod.quota_percent.or(node.quota_percent),
        quota_period_seconds: pod.quota_period_seconds.or(node.quota_period_seconds),
    }
}

fn figure(pod: &PodView, container: &ContainerView, value: i64) -> ContainerFigure {
    ContainerFigure {
        pod_namespace: pod.namespace.clone(),
        pod_name: pod.name.clone(),
        container_id: container.full_id.as_ref().into(),
        container_name: container.name.clone(),
        value: value as f64,
    }
}

/// Bursts of a pod and of its containers.
fn burst(
    input: &Input<'_>,
    pod: &PodView,
    config: &CpuBurst,
    policy: &'static str,
    quotas: &BTreeMap<&str, i64>,
    (plan, metrics): (&mut Plan, &mut Metrics),
) {
    let why = Reason::new("cpu_burst")
        .by(policy)
        .with("percent", config.burst_percent.unwrap_or_default() as f64);
    let mut sum = 0_i64;
    for container in pod.main_containers() {
        let Some(path) = &container.cgroup else {
            continue;
        };
        let mut burst = burst_of(container.cpu_limit_milli(), config);
        if input.kernel.capabilities.burst_within_quota {
            let target = Target::cgroup(path, Knob::CpuQuota);
            let quota = quotas.get(&*container.name).copied();
            let quota = quota.or_else(|| input.kernel.quota(&target));
            let quota = quota.or_else(|| base_quota(container.cpu_limit_milli()?));
            // Without a quota nothing is saved up, and anything is allowed.
            if let Some(quota) = quota.filter(|quota| *quota > 0) {
                burst = burst.min(quota);
            }
        }
        sum = sum.saturating_add(burst);
        plan.want(
            Target::cgroup(path, Knob::CpuBurst),
            Value::Number(burst),
            why,
        );
        metrics
            .container_scaled_cfs_burst_us
            .push(figure(pod, container, burst));
    }
    if input.kernel.capabilities.burst_within_quota {
        let target = Target::cgroup(&pod.cgroup, Knob::CpuQuota);
        let wanted = plan.effects.iter().find(|one| one.target == target);
        let wanted = wanted.and_then(|one| match one.value {
            Value::Quota { quota_us, .. } => quota_us.and_then(|quota| i64::try_from(quota).ok()),
            _ => None,
        });
        let quota = wanted.or_else(|| input.kernel.quota(&target));
        if let Some(quota) = quota.filter(|quota| *quota > 0) {
            sum = sum.min(quota);
        }
    }
    plan.want(
        Target::cgroup(&pod.cgroup, Knob::CpuBurst),
        Value::Number(sum),
        why,
    );
}

/// Microseconds.
fn burst_of(limit_milli: Option<i64>, config: &CpuBurst) -> i64 {
    let on = matches!(config.policy.as_deref(), Some("auto" | "cpuBurstOnly"));
    let (Some(limit), Some(percent)) = (limit_milli, config.burst_percent) else {
        return 0;
    };
    if !on || limit <= 0 || percent <= 0 {
        return 0;
    }
    let cores = limit as f64 / 1000.0 * (percent as f64 / 100.0);
    (cores * PERIOD_US as f64) as i64
}

#[cfg(test)]
mod tests;
