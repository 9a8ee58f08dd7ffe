//! Which pods have to go, for CPU and for memory.

use plimsoll_plan::{Eviction, Note};

/// Who goes now, in this order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EvictionRound {
    pub evictions: Vec<Eviction>,
    pub notes: Vec<Note>,
}
