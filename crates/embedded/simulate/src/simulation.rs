//! Build, spawn, drain.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_client::backoff::Backoff;
use plimsoll_client::explain;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Failure, Shutdown, ShutdownTrigger};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::driver::Driver;
use crate::herd::Herd;
use crate::nodes::{self, Size};
use crate::pages::Pages;

#[derive(Debug, Clone)]
pub struct Config {
    /// How many; with none, those of an earlier run are put to rest.
    pub nodes: u32,
    pub size: Size,
    pub clock: fn() -> Timestamp,
    /// Where what nodes and pods use can be read; `None`: nowhere.
    pub pages: Option<Pages>,
    /// Report what nodes and pods use, as the pages have it, to NodeMetrics that a manager makes.
    pub reports: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nodes: 0,
            size: Size::default(),
            clock: Timestamp::now,
            pages: None,
            reports: false,
        }
    }
}

/// Put together, not started.
pub struct Simulation {
    config: Config,
    herd: Herd,
    driver: Driver,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The client's user must be allowed to write nodes, leases and pods' status, and to delete pods.
    pub fn build(self, client: kube::Client) -> Simulation {
        Simulation {
            herd: Herd::new(&self, client.clone()),
            driver: Driver::new(&self, client),
            config: self,
        }
    }
}

#[derive(Debug)]
pub struct Running {
    nodes: u32,
    stopper: ShutdownTrigger,
    ready: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Simulation {
    pub fn spawn(self) -> Running {
        let (stopper, shutdown) = shutdown::channel();
        let (sender, ready) = watch::channel(false);
        Running {
            nodes: self.config.nodes,
            stopper,
            ready,
            task: shutdown.keep("simulating", self.run(shutdown.clone(), sender)),
        }
    }

    async fn run(self, shutdown: Shutdown, ready: watch::Sender<bool>) {
        let mut backoff = Backoff::default();
        while let Err(error) = self.herd.register().await {
            let trouble = explain(&error);
            tracing::warn!(trouble, "cannot register simulated nodes, trying again");
            tokio::select! {
                () = shutdown.begins() => return,
                () = tokio::time::sleep(backoff.next_wait()) => {}
            }
        }
        if self.config.nodes == 0 {
            ready.send_replace(true);
            return shutdown.begins().await;
        }
        tokio::join!(
            self.herd.live(shutdown.clone()),
            self.driver.run(shutdown, ready)
        );
    }
}

impl Running {
    /// The first and the last.
    pub fn names(&self) -> Option<(String, String)> {
        (self.nodes > 0).then(|| (nodes::name(1), nodes::name(self.nodes)))
    }

    /// Waits until all nodes are Ready and all pods have been seen.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ready = self.ready.clone();
        async move {
            // A task that is gone says nothing more; whoever waits has a deadline.
            if ready.wait_for(|ready| *ready).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Waits for a failure of what must not fail.
    pub fn failure(&self) -> impl Future<Output = Failure> + Send + use<> {
        self.stopper.failure()
    }

    /// The nodes stay as they are: they are as real as their cluster.
    pub async fn drain(self, deadline: Duration) {
        self.stopper.stop();
        let aborting = self.task.abort_handle();
        if tokio::time::timeout(deadline, self.task).await.is_err() {
            aborting.abort();
        }
    }
}
