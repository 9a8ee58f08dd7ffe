//! The one place where what is known of the cluster stands.

use tokio::sync::watch;

use super::Known;

/// Handles to the same board; looking is cheap and works on any thread.
#[derive(Debug, Clone)]
pub struct Board(watch::Sender<Known>);

impl Default for Board {
    fn default() -> Self {
        Self(watch::Sender::new(Known::default()))
    }
}

impl Board {
    pub fn now(&self) -> Known {
        self.0.borrow().clone()
    }

    /// Whoever follows the board is woken, however small the change; several changes may wake it once.
    pub fn change(&self, change: impl FnOnce(&mut Known)) {
        self.0.send_modify(change);
    }

    pub fn follow(&self) -> watch::Receiver<Known> {
        self.0.subscribe()
    }
}
