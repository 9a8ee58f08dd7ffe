//! Protects latency-sensitive pods: each second the strategies of `qos` plan by what is known, and `actuate` brings the
//! kernel there.
//!
//! [`Protector`] has no thread and no clock of its own; [`start`] starts the thread around it. Nothing here decides about a
//! value and nothing here writes one: this is where both meet, and where a person can look and step in ([`Protection`],
//! [`control`]).

pub mod audit;
pub mod control;
mod evict;
mod kernel;
mod node;
mod pods;
mod protector;
#[cfg(test)]
mod tests;
mod thread;

pub use evict::{EvictionCounters, Evictor, Method, Told};
pub use protector::{Config, Protector, Sources};
pub use thread::{Handle, Protection, Shown, finish_writes};

use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll_client::shutdown;
use plimsoll_host::Clock;
use plimsoll_plan::Eviction;
use plimsoll_qos::EvictBy;
use tokio::sync::mpsc;

use crate::states::ClusterStateCell;

/// Evictions that wait to be carried out.
const MOST_EVICTIONS: usize = 64;

/// What a running protection has for others.
#[derive(Debug)]
pub struct Started {
    pub protection: Protection,
    pub config: Config,
    pub evictions: Arc<EvictionCounters>,
    /// For the one who carries them out.
    queue: Mutex<Option<mpsc::Receiver<Eviction>>>,
}

impl Started {
    /// Starts the tasks that need a cluster or a runtime: evictions, and the socket for people.
    pub fn serve(
        &self,
        client: kube::Client,
        board: ClusterStateCell,
        node: &str,
    ) -> shutdown::ShutdownTrigger {
        let (stopper, shutdown) = shutdown::channel();
        if let Some(queue) = self.take_queue() {
            let evictor = Evictor {
                client,
                board,
                method: match self.config.settings.evict_by {
                    EvictBy::Api if self.config.ask_manager => Method::Ask {
                        node: node.to_owned(),
                    },
                    EvictBy::Api => Method::Api,
                    EvictBy::Killing => Method::Kill {
                        socket: self.config.evict_socket.clone(),
                    },
                },
                counters: Arc::clone(&self.evictions),
                may: {
                    let protection = self.protection.clone();
                    Box::new(move || protection.shown().mode == plimsoll_actuate::Mode::Enforce)
                },
                told: {
                    let protection = self.protection.clone();
                    Box::new(move |eviction, told| match told {
                        Told::Evicted => protection.evicted(eviction, false),
                        Told::Asked => protection.evicted(eviction, true),
                        Told::Failed => protection.eviction_failed(&eviction.uid),
                    })
                },
                node: node.to_owned(),
            };
            shutdown.keep("evictions", evictor.run(queue, shutdown.clone()));
        }
        let Some(path) = &self.config.socket else {
            return stopper;
        };
        match control::listen(path) {
            Ok(listener) => {
                let protection = self.protection.clone();
                let serving = control::serve(listener, path.clone(), protection, shutdown.clone());
                shutdown.keep("protect-socket", serving);
            }
            Err(error) => tracing::warn!(
                socket = %path.display(), %error,
                "cannot listen for `plimsoll qos`; protection works without it. See --protect-socket"
            ),
        }
        stopper
    }

    /// The first call gets the queue.
    pub fn take_queue(&self) -> Option<mpsc::Receiver<Eviction>> {
        self.queue.lock().take()
    }
}

/// Starts the thread. Without a journal that can be used nothing would be safe to change, so protection stays off then.
pub fn start(config: &Config, sources: Sources, clock: Clock) -> Option<(Handle, Started)> {
    let (protector, recovered) = match Protector::open(config, sources) {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!(%error, "protection is off because its journal cannot be used; see --data-dir");
            return None;
        }
    };
    if !recovered.targets.is_empty() {
        let targets = recovered.targets.len();
        tracing::info!(targets, "took over what an earlier process changed");
    }
    let (sender, queue) = mpsc::channel(MOST_EVICTIONS);
    let every = config.settings.reconcile_interval;
    let spawned = thread::spawn(protector, every, config.restore_on_exit, clock, sender);
    let (handle, protection) = match spawned {
        Ok(spawned) => spawned,
        Err(error) => {
            tracing::error!(%error, "cannot start the thread that protects; protection is off");
            return None;
        }
    };
    tracing::info!(mode = config.mode.as_str(), "protection is on");
    let started = Started {
        protection,
        config: config.clone(),
        evictions: Arc::default(),
        queue: Mutex::new(Some(queue)),
    };
    Some((handle, started))
}
