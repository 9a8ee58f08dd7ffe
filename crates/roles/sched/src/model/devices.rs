//! Devices: what drivers offer, what claims ask for, what has been given to whom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::quantity::Quantity;

use super::device_selector::DeviceSelector;
use super::pod::Effect;
use super::selector::NodeTerm;
use super::symbol::Symbol;
use crate::features::Features;
use crate::time::Time;

/// Driver, pool and name: what makes a device itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResourceSlice {
    pub name: Box<str>,
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub generation: i64,
    /// How many slices the pool has in this generation.
    pub slices: usize,
    pub nodes: NodeScope,
    pub devices: Box<[Device]>,
    /// What devices of the pool take parts of.
    pub counters: Box<[CounterSet]>,
}

impl ResourceSlice {
    /// Leaves out what features that are off would have brought.
    pub fn switch(&mut self, features: &Features) {
        if !features.shared_devices {
            for device in &mut self.devices {
                device.is_shared = false;
            }
        }
        if !features.partitions {
            let devices = std::mem::take(&mut self.devices).into_iter();
            self.devices = devices
                .filter(|device| device.consumes.is_empty())
                .collect();
        }
    }
}

/// Amounts in thousandths, by the name of the counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterSet {
    pub name: Box<str>,
    pub counters: BTreeMap<Box<str>, i64>,
}

/// From which nodes devices can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeScope {
    Node(Symbol),
    All,
    Selected(Box<[NodeTerm]>),
    /// Every device says for itself.
    PerDevice,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub name: Arc<str>,
    /// By qualified name.
    pub attributes: BTreeMap<Box<str>, Attribute>,
    pub capacity: BTreeMap<Box<str>, Capacity>,
    pub taints: Box<[DeviceTaint]>,
    pub nodes: Option<NodeScope>,
    /// Several claims may share it, each with a part of its capacity.
    pub is_shared: bool,
    /// Parts of the pool's counters that are gone when it is given away.
    pub consumes: Box<[CounterSet]>,
    /// Whoever gets it has to stay on the node.
    pub binds_to_node: bool,
    pub readiness: Readiness,
}

/// Conditions of a device that has been given away which decide whether its pod may be bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    pub wanted: Box<[Box<str>]>,
    pub fatal: Box<[Box<str>]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub value: Quantity,
    pub policy: CapacityPolicy,
}

/// Which parts of a capacity may be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapacityPolicy {
    pub default: Option<Quantity>,
    pub min: Option<Quantity>,
    pub max: Option<Quantity>,
    pub step: Option<Quantity>,
    /// Ascending.
    pub values: Box<[Quantity]>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attribute {
    Int(i64),
    Bool(bool),
    Text(Box<str>),
    Version(Box<str>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTaint {
    pub key: Box<str>,
    pub value: Box<str>,
    pub effect: Effect,
}

/// A taint that an administrator puts on devices; what is not said is whatever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaintRule {
    pub name: Box<str>,
    pub driver: Option<Box<str>>,
    pub pool: Option<Box<str>>,
    pub device: Option<Box<str>>,
    pub taint: DeviceTaint,
}

impl TaintRule {
    pub fn concerns(&self, slice: &ResourceSlice, device: &str) -> bool {
        let fits = |wanted: &Option<Box<str>>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        fits(&self.driver, &slice.driver)
            && fits(&self.pool, &slice.pool)
            && fits(&self.device, device)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceToleration {
    pub key: Option<Box<str>>,
    /// `None`: whatever value.
    pub value: Option<Box<str>>,
    pub effect: Option<Effect>,
    /// How long a pod stays once the taint is there. Nothing to a scheduler but a part of what it writes down.
    pub seconds: Option<i64>,
}

impl DeviceToleration {
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceClass {
    pub name: Box<str>,
    pub selectors: Box<[DeviceSelector]>,
    /// The extended resource that its devices stand for.
    pub resource: Option<Box<str>>,
    pub created: Option<Time>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResourceClaim {
    pub namespace: Symbol,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub terminating: bool,
    /// The UID of the pod that it was made for.
    pub owner: Option<Box<str>>,
    /// It was made for extended resources of its owner.
    pub is_extended: bool,
    pub requests: Box<[DeviceRequest]>,
    pub constraints: Box<[DeviceConstraint]>,
    pub allocation: Option<Allocation>,
    /// UIDs of pods.
    pub reserved_for: Box<[Box<str>]>,
    pub conditions: Box<[DeviceCondition]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRequest {
    pub name: Box<str>,
    /// The first that can be had counts.
    pub alternatives: Box<[Alternative]>,
    /// `firstAvailable`: alternatives have names of their own.
    pub has_subrequests: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    pub name: Box<str>,
    pub class: Box<str>,
    pub selectors: Box<[DeviceSelector]>,
    /// `None`: all that match.
    pub count: Option<usize>,
    pub admin_access: bool,
    pub tolerations: Box<[DeviceToleration]>,
    pub capacity: BTreeMap<Box<str>, Quantity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceConstraint {
    /// Empty: all of the claim's.
    pub requests: Box<[Box<str>]>,
    pub attribute: Box<str>,
    /// All devices differ in it; otherwise, all agree.
    pub distinct: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    pub devices: Vec<AllocatedDevice>,
    /// `None`: usable from all nodes.
    pub nodes: Option<Box<[NodeTerm]>>,
    /// When devices that have to become ready were given.
    pub since: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// With the sub-request's name after a slash, if there was a choice.
    pub request: Box<str>,
    pub id: DeviceId,
    /// It does not keep others from using the device.
    pub admin_access: bool,
    /// It is a part of a device that others may have parts of, too.
    pub share: Option<Share>,
    pub tolerations: Box<[DeviceToleration]>,
    pub readiness: Readiness,
}

/// A part of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// A UUID.
    pub id: Box<str>,
    pub consumed: BTreeMap<Box<str>, Quantity>,
}

/// A condition that a driver reports of a device that has been given away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCondition {
    pub id: DeviceId,
    pub kind: Box<str>,
    pub holds: bool,
    pub reason: Box<str>,
    pub message: Box<str>,
}

impl ResourceClaim {
    /// Whether its devices are ready to be used. `Err`: they never will be.
    pub fn is_ready(&self) -> Result<bool, String> {
        let Some(allocation) = &self.allocation else {
            return Ok(false);
        };
        for device in &allocation.devices {
            let Readiness { wanted, fatal } = &device.readiness;
            if wanted.is_empty() {
                continue;
            }
            let holding = |kind: &str| {
                self.conditions.iter().find(|condition| {
                    condition.id == device.id && &*condition.kind == kind && condition.holds
                })
            };
            if let Some(failed) = fatal.iter().find_map(|kind| holding(kind)) {
                return Err(format!(
                    "device binding failed: claim={}, reason={}, message={:?}",
                    self.name, failed.reason, failed.message
                ));
            }
            if wanted.iter().any(|kind| holding(kind).is_none()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether nothing but the spec is different.
    pub fn has_status_of(&self, other: &Self) -> bool {
        self.allocation == other.allocation
            && self.reserved_for == other.reserved_for
            && self.conditions == other.conditions
    }

    /// Whether its devices have been given for longer than this and are not ready yet.
    pub fn is_late(&self, timeout: Duration, now: Time) -> bool {
        let given = self.allocation.as_ref().and_then(|given| given.since);
        self.is_ready() == Ok(false) && given.is_some_and(|since| since.after(timeout) < now)
    }

    /// Whether its devices have to become ready.
    pub fn has_conditions(&self) -> bool {
        self.allocation
            .as_ref()
            .is_some_and(Allocation::has_conditions)
    }
}

impl Allocation {
    pub fn new(devices: Vec<AllocatedDevice>, nodes: Option<Box<[NodeTerm]>>, now: Time) -> Self {
        let mut given = Self {
            devices,
            nodes,
            since: None,
        };
        given.since = given.has_conditions().then(|| now.truncate_to_second());
        given
    }

    /// Whether some device has to become ready.
    pub fn has_conditions(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|device| !device.readiness.wanted.is_empty())
    }
}
