//! What plugins are given, and what they keep during a cycle.

use super::plugin::{Plugin, PluginSet};
use super::profile::Profile;
use crate::cluster::{Class, Cluster};
use crate::model::{Pod, Symbol};
use crate::plugins::inter_pod_affinity::AffinityState;
use crate::plugins::pod_topology_spread::SpreadState;
use crate::time::Time;

/// Everything a plugin may look at.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub cluster: &'a Cluster,
    pub profile: &'a Profile,
    pub pod: &'a Pod,
    pub class: &'a Class,
    pub now: Time,
}

/// What a plugin says about a pod before it looks at nodes.
#[derive(Debug)]
pub enum PreFilter {
    Pass,
    /// Its filter has nothing to say about this pod.
    Skip,
    /// Only these nodes come into question.
    Nodes(Vec<Symbol>),
    Reject(super::status::Refusal),
}

/// What plugins found out about the pod of this cycle.
#[derive(Debug, Default)]
pub struct CycleState {
    pub skipped: PluginSet,
    pub spread: Option<SpreadState>,
    pub affinity: Option<AffinityState>,
    pub volumes: Option<crate::plugins::volume_binding::VolumeState>,
    /// Claims of the pod that nobody else may use.
    pub exclusive_claims: Vec<Box<str>>,
    pub zone_rules: Vec<crate::plugins::volume_zone::ZoneRule>,
    pub claims: Option<crate::plugins::dynamic_resources::ClaimState>,
    /// The plugin that looks after resource claims has been asked.
    pub claims_were_asked: bool,
    /// Nodes are scored as if nothing were on them: an extender has sent them back without.
    pub nodes_as_empty: bool,
}

impl CycleState {
    /// Brings it up to date after pods were put on nodes, or taken off, to see what would be.
    pub fn refresh(&mut self, cluster: &Cluster) {
        if let Some(spread) = &mut self.spread {
            spread.refresh(cluster);
        }
        if let Some(affinity) = &mut self.affinity {
            affinity.refresh(cluster);
        }
    }

    pub fn runs(&self, plugin: Plugin) -> bool {
        !self.skipped.contains(plugin)
    }
}
