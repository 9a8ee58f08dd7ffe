//! Pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::names;
use plimsoll_api::pod::{Amounts, Classes, Resources};
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_api::quantity::Quantity;
use plimsoll_plan::CgroupPath;

use super::{Annotations, Parsed};

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
