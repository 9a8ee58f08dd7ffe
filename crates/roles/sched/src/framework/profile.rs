//! A profile: which plugins run where, with which arguments and weights.

use std::time::Duration;

use super::plugin::Plugin;
use crate::features::Features;
use crate::model::{NodeSelector, NodeTerm, ResourceId, Symbol};

#[derive(Debug, Clone)]
pub struct Profile {
    /// The scheduler name that pods choose it by.
    pub name: Symbol,
    /// 0: by the size of the cluster.
    pub percentage_of_nodes_to_score: u32,
    pub pre_enqueue: Vec<Plugin>,
    pub pre_filter: Vec<Plugin>,
    pub filter: Vec<Plugin>,
    pub post_filter: Vec<Plugin>,
    pub score: Vec<(Plugin, i64)>,
    pub reserve: Vec<Plugin>,
    pub permit: Vec<Plugin>,
    pub pre_bind: Vec<Plugin>,
    pub args: Args,
}

#[derive(Debug, Clone, Default)]
pub struct Args {
    pub fit: FitArgs,
    pub balanced: BalancedArgs,
    pub spread: SpreadArgs,
    pub affinity: AffinityArgs,
    pub node_affinity: NodeAffinityArgs,
    pub preemption: PreemptionArgs,
    pub volume_binding: VolumeBindingArgs,
    pub devices: DevicesArgs,
    pub load: crate::plugins::load_aware::LoadArgs,
}

#[derive(Debug, Clone)]
pub struct FitArgs {
    /// Extended resources that somebody else looks after.
    pub ignored: Vec<ResourceId>,
    /// The same for all extended resources of a domain.
    pub ignored_groups: Vec<Box<str>>,
    pub strategy: Strategy,
    pub resources: Vec<(ResourceId, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Utilisation in percent, and a score from 0 to 100.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
            strategy: Strategy::LeastAllocated,
            resources: vec![(ResourceId::CPU, 1), (ResourceId::MEMORY, 1)],
        }
    }
}

#[derive(Debug, Clone)]
pub struct BalancedArgs {
    pub resources: Vec<ResourceId>,
}

impl Default for BalancedArgs {
    fn default() -> Self {
        Self {
            resources: vec![ResourceId::CPU, ResourceId::MEMORY],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadArgs {
    /// For pods without constraints of their own.
    pub defaulting: Defaulting,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Defaulting {
    /// Over nodes with a skew of 3 and zones with one of 5; missing labels do not matter.
    System,
    List(Vec<DefaultConstraint>),
}

impl Default for SpreadArgs {
    fn default() -> Self {
        Self {
            defaulting: Defaulting::System,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    pub max_skew: i32,
    pub key: Symbol,
    pub required: bool,
    pub min_domains: i32,
    pub honor_affinity: bool,
    pub honor_taints: bool,
}

#[derive(Debug, Clone)]
pub struct AffinityArgs {
    pub hard_pod_affinity_weight: i64,
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for AffinityArgs {
    fn default() -> Self {
        Self {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

/// Affinity that holds for every pod of the profile.
#[derive(Debug, Clone, Default)]
pub struct NodeAffinityArgs {
    pub required: Option<NodeSelector>,
    pub preferred: Vec<(i32, NodeTerm)>,
}

#[derive(Debug, Clone)]
pub struct PreemptionArgs {
    pub min_candidate_nodes_percentage: usize,
    pub min_candidate_nodes_absolute: usize,
}

impl Default for PreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
        }
    }
}

#[derive(Debug, Clone)]
pub struct VolumeBindingArgs {
    pub bind_timeout_seconds: u64,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout_seconds: 600,
        }
    }
}

#[derive(Debug, Clone)]
pub struct DevicesArgs {
    /// How long devices may take to become ready.
    pub binding_timeout: Duration,
    /// How long devices on one node may be looked for; zero: until it is certain. The core has no clock: a second stands for a
    /// number of steps, so that the same search always ends in the same way.
    pub filter_timeout: Duration,
}

impl Default for DevicesArgs {
    fn default() -> Self {
        Self {
            binding_timeout: Duration::from_secs(600),
            filter_timeout: Duration::from_secs(10),
        }
    }
}

const FILTERS: &[Plugin] = &[
    Plugin::NodeUnschedulable,
    Plugin::NodeName,
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodePorts,
    Plugin::NodeResourcesFit,
    Plugin::VolumeRestrictions,
    Plugin::NodeVolumeLimits,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
    Plugin::DynamicResources,
    Plugin::NodeDeclaredFeatures,
];

/// The first of them have nothing to find out beforehand.
const WITHOUT_PRE_FILTER: usize = 3;

impl Profile {
    /// What a profile without further words runs, in the order of 1.36.
    pub fn standard(name: Symbol) -> Self {
        Self {
            name,
            percentage_of_nodes_to_score: 0,
            pre_enqueue: vec![
                Plugin::SchedulingGates,
                Plugin::DynamicResources,
                Plugin::DefaultPreemption,
            ],
            pre_filter: FILTERS[WITHOUT_PRE_FILTER..].to_vec(),
            filter: FILTERS.to_vec(),
            post_filter: vec![Plugin::DynamicResources, Plugin::DefaultPreemption],
            score: vec![
                (Plugin::TaintToleration, 3),
                (Plugin::NodeAffinity, 2),
                (Plugin::NodeResourcesFit, 1),
                (Plugin::PodTopologySpread, 2),
                (Plugin::InterPodAffinity, 2),
                (Plugin::DynamicResources, 2),
                (Plugin::NodeResourcesBalancedAllocation, 1),
                (Plugin::ImageLocality, 1),
            ],
            reserve: vec![Plugin::VolumeBinding, Plugin::DynamicResources],
            permit: Vec::new(),
            pre_bind: vec![Plugin::VolumeBinding, Plugin::DynamicResources],
            args: Args::default(),
        }
    }

    /// Plugins that features bring along, or take away.
    pub fn switch(&mut self, features: &Features) {
        if features.gangs && !self.permit.contains(&Plugin::GangScheduling) {
            self.pre_enqueue.push(Plugin::GangScheduling);
            self.permit.push(Plugin::GangScheduling);
        }
        if !features.declared_features {
            self.remove(Plugin::NodeDeclaredFeatures);
        }
    }

    /// With gangs, whose pods are queued and bound together.
    pub fn with_gangs(mut self) -> Self {
        self.switch(&Features {
            gangs: true,
            ..Features::default()
        });
        self
    }

    /// With an eye on what nodes really use.
    pub fn with_load(mut self, weight: i64) -> Self {
        self.filter.push(Plugin::LoadAwareScheduling);
        self.score.push((Plugin::LoadAwareScheduling, weight));
        self
    }

    /// The same without a plugin, at all points.
    pub fn without(mut self, plugin: Plugin) -> Self {
        self.remove(plugin);
        self
    }

    fn remove(&mut self, plugin: Plugin) {
        for list in [
            &mut self.pre_enqueue,
            &mut self.pre_filter,
            &mut self.filter,
            &mut self.post_filter,
            &mut self.reserve,
            &mut self.permit,
            &mut self.pre_bind,
        ] {
            list.retain(|other| *other != plugin);
        }
        self.score.retain(|(other, _)| *other != plugin);
    }
}
