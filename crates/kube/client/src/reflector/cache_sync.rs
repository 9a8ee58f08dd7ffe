//! Waits until all reflectors have their first complete list.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_waiting::Waiting;
use tokio::sync::watch;

use super::troubles::Troubles;

/// Opens when everybody who was registered has said that they are ready. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct CacheSync(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting_for: Mutex<Vec<Place>>,
    troubles: Troubles,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Place {
    name: String,
    /// What went wrong last.
    trouble: Option<String>,
    ready: bool,
}

/// What was still missing when the time was up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not ready after {} s: still missing {}", .within.as_secs(), .missing.join(", "))]
pub struct SyncTimeout {
    pub within: Duration,
    /// By name, and with the trouble they had.
    pub missing: Vec<String>,
}

impl Default for CacheSync {
    fn default() -> Self {
        Self(Arc::new(Shared {
            waiting_for: Mutex::default(),
            troubles: Troubles::default(),
            changed: watch::channel(()).0,
        }))
    }
}

impl CacheSync {
    /// One more to wait for.
    pub fn register(&self, name: impl Into<String>) -> SyncHandle {
        let mut waiting_for = self.0.waiting_for.lock();
        let name = name.into();
        waiting_for.push(Place {
            name: name.clone(),
            trouble: None,
            ready: false,
        });
        SyncHandle {
            gate: self.clone(),
            name,
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

    /// Nobody who is waited for has had any answer, not even a bad one.
    pub fn is_silent(&self) -> bool {
        let waiting_for = self.0.waiting_for.lock();
        let mut missing = waiting_for.iter().filter(|one| !one.ready);
        missing.all(|one| one.trouble.is_none())
    }

    /// Waits for all, for as long as it takes. Says within seconds whom it waits for, and why if that is known; again at
    /// growing intervals; and once when it is over.
    pub async fn opens_at_last(&self) {
        let waiting = Waiting::new(
            "copies of what the cluster holds",
            "is the API server overloaded or stopped?",
        );
        let open = self.open();
        let missing = || {
            let missing = self.missing().join(", ");
            Some(match self.is_silent() {
                true => format!("no answer yet about {missing}"),
                false => format!("still missing {missing}"),
            })
        };
        waiting.during_telling(open, missing).await;
        waiting.over();
    }

    async fn open(&self) {
        let mut changes = self.0.changed.subscribe();
        while !self.is_open() {
            // The sender lives as long as this gate.
            let _ = changes.changed().await;
        }
    }

    /// Waits for all, but not for ever; says in one line of the log what it has waited for in vain.
    pub async fn opens(&self, within: Duration) -> Result<(), SyncTimeout> {
        if tokio::time::timeout(within, self.open()).await.is_ok() {
            return Ok(());
        }
        let missing = self.missing();
        tracing::error!(?within, missing = missing.join(", "), "not ready in time");
        Err(SyncTimeout { within, missing })
    }
}

/// The place of one that is waited for.
#[derive(Debug)]
pub struct SyncHandle {
    gate: CacheSync,
    name: String,
    index: usize,
}

impl SyncHandle {
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

    /// The same, and it is said: once for all that have it, and again at growing intervals.
    pub fn failed(&self, what: String) {
        self.gate.0.troubles.failed(&self.name, &what);
        self.trouble(what);
    }

    /// What failed before works; that is said once it does for all.
    pub fn recovered(&self) {
        self.gate.0.troubles.recovered(&self.name);
    }

    fn set(&self, change: impl FnOnce(&mut Place)) {
        if let Some(waiting) = self.gate.0.waiting_for.lock().get_mut(self.index) {
            change(waiting);
        }
        self.gate.0.changed.send_replace(());
    }
}
