//! Small machines and pods for tests.

use std::time::Duration;

use plimsoll_api::kubelet_cgroups::CgroupLayout;
use plimsoll_plan::{Effect, Knob, Plan, Target, Value};
use serde_json::{Value as Json, json};

use crate::input::{Cpu, Input, Kernel, NodeView, PodUsage, PodView, Seen, UsageSnapshot};
use crate::policy::Policy;

pub const BE: &str = "/kubepods.slice/kubepods-besteffort.slice";

/// Everything that an input borrows.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub now: Duration,
    pub policy: Policy,
    pub node: NodeView,
    pub pods: Vec<PodView>,
    pub usage: UsageSnapshot,
    pub kernel: Kernel,
}

impl World {
    /// One NUMA node, two threads a core, 64 GiB, nothing reserved.
    pub fn new(cpus: u32) -> Self {
        let cores = (cpus / 2).max(1);
        let amounts = json!({"cpu": cpus.to_string(), "memory": "64Gi"});
        let node = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        let mut world = Self {
            now: Duration::from_secs(1000),
            node: NodeView::from_json(&node),
            ..Self::default()
        };
        world.node.cpus = (0..cpus)
            .map(|id| Cpu {
                id,
                core: id % cores,
                socket: 0,
                node: 0,
            })
            .collect();
        world.usage.node_cpu = Some(0.0);
        world.usage.node_memory = Some(0.0);
        world
    }

    pub fn policy(mut self, spec: Json) -> Self {
        self.policy = Policy::of(&spec);
        assert_eq!(self.policy.notes, []);
        self
    }

    /// A pod that runs, with one container of its name.
    pub fn pod(mut self, name: &str, qos: &str, kube: &str, rest: Json) -> Self {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {}, "annotations": {}},
            "spec": {"containers": [{"name": name, "resources": {}}]},
            "status": {"phase": "Running", "qosClass": kube, "containerStatuses": [
                {"name": name, "containerID": format!("containerd://c{name}"), "state": {"running": {}}},
            ]},
        });
        if !qos.is_empty() {
            pod["metadata"]["labels"]["koordinator.sh/qosClass"] = qos.into();
        }
        plimsoll_api::json::merge(&mut pod, &rest);
        let layout = CgroupLayout::default();
        self.pods.push(PodView::from_json(&pod, &layout).unwrap());
        self
    }

    pub fn uses(mut self, pod: &str, cpu: f64, memory: f64) -> Self {
        let usage = PodUsage {
            cpu: Some(cpu),
            memory: Some(memory),
        };
        self.usage.pods.insert(pod.into(), usage);
        self
    }

    pub fn has(mut self, path: &str, knob: Knob, value: Value) -> Self {
        self.kernel
            .values
            .insert(Target::cgroup(&path.into(), knob), value);
        self
    }

    pub fn input(&self) -> Input<'_> {
        Input {
            now: self.now,
            policy: &self.policy,
            node: Some(&self.node),
            pods: Some(Seen {
                value: &self.pods,
                at: self.now,
                every: Duration::from_secs(10),
            }),
            usage: Some(Seen {
                value: &self.usage,
                at: self.now,
                every: Duration::from_secs(1),
            }),
            kernel: &self.kernel,
        }
    }

    /// The kernel takes whatever a plan wants.
    pub fn apply(&mut self, plan: &Plan) {
        for Effect { target, value, .. } in &plan.effects {
            self.kernel.values.insert(target.clone(), value.clone());
        }
    }

    pub fn tick(&mut self) {
        self.now += Duration::from_secs(1);
    }
}

/// Resources of the container of a pod of that name.
pub fn container(name: &str, requests: Json, limits: Json) -> Json {
    json!({"spec": {"containers": [
        {"name": name, "resources": {"requests": requests, "limits": limits}},
    ]}})
}

pub fn quota(us: i64) -> Value {
    let quota_us = u64::try_from(us).ok();
    Value::Quota {
        quota_us,
        period_us: quota_us.map(|_| 100_000),
    }
}

pub fn cpus(list: &str) -> Value {
    Value::Cpus(list.parse().unwrap())
}

pub fn wanted(plan: &Plan, path: &str, knob: Knob) -> Option<Value> {
    let target = Target::cgroup(&path.into(), knob);
    let mut found = plan.effects.iter().filter(|one| one.target == target);
    let first = found.next().map(|one| one.value.clone());
    assert!(found.next().is_none(), "{path} {knob:?} is wanted twice");
    first
}
