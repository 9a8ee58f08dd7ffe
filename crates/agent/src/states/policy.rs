//! From a `NodeSLO` to the policy of this node.

use plimsoll_api::node_slo::complete;
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_host::cgroup::{Controller, Hierarchies};
use serde_json::Value;

use super::known::{HostApplication, NodeSlo};

/// How the kubelet names cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Driver {
    #[default]
    Systemd,
    Cgroupfs,
}

impl Driver {
    /// Of `systemd` and `cgroupfs`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "systemd" => Some(Self::Systemd),
            "cgroupfs" => Some(Self::Cgroupfs),
            _ => None,
        }
    }

    /// By the cgroup that the kubelet has made; `None`: it has made none yet.
    pub fn detect(hierarchies: &Hierarchies) -> Option<Self> {
        let exists = |cgroup: &str| {
            let dir = hierarchies.dir(Controller::Cpu, cgroup);
            dir.is_some_and(|dir| dir.is_dir())
        };
        match (exists("/kubepods.slice"), exists("/kubepods")) {
            (true, _) => Some(Self::Systemd),
            (false, true) => Some(Self::Cgroupfs),
            (false, false) => None,
        }
    }

    fn base(self, name: &str) -> &'static str {
        match (name, self) {
            ("Kubepods", Self::Systemd) => "kubepods.slice",
            ("Kubepods", Self::Cgroupfs) => "kubepods",
            ("KubepodsBurstable", Self::Systemd) => "kubepods.slice/kubepods-burstable.slice",
            ("KubepodsBurstable", Self::Cgroupfs) => "kubepods/burstable",
            ("KubepodsBesteffort", Self::Systemd) => "kubepods.slice/kubepods-besteffort.slice",
            ("KubepodsBesteffort", Self::Cgroupfs) => "kubepods/besteffort",
            _ => "",
        }
    }
}

impl Default for NodeSlo {
    /// The built-in policy.
    fn default() -> Self {
        Self::of(&Value::Null, Driver::default())
    }
}

impl NodeSlo {
    /// A specification over the built-in policy.
    pub fn of(spec: &Value, driver: Driver) -> Self {
        let sections = complete(spec);
        let applications = sections["hostApplications"].as_array();
        let applications = applications.into_iter().flatten();
        Self {
            host_applications: applications
                .filter_map(|one| application(one, driver))
                .collect(),
            sections,
        }
    }
}

/// `None`: it has no name, or no cgroup of its own; everybody's usage would be its.
fn application(value: &Value, driver: Driver) -> Option<HostApplication> {
    let name = value["name"].as_str().filter(|name| !name.is_empty())?;
    let class = |field: &str| value[field].as_str();
    let qos = QosClass::of_label(class("qos"));
    let cgroup = match &value["cgroupPath"] {
        Value::Object(path) => {
            let part = |field: &str| path.get(field).and_then(Value::as_str).unwrap_or_default();
            let own = joined(&[part("parentDir"), part("relativePath")]);
            if own.is_empty() {
                return None;
            }
            joined(&[driver.base(part("base")), &own])
        }
        _ => match qos {
            QosClass::Lse | QosClass::Lsr | QosClass::Ls => {
                joined(&["host-latency-sensitive", name])
            }
            QosClass::Be => joined(&["host-best-effort", name]),
            QosClass::System | QosClass::None => joined(&[name]),
        },
    };
    Some(HostApplication {
        name: name.into(),
        priority: PriorityClass::of_pod(class("priority"), None),
        qos,
        cgroup: cgroup.into(),
    })
}

fn joined(parts: &[&str]) -> String {
    let parts = parts.iter().flat_map(|part| part.split('/'));
    // Nobody is led out of the cgroup tree by a name.
    let parts = parts.filter(|part| !matches!(*part, "" | "." | ".."));
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(application: Value, driver: Driver, cgroup: &str) {
        let slo = NodeSlo::of(&json!({"hostApplications": [application]}), driver);
        assert_eq!(&*slo.host_applications[0].cgroup, cgroup);
    }

    #[test]
    fn where_host_applications_are() {
        use Driver::{Cgroupfs, Systemd};
        check(
            json!({"name": "a", "qos": "LS"}),
            Systemd,
            "host-latency-sensitive/a",
        );
        check(
            json!({"name": "a", "qos": "BE"}),
            Systemd,
            "host-best-effort/a",
        );
        check(json!({"name": "a"}), Systemd, "a");
        let yarn = json!({
            "name": "yarn", "qos": "BE", "priority": "koord-batch",
            "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "hadoop-yarn/"},
        });
        check(
            yarn.clone(),
            Systemd,
            "kubepods.slice/kubepods-besteffort.slice/hadoop-yarn",
        );
        check(yarn, Cgroupfs, "kubepods/besteffort/hadoop-yarn");
        let path = json!({"base": "CgroupRoot", "parentDir": "/x/", "relativePath": "../y"});
        check(json!({"name": "a", "cgroupPath": path}), Cgroupfs, "x/y");
    }

    #[test]
    fn the_built_in_policy_is_there_from_the_start() {
        let slo = NodeSlo::default();
        assert_eq!(slo.sections["cpuBurstStrategy"]["policy"], "none");
        assert!(slo.host_applications.is_empty());
        let odd = json!({"hostApplications": [
            {"qos": "LS"},
            7,
            {"name": "all", "cgroupPath": {"base": "CgroupRoot", "relativePath": "/"}},
            {"name": "pods", "cgroupPath": {"base": "Kubepods"}},
        ]});
        assert!(
            NodeSlo::of(&odd, Driver::Systemd)
                .host_applications
                .is_empty()
        );
    }
}
