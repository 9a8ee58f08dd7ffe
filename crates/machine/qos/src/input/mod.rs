//! What strategies look at: plain data, put together by whoever watches the cluster and the machine.
//!
//! A figure that is not known, or not fresh, is `None`. It is never zero for unknown.

mod annotations;
mod kernel;
mod node;
mod parts;
mod pod;
mod usage;

use std::time::Duration;

pub use annotations::{Annotations, Parsed, ResourceStatus};
pub use kernel::{Capabilities, Kernel, Resctrl};
pub use node::{Cpu, NodeView, Storage};
pub use parts::{PodParts, StatusParts};
pub use pod::{ContainerKind, ContainerView, Origin, Phase, PodView, Volume, VolumeSource};
pub(crate) use usage::finite;
pub use usage::{ContainerUsage, PodUsage, UsageSnapshot};

use crate::policy::Policy;

/// Everything at one moment. `now` counts from any fixed point and never goes back.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub now: Duration,
    pub policy: &'a Policy,
    pub node: Option<&'a NodeView>,
    /// `None`: nobody has told. An empty list has been confirmed.
    pub pods: Option<Seen<&'a [PodView]>>,
    pub usage: Option<Seen<&'a UsageSnapshot>>,
    pub kernel: &'a Kernel,
}

/// Something that was seen at a time, and is looked at again and again.
#[derive(Debug, Clone, Copy)]
pub struct Seen<T> {
    pub value: T,
    pub at: Duration,
    /// How often it is looked at.
    pub every: Duration,
}

impl<T> Seen<T> {
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.at)
    }

    /// It has been looked at within the last two intervals.
    pub fn is_fresh(&self, now: Duration) -> bool {
        self.age(now) <= self.every.saturating_mul(2)
    }
}

impl<'a> Input<'a> {
    /// All pods that are known; none where nobody has told.
    pub fn all_pods(&self) -> &'a [PodView] {
        self.pods.map(|seen| seen.value).unwrap_or_default()
    }
}
