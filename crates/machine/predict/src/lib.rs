//! Foreseeing peaks: what a pod, or a kind of pods together, has used lately, with the past fading away, says how much
//! of its request it will not need.
//!
//! [`Histogram`] remembers one figure, [`Model`] the CPU and memory of one subject, [`Models`] those of a node: they are
//! trained once a minute, saved now and then ([`checkpoint`]), and asked by the predictors in [`reclaim`].
//!
//! Nothing here reads a clock or talks to anybody; the only files are the checkpoints.

pub mod checkpoint;
mod histogram;
mod model;
mod models;
pub mod reclaim;
mod subject;

pub use histogram::{Buckets, Histogram};
pub use model::{HalfLives, Model, Peaks, Prediction};
pub use models::{Config, Models, Round};
pub use subject::Subject;

/// CPU in cores and memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Amount {
    pub cpu: f64,
    pub memory: f64,
}

impl Amount {
    /// Each figure through `f`.
    #[must_use]
    pub fn map2(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            cpu: f(self.cpu, other.cpu),
            memory: f(self.memory, other.memory),
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.map2(other, |a, b| a + b)
    }

    /// What is left, never less than nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.map2(other, |a, b| (a - b).max(0.0))
    }

    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            cpu: self.cpu * factor,
            memory: self.memory * factor,
        }
    }
}
