//! The cluster's pods as strategies look at them.

use std::sync::Arc;

use plimsoll_api::kubelet_cgroups::{CgroupLayout, container_id};
use plimsoll_qos::input::{
    Annotations, ContainerKind, ContainerView, Origin, Phase, PodView, Volume, VolumeSource,
};

use crate::states as known;

/// A static pod's cgroup goes by the hash of its manifest; the API server's copy of the pod has a UID of its own.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Pods of this priority and above are the cluster's own.
const CRITICAL: i32 = 2_000_000_000;

pub fn view(pod: &known::Pod, layout: &CgroupLayout) -> PodView {
    let annotation = |name: &str| pod.annotations.get(name).map(|text| &**text);
    let source = annotation(CONFIG_SOURCE);
    let is_static =
        annotation(CONFIG_MIRROR).is_some() || source.is_some_and(|source| source != "api");
    // Whoever makes a pod chooses its annotations. A hash is no UID, so it leads to no other pod's folder.
    let hash = annotation(CONFIG_HASH).filter(|hash| is_static && is_hash(hash));
    let folder = hash.unwrap_or(&pod.uid);
    let cgroup: Arc<str> = layout.pod(folder, pod.classes.kube_qos).into();
    PodView {
        uid: Arc::clone(&pod.uid),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        classes: pod.classes,
        priority: pod.priority,
        phase: phase(pod.phase),
        deleting: pod.terminating,
        origin: match is_static {
            true => Origin::Static,
            false => Origin::Api,
        },
        critical: pod.priority.is_some_and(|priority| priority >= CRITICAL),
        labels: pod.labels.clone(),
        annotations: Annotations::read(annotation),
        sandbox: None,
        containers: pod
            .containers
            .iter()
            .map(|one| container(one, &cgroup, layout))
            .collect(),
        requests: pod.requests.clone(),
        limits: pod.limits.clone(),
        volumes: pod
            .claims
            .iter()
            .map(|claim| Volume {
                name: claim.clone(),
                source: VolumeSource::Claim(claim.clone()),
            })
            .collect(),
        cgroup,
    }
}

/// MD5 in hexadecimal, which UIDs with their dashes are not.
fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn container(one: &known::Container, pod: &str, layout: &CgroupLayout) -> ContainerView {
    let full_id = one.full_id.clone().unwrap_or_default();
    let folder = container_id(&full_id).map(|(runtime, id)| layout.container(pod, runtime, id));
    ContainerView {
        name: one.name.clone(),
        kind: match one.sidecar {
            true => ContainerKind::Sidecar,
            false => ContainerKind::Main,
        },
        id: one.id.clone(),
        cgroup: folder.map(Into::into),
        full_id,
        running: one.running,
        requests: one.requests.clone(),
        limits: one.limits.clone(),
        actual: one.actual.clone(),
    }
}

fn phase(phase: known::Phase) -> Phase {
    match phase {
        known::Phase::Pending => Phase::Pending,
        known::Phase::Running => Phase::Running,
        known::Phase::Succeeded => Phase::Succeeded,
        known::Phase::Failed => Phase::Failed,
        known::Phase::Unknown => Phase::Unknown,
    }
}
