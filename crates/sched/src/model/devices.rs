//! Devices: what drivers offer, what claims ask for, what has been given to whom.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pod::Effect;
use super::selector::NodeTerm;
use super::symbol::Symbol;

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
    /// In thousandths.
    pub capacity: BTreeMap<Box<str>, i64>,
    pub taints: Box<[DeviceTaint]>,
    pub nodes: Option<NodeScope>,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceToleration {
    pub key: Option<Box<str>>,
    /// `None`: whatever value.
    pub value: Option<Box<str>>,
    pub effect: Option<Effect>,
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
    pub selectors: Box<[Box<str>]>,
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
    pub requests: Box<[DeviceRequest]>,
    pub constraints: Box<[DeviceConstraint]>,
    pub allocation: Option<Allocation>,
    /// UIDs of pods.
    pub reserved_for: Box<[Box<str>]>,
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
    pub selectors: Box<[Box<str>]>,
    /// `None`: all that match.
    pub count: Option<usize>,
    pub admin_access: bool,
    pub tolerations: Box<[DeviceToleration]>,
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// With the sub-request's name after a slash, if there was a choice.
    pub request: Box<str>,
    pub id: DeviceId,
    /// It does not keep others from using the device.
    pub admin_access: bool,
}
