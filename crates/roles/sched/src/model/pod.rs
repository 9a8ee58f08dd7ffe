//! Pods, as far as scheduling reads them.

use std::sync::Arc;

use super::amounts::Amounts;
use super::selector::{Labels, NodeSelector, NodeTerm, Selector};
use super::symbol::Symbol;
use crate::time::Time;

/// A pod. What pods made from one template share is in `spec`, which the core keeps once.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub uid: Arc<str>,
    pub name: Box<str>,
    pub resource_version: Box<str>,
    pub generation: i64,
    pub spec: Arc<PodSpec>,
    /// What it takes on its node, where that differs from its spec: it is being resized.
    pub resized: Option<Box<Charge>>,
    pub node: Option<Symbol>,
    pub nominated: Option<Symbol>,
    pub priority: i32,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
    pub terminating: bool,
    /// It carries the condition of a pod that the scheduler has evicted.
    pub preempted: bool,
    pub gates: Box<[Box<str>]>,
    pub started: Option<Time>,
    /// `PodScheduled`, as long as it is not true.
    pub unscheduled: Option<Box<Condition>>,
    /// Names of the claims made for it, by the name in its spec; without a name, none was needed.
    pub claim_statuses: Box<[ClaimStatus]>,
}

/// A claim by its name in the spec, and the one that was made for it.
pub type ClaimStatus = (Box<str>, Option<Box<str>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub reason: Box<str>,
    pub message: Box<str>,
    pub observed_generation: i64,
}

/// What pods made from one template have in common. Equal specs form a class.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodSpec {
    pub namespace: Symbol,
    pub labels: Labels,
    pub scheduler_name: Symbol,
    pub local: Arc<LocalSpec>,
    pub spread: Box<[SpreadConstraint]>,
    pub affinity: PodAffinity,
    pub volumes: Box<[Volume]>,
    pub claims: Box<[ClaimRef]>,
    /// In case that devices stand for them.
    pub extended: Box<[ExtendedAsk]>,
    pub controller: Option<Controller>,
    pub group: Option<Box<str>>,
    /// What it takes on its node.
    pub charge: Charge,
}

/// What a node by itself decides about a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LocalSpec {
    /// With overhead and pod-level resources.
    pub requests: Amounts,
    pub limits: Amounts,
    /// What `NodeResourcesFit` scores: containers only, with a minimum for cpu and memory.
    pub scored: Amounts,
    pub nodes: NodeSelector,
    pub preferred_nodes: Box<[(i32, NodeTerm)]>,
    /// What makes no sense in them: the API server lets it pass, whoever has to choose between nodes cannot.
    pub preference_problem: Option<Box<str>>,
    pub tolerations: Box<[Toleration]>,
    pub ports: Box<[HostPort]>,
    /// With a tag; of init containers, containers and image volumes.
    pub images: Box<[Symbol]>,
    /// How many, with init containers.
    pub containers: u16,
    pub features: Box<[Symbol]>,
}

/// What a placed pod takes from its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Charge {
    pub requests: Amounts,
    /// With a minimum for containers that ask for nothing.
    pub scored_cpu: i64,
    pub scored_memory: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// `None`: every key.
    pub key: Option<Symbol>,
    /// `None`: whatever value.
    pub value: Option<Symbol>,
    /// `None`: every effect.
    pub effect: Option<Effect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: Symbol,
    pub value: Symbol,
    pub effect: Effect,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.is_none_or(|key| key == taint.key)
            && self.value.is_none_or(|value| value == taint.value)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// `None`: all addresses.
    pub address: Option<Symbol>,
    pub protocol: Symbol,
    pub port: u16,
}

impl HostPort {
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address.is_none() || other.address.is_none() || self.address == other.address)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    pub max_skew: i32,
    pub key: Symbol,
    /// `DoNotSchedule`; otherwise it only scores.
    pub required: bool,
    /// With `matchLabelKeys` merged in.
    pub selector: Selector,
    pub min_domains: i32,
    pub honor_affinity: bool,
    pub honor_taints: bool,
}

/// Terms about other pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodAffinity {
    pub required: Box<[AffinityTerm]>,
    pub required_anti: Box<[AffinityTerm]>,
    /// Weights of anti-affinity are negative.
    pub preferred: Box<[(i32, AffinityTerm)]>,
}

impl PodAffinity {
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.required_anti.is_empty() && self.preferred.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    pub key: Symbol,
    pub pods: PodMatcher,
}

/// Pods of some namespaces with some labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodMatcher {
    /// Sorted.
    pub namespaces: Box<[Symbol]>,
    /// Further namespaces, by their labels.
    pub namespace_selector: Selector,
    pub selector: Selector,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Volume {
    Claim {
        name: Box<str>,
    },
    /// A claim that is made for the pod, named after pod and volume.
    Ephemeral {
        volume: Box<str>,
    },
    GcePd {
        name: Box<str>,
        read_only: bool,
    },
    Ebs {
        id: Box<str>,
    },
    /// A volume of a driver that stands in the pod itself.
    Csi {
        driver: Box<str>,
    },
    Iscsi {
        iqn: Box<str>,
        read_only: bool,
    },
    Rbd {
        monitors: Box<[Box<str>]>,
        pool: Box<str>,
        image: Box<str>,
        read_only: bool,
    },
}

/// What a container asks of an extended resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExtendedAsk {
    pub container: Box<str>,
    /// Among init containers and containers.
    pub index: u16,
    /// Among the container's requests, by name.
    pub order: u16,
    /// It is done before others start.
    pub ends_early: bool,
    pub resource: crate::model::ResourceId,
    pub amount: i64,
}

/// An entry of `spec.resourceClaims`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    pub name: Box<str>,
    /// `None`: one is made for the pod from a template.
    pub claim: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Controller {
    pub kind: ControllerKind,
    pub name: Symbol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControllerKind {
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Other,
}

impl Pod {
    pub fn charge(&self) -> &Charge {
        self.resized.as_deref().unwrap_or(&self.spec.charge)
    }

    pub fn namespace(&self) -> Symbol {
        self.spec.namespace
    }
}
