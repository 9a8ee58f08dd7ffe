//! Holds best-effort work back when the others use the node: by fewer CPUs, or by a quota.
//!
//! Room for best effort is a share of the node, less what other pods, programs of the host and the system use. With the policy
//! `cpuset` it becomes a number of CPUs, with `cfsQuota` a quota of the tier. Room grows in steps, and shrinks at once.

mod dirs;
mod pick;
mod room;

use std::collections::BTreeMap;

use plimsoll_api::cpus::CpuSet;
use plimsoll_api::priority::{KubeQos, QosClass};
use plimsoll_plan::{Asker, CgroupPath, Knob, Plan, Reason, Target, Value};

use crate::input::{Cpu, Input, NodeView, PodView};
use crate::metrics::Metrics;
use crate::settings::Gates;
use crate::strategy::Outcome;

use dirs::Dirs;
use room::Room;

const LEAST_CPUS: i64 = 2;
const LEAST_QUOTA_US: i64 = 2000;
const PERIOD_US: i64 = 100_000;
/// Of the whole node, in one step.
const MOST_GROWTH: f64 = 0.1;
/// Of the whole node: a smaller change of the quota is not worth a write.
const LEAST_CHANGE: f64 = 0.01;

const SWITCH: &str = "resourceUsedThresholdWithBE.enable";

#[derive(Debug, Clone, Default)]
pub struct State {
    /// The CPUs that were chosen last.
    cpus: Option<CpuSet>,
    /// The tier has no quota of ours, as far as we know.
    quota_recovered: bool,
    cores: BTreeMap<&'static str, f64>,
}

impl State {
    /// What it has to know of the kernel.
    pub fn reads(input: &Input<'_>) -> Vec<Target> {
        let Some(node) = input.node else {
            return Vec::new();
        };
        let tier = tier(node);
        vec![
            Target::cgroup(&tier, Knob::Cpuset),
            Target::cgroup(&tier, Knob::CpuQuota),
        ]
    }

    pub fn plan(&mut self, input: &Input<'_>, gates: &Gates, metrics: &mut Metrics) -> Outcome {
        let Some(node) = input.node else {
            return Outcome::Keep(None);
        };
        let Some(enable) = input.policy.threshold.enable else {
            return Outcome::keep(
                "cpu_suppress_unset",
                SWITCH,
                "It is neither true nor false, so best-effort work is left as it is.",
            );
        };
        let mut plan = Plan::empty(Asker::CpuSuppress);
        if gates.be_cpu_manager {
            self.recover_quota(input, node, &mut plan);
            self.recover_cpus(
                input,
                node,
                Depth::Manager,
                Reason::new("be_cpu_manager"),
                &mut plan,
            );
        } else if !enable {
            self.recover_quota(input, node, &mut plan);
            let why = Reason::new("cpu_suppress_off").by(SWITCH);
            self.recover_cpus(input, node, Depth::Containers, why, &mut plan);
        } else {
            // A node without pods tells nothing about what they may use.
            if input.all_pods().is_empty() {
                return Outcome::Keep(None);
            }
            let Some(room) = Room::of(input, node) else {
                return Outcome::Keep(None);
            };
            let held = match input.policy.threshold.cpu_suppress_policy.as_deref() {
                Some("cfsQuota") => self.by_quota(input, node, room.milli, room.why(), &mut plan),
                _ => self.by_cpus(input, node, room.milli, room.why(), &mut plan),
            };
            if let Some(held) = held {
                return held;
            }
            metrics.be_suppress_ls_used_cpu_cores = Some(room.ls_cores);
        }
        metrics.be_suppress_cpu_cores = self
            .cores
            .iter()
            .map(|(kind, cores)| (*kind, *cores))
            .collect();
        Outcome::Plan(plan)
    }

    fn by_cpus(
        &mut self,
        input: &Input<'_>,
        node: &NodeView,
        milli: i64,
        why: Reason,
        plan: &mut Plan,
    ) -> Option<Outcome> {
        let tier = tier(node);
        let found = match input.kernel.value(&Target::cgroup(&tier, Knob::Cpuset)) {
            // On v2 a tier that nobody has restricted has all CPUs.
            Some(Value::Cpus(cpus)) if cpus.is_empty() => Some(node.all_cpus()),
            Some(Value::Cpus(cpus)) => Some(cpus.clone()),
            _ => self.cpus.clone(),
        };
        let Some(old) = found else {
            return Some(Outcome::keep(
                "cpu_suppress_waits",
                &tier,
                "The CPUs that best-effort pods have now are not known.",
            ));
        };
        if let Some(chosen) = choose(node, input.all_pods(), milli, old.0.len()) {
            self.cpus = Some(chosen);
        }
        self.recover_quota(input, node, plan);
        // Too few CPUs for what may be used: the last choice stands, less what has become somebody's own since.
        let mut cpus = self.cpus.clone()?;
        let allowed = allowed(node, input.all_pods());
        cpus.0.retain(|cpu| allowed.0.contains(cpu));
        let dirs = Dirs::of(input, node, false);
        if node.static_cpu_manager {
            // The kubelet writes tiers and pods itself; only containers are held back.
            let all = Reason::new("static_cpu_manager");
            self.recover_cpus(input, node, Depth::Pods, all, plan);
        } else {
            // On v1 a tier must have all CPUs that its pods have.
            let mut with_own = cpus.clone();
            with_own.add(&dirs.own_cpus);
            want(plan, &tier, &with_own, why);
            for pod in &dirs.pods {
                want(plan, pod, &cpus, why);
            }
        }
        for container in &dirs.containers {
            want(plan, container, &cpus, why);
        }
        self.cores.insert("cpuset", cpus.0.len() as f64);
        None
    }

    fn by_quota(
        &mut self,
        input: &Input<'_>,
        node: &NodeView,
        milli: i64,
        why: Reason,
        plan: &mut Plan,
    ) -> Option<Outcome> {
        let tier = tier(node);
        let target = Target::cgroup(&tier, Knob::CpuQuota);
        let Some(now) = input.kernel.quota(&target) else {
            return Some(Outcome::keep(
                "cpu_suppress_waits",
                &tier,
                "The quota that best-effort pods have now is not known.",
            ));
        };
        let quota = quota(milli, now, node.cpu_cores());
        self.quota_recovered = false;
        if quota >= 0 {
            plan.want(target, limited(quota), why);
            self.cores
                .insert("cfsQuota", quota as f64 / PERIOD_US as f64);
        }
        self.cpus = None;
        self.recover_cpus(
            input,
            node,
            Depth::Containers,
            Reason::new("suppressed_by_quota"),
            plan,
        );
        None
    }

    /// Takes away a quota that somebody left, once.
    fn recover_quota(&mut self, input: &Input<'_>, node: &NodeView, plan: &mut Plan) {
        if self.quota_recovered {
            return;
        }
        let target = Target::cgroup(&tier(node), Knob::CpuQuota);
        let none = Value::Quota {
            quota_us: None,
            period_us: None,
        };
        // Without a reading it is said once, and once is enough.
        self.quota_recovered = input.kernel.quota(&target).is_none_or(|now| now < 0);
        plan.want(target, none, Reason::new("cpu_quota_unused"));
    }

    fn recover_cpus(
        &mut self,
        input: &Input<'_>,
        node: &NodeView,
        depth: Depth,
        why: Reason,
        plan: &mut Plan,
    ) {
        let all = allowed(node, input.all_pods());
        let dirs = Dirs::of(input, node, depth == Depth::Manager);
        want(plan, &tier(node), &all, why);
        for pod in &dirs.pods {
            want(plan, pod, &all, why);
        }
        if depth != Depth::Pods {
            self.cpus = None;
            for container in &dirs.containers {
                want(plan, container, &all, why);
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Pods,
    Containers,
    /// Likewise, beside the manager of best-effort CPUs.
    Manager,
}

fn tier(node: &NodeView) -> CgroupPath {
    node.layout.tier(KubeQos::BestEffort).into()
}

/// An empty set would stop a cgroup on v1 and unbind it on v2: it is never wanted.
fn want(plan: &mut Plan, path: &CgroupPath, cpus: &CpuSet, why: Reason) {
    if !cpus.is_empty() {
        let target = Target::cgroup(path, Knob::Cpuset);
        plan.want(target, Value::Cpus(cpus.clone()), why);
    }
}

fn limited(quota_us: i64) -> Value {
    Value::Quota {
        quota_us: u64::try_from(quota_us).ok(),
        period_us: u64::try_from(PERIOD_US).ok(),
    }
}

/// CPUs that best-effort pods may have at all: those that nobody has for himself.
fn allowed(node: &NodeView, pods: &[PodView]) -> CpuSet {
    let mut gone = node.reserved_cpus.clone();
    gone.add(&node.exclusive_system_cpus);
    for pod in pods.iter().filter(|pod| pod.classes.qos == QosClass::Lse) {
        if let Some(cpus) = pod.own_cpus() {
            gone.add(cpus);
        }
    }
    node.all_cpus().without(&gone)
}

/// `None`: there are not as many as may be used, or none at all.
fn choose(node: &NodeView, pods: &[PodView], milli: i64, old: usize) -> Option<CpuSet> {
    // The last pod that names a CPU says whose it is; but who shares with nobody keeps it.
    let mut owners: BTreeMap<u32, QosClass> = BTreeMap::new();
    for pod in pods {
        for cpu in pod.own_cpus().into_iter().flat_map(|cpus| &cpus.0) {
            let owner = owners.entry(*cpu).or_insert(pod.classes.qos);
            if *owner != QosClass::Lse {
                *owner = pod.classes.qos;
            }
        }
    }
    let (mut lsr, mut others): (Vec<Cpu>, Vec<Cpu>) = (Vec::new(), Vec::new());
    for cpu in &node.cpus {
        if node.reserved_cpus.0.contains(&cpu.id) || node.exclusive_system_cpus.0.contains(&cpu.id)
        {
            continue;
        }
        match owners.get(&cpu.id) {
            Some(QosClass::Lse) => {}
            Some(QosClass::Lsr) => lsr.push(*cpu),
            _ => others.push(*cpu),
        }
    }
    let free = lsr.len() + others.len();
    if free == 0 {
        return None;
    }
    let wanted = milli.saturating_add(999).div_euclid(1000).max(LEAST_CPUS);
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let step = (node.cpus.len() as f64 * MOST_GROWTH).ceil() as usize;
    let mut wanted = wanted.min(old.saturating_add(step));
    if !lsr.is_empty() {
        // More than there are would put all of it onto the CPUs of LSR pods.
        wanted = wanted.min(free);
    }
    let from_lsr = wanted.saturating_mul(lsr.len()) / free;
    let mut chosen = pick::pick(&lsr, from_lsr)?;
    chosen.extend(pick::pick(&others, wanted - from_lsr)?);
    Some(chosen.into_iter().collect())
}

/// The quota to be had, or the present one where the change is too small; -1 for none.
fn quota(milli: i64, now: i64, cores: i64) -> i64 {
    let whole = cores as f64 * PERIOD_US as f64;
    let wanted = (milli.saturating_mul(PERIOD_US) / 1000).max(LEAST_QUOTA_US);
    let change = wanted as f64 - now as f64;
    if change.abs() < whole * LEAST_CHANGE && wanted != LEAST_QUOTA_US {
        return now;
    }
    let step = whole * MOST_GROWTH;
    if change > step && now != -1 {
        return now.saturating_add(step as i64);
    }
    wanted
}

#[cfg(test)]
mod tests;
