//! The manager at work: follows nodes, their reports and their pods, and keeps what it writes about them true.
//!
//! Whatever changes marks its node; a task takes marked nodes one by one, works out what should be written from what is
//! known at that moment, and writes it. Nothing is remembered but when a node was written last, so a restart costs
//! nothing but one look at every node.

mod controller;
mod marked;
mod node;
mod objects;
mod zones;

use std::time::Duration;

use plimsoll_api::names;
use plimsoll_ground::events;
use plimsoll_ground::leader;
use plimsoll_ground::shutdown::{self, Stopper};
use tokio::task::JoinHandle;

use controller::Controller;

/// As Koordinator's manager calls its lease: only one of them may be at work.
pub const LEASE: &str = "koordinator-manager";
const COMPONENT: &str = "plimsoll-manager";

#[derive(Debug, Clone)]
pub struct Config {
    /// Where the config map and the lease are.
    pub namespace: String,
    pub config_map: String,
    /// `None`: it is the only one.
    pub election: Option<leader::Config>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: names::CONFIG_NAMESPACE.to_owned(),
            config_map: names::CONFIG_NAME.to_owned(),
            election: None,
        }
    }
}

/// Put together, not started.
pub struct Manager {
    config: Config,
    client: kube::Client,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Running {
    stopper: Stopper,
    task: JoinHandle<Result<(), String>>,
}

impl Config {
    pub fn build(self, client: kube::Client) -> Manager {
        Manager {
            config: self,
            client,
        }
    }
}

impl Manager {
    pub fn spawn(self) -> Running {
        let (stopper, shutdown) = shutdown::channel();
        let task = tokio::spawn(async move {
            let (recorder, recording) =
                events::Config::new(events::Style::Core, COMPONENT).spawn(self.client.clone());
            let controller = Controller::new(self.client.clone(), &self.config, recorder.clone());
            let outcome = match self.config.election {
                None => controller.run(shutdown).await,
                Some(election) => {
                    elected(election, self.client, controller, recorder, shutdown).await
                }
            };
            recording.drain(Duration::from_secs(2)).await;
            outcome
        });
        Running { stopper, task }
    }
}

async fn elected(
    election: leader::Config,
    client: kube::Client,
    controller: Controller,
    recorder: events::Recorder,
    shutdown: shutdown::Shutdown,
) -> Result<(), String> {
    let candidate = election
        .build(client, Some(recorder))
        .map_err(|error| error.to_string())?;
    let ended = candidate
        .run(shutdown, move |shutdown| async move {
            if let Err(trouble) = controller.run(shutdown).await {
                tracing::error!(trouble, "the manager cannot work");
            }
        })
        .await;
    match ended {
        leader::Ended::Lost => Err("somebody else leads now".to_owned()),
        leader::Ended::Crashed => Err("the work ended in a panic, see the log".to_owned()),
        leader::Ended::NeverLed | leader::Ended::Stopped => Ok(()),
    }
}

impl Running {
    /// Ends when the manager does: asked to, or because it cannot go on.
    pub async fn finished(&mut self) -> Result<(), String> {
        match (&mut self.task).await {
            Ok(outcome) => outcome,
            Err(error) => Err(error.to_string()),
        }
    }

    pub async fn drain(self, deadline: Duration) {
        self.stopper.stop();
        if tokio::time::timeout(deadline, self.task).await.is_err() {
            tracing::warn!("the manager did not end in time");
        }
    }
}
