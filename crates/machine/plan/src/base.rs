//! What a value would be without us.

use crate::{Target, Value};

/// What the kubelet and the runtime would write now, where that can be computed from the pod's specification and the
/// kubelet's rules. `None`: it cannot be; then the last value that somebody else wrote counts, or else the value that was
/// found before our first write.
pub trait Bases {
    fn base(&self, target: &Target) -> Option<Value>;
}

/// Nothing can be computed.
impl Bases for () {
    fn base(&self, _: &Target) -> Option<Value> {
        None
    }
}

impl<F: Fn(&Target) -> Option<Value>> Bases for F {
    fn base(&self, target: &Target) -> Option<Value> {
        self(target)
    }
}
