//! Pods as the kubelet and the API server tell them, on their way to what strategies look at.

use std::collections::BTreeMap;

use plimsoll_api::kubelet_cgroups::{CgroupLayout, container_id};
use plimsoll_api::pod::{Amounts, Classes, Resources, Spec};
use plimsoll_api::priority::KubeQos;
use plimsoll_api::quantity::Quantity;
use plimsoll_plan::CgroupPath;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Annotations, ContainerKind, ContainerView, Origin, Phase, PodView, Volume, VolumeSource,
};

/// Pods of this priority and above are the cluster's own.
const CRITICAL: i32 = 2_000_000_000;

/// What of a pod's object counts.
#[derive(Debug)]
pub struct PodParts<'a> {
    pub uid: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub annotations: &'a BTreeMap<String, String>,
    pub deleting: bool,
    pub priority_class_name: Option<&'a str>,
    pub spec: &'a Spec,
    pub phase: Option<&'a str>,
    /// The class that Kubernetes has given it, where its status says so.
    pub qos_class: Option<&'a str>,
    /// Of containers and init containers.
    pub statuses: Vec<StatusParts<'a>>,
    pub volumes: Vec<Volume>,
}

/// What of a container's status counts.
#[derive(Debug, Default)]
pub struct StatusParts<'a> {
    pub name: &'a str,
    /// `RUNTIME://ID`; empty before it has been started.
    pub container_id: &'a str,
    pub running: bool,
    pub resources: Option<Resources>,
}

impl PodView {
    pub fn new(parts: PodParts<'_>, layout: &CgroupLayout) -> Self {
        let spec = parts.spec;
        let kube_qos = parts.qos_class.and_then(KubeQos::named);
        let kube_qos = kube_qos.unwrap_or_else(|| computed_qos(spec));
        let classes = Classes {
            kube_qos,
            ..Classes::of(Some(parts.labels), spec.priority, None)
        };
        let annotation = |name: &str| parts.annotations.get(name).map(String::as_str);
        let source = annotation("kubernetes.io/config.source");
        let is_mirror = annotation("kubernetes.io/config.mirror").is_some();
        let is_static = is_mirror || source.is_some_and(|source| source != "api");
        let is_system = matches!(
            parts.priority_class_name,
            Some("system-node-critical" | "system-cluster-critical")
        );
        let cgroup: CgroupPath = layout.pod(parts.uid, kube_qos).into();
        let labels = parts.labels.iter();
        Self {
            uid: parts.uid.into(),
            namespace: parts.namespace.into(),
            name: parts.name.into(),
            classes,
            priority: spec.priority,
            phase: Phase::named(parts.phase),
            deleting: parts.deleting,
            origin: match is_static {
                true => Origin::Static,
                false => Origin::Api,
            },
            critical: is_system || spec.priority.is_some_and(|priority| priority >= CRITICAL),
            labels: labels
                .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
                .collect(),
            annotations: Annotations::read(annotation),
            containers: containers(spec, &parts.statuses, &cgroup, layout),
            requests: spec.requests(),
            limits: spec.limits(),
            volumes: parts.volumes,
            sandbox: None,
            cgroup,
        }
    }

    /// From a Kubernetes object in JSON.
    pub fn from_json(pod: &Value, layout: &CgroupLayout) -> Result<Self, serde_json::Error> {
        let (metadata, status) = (&pod["metadata"], &pod["status"]);
        let spec = Spec::deserialize(&pod["spec"])?;
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let statuses = ["initContainerStatuses", "containerStatuses"];
        let statuses = statuses
            .into_iter()
            .filter_map(|field| status[field].as_array());
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let parts = PodParts {
            uid: text("uid"),
            namespace: text("namespace"),
            name: text("name"),
            labels: &texts(&metadata["labels"]),
            annotations: &texts(&metadata["annotations"]),
            deleting: !metadata["deletionTimestamp"].is_null(),
            priority_class_name: pod["spec"]["priorityClassName"].as_str(),
            spec: &spec,
            phase: status["phase"].as_str(),
            qos_class: status["qosClass"].as_str(),
            statuses: statuses.flatten().map(told).collect(),
            volumes: volumes.map(volume).collect(),
        };
        Ok(Self::new(parts, layout))
    }
}

fn told(status: &Value) -> StatusParts<'_> {
    let resources = Some(&status["resources"]).filter(|value| value.is_object());
    StatusParts {
        name: status["name"].as_str().unwrap_or_default(),
        container_id: status["containerID"].as_str().unwrap_or_default(),
        running: status["state"]["running"].is_object(),
        resources: resources.and_then(|value| Resources::deserialize(value).ok()),
    }
}

fn containers(
    spec: &Spec,
    statuses: &[StatusParts<'_>],
    pod: &CgroupPath,
    layout: &CgroupLayout,
) -> Vec<ContainerView> {
    let told: BTreeMap<&str, &StatusParts<'_>> =
        statuses.iter().map(|one| (one.name, one)).collect();
    let init = spec.init_containers.iter().map(|one| match one.stays() {
        true => (ContainerKind::Sidecar, one),
        false => (ContainerKind::Init, one),
    });
    let main = spec.containers.iter().map(|one| (ContainerKind::Main, one));
    let views = init.chain(main).map(|(kind, one)| {
        let told = told.get(&*one.name).copied();
        let full_id = told.map_or("", |told| told.container_id);
        let bare = full_id.split_once("://").map_or(full_id, |(_, id)| id);
        let path = container_id(full_id).map(|(runtime, id)| layout.container(pod, runtime, id));
        ContainerView {
            name: one.name.clone(),
            kind,
            id: (!bare.is_empty()).then(|| bare.into()),
            full_id: full_id.into(),
            cgroup: path.map(Into::into),
            running: told.is_some_and(|told| told.running),
            requests: one.resources.requests.clone(),
            limits: one.resources.limits.clone(),
            actual: told.and_then(|told| told.resources.clone()),
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

fn texts(map: &Value) -> BTreeMap<String, String> {
    let map = map.as_object().into_iter().flatten();
    map.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
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
    use plimsoll_api::names;
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
