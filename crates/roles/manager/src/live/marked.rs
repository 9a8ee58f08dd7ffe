//! Nodes that something has changed about.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A set with a bell; clones are the same. Marking a node twice before it is taken is marking it once.
#[derive(Debug, Clone, Default)]
pub struct Marked(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    names: Mutex<BTreeSet<String>>,
    bell: Notify,
}

impl Marked {
    pub fn mark(&self, name: &str) {
        if !name.is_empty() && self.0.names.lock().insert(name.to_owned()) {
            self.0.bell.notify_one();
        }
    }

    /// Waits for a marked node.
    pub async fn next(&self) -> String {
        loop {
            let bell = self.0.bell.notified();
            if let Some(name) = self.0.names.lock().pop_first() {
                return name;
            }
            bell.await;
        }
    }
}
