//! Kinds that a cluster may not have, for example because a CRD is not installed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Several kinds that are defined together, or not at all: whoever misses one of them first says so, and nobody again.
/// Clones are the same.
#[derive(Debug, Clone)]
pub struct MissingKind(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    advice: &'static str,
    told: AtomicBool,
}

impl MissingKind {
    /// What it means that they are missing, and what to do about it.
    pub fn new(advice: &'static str) -> Self {
        Self(Arc::new(Inner {
            advice,
            told: AtomicBool::new(false),
        }))
    }

    /// That this kind is not defined.
    pub fn tell(&self, kind: &str) {
        if !self.0.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                kind,
                "the cluster does not know this kind of object: {}",
                self.0.advice
            );
        }
    }

    /// Whether it was said.
    pub fn is_told(&self) -> bool {
        self.0.told.load(Ordering::Relaxed)
    }
}
