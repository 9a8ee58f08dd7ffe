//! The shared `ClusterState`: informers update it, reports and policies read it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::ClusterState;

/// A handle to the shared state. Reading is cheap and works on any thread.
#[derive(Debug, Clone)]
pub struct ClusterStateCell {
    state: watch::Sender<ClusterState>,
    pods: Arc<Mutex<Option<Confirmed>>>,
}

/// When somebody who is asked again and again last answered.
#[derive(Debug, Clone, Copy)]
pub struct Confirmed {
    pub at: Instant,
    /// How often it is asked.
    pub every: Duration,
}

impl Default for ClusterStateCell {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(ClusterState::default()),
            pods: Arc::default(),
        }
    }
}

impl ClusterStateCell {
    pub fn current(&self) -> ClusterState {
        self.state.borrow().clone()
    }

    /// Wakes all subscribers; several updates may wake them once.
    pub fn update(&self, change: impl FnOnce(&mut ClusterState)) {
        self.state.send_modify(change);
    }

    /// The list of pods is as it was, and has been confirmed just now. Nobody is woken.
    pub fn confirm_pods(&self, every: Duration) {
        let at = Instant::now();
        *self.pods.lock() = Some(Confirmed { at, every });
    }

    /// `None`: the pods are watched rather than asked for.
    pub fn pods_confirmed(&self) -> Option<Confirmed> {
        *self.pods.lock()
    }

    pub fn subscribe(&self) -> watch::Receiver<ClusterState> {
        self.state.subscribe()
    }
}
