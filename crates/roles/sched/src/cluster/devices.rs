//! Devices of the cluster, and who has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

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
    claims: FxHashMap<Key, ResourceClaim>,
    pub classes: FxHashMap<Box<str>, DeviceClass>,
    pub rules: BTreeMap<Box<str>, TaintRule>,
    slices: BTreeMap<Box<str>, ResourceSlice>,
    /// By pool: the names of its slices.
    pools: BTreeMap<PoolKey, BTreeSet<Box<str>>>,
    /// By node: how many slices of which pools are of that node alone.
    pools_of_nodes: FxHashMap<Symbol, BTreeMap<PoolKey, usize>>,
    /// The same for slices that several nodes may reach.
    wide_pools: BTreeMap<PoolKey, usize>,
    /// By claim: devices that we have chosen for it and are about to write.
    pending: FxHashMap<Key, Vec<AllocatedDevice>>,
    /// What claims and those have, until one of them changes.
    given: OnceLock<Given>,
}

/// Driver and name.
type PoolKey = (Arc<str>, Arc<str>);

fn pool_of(slice: &ResourceSlice) -> PoolKey {
    (slice.driver.clone(), slice.pool.clone())
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
            let sum = parts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount.milli());
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
            pools: BTreeMap::new(),
            pools_of_nodes: FxHashMap::default(),
            wide_pools: BTreeMap::new(),
            pending: FxHashMap::default(),
            given: OnceLock::new(),
        }
    }

    pub fn claims(&self) -> &FxHashMap<Key, ResourceClaim> {
        &self.claims
    }

    /// The claim as it was before.
    pub fn set_claim(&mut self, key: Key, claim: ResourceClaim) -> Option<ResourceClaim> {
        self.given.take();
        self.claims.insert(key, claim)
    }

    pub fn remove_claim(&mut self, key: &Key) {
        self.given.take();
        self.claims.remove(key);
    }

    /// Whether it was there before.
    pub fn set_slice(&mut self, slice: ResourceSlice) -> bool {
        let was_there = self.remove_slice(&slice.name);
        let key = pool_of(&slice);
        let names = self.pools.entry(key.clone()).or_default();
        names.insert(slice.name.clone());
        let pools = match &slice.nodes {
            NodeScope::Node(node) => self.pools_of_nodes.entry(*node).or_default(),
            _ => &mut self.wide_pools,
        };
        *pools.entry(key).or_default() += 1;
        self.slices.insert(slice.name.clone(), slice);
        was_there
    }

    /// Whether it was there.
    pub fn remove_slice(&mut self, name: &str) -> bool {
        let Some(slice) = self.slices.remove(name) else {
            return false;
        };
        let key = pool_of(&slice);
        if let Some(names) = self.pools.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.pools.remove(&key);
            }
        }
        match &slice.nodes {
            NodeScope::Node(node) => {
                if let Some(pools) = self.pools_of_nodes.get_mut(node) {
                    one_less(pools, &key);
                    if pools.is_empty() {
                        self.pools_of_nodes.remove(node);
                    }
                }
            }
            _ => one_less(&mut self.wide_pools, &key),
        }
        true
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
        self.given.take();
        self.pending.insert(key, devices);
    }

    pub fn forget(&mut self, key: &Key) {
        self.given.take();
        self.pending.remove(key);
    }

    /// From where devices can be used together; `None`: from everywhere.
    pub fn nodes_of(&self, devices: &[AllocatedDevice], node: Symbol) -> Option<Box<[NodeTerm]>> {
        let mut term = NodeTerm::default();
        let mut expressions: Vec<Requirement> = Vec::new();
        let pools = devices.iter().filter_map(|device| {
            let key = (device.id.driver.clone(), device.id.pool.clone());
            self.pools.get(&key)
        });
        let slices: BTreeSet<&Box<str>> = pools.flatten().collect();
        for slice in slices.into_iter().filter_map(|name| self.slices.get(name)) {
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

    pub fn given(&self) -> &Given {
        self.given.get_or_init(|| self.count_given())
    }

    fn count_given(&self) -> Given {
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
        let own = self.pools_of_nodes.get(&node.name);
        let own = own.into_iter().flat_map(BTreeMap::keys);
        // In the order of their names, as if all had been looked at.
        let keys: BTreeSet<&PoolKey> = own.chain(self.wide_pools.keys()).collect();
        let pools = keys
            .into_iter()
            .filter_map(|key| self.pool(key, node, names));
        let mut usable: Vec<_> = pools.filter(|pool| !pool.devices.is_empty()).collect();
        // Devices that still have to be made ready are the last choice.
        usable.sort_by_key(|pool| {
            let mut devices = pool.devices.iter();
            devices.any(|(_, device)| !device.readiness.wanted.is_empty())
        });
        usable
    }

    /// The slices of its newest generation.
    fn pool(&self, key: &PoolKey, node: &Node, names: &Names) -> Option<Pool<'_>> {
        let slices = self.pools.get(key)?.iter();
        let slices: Vec<_> = slices.filter_map(|name| self.slices.get(name)).collect();
        let newest = slices.iter().map(|slice| slice.generation).max()?;
        let mut pool: Option<Pool<'_>> = None;
        for slice in slices {
            if slice.generation != newest {
                continue;
            }
            let pool = pool.get_or_insert_with(|| Pool {
                driver: &slice.driver,
                name: &slice.pool,
                incomplete: false,
                devices: Vec::new(),
                slices: Vec::new(),
            });
            pool.slices.push(slice);
            pool.incomplete = pool.slices.len() < slice.slices;
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
        pool
    }
}

fn one_less(pools: &mut BTreeMap<PoolKey, usize>, key: &PoolKey) {
    if let Some(slices) = pools.get_mut(key) {
        *slices -= 1;
        if *slices == 0 {
            pools.remove(key);
        }
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

#[cfg(test)]
mod tests {
    use crate::plugins::testing::Kit;

    /// Slices that move between nodes and pools are found where they are, and leave nothing behind.
    #[test]
    fn slices_are_found_by_node() {
        let mut kit = Kit::default();
        for name in ["a", "b"] {
            kit.add_node(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
        }
        let set = |kit: &mut Kit, name: &str, pool: &str, scope: &str, generation: i64| {
            kit.add_slice(&format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"driver":"d",{scope},"devices":[{{"name":"{name}"}}],
                    "pool":{{"name":"{pool}","generation":{generation},"resourceSliceCount":1}}}}}}"#
            ));
        };
        let seen = |kit: &Kit, node: &str| -> Vec<String> {
            let names = &kit.cluster.names;
            let id = names
                .find(node)
                .and_then(|name| kit.cluster.nodes.find(name));
            let node = id.and_then(|id| kit.cluster.nodes.object(id)).unwrap();
            let pools = kit.cluster.devices.pools(node, names);
            let devices = pools.iter().flat_map(|pool| &pool.devices);
            devices.map(|(_, device)| device.name.to_string()).collect()
        };
        set(&mut kit, "one", "p", r#""nodeName":"a""#, 1);
        set(&mut kit, "all", "q", r#""allNodes":true"#, 1);
        assert_eq!(
            (seen(&kit, "a"), seen(&kit, "b")),
            (vec!["one".into(), "all".into()], vec!["all".into()])
        );
        set(&mut kit, "one", "p", r#""nodeName":"b""#, 1);
        set(&mut kit, "all", "q", r#""nodeName":"b""#, 1);
        assert_eq!(
            (seen(&kit, "a"), seen(&kit, "b")),
            (vec![], vec!["one".to_owned(), "all".into()])
        );
        // A newer generation of the pool is elsewhere.
        set(&mut kit, "new", "p", r#""nodeName":"a""#, 2);
        assert_eq!(
            (seen(&kit, "a"), seen(&kit, "b")),
            (vec!["new".to_owned()], vec!["all".to_owned()])
        );
        for name in ["one", "all", "new"] {
            assert!(kit.cluster.devices.remove_slice(name));
        }
        let devices = &kit.cluster.devices;
        assert!(devices.pools.is_empty() && devices.pools_of_nodes.is_empty());
        assert!(devices.wide_pools.is_empty() && devices.slices.is_empty());
    }
}
