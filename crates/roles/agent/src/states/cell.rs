//! The shared `ClusterState`: informers update it, reports and policies read it.

use tokio::sync::watch;

use super::ClusterState;

/// A handle to the shared state. Reading is cheap and works on any thread.
#[derive(Debug, Clone)]
pub struct ClusterStateCell(watch::Sender<ClusterState>);

impl Default for ClusterStateCell {
    fn default() -> Self {
        Self(watch::Sender::new(ClusterState::default()))
    }
}

impl ClusterStateCell {
    pub fn current(&self) -> ClusterState {
        self.0.borrow().clone()
    }

    /// Wakes all subscribers; several updates may wake them once.
    pub fn update(&self, change: impl FnOnce(&mut ClusterState)) {
        self.0.send_modify(change);
    }

    pub fn subscribe(&self) -> watch::Receiver<ClusterState> {
        self.0.subscribe()
    }
}
