//! Devices of the cluster, and who has them.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::devices::{
    AllocatedDevice, Device, DeviceClass, DeviceId, NodeScope, ResourceClaim, ResourceSlice,
};
use crate::model::{Key, Names, Node, NodeTerm, Requirement, Symbol};

#[derive(Debug)]
pub struct Devices {
    /// `metadata.name`.
    name_field: Symbol,
    pub claims: FxHashMap<Key, ResourceClaim>,
    pub classes: FxHashMap<Box<str>, DeviceClass>,
    slices: BTreeMap<Box<str>, ResourceSlice>,
    /// By claim: devices that we have chosen for it and are about to write.
    pending: FxHashMap<Key, Vec<AllocatedDevice>>,
}

/// A pool as far as a node can use it.
#[derive(Debug)]
pub struct Pool<'a> {
    pub driver: &'a str,
    pub name: &'a str,
    /// Not all slices of its generation are there.
    pub incomplete: bool,
    /// With whether the node is the only one that can use it.
    pub devices: Vec<(&'a ResourceSlice, &'a Device)>,
}

impl Devices {
    pub fn new(names: &mut Names) -> Self {
        Self {
            name_field: names.intern("metadata.name"),
            claims: FxHashMap::default(),
            classes: FxHashMap::default(),
            slices: BTreeMap::new(),
            pending: FxHashMap::default(),
        }
    }

    pub fn set_slice(&mut self, slice: ResourceSlice) -> bool {
        self.slices.insert(slice.name.clone(), slice).is_some()
    }

    pub fn remove_slice(&mut self, name: &str) {
        self.slices.remove(name);
    }

    pub fn is_pending(&self, key: &Key) -> bool {
        self.pending.contains_key(key)
    }

    pub fn assume(&mut self, key: Key, devices: Vec<AllocatedDevice>) {
        self.pending.insert(key, devices);
    }

    pub fn forget(&mut self, key: &Key) {
        self.pending.remove(key);
    }

    /// From where devices can be used together; `None`: from everywhere.
    pub fn nodes_of(&self, devices: &[AllocatedDevice], node: Symbol) -> Option<Box<[NodeTerm]>> {
        let mut term = NodeTerm::default();
        let mut expressions = Vec::new();
        for slice in self.slices.values() {
            for device in &slice.devices {
                let chosen = devices.iter().any(|other| {
                    other.id.driver == slice.driver
                        && other.id.pool == slice.pool
                        && other.id.device == device.name
                });
                let scope = match &slice.nodes {
                    NodeScope::PerDevice => device.nodes.as_ref(),
                    scope => Some(scope),
                };
                match scope.filter(|_| chosen) {
                    Some(NodeScope::Node(_)) => {
                        let field = Requirement::equals(self.name_field, node);
                        term.fields = [field].into();
                    }
                    Some(NodeScope::Selected(terms)) => {
                        for selected in terms.iter().take(1) {
                            expressions.extend(selected.expressions.iter().cloned());
                        }
                    }
                    _ => {}
                }
            }
        }
        expressions.dedup();
        term.expressions = expressions.into();
        (term != NodeTerm::default()).then(|| [term].into())
    }

    /// Devices that somebody has for himself.
    pub fn taken(&self) -> FxHashSet<DeviceId> {
        let allocated = self
            .claims
            .values()
            .filter_map(|claim| claim.allocation.as_ref());
        allocated
            .flat_map(|allocation| &allocation.devices)
            .chain(self.pending.values().flatten())
            .filter(|device| !device.admin_access)
            .map(|device| device.id.clone())
            .collect()
    }

    /// What a node can use: of every pool, the slices of its newest generation.
    pub fn pools(&self, node: &Node, names: &Names) -> Vec<Pool<'_>> {
        let mut newest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for slice in self.slices.values() {
            let generation = newest
                .entry((&slice.driver, &slice.pool))
                .or_insert(slice.generation);
            *generation = slice.generation.max(*generation);
        }
        let mut pools: BTreeMap<(&str, &str), (usize, Pool<'_>)> = BTreeMap::new();
        for slice in self.slices.values() {
            let key = (&*slice.driver, &*slice.pool);
            if newest.get(&key) != Some(&slice.generation) {
                continue;
            }
            let (there, pool) = pools.entry(key).or_insert_with(|| {
                let pool = Pool {
                    driver: &slice.driver,
                    name: &slice.pool,
                    incomplete: false,
                    devices: Vec::new(),
                };
                (0, pool)
            });
            *there += 1;
            pool.incomplete = *there < slice.slices;
            for device in &slice.devices {
                let scope = match &slice.nodes {
                    NodeScope::PerDevice => device.nodes.as_ref(),
                    scope => Some(scope),
                };
                if scope.is_some_and(|scope| reaches(scope, node, names)) {
                    pool.devices.push((slice, device));
                }
            }
        }
        let usable = pools.into_values().map(|(_, pool)| pool);
        usable.filter(|pool| !pool.devices.is_empty()).collect()
    }
}

fn reaches(scope: &NodeScope, node: &Node, names: &Names) -> bool {
    match scope {
        NodeScope::All => true,
        NodeScope::Node(name) => *name == node.name,
        NodeScope::Selected(terms) => terms
            .iter()
            .any(|term| term.matches(node.name, &node.labels, names)),
        NodeScope::PerDevice => false,
    }
}
