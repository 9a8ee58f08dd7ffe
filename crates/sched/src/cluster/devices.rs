//! Devices of the cluster, and who has them.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::devices::{
    AllocatedDevice, Device, DeviceClass, DeviceId, NodeScope, ResourceClaim, ResourceSlice,
    TaintRule,
};
use crate::model::symbol::DEVICE_CLASS_PREFIX;
use crate::model::{Key, Names, Node, NodeTerm, Requirement, Symbol};

#[derive(Debug)]
pub struct Devices {
    /// `metadata.name`.
    name_field: Symbol,
    pub claims: FxHashMap<Key, ResourceClaim>,
    pub classes: FxHashMap<Box<str>, DeviceClass>,
    pub rules: BTreeMap<Box<str>, TaintRule>,
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
    /// Those that the node can use.
    pub devices: Vec<(&'a ResourceSlice, &'a Device)>,
    /// All that make it up.
    pub slices: Vec<&'a ResourceSlice>,
}

/// What has been given away.
#[derive(Debug, Default)]
pub struct Given {
    /// Devices that somebody has for himself.
    pub whole: FxHashSet<DeviceId>,
    /// Of devices that are shared: how much of what, in thousandths.
    pub parts: FxHashMap<DeviceId, BTreeMap<Box<str>, i64>>,
}

impl Given {
    pub fn add_part(&mut self, device: &AllocatedDevice) {
        let Some(share) = &device.share else {
            return;
        };
        let parts = self.parts.entry(device.id.clone()).or_default();
        for (name, amount) in &share.consumed {
            *parts.entry(name.clone()).or_default() += amount.milli();
        }
    }
}

impl Devices {
    pub fn new(names: &mut Names) -> Self {
        Self {
            name_field: names.intern("metadata.name"),
            claims: FxHashMap::default(),
            classes: FxHashMap::default(),
            rules: BTreeMap::new(),
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

    /// The class of devices that stand for an extended resource: of several, the newest.
    pub fn class_of_resource(&self, resource: &str) -> Option<&DeviceClass> {
        if let Some(class) = resource.strip_prefix(DEVICE_CLASS_PREFIX) {
            return self.classes.get(class);
        }
        let classes = self.classes.values();
        classes
            .filter(|class| class.resource.as_deref() == Some(resource))
            .max_by(|one, other| {
                let age = one.created.cmp(&other.created);
                age.then_with(|| other.name.cmp(&one.name))
            })
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
        let mut expressions: Vec<Requirement> = Vec::new();
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
                let local = matches!(scope, Some(NodeScope::Node(_))) || device.binds_to_node;
                match scope.filter(|_| chosen) {
                    Some(_) if local => {
                        let field = Requirement::equals(self.name_field, node);
                        let only = NodeTerm {
                            fields: [field].into(),
                            ..NodeTerm::default()
                        };
                        return Some([only].into());
                    }
                    Some(NodeScope::Selected(terms)) => {
                        for selected in terms.iter().take(1) {
                            for one in &selected.expressions {
                                if !expressions.contains(one) {
                                    expressions.push(one.clone());
                                }
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        term.expressions = expressions.into();
        (term != NodeTerm::default()).then(|| [term].into())
    }

    pub fn given(&self) -> Given {
        let allocated = self
            .claims
            .values()
            .filter_map(|claim| claim.allocation.as_ref());
        let devices = allocated
            .flat_map(|allocation| &allocation.devices)
            .chain(self.pending.values().flatten())
            .filter(|device| !device.admin_access);
        let mut given = Given::default();
        for device in devices {
            if device.share.is_some() {
                given.add_part(device);
            } else {
                given.whole.insert(device.id.clone());
            }
        }
        given
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
                    slices: Vec::new(),
                };
                (0, pool)
            });
            *there += 1;
            pool.slices.push(slice);
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
        let mut usable: Vec<_> = usable.filter(|pool| !pool.devices.is_empty()).collect();
        // Devices that still have to be made ready are the last choice.
        usable.sort_by_key(|pool| {
            let mut devices = pool.devices.iter();
            devices.any(|(_, device)| !device.readiness.wanted.is_empty())
        });
        usable
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
