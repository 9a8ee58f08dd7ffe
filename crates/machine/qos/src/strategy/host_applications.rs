//! Programs of the host that are treated like pods of a class.

use plimsoll_api::node_slo::{HostApplication, ResourceQosStrategy};
use plimsoll_api::priority::{KubeQos, QosClass};
use plimsoll_plan::{Asker, CgroupPath, Knob, Plan, Reason, Target, Value};

use crate::input::{Input, NodeView};
use crate::settings::Gates;
use crate::strategy::Outcome;

const POLICY: &str = "hostApplications";

pub fn plan(input: &Input<'_>, gates: &Gates) -> Outcome {
    let Some(node) = input.node else {
        return Outcome::Keep(None);
    };
    let mut plan = Plan::empty(Asker::HostApplications);
    let identities = gates.group_identity && is_by_identity(&input.policy.qos);
    for application in &input.policy.host_applications {
        let Some(path) = cgroup(application, node) else {
            continue;
        };
        let class = application.class();
        let why = Reason::new("host_application").by(POLICY);
        if identities {
            let target = Target::cgroup(&path, Knob::GroupIdentity);
            let identity = identity(&input.policy.qos, class).unwrap_or(0);
            plan.want(target, Value::Number(identity), why);
        }
        let shared = node.shared_cpus();
        if class == QosClass::Ls && gates.cpuset_allocator && !shared.is_empty() {
            let target = Target::cgroup(&path, Knob::Cpuset);
            plan.want(target, Value::Cpus(shared), why);
        }
    }
    Outcome::Plan(plan)
}

/// Some class is told apart by group identity.
fn is_by_identity(strategy: &ResourceQosStrategy) -> bool {
    [QosClass::Lsr, QosClass::Ls, QosClass::Be]
        .into_iter()
        .any(|class| identity(strategy, class).is_some())
}

/// `None`: its class is not told apart.
fn identity(strategy: &ResourceQosStrategy, class: QosClass) -> Option<i64> {
    let policies = strategy.policies.as_ref();
    let policy = policies.and_then(|policies| policies.cpu.as_deref());
    if !matches!(policy, None | Some("" | "groupIdentity")) || class == QosClass::System {
        return None;
    }
    let cpu = strategy.class(class)?.cpu.as_ref()?;
    cpu.group_identity.filter(|_| cpu.enable == Some(true))
}

/// `None`: it has no cgroup of its own; everybody would be treated like it.
pub fn cgroup(application: &HostApplication, node: &NodeView) -> Option<CgroupPath> {
    let name = application
        .name
        .as_deref()
        .filter(|name| !name.is_empty())?;
    let Some(cgroup) = &application.cgroup else {
        let dir = match application.class() {
            QosClass::Lse | QosClass::Lsr | QosClass::Ls => "host-latency-sensitive",
            QosClass::Be => "host-best-effort",
            QosClass::System | QosClass::None => "",
        };
        return below("", &[dir, name]);
    };
    let base = match cgroup.base.as_deref() {
        Some("Kubepods") => node.layout.tier(KubeQos::Guaranteed),
        Some("KubepodsBurstable") => node.layout.tier(KubeQos::Burstable),
        Some("KubepodsBesteffort") => node.layout.tier(KubeQos::BestEffort),
        _ => String::new(),
    };
    let part = |part: &'_ Option<Box<str>>| part.clone().unwrap_or_default();
    below(
        &base,
        &[&part(&cgroup.parent_dir), &part(&cgroup.relative_path)],
    )
}

/// Nobody is led out of a folder by a name.
fn below(base: &str, parts: &[&str]) -> Option<CgroupPath> {
    let parts = parts.iter().flat_map(|part| part.split('/'));
    let parts = parts.filter(|part| !matches!(*part, "" | "." | ".."));
    let own: String = parts.map(|part| format!("/{part}")).collect();
    (!own.is_empty()).then(|| format!("{base}{own}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{World, cpus, wanted};
    use crate::policy::Policy;
    use serde_json::{Value as Json, json};

    #[track_caller]
    fn check(application: Json, expected: Option<&str>) {
        let policy = Policy::of(&json!({"hostApplications": [application]}));
        let node = NodeView::default();
        let found = cgroup(&policy.host_applications[0], &node);
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn where_they_are() {
        check(
            json!({"name": "a", "qos": "LS"}),
            Some("/host-latency-sensitive/a"),
        );
        check(
            json!({"name": "a", "qos": "BE"}),
            Some("/host-best-effort/a"),
        );
        check(json!({"name": "a"}), Some("/a"));
        check(json!({"qos": "LS"}), None);
        let yarn = json!({"base": "KubepodsBesteffort", "relativePath": "hadoop-yarn/"});
        check(
            json!({"name": "y", "cgroupPath": yarn}),
            Some("/kubepods.slice/kubepods-besteffort.slice/hadoop-yarn"),
        );
        let root = json!({"base": "CgroupRoot", "parentDir": "/x/", "relativePath": "../y"});
        check(json!({"name": "a", "cgroupPath": root}), Some("/x/y"));
        check(
            json!({"name": "a", "cgroupPath": {"base": "Kubepods"}}),
            None,
        );
    }

    #[test]
    fn as_their_class() {
        let on = json!({"enable": true});
        let mut world = World::new(4).policy(json!({
            "resourceQOSStrategy": {"lsClass": {"cpuQOS": on}, "beClass": {"cpuQOS": on}},
            "hostApplications": [{"name": "l", "qos": "LS"}, {"name": "b", "qos": "BE"}, {"name": "r", "qos": "LSR"}, {"name": "odd"}],
        }));
        world.node.share_pools = vec!["0-1".parse().unwrap(), "3".parse().unwrap()];
        let Outcome::Plan(plan) = plan(&world.input(), &Gates::default()) else {
            panic!("no plan")
        };
        let identity = |path| wanted(&plan, path, Knob::GroupIdentity);
        assert_eq!(
            identity("/host-latency-sensitive/l"),
            Some(Value::Number(2))
        );
        assert_eq!(identity("/host-best-effort/b"), Some(Value::Number(-1)));
        assert_eq!(
            identity("/host-latency-sensitive/r"),
            Some(Value::Number(0))
        );
        assert_eq!(
            wanted(&plan, "/host-latency-sensitive/l", Knob::Cpuset),
            Some(cpus("0-1,3"))
        );
        assert_eq!(wanted(&plan, "/host-best-effort/b", Knob::Cpuset), None);
    }
}
