//! The plugins there are.

macro_rules! plugins {
    ($($name:ident),* $(,)?) => {
        /// A plugin, by the name it has in configurations, metrics and messages.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Plugin {
            $($name),*
        }

        impl Plugin {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),*
                }
            }
        }
    };
}

plugins! {
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    GangScheduling,
    LoadAwareScheduling,
    Extender,
}

impl Plugin {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|plugin| plugin.name() == name)
    }
}

/// A set of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PluginSet(u32);

impl PluginSet {
    pub const EMPTY: Self = Self(0);

    pub const fn of(plugin: Plugin) -> Self {
        Self(1 << plugin as u8)
    }

    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= Self::of(plugin).0;
    }

    pub fn contains(self, plugin: Plugin) -> bool {
        self.intersects(Self::of(plugin))
    }

    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Plugin> {
        Plugin::ALL
            .iter()
            .copied()
            .filter(move |plugin| self.contains(*plugin))
    }
}

impl FromIterator<Plugin> for PluginSet {
    fn from_iter<I: IntoIterator<Item = Plugin>>(plugins: I) -> Self {
        let mut set = Self::EMPTY;
        for plugin in plugins {
            set.insert(plugin);
        }
        set
    }
}
