//! Read-only access to all observed data, for request handlers.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use parking_lot::RwLock;
use plimsoll_containers::CgroupPath;
use plimsoll_host::proc::tasks::Tasks;
use plimsoll_host::{Clock, HostRoot, ReadBuf};

use crate::GroupSet;
use crate::events::EventStore;
use crate::machine::MachineState;
use crate::oom::OomCounters;
use crate::sampler::Message;
use crate::store::{State, Store};

/// A request for fresh samples before a page is served.
pub struct SampleRequest {
    pub containers: Vec<CgroupPath>,
    /// Containers sampled within this time are skipped.
    pub max_age: Duration,
    /// Groups wanted beyond those that are always on, for this sample and a few minutes more: the kubelet's page has
    /// the process group, which is off by default.
    pub also: GroupSet,
    /// Called on the sampler's thread when the samples are taken.
    pub done: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for SampleRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampleRequest")
            .field("containers", &self.containers.len())
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

/// Everything a request handler may look at.
#[derive(Debug)]
pub struct Observer {
    pub store: Arc<Store>,
    pub events: Arc<EventStore>,
    pub oom: Arc<OomCounters>,
    pub machine: Arc<MachineState>,
    pub clock: Clock,
    pub root: HostRoot,
    /// The groups that are switched on.
    pub groups: GroupSet,
    pub is_v2: bool,
    pub on_demand: OnDemandSampler,
}

impl Observer {
    /// Read now.
    pub fn tasks(&self) -> Tasks {
        Tasks::read(&self.root, &mut ReadBuf::default())
    }

    /// OOM kills of a container. Without a kernel log to read, v2's own count stands in: it dies with the cgroup and
    /// adds up the whole subtree, which is still better than zero.
    pub fn oom_events(&self, path: &str, state: &State) -> u64 {
        if self.oom.is_kmsg_unavailable() {
            return state.latest.memory.events.oom_kill;
        }
        self.oom.count(path, state.identity.as_deref())
    }
}

/// Sends sample requests to the sampler; connected once the sampler runs.
#[derive(Debug, Default)]
pub struct OnDemandSampler(RwLock<Option<Sender<Message>>>);

impl OnDemandSampler {
    pub fn connect(&self, sampler: Sender<Message>) {
        *self.0.write() = Some(sampler);
    }

    /// Sends a request to the sampler; without a sampler it is done at once.
    pub fn request(&self, request: SampleRequest) {
        let refused = match self.0.read().as_ref() {
            Some(sender) => sender.send(Message::SampleNow(request)).err().map(|e| e.0),
            None => Some(Message::SampleNow(request)),
        };
        if let Some(Message::SampleNow(request)) = refused {
            (request.done)();
        }
    }
}
