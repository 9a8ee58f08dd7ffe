//! Pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::kubelet_cgroups::{CgroupLayout, container_id};
use plimsoll_api::names;
use plimsoll_api::pod::{Amounts, Classes, Resources, Spec};
use plimsoll_api::priority::{KubeQos, PriorityClass, QosClass};
use plimsoll_api::quantity::Quantity;
use plimsoll_plan::CgroupPath;
use serde::Deserialize;
use serde_json::Value;

use super::{Annotations, Parsed};

/// Pods of this priority and above are the cluster's own.
const CRITICAL: i32 = 2_000_000_000;

#[derive(Debug, Clone, PartialEq)]
pub struct PodView {
    pub uid: Arc<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub classes: Classes,
    pub priority: Option<i32>,
    pub phase: Phase,
    /// It is being deleted.
    pub deleting: bool,
    pub origin: Origin,
    /// The cluster does not work without it.
    pub critical: bool,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub annotations: Annotations,
    pub cgroup: CgroupPath,
    /// The cgroup of the container that holds its namespaces.
    pub sandbox: Option<CgroupPath>,
    /// In the order of the specification, init containers first.
    pub containers: Vec<ContainerView>,
    /// Added up as the scheduler does it.
    pub requests: Amounts,
    pub limits: Amounts,
    pub volumes: Vec<Volume>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// Where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Api,
    /// A file of the node; the API server has a mirror of it.
    Static,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerView {
    pub name: Box<str>,
    pub kind: ContainerKind,
    /// Without its scheme; `None`: it has not been started.
    pub id: Option<Arc<str>>,
    /// With it, as others know it; empty where there is none.
    pub full_id: Box<str>,
    /// `None`: it has not been started, or its runtime is not known.
    pub cgroup: Option<CgroupPath>,
    pub running: bool,
    pub requests: Amounts,
    pub limits: Amounts,
    /// What the kubelet has told the runtime, where it says so.
    pub actual: Option<Resources>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    Main,
    /// It ends before the others start.
    Init,
    /// An init container that goes on running.
    Sidecar,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: Box<str>,
    pub source: VolumeSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    Claim(Box<str>),
    Csi,
    Other,
}

impl PodView {
    /// From a Kubernetes object in JSON.
    pub fn from_json(pod: &Value, layout: &CgroupLayout) -> Result<Self, serde_json::Error> {
        let (metadata, status) = (&pod["metadata"], &pod["status"]);
        let spec = Spec::deserialize(&pod["spec"])?;
        let text = |value: &Value| -> Box<str> { value.as_str().unwrap_or_default().into() };
        let uid = text(&metadata["uid"]);
        let labels = texts(&metadata["labels"]);
        let owned: BTreeMap<String, String> = labels
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let kube_qos = status["qosClass"].as_str().and_then(KubeQos::named);
        let kube_qos = kube_qos.unwrap_or_else(|| computed_qos(&spec));
        let classes = Classes {
            kube_qos,
            ..Classes::of(Some(&owned), spec.priority, None)
        };
        let annotations = &metadata["annotations"];
        let source = annotations["kubernetes.io/config.source"].as_str();
        let is_mirror = annotations["kubernetes.io/config.mirror"].is_string();
        let is_static = is_mirror || source.is_some_and(|source| source != "api");
        let class = pod["spec"]["priorityClassName"].as_str();
        let is_system = matches!(
            class,
            Some("system-node-critical" | "system-cluster-critical")
        );
        let cgroup: CgroupPath = layout.pod(&uid, kube_qos).into();
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        Ok(Self {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            classes,
            priority: spec.priority,
            phase: Phase::named(status["phase"].as_str()),
            deleting: !metadata["deletionTimestamp"].is_null(),
            origin: if is_static {
                Origin::Static
            } else {
                Origin::Api
            },
            critical: is_system || spec.priority.is_some_and(|priority| priority >= CRITICAL),
            annotations: Annotations::read(|name| annotations[name].as_str()),
            containers: containers(&spec, status, &cgroup, layout),
            requests: spec.requests(),
            limits: spec.limits(),
            volumes: volumes.map(volume).collect(),
            sandbox: None,
            uid: uid.into(),
            labels,
            cgroup,
        })
    }

    /// Pending or running.
    pub fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Running)
    }

    /// It is labelled as best effort.
    pub fn is_be(&self) -> bool {
        self.classes.qos == QosClass::Be
    }

    /// Its own CPUs, as the scheduler has chosen them.
    pub fn own_cpus(&self) -> Option<&plimsoll_api::cpus::CpuSet> {
        let status = self.annotations.resource_status.given()?;
        (!status.cpus.is_empty()).then_some(&status.cpus)
    }

    /// Its priority, or that of its class.
    pub fn priority_or_default(&self) -> i32 {
        match self.priority {
            Some(priority) if priority != 0 => priority,
            _ => match self.classes.effective_priority() {
                PriorityClass::Prod => 9500,
                PriorityClass::Mid => 7500,
                PriorityClass::Batch => 5500,
                PriorityClass::Free => 3500,
                PriorityClass::None => 0,
            },
        }
    }

    /// A number within its class, by which pods of the same priority are told apart.
    pub fn rank(&self) -> i64 {
        let label = self.labels.get(names::LABEL_PRIORITY);
        let label = label.and_then(|label| label.parse().ok());
        label.unwrap_or_else(|| i64::from(self.priority_or_default()))
    }

    /// Whether a feature may evict it, by its annotation. One that makes no sense allows nothing.
    pub fn allows(&self, feature: &str) -> bool {
        match &self.annotations.eviction_policy {
            Parsed::Absent => true,
            Parsed::Given(features) => features.iter().any(|one| **one == *feature),
            Parsed::Bad(_) => false,
        }
    }

    pub fn main_containers(&self) -> impl Iterator<Item = &ContainerView> {
        let all = self.containers.iter();
        all.filter(|one| one.kind == ContainerKind::Main)
    }

    /// What its containers that stay ask for of a lent resource.
    pub fn lent(&self, resource: &str) -> i64 {
        let stay = self.containers.iter();
        let stay = stay.filter(|one| one.kind != ContainerKind::Init);
        stay.filter_map(|one| Some(one.requests.get(resource)?.value().max(0)))
            .fold(0, i64::saturating_add)
    }
}

impl Phase {
    pub fn named(phase: Option<&str>) -> Self {
        match phase {
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("Pending") | None => Self::Pending,
            Some(_) => Self::Unknown,
        }
    }
}

impl ContainerView {
    /// Thousandths of a core; `None`: no limit.
    pub fn cpu_limit_milli(&self) -> Option<i64> {
        self.limits.get("cpu").map(Quantity::milli)
    }
}

fn containers(
    spec: &Spec,
    status: &Value,
    pod: &CgroupPath,
    layout: &CgroupLayout,
) -> Vec<ContainerView> {
    let told = ["initContainerStatuses", "containerStatuses"];
    let told = told
        .into_iter()
        .filter_map(|field| status[field].as_array());
    let told: BTreeMap<&str, &Value> = told
        .flatten()
        .filter_map(|one| Some((one["name"].as_str()?, one)))
        .collect();
    let init = spec.init_containers.iter().map(|one| match one.stays() {
        true => (ContainerKind::Sidecar, one),
        false => (ContainerKind::Init, one),
    });
    let main = spec.containers.iter().map(|one| (ContainerKind::Main, one));
    let views = init.chain(main).map(|(kind, one)| {
        let told = told.get(&*one.name).copied().unwrap_or(&Value::Null);
        let full_id = told["containerID"].as_str().unwrap_or_default();
        let bare = full_id.split_once("://").map_or(full_id, |(_, id)| id);
        let path = container_id(full_id).map(|(runtime, id)| layout.container(pod, runtime, id));
        let actual = Some(&told["resources"]).filter(|value| value.is_object());
        ContainerView {
            name: one.name.clone(),
            kind,
            id: (!bare.is_empty()).then(|| bare.into()),
            full_id: full_id.into(),
            cgroup: path.map(Into::into),
            running: told["state"]["running"].is_object(),
            requests: one.resources.requests.clone(),
            limits: one.resources.limits.clone(),
            actual: actual.and_then(|value| Resources::deserialize(value).ok()),
        }
    });
    views.collect()
}

fn volume(volume: &Value) -> Volume {
    let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
    Volume {
        name: volume["name"].as_str().unwrap_or_default().into(),
        source: match claim {
            Some(claim) => VolumeSource::Claim(claim.into()),
            None if volume["csi"].is_object() => VolumeSource::Csi,
            None => VolumeSource::Other,
        },
    }
}

fn texts(map: &Value) -> BTreeMap<Box<str>, Box<str>> {
    let map = map.as_object().into_iter().flatten();
    map.filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
        .collect()
}

/// As Kubernetes sorts pods whose status does not say.
fn computed_qos(spec: &Spec) -> KubeQos {
    let all = || spec.containers.iter().chain(&spec.init_containers);
    let amount = |list: &Amounts, name: &str| list.get(name).map_or(0, Quantity::milli);
    let names = ["cpu", "memory"];
    let says = |one: &plimsoll_api::pod::Container| {
        names.iter().any(|name| {
            amount(&one.resources.requests, name) > 0 || amount(&one.resources.limits, name) > 0
        })
    };
    if !all().any(says) {
        return KubeQos::BestEffort;
    }
    let fixed = |one: &plimsoll_api::pod::Container| {
        names.iter().all(|name| {
            let limit = amount(&one.resources.limits, name);
            let request = one.resources.requests.get(*name);
            limit > 0 && request.is_none_or(|request| request.milli() == limit)
        })
    };
    match all().all(fixed) {
        true => KubeQos::Guaranteed,
        false => KubeQos::Burstable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(pod: Value) -> PodView {
        PodView::from_json(&pod, &CgroupLayout::default()).unwrap()
    }

    #[test]
    fn a_pod_in_json() {
        let pod = view(json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "1-2", "labels": {"koordinator.sh/qosClass": "BE"},
                "annotations": {"koordinator.sh/eviction-policy": "[\"BECPUEvict\"]"}},
            "spec": {
                "priority": 5100,
                "initContainers": [
                    {"name": "i", "resources": {"requests": {"kubernetes.io/batch-cpu": "300"}}},
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"kubernetes.io/batch-cpu": "200"}}},
                ],
                "containers": [{"name": "c", "resources": {"requests": {"kubernetes.io/batch-cpu": "1k"}}}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}, {"name": "e", "emptyDir": {}}],
            },
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "c", "containerID": "containerd://abc", "state": {"running": {}},
                 "resources": {"limits": {"cpu": "1"}}},
            ]},
        }));
        assert_eq!(pod.classes.kube_qos, KubeQos::BestEffort);
        assert_eq!(
            &*pod.cgroup,
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice"
        );
        let container = pod.main_containers().next().unwrap();
        assert_eq!(container.id.as_deref(), Some("abc"));
        let path = container.cgroup.as_deref().unwrap();
        assert!(path.ends_with("/cri-containerd-abc.scope"));
        assert!(container.running && container.actual.is_some());
        assert_eq!(pod.lent(names::BATCH_CPU), 1200);
        assert!(pod.allows("BECPUEvict") && !pod.allows("CPUEvict"));
        assert_eq!((pod.priority_or_default(), pod.rank()), (5100, 5100));
        assert_eq!(pod.volumes[0].source, VolumeSource::Claim("d".into()));
        assert!(!pod.critical && pod.origin == Origin::Api);
    }

    #[test]
    fn classes_that_nobody_wrote_down() {
        #[track_caller]
        fn check(resources: Value, expected: KubeQos) {
            let pod =
                view(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}));
            assert_eq!(pod.classes.kube_qos, expected);
        }
        check(json!({}), KubeQos::BestEffort);
        check(
            json!({"limits": {"cpu": "1", "memory": "1"}}),
            KubeQos::Guaranteed,
        );
        check(
            json!({"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "500m"}}),
            KubeQos::Burstable,
        );
        check(json!({"requests": {"cpu": "1"}}), KubeQos::Burstable);
    }

    #[test]
    fn pods_that_are_never_touched_are_known() {
        let mirror = view(
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {}}),
        );
        assert_eq!(mirror.origin, Origin::Static);
        assert!(view(json!({"spec": {"priority": 2_000_001_000}})).critical);
        assert!(view(json!({"spec": {"priorityClassName": "system-node-critical"}})).critical);
        let plain = view(json!({"spec": {}}));
        // Batch by default, since it is best effort.
        assert_eq!(plain.priority_or_default(), 5500);
    }
}
