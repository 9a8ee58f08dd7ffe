//! The observer as request handlers see it: everything that can be asked, nothing that can be changed.

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

/// Asks the sampler for a fresh reading before a request is answered.
pub struct PassRequest {
    pub containers: Vec<CgroupPath>,
    /// A container sampled within this time is left alone.
    pub max_age: Duration,
    /// Groups wanted beyond those that are always on, for this pass and a few minutes more: the kubelet's page has
    /// the process group, which is off by default.
    pub also: GroupSet,
    /// Called on the sampler's thread when the pass is over.
    pub done: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for PassRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassRequest")
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
    pub passes: PassLine,
}

impl Observer {
    /// Read now.
    pub fn tasks(&self) -> Tasks {
        Tasks::read(&self.root, &mut ReadBuf::default())
    }

    /// OOM kills of a container. Without a kernel log to read, v2's own count stands in: it dies with the cgroup and
    /// adds up the whole subtree, which is still better than zero.
    pub fn oom_events(&self, path: &str, state: &State) -> u64 {
        if self.oom.is_blind() {
            return state.latest.memory.events.oom_kill;
        }
        self.oom.count(path, state.identity.as_deref())
    }
}

/// The line to the sampler; open once the sampler runs.
#[derive(Debug, Default)]
pub struct PassLine(RwLock<Option<Sender<Message>>>);

impl PassLine {
    pub fn connect(&self, sampler: Sender<Message>) {
        *self.0.write() = Some(sampler);
    }

    /// Hands a request to the sampler; without a sampler it is done at once.
    pub fn request(&self, request: PassRequest) {
        let refused = match self.0.read().as_ref() {
            Some(sender) => sender.send(Message::Pass(request)).err().map(|e| e.0),
            None => Some(Message::Pass(request)),
        };
        if let Some(Message::Pass(request)) = refused {
            (request.done)();
        }
    }
}
