//! What the kubelet and the runtimes would write now: the values that cgroups go back to.

use std::collections::HashMap;

use plimsoll_api::cpus::CpuSet;
use plimsoll_api::pod::Amounts;
use plimsoll_api::priority::KubeQos;
use plimsoll_api::quantity::Quantity;
use plimsoll_plan::{Bases, CgroupPath, IoKnob, Knob, Target, Value};

use crate::input::{ContainerKind, ContainerView, NodeView, PodView};

const LEAST_SHARES: u64 = 2;
const MOST_SHARES: u64 = 262_144;
const LEAST_QUOTA_US: u64 = 1000;
const PERIOD_US: u64 = 100_000;

/// Values that can be told from pods' specifications and the kubelet's rules. Those of cgroups that are not known here, and
/// those that depend on settings of the kubelet that nobody tells, are for the caller to remember.
#[derive(Debug, Clone, Default)]
pub struct KubeletBases {
    owners: HashMap<CgroupPath, Owner>,
    cgroup_v2: bool,
    /// All CPUs, where nobody restricts them.
    cpus: CpuSet,
    /// The kubelet gives CPUs to containers.
    static_cpu_manager: bool,
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    level: Level,
    /// `None`: not known.
    shares: Option<u64>,
    quota_us: Option<u64>,
    /// `None`: not known; `Some(None)`: no limit.
    memory: Option<Option<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Tier,
    Pod,
    Container,
}

impl KubeletBases {
    pub fn of(node: &NodeView, pods: &[PodView], cgroup_v2: bool) -> Self {
        let mut bases = Self {
            owners: HashMap::new(),
            cgroup_v2,
            cpus: node.all_cpus(),
            static_cpu_manager: node.static_cpu_manager,
        };
        let burstable = pods
            .iter()
            .filter(|pod| pod.is_active() && pod.classes.kube_qos == KubeQos::Burstable);
        let burstable = burstable
            .map(|pod| milli(&pod.requests))
            .fold(0, u64::saturating_add);
        for (tier, shares) in [
            (KubeQos::Guaranteed, milli(&node.allocatable)),
            (KubeQos::Burstable, burstable),
            (KubeQos::BestEffort, 0),
        ] {
            let owner = Owner {
                level: Level::Tier,
                shares: Some(to_shares(shares)),
                quota_us: None,
                // What the kubelet keeps of the memory besides what it evicts for is not told.
                memory: (tier != KubeQos::Guaranteed).then_some(None),
            };
            bases.owners.insert(node.layout.tier(tier).into(), owner);
        }
        for pod in pods {
            // Two pods of one folder: the first is believed.
            bases
                .owners
                .entry(pod.cgroup.clone())
                .or_insert_with(|| of_pod(pod));
            for container in &pod.containers {
                if let Some(path) = &container.cgroup {
                    let owner = bases.owners.entry(path.clone());
                    owner.or_insert_with(|| of_container(container));
                }
            }
            if let Some(path) = &pod.sandbox {
                let owner = Owner {
                    level: Level::Container,
                    shares: Some(LEAST_SHARES),
                    quota_us: None,
                    memory: Some(None),
                };
                bases.owners.insert(path.clone(), owner);
            }
        }
        bases
    }
}

impl Bases for KubeletBases {
    fn base(&self, target: &Target) -> Option<Value> {
        let Target::Cgroup { path, knob } = target else {
            return None;
        };
        let owner = self.owners.get(path)?;
        match knob {
            Knob::CpuShares => owner.shares.map(Value::Shares),
            Knob::CpuQuota => Some(Value::Quota {
                quota_us: owner.quota_us,
                period_us: Some(PERIOD_US),
            }),
            Knob::MemoryMax => owner.memory.map(Value::Bytes),
            Knob::CpuBurst
            | Knob::GroupIdentity
            | Knob::WmarkRatio
            | Knob::WmarkMinAdj
            | Knob::MemoryPriority => Some(Value::Number(0)),
            Knob::WmarkScaleFactor => Some(Value::Number(50)),
            Knob::CpuIdle
            | Knob::UsePriorityOom
            | Knob::PageCacheLimitEnable
            | Knob::PageCacheLimitSync
            | Knob::Freeze => Some(Value::Switch(false)),
            // Kubelets of different age disagree on containers.
            Knob::OomGroup => (owner.level != Level::Container).then_some(Value::Switch(false)),
            Knob::MemoryMin | Knob::MemoryLow => Some(Value::Bytes(Some(0))),
            Knob::MemoryHigh => Some(Value::Bytes(None)),
            Knob::PageCacheLimitSize => Some(Value::Bytes(Some(0))),
            Knob::Cpuset => self.cpuset(owner.level),
            Knob::Io { knob, .. } => match knob {
                IoKnob::ReadBps | IoKnob::WriteBps | IoKnob::ReadIops | IoKnob::WriteIops => {
                    Some(Value::Bytes(None))
                }
                IoKnob::Weight => Some(Value::Line("default".into())),
                _ => None,
            },
            Knob::NetClass => Some(Value::Number(0)),
            // An action has no base.
            _ => None,
        }
    }
}

impl KubeletBases {
    /// On v2 a cgroup without a set of its own has that of its parent; on v1 it must have one.
    fn cpuset(&self, level: Level) -> Option<Value> {
        if level == Level::Container && self.static_cpu_manager {
            return None;
        }
        match self.cgroup_v2 {
            true => Some(Value::Cpus(CpuSet::default())),
            false => (!self.cpus.is_empty()).then(|| Value::Cpus(self.cpus.clone())),
        }
    }
}

fn milli(amounts: &Amounts) -> u64 {
    let milli = amounts.get("cpu").map_or(0, Quantity::milli);
    u64::try_from(milli).unwrap_or(0)
}

fn to_shares(milli: u64) -> u64 {
    (milli.saturating_mul(1024) / 1000).clamp(LEAST_SHARES, MOST_SHARES)
}

fn to_quota(milli: u64) -> Option<u64> {
    let quota = milli.saturating_mul(PERIOD_US / 1000);
    (milli > 0).then_some(quota.max(LEAST_QUOTA_US))
}

fn memory(amounts: &Amounts) -> Option<u64> {
    let bytes = amounts.get("memory").map_or(0, Quantity::value);
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

fn of_pod(pod: &PodView) -> Owner {
    // A pod is limited where all of its containers are.
    let all = |limited: fn(&Amounts) -> bool| {
        !pod.containers.is_empty() && pod.containers.iter().all(|one| limited(&one.limits))
    };
    let cpu = all(|limits| milli(limits) > 0);
    let bytes = all(|limits| memory(limits).is_some());
    let best_effort = pod.classes.kube_qos == KubeQos::BestEffort;
    Owner {
        level: Level::Pod,
        shares: Some(match best_effort {
            true => LEAST_SHARES,
            false => to_shares(milli(&pod.requests)),
        }),
        quota_us: to_quota(milli(&pod.limits)).filter(|_| cpu && !best_effort),
        memory: Some(memory(&pod.limits).filter(|_| bytes && !best_effort)),
    }
}

fn of_container(container: &ContainerView) -> Owner {
    // What the kubelet has told the runtime counts, even while a pod is being resized.
    let actual = container.actual.as_ref();
    let requests = actual.map_or(&container.requests, |actual| &actual.requests);
    let limits = actual.map_or(&container.limits, |actual| &actual.limits);
    let requested = match requests.contains_key("cpu") {
        true => milli(requests),
        // Where nothing is asked for, as much as is allowed is meant.
        false => milli(limits),
    };
    let init = container.kind == ContainerKind::Init;
    Owner {
        level: Level::Container,
        shares: (!init || container.running).then(|| to_shares(requested)),
        quota_us: to_quota(milli(limits)),
        memory: Some(memory(limits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{BE, World, container, quota};
    use serde_json::json;

    const ROOT: &str = "/kubepods.slice";

    fn bases(world: &World, cgroup_v2: bool) -> KubeletBases {
        KubeletBases::of(&world.node, &world.pods, cgroup_v2)
    }

    fn base(bases: &KubeletBases, path: &str, knob: Knob) -> Option<Value> {
        bases.base(&Target::cgroup(&path.into(), knob))
    }

    #[test]
    fn tiers_as_the_kubelet_sets_them() {
        let world = World::new(8)
            .pod(
                "a",
                "LS",
                "Burstable",
                container("a", json!({"cpu": "500m"}), json!({})),
            )
            .pod(
                "b",
                "LS",
                "Burstable",
                container("b", json!({"cpu": "250m"}), json!({})),
            )
            .pod("done", "LS", "Burstable", {
                let mut rest = container("done", json!({"cpu": "4"}), json!({}));
                rest["status"] = json!({"phase": "Succeeded"});
                rest
            });
        let bases = bases(&world, true);
        assert_eq!(
            base(&bases, ROOT, Knob::CpuShares),
            Some(Value::Shares(8192))
        );
        let burstable = "/kubepods.slice/kubepods-burstable.slice";
        assert_eq!(
            base(&bases, burstable, Knob::CpuShares),
            Some(Value::Shares(768))
        );
        assert_eq!(base(&bases, BE, Knob::CpuShares), Some(Value::Shares(2)));
        assert_eq!(base(&bases, BE, Knob::MemoryMax), Some(Value::Bytes(None)));
        assert_eq!(base(&bases, ROOT, Knob::MemoryMax), None);
        assert_eq!(base(&bases, BE, Knob::CpuIdle), Some(Value::Switch(false)));
        assert_eq!(base(&bases, "/system.slice", Knob::CpuShares), None);
    }

    #[test]
    fn pods_and_containers() {
        let limits = || json!({"cpu": "5m", "memory": "10Mi"});
        let mut resized = container("r", json!({}), json!({"cpu": "1"}));
        resized["status"] = json!({"containerStatuses": [{
            "name": "r", "containerID": "containerd://cr", "state": {"running": {}},
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
        }]});
        let world = World::new(8)
            .pod("g", "LS", "Guaranteed", container("g", json!({}), limits()))
            .pod("r", "LS", "Burstable", resized)
            .pod("be", "BE", "BestEffort", json!({}));
        let bases = bases(&world, true);
        let at = |pod: usize, knob| base(&bases, &world.pods[pod].cgroup, knob);
        let inner = |pod: usize, knob| {
            let path = world.pods[pod].containers[0].cgroup.as_deref().unwrap();
            base(&bases, path, knob)
        };
        // Never below a millisecond.
        assert_eq!(
            at(0, Knob::CpuQuota),
            Some(Value::Quota {
                quota_us: Some(1000),
                period_us: Some(100_000)
            })
        );
        assert_eq!(at(0, Knob::MemoryMax), Some(Value::Bytes(Some(10 << 20))));
        assert_eq!(inner(0, Knob::CpuShares), Some(Value::Shares(5)));
        assert_eq!(inner(1, Knob::CpuShares), Some(Value::Shares(2048)));
        assert_eq!(inner(1, Knob::CpuQuota), Some(quota(300_000)));
        assert_eq!(at(2, Knob::CpuShares), Some(Value::Shares(2)));
        let none = Some(Value::Quota {
            quota_us: None,
            period_us: Some(100_000),
        });
        assert_eq!(
            (at(2, Knob::CpuQuota), inner(2, Knob::CpuQuota)),
            (none.clone(), none)
        );
        assert_eq!(inner(2, Knob::OomGroup), None);
    }

    #[test]
    fn cpus_of_nobody() {
        let mut world = World::new(4).pod("be", "BE", "BestEffort", json!({}));
        let path = world.pods[0].containers[0].cgroup.clone().unwrap();
        assert_eq!(
            base(&bases(&world, true), BE, Knob::Cpuset),
            Some(Value::Cpus(CpuSet::default()))
        );
        assert_eq!(
            base(&bases(&world, false), BE, Knob::Cpuset),
            Some(crate::fixture::cpus("0-3"))
        );
        world.node.static_cpu_manager = true;
        assert_eq!(base(&bases(&world, false), &path, Knob::Cpuset), None);
    }
}
