//! Interned strings and resource names: the core compares numbers.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// A string that occurs often: a label key or value, a namespace, a node, a taint. Names and UIDs of pods are not
/// interned; there is no end of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A resource that is counted: cpu in thousandths, everything else in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u16);

impl ResourceId {
    pub const CPU: Self = Self(0);
    pub const MEMORY: Self = Self(1);
    pub const EPHEMERAL_STORAGE: Self = Self(2);

    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The tables behind [`Symbol`] and [`ResourceId`].
#[derive(Debug)]
pub struct Names {
    symbols: FxHashMap<Arc<str>, Symbol>,
    texts: Vec<Arc<str>>,
    resources: FxHashMap<Symbol, ResourceId>,
    resource_names: Vec<Symbol>,
    /// Names that the core itself asks for.
    pub known: Known,
    /// What pods ask for as a whole counts.
    pub knows_whole_pods: bool,
}

/// Symbols with a fixed meaning.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub empty: Symbol,
    pub hostname: Symbol,
    pub zone: Symbol,
    pub region: Symbol,
    pub zone_beta: Symbol,
    pub region_beta: Symbol,
    pub unschedulable: Symbol,
}

impl Default for Names {
    fn default() -> Self {
        let unset = Symbol(0);
        let mut names = Self {
            symbols: FxHashMap::default(),
            texts: Vec::new(),
            resources: FxHashMap::default(),
            resource_names: Vec::new(),
            known: Known {
                empty: unset,
                hostname: unset,
                zone: unset,
                region: unset,
                zone_beta: unset,
                region_beta: unset,
                unschedulable: unset,
            },
            knows_whole_pods: true,
        };
        names.known = Known {
            empty: names.intern(""),
            hostname: names.intern("kubernetes.io/hostname"),
            zone: names.intern("topology.kubernetes.io/zone"),
            region: names.intern("topology.kubernetes.io/region"),
            zone_beta: names.intern("failure-domain.beta.kubernetes.io/zone"),
            region_beta: names.intern("failure-domain.beta.kubernetes.io/region"),
            unschedulable: names.intern("node.kubernetes.io/unschedulable"),
        };
        for name in ["cpu", "memory", "ephemeral-storage"] {
            names.resource(name);
        }
        names
    }
}

impl Names {
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.symbols.get(text) {
            return *symbol;
        }
        let symbol = Symbol(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.symbols.insert(text, symbol);
        symbol
    }

    /// The symbol of a string that somebody interned before.
    pub fn find(&self, text: &str) -> Option<Symbol> {
        self.symbols.get(text).copied()
    }

    pub fn text(&self, symbol: Symbol) -> &str {
        self.texts
            .get(symbol.0 as usize)
            .map_or("", |text| text.as_ref())
    }

    pub fn resource(&mut self, name: &str) -> ResourceId {
        let symbol = self.intern(name);
        if let Some(id) = self.resources.get(&symbol) {
            return *id;
        }
        let id = ResourceId(u16::try_from(self.resource_names.len()).unwrap_or(u16::MAX));
        self.resource_names.push(symbol);
        self.resources.insert(symbol, id);
        id
    }

    pub fn find_resource(&self, name: &str) -> Option<ResourceId> {
        self.resources.get(&self.find(name)?).copied()
    }

    pub fn resource_name(&self, id: ResourceId) -> &str {
        self.resource_names
            .get(id.index())
            .map_or("", |symbol| self.text(*symbol))
    }

    pub fn resource_count(&self) -> usize {
        self.resource_names.len()
    }
}

/// Whether a name in a resource list is one that the scheduler counts beside cpu, memory and ephemeral storage.
pub fn is_scalar_resource(name: &str) -> bool {
    is_extended_resource(name)
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// Resources of this prefix are device classes.
pub const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Whether devices can stand for it.
pub fn may_be_devices(name: &str) -> bool {
    is_extended_resource(name) || name.starts_with(DEVICE_CLASS_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_stable_and_texts_come_back() {
        let mut names = Names::default();
        let zone = names.intern("zone-a");
        assert_eq!(names.intern("zone-a"), zone);
        assert_ne!(names.intern("zone-b"), zone);
        assert_eq!(names.text(zone), "zone-a");
        assert_eq!(names.find("zone-c"), None);
        assert_eq!(names.resource("memory"), ResourceId::MEMORY);
        let gpu = names.resource("example.com/gpu");
        assert_eq!(names.resource_name(gpu), "example.com/gpu");
    }

    #[test]
    fn scalar_resources_are_told_apart() {
        let check = |name, scalar, extended| {
            assert_eq!(is_scalar_resource(name), scalar, "{name}");
            assert_eq!(is_extended_resource(name), extended, "{name}");
        };
        check("example.com/gpu", true, true);
        check("hugepages-2Mi", true, false);
        check("kubernetes.io/batch-cpu", true, false);
        check("attachable-volumes-csi-x", true, false);
        check("cpu", false, false);
        check("requests.example.com/gpu", false, false);
    }
}
