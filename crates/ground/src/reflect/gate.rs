//! Readiness: all copies are there.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Opens when everybody who was registered has said that they are ready. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting_for: Mutex<Vec<Waiting>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Waiting {
    name: String,
    /// What went wrong last.
    trouble: Option<String>,
    ready: bool,
}

/// What was still missing when the time was up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not ready after {} s: still missing {}", .within.as_secs(), .missing.join(", "))]
pub struct NotSynced {
    pub within: Duration,
    /// By name, and with the trouble they had.
    pub missing: Vec<String>,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Shared {
            waiting_for: Mutex::default(),
            changed: watch::channel(()).0,
        }))
    }
}

impl Gate {
    /// One more to wait for.
    pub fn register(&self, name: impl Into<String>) -> Ticket {
        let mut waiting_for = self.0.waiting_for.lock();
        waiting_for.push(Waiting {
            name: name.into(),
            trouble: None,
            ready: false,
        });
        Ticket {
            gate: self.clone(),
            index: waiting_for.len() - 1,
        }
    }

    pub fn is_open(&self) -> bool {
        self.0.waiting_for.lock().iter().all(|one| one.ready)
    }

    /// Who is not ready, and why if that is known: a trouble that several share is told once.
    pub fn missing(&self) -> Vec<String> {
        let waiting_for = self.0.waiting_for.lock();
        let mut by_trouble: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
        for one in waiting_for.iter().filter(|one| !one.ready) {
            let trouble = one.trouble.as_deref();
            match by_trouble.iter_mut().find(|(known, _)| *known == trouble) {
                Some((_, names)) => names.push(&one.name),
                None => by_trouble.push((trouble, vec![&one.name])),
            }
        }
        let told = by_trouble.iter().map(|(trouble, names)| {
            let names = names.join(", ");
            match trouble {
                Some(trouble) => format!("{names} ({trouble})"),
                None => names,
            }
        });
        told.collect()
    }

    /// Waits for all, but not for ever; says in one line of the log what it has waited for in vain.
    pub async fn opens(&self, within: Duration) -> Result<(), NotSynced> {
        let mut changes = self.0.changed.subscribe();
        let open = async {
            while !self.is_open() {
                // The sender lives as long as this gate.
                let _ = changes.changed().await;
            }
        };
        if tokio::time::timeout(within, open).await.is_ok() {
            return Ok(());
        }
        let missing = self.missing();
        tracing::error!(?within, missing = missing.join(", "), "not ready in time");
        Err(NotSynced { within, missing })
    }
}

/// The place of one that is waited for.
#[derive(Debug)]
pub struct Ticket {
    gate: Gate,
    index: usize,
}

impl Ticket {
    pub fn ready(&self) {
        self.set(|waiting| {
            waiting.ready = true;
            waiting.trouble = None;
        });
    }

    /// For whoever wonders what takes so long.
    pub fn trouble(&self, what: String) {
        self.set(|waiting| waiting.trouble = Some(what));
    }

    fn set(&self, change: impl FnOnce(&mut Waiting)) {
        if let Some(waiting) = self.gate.0.waiting_for.lock().get_mut(self.index) {
            change(waiting);
        }
        self.gate.0.changed.send_replace(());
    }
}
