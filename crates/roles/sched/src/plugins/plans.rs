//! What plugins ask of the census for a class of pods, worked out once.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::inter_pod_affinity::{self, AffinityPlan};
use super::pod_topology_spread::{self, SpreadPlan};
use crate::cluster::{ClassId, Cluster};
use crate::framework::plugin::Plugin;
use crate::framework::profile::Profile;

#[derive(Debug, Default)]
pub struct Plans {
    epoch: u64,
    affinity: FxHashMap<ClassId, Arc<AffinityPlan>>,
    /// With the state of services and controllers that default constraints were derived from.
    spread: FxHashMap<(ClassId, usize), (u64, Arc<SpreadPlan>)>,
}

impl Plans {
    /// Works out a plugin's plan for the class, if it has not been yet or is out of date.
    pub fn prepare(
        &mut self,
        plugin: Plugin,
        cluster: &mut Cluster,
        profile: &Profile,
        index: usize,
        class: ClassId,
    ) {
        if self.epoch != cluster.epoch() {
            *self = Self {
                epoch: cluster.epoch(),
                ..Self::default()
            };
        }
        match plugin {
            Plugin::InterPodAffinity => {
                self.affinity
                    .entry(class)
                    .or_insert_with(|| Arc::new(inter_pod_affinity::plan(cluster, class)));
            }
            Plugin::PodTopologySpread => {
                let owners = cluster.owners.epoch();
                let fresh = self
                    .spread
                    .get(&(class, index))
                    .is_some_and(|(epoch, plan)| *epoch == owners || !plan.is_defaulted());
                if !fresh {
                    let plan = pod_topology_spread::plan(cluster, profile, class);
                    self.spread.insert((class, index), (owners, Arc::new(plan)));
                }
            }
            _ => {}
        }
    }

    pub fn affinity(&self, class: ClassId) -> Option<Arc<AffinityPlan>> {
        self.affinity.get(&class).cloned()
    }

    pub fn spread(&self, class: ClassId, profile: usize) -> Option<Arc<SpreadPlan>> {
        self.spread
            .get(&(class, profile))
            .map(|(_, plan)| Arc::clone(plan))
    }
}
