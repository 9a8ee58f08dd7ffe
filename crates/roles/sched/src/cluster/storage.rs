//! Volumes, claims, classes, and what drivers can do.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::model::{
    ClaimBinding, CsiDriver, CsiNode, CsiStorageCapacity, Key, PersistentVolume, Pod, StorageClass,
    Symbol, Volume, VolumeAttachment, VolumeClaim,
};
use crate::plugins::volume_binding::VolumePlan;

#[derive(Debug, Default)]
pub struct Storage {
    pub volumes: BTreeMap<Box<str>, PersistentVolume>,
    pub claims: FxHashMap<Key, VolumeClaim>,
    pub classes: FxHashMap<Box<str>, StorageClass>,
    pub drivers: FxHashMap<Box<str>, CsiDriver>,
    pub nodes: FxHashMap<Symbol, CsiNode>,
    pub capacities: BTreeMap<Key, CsiStorageCapacity>,
    pub attachments: FxHashMap<Box<str>, VolumeAttachment>,
    /// How many placed pods use a claim.
    users: FxHashMap<Key, u32>,
    /// Volumes that we are binding to claims, and claims that we are having provided at nodes.
    assumed_bindings: FxHashMap<Box<str>, ClaimBinding>,
    assumed_nodes: FxHashMap<Key, Symbol>,
}

impl Storage {
    pub fn claim(&self, namespace: Symbol, name: &str) -> Option<&VolumeClaim> {
        self.claims.get(&(namespace, name.into()))
    }

    /// Whom a volume belongs to, or will as soon as we have written it.
    pub fn bound_to<'a>(&'a self, volume: &'a PersistentVolume) -> Option<&'a ClaimBinding> {
        self.assumed_bindings
            .get(&volume.name)
            .or(volume.claim.as_ref())
    }

    /// Where a claim is, or will be, provided for.
    pub fn selected_node(&self, claim: &VolumeClaim) -> Option<Symbol> {
        let key = (claim.namespace, claim.name.clone());
        claim
            .selected_node
            .or_else(|| self.assumed_nodes.get(&key).copied())
    }

    pub fn assume(&mut self, plan: &VolumePlan, node: Symbol) {
        for (volume, claim) in &plan.bindings {
            let binding = ClaimBinding {
                namespace: claim.namespace,
                name: claim.name.clone(),
                uid: claim.uid.clone(),
            };
            self.assumed_bindings.insert(volume.clone(), binding);
        }
        for claim in &plan.provisions {
            self.assumed_nodes
                .insert((claim.namespace, claim.name.clone()), node);
        }
    }

    pub fn forget(&mut self, plan: &VolumePlan) {
        for (volume, _) in &plan.bindings {
            self.assumed_bindings.remove(volume);
        }
        for claim in &plan.provisions {
            self.assumed_nodes
                .remove(&(claim.namespace, claim.name.clone()));
        }
    }

    pub fn users(&self, namespace: Symbol, name: &str) -> u32 {
        self.users
            .get(&(namespace, name.into()))
            .copied()
            .unwrap_or(0)
    }

    pub(super) fn use_claims(&mut self, pod: &Pod, by: i32) {
        for name in claim_names(pod) {
            let key = (pod.namespace(), name);
            let users = self.users.entry(key.clone()).or_insert(0);
            *users = users.wrapping_add_signed(by);
            if *users == 0 {
                self.users.remove(&key);
            }
        }
    }
}

/// The claims that a pod mounts, in the order of its volumes.
pub fn claim_names(pod: &Pod) -> impl Iterator<Item = Box<str>> + '_ {
    pod.spec.volumes.iter().filter_map(|volume| match volume {
        Volume::Claim { name } => Some(name.clone()),
        Volume::Ephemeral { volume } => Some(format!("{}-{volume}", pod.name).into()),
        _ => None,
    })
}
