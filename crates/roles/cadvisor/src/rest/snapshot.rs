//! What a request takes out of the store before it is turned into text, so that no lock is held while writing.

use std::sync::Arc;

use plimsoll_containers::{CgroupPath, Identity, Namespace};
use plimsoll_host::Timestamp;
use plimsoll_host::cgroup::Spec;

use plimsoll_observe::store::{Container, DeviceNames, State};
use plimsoll_observe::{Group, GroupSet, Sample};

/// Which samples are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    /// The newest so many; `None`: all.
    pub most: Option<usize>,
}

impl Range {
    pub fn newest(count: usize) -> Self {
        Self {
            start: None,
            end: None,
            most: Some(count),
        }
    }

    fn holds(&self, at: Timestamp) -> bool {
        self.start.is_none_or(|start| at >= start) && self.end.is_none_or(|end| at <= end)
    }
}

/// What descriptions of containers depend on beyond the container itself.
#[derive(Debug, Clone, Default)]
pub struct RenderContext {
    pub memory_capacity: u64,
    pub swap_capacity: u64,
    pub devices: Arc<DeviceNames>,
    /// What every sample should have.
    pub groups: GroupSet,
}

impl RenderContext {
    /// The kernel's files had no answer: nothing is known, which is not zero.
    pub fn is_unread(&self, sample: &Sample, group: Group) -> bool {
        self.groups.has(group) && !sample.has(group)
    }
}

/// One container, copied.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub path: CgroupPath,
    pub identity: Option<Arc<Identity>>,
    pub spec: Spec,
    pub created: Timestamp,
    pub started: Option<Timestamp>,
    pub owns_network: bool,
    pub has_filesystem: bool,
    /// Out of memory kills up to now, where somebody looked them up.
    pub oom_events: u64,
    /// Oldest first.
    pub samples: Vec<Sample>,
}

impl Snapshot {
    pub fn take(container: &Container, range: &Range) -> Self {
        let state = container.lock();
        Self::of(container.path(), &state, range)
    }

    pub fn of(path: &CgroupPath, state: &State, range: &Range) -> Self {
        let is_root = path.as_ref() == "/";
        let with_disk = !state.sampled || state.latest.has(Group::Disk);
        let has_layer = state.identity.as_ref().is_some_and(|i| i.shows_files());
        Self {
            path: Arc::clone(path),
            identity: state.identity.clone(),
            spec: state.spec.clone(),
            created: state.created(),
            started: state.started(),
            owns_network: is_root || state.owns_network(),
            has_filesystem: with_disk && (is_root || has_layer),
            oom_events: 0,
            samples: samples(state, range),
        }
    }

    pub fn is_root(&self) -> bool {
        self.path.as_ref() == "/"
    }

    pub fn latest(&self) -> Option<&Sample> {
        self.samples.last()
    }

    /// Version 1 shows a network, if only of zeros, for everything that has a first process of its own, but not for
    /// Podman's containers in the network of another.
    pub fn shows_network(&self, sample: &Sample) -> bool {
        let shares = |identity: &Arc<Identity>| {
            identity.namespace == Namespace::Podman && !self.owns_network
        };
        if self.identity.as_ref().is_some_and(shares) {
            return false;
        }
        sample.has_network || self.is_root() || self.identity.is_some()
    }

    /// Limits with the machine's capacity where none is set. The root's limits are the machine's.
    pub fn limits(&self, context: &RenderContext) -> Spec {
        let mut spec = self.spec.clone();
        if self.is_root() {
            spec.has_memory = true;
            spec.memory_limit = context.memory_capacity;
            spec.memory_swap_limit = context.swap_capacity;
        } else if spec.has_memory && spec.memory_limit == 0 {
            spec.memory_limit = context.memory_capacity;
        }
        spec
    }
}

fn samples(state: &State, range: &Range) -> Vec<Sample> {
    if !state.sampled || range.most == Some(0) {
        return Vec::new();
    }
    if let (None, None, Some(most)) = (range.start, range.end, range.most) {
        // By far the most frequent wish needs no unpacking at all.
        return match most {
            1 => vec![state.latest.clone()],
            most => state.history.newest(most),
        };
    }
    let mut found = state.history.samples();
    found.retain(|sample| range.holds(sample.at));
    if let Some(most) = range.most {
        found.drain(..found.len().saturating_sub(most));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::fixture::identity;

    #[test]
    fn whose_network_version_1_shows() {
        let shown = |path: &str, runtime: Option<Namespace>, owns_network: bool| {
            let state = State {
                identity: runtime.map(|runtime| {
                    let identity = identity(runtime, &["box"]);
                    Arc::new(Identity {
                        owns_network,
                        ..identity
                    })
                }),
                ..State::new(std::time::Duration::ZERO)
            };
            let snapshot = Snapshot::of(&path.into(), &state, &Range::newest(0));
            snapshot.shows_network(&Sample::default())
        };
        assert!(shown("/", None, false));
        assert!(!shown("/a.slice", None, false));
        for runtime in [Namespace::Docker, Namespace::Containerd, Namespace::Crio] {
            assert!(shown("/box", Some(runtime), true), "{runtime:?}");
            assert!(shown("/box", Some(runtime), false), "{runtime:?}");
        }
        assert!(shown("/box", Some(Namespace::Podman), true));
        // As cAdvisor answers for a container of `podman run --network container:other`.
        assert!(!shown("/box", Some(Namespace::Podman), false));
    }
}
