//! Volumes, claims, classes, and what drivers can do.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, Key, PersistentVolume, Pod, StorageClass, Symbol,
    Volume, VolumeAttachment, VolumeClaim,
};

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
}

impl Storage {
    pub fn claim(&self, namespace: Symbol, name: &str) -> Option<&VolumeClaim> {
        self.claims.get(&(namespace, name.into()))
    }

    pub fn users(&self, namespace: Symbol, name: &str) -> u32 {
        self.users.get(&(namespace, name.into())).copied().unwrap_or(0)
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
