//! What the kubelet and the runtimes would write now.

use std::collections::HashMap;

use plimsoll_plan::{Bases, Target, Value};

#[derive(Debug, Clone, Default)]
pub struct KubeletBases {
    values: HashMap<Target, Value>,
}

impl Bases for KubeletBases {
    fn base(&self, target: &Target) -> Option<Value> {
        self.values.get(target).cloned()
    }
}
