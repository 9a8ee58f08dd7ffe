//! From a `NodeSLO` to the policy of this node.

use plimsoll_api::node_slo::complete;
use plimsoll_api::priority::{PriorityClass, QosClass};
use serde_json::Value;

use super::cluster_state::{HostApplication, NodeSlo};

/// The kubelet's cgroups that applications may be in, as its systemd driver and as its cgroupfs driver name them.
const BASES: [(&str, [&str; 2]); 3] = [
    ("Kubepods", ["kubepods.slice", "kubepods"]),
    (
        "KubepodsBurstable",
        [
            "kubepods.slice/kubepods-burstable.slice",
            "kubepods/burstable",
        ],
    ),
    (
        "KubepodsBesteffort",
        [
            "kubepods.slice/kubepods-besteffort.slice",
            "kubepods/besteffort",
        ],
    ),
];

impl Default for NodeSlo {
    /// The built-in policy.
    fn default() -> Self {
        Self::of(&Value::Null)
    }
}

impl NodeSlo {
    /// A specification over the built-in policy.
    pub fn of(spec: &Value) -> Self {
        let sections = complete(spec);
        let applications = sections["hostApplications"].as_array();
        let applications = applications.into_iter().flatten();
        Self {
            host_applications: applications.filter_map(application).collect(),
            sections,
        }
    }
}

/// `None`: it has no name, or no cgroup of its own; everybody's usage would be its.
fn application(value: &Value) -> Option<HostApplication> {
    let name = value["name"].as_str().filter(|name| !name.is_empty())?;
    let class = |field: &str| value[field].as_str();
    let qos = QosClass::of_label(class("qos"));
    let cgroups = match &value["cgroupPath"] {
        Value::Object(path) => {
            let part = |field: &str| path.get(field).and_then(Value::as_str).unwrap_or_default();
            let own = joined(&[part("parentDir"), part("relativePath")]);
            if own.is_empty() {
                return None;
            }
            match BASES.iter().find(|(base, _)| *base == part("base")) {
                Some((_, dirs)) => dirs.iter().map(|dir| joined(&[dir, &own])).collect(),
                None => vec![own],
            }
        }
        _ => vec![match qos {
            QosClass::Lse | QosClass::Lsr | QosClass::Ls => {
                joined(&["host-latency-sensitive", name])
            }
            QosClass::Be => joined(&["host-best-effort", name]),
            QosClass::System | QosClass::None => joined(&[name]),
        }],
    };
    Some(HostApplication {
        name: name.into(),
        priority: PriorityClass::of_pod(class("priority"), None),
        qos,
        cgroups: cgroups.into_iter().map(Into::into).collect(),
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
    fn check(application: Value, cgroups: &[&str]) {
        let slo = NodeSlo::of(&json!({"hostApplications": [application]}));
        let found = slo.host_applications[0].cgroups.iter();
        assert!(found.map(|one| &**one).eq(cgroups.iter().copied()));
    }

    #[test]
    fn where_host_applications_are() {
        check(
            json!({"name": "a", "qos": "LS"}),
            &["host-latency-sensitive/a"],
        );
        check(json!({"name": "a", "qos": "BE"}), &["host-best-effort/a"]);
        check(json!({"name": "a"}), &["a"]);
        let yarn = json!({
            "name": "yarn", "qos": "BE", "priority": "koord-batch",
            "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "hadoop-yarn/"},
        });
        check(
            yarn,
            &[
                "kubepods.slice/kubepods-besteffort.slice/hadoop-yarn",
                "kubepods/besteffort/hadoop-yarn",
            ],
        );
        let path = json!({"base": "CgroupRoot", "parentDir": "/x/", "relativePath": "../y"});
        check(json!({"name": "a", "cgroupPath": path}), &["x/y"]);
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
        assert!(NodeSlo::of(&odd).host_applications.is_empty());
    }
}
