//! The manager at work: follows nodes, their reports and their pods, and keeps what it writes about them true.
//!
//! Whatever changes marks its node; a task takes marked nodes one by one, works out what should be written from what is
//! known at that moment, and writes it. Nothing is remembered but when a node was written last, so a restart costs
//! nothing but one look at every node.

mod controller;
mod evictions;
mod failures;
mod health;
mod marked;
mod node;
mod objects;
mod zones;

use std::time::Duration;

use plimsoll_api::names;
use plimsoll_client::Clients;
use plimsoll_client::events;
use plimsoll_client::leader_election;
use plimsoll_client::leader_election::LeaderElector;
use plimsoll_client::reflector::CacheSync;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::ShutdownTrigger;
use plimsoll_serving::health::Health;
use tokio::task::JoinHandle;

use controller::Controller;
pub use health::{Serving, serve};

/// As Koordinator's manager calls its lease: only one of them may be at work.
pub const LEASE: &str = "koordinator-manager";
const COMPONENT: &str = "plimsoll-manager";
/// For events that are queued when it stops.
const LAST_WORDS: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Config {
    /// Where the config map and the lease are.
    pub namespace: String,
    pub config_map: String,
    /// `None`: it is the only one.
    pub election: Option<leader_election::Config>,
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
    /// By which it writes; it may only while it leads.
    writer: kube::Client,
    candidate: Option<LeaderElector>,
    events: [events::Built; 2],
    recorder: events::Recorder,
    gate: CacheSync,
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
    stopper: ShutdownTrigger,
    task: JoinHandle<Result<(), String>>,
}

impl Config {
    /// By one client for everything.
    pub fn build(self, client: kube::Client) -> Result<Manager, leader_election::ConfigError> {
        self.put_together(client, None)
    }

    /// What it writes goes by connections that are closed when it leads no more.
    pub fn build_with(self, clients: &Clients) -> Result<Manager, leader_election::ConfigError> {
        self.put_together(clients.client(), Some(clients))
    }

    fn put_together(
        self,
        client: kube::Client,
        clients: Option<&Clients>,
    ) -> Result<Manager, leader_election::ConfigError> {
        let events = || events::Config::new(events::EventApi::Core, COMPONENT);
        // That it leads no more is said by who does not lead any more.
        let (of_election, election_events) = events().build(client.clone());
        let candidate = match &self.election {
            Some(election) => {
                let client = match clients {
                    Some(clients) => {
                        clients.client_for("leader-election", None, election.request_timeout())
                    }
                    None => client.clone(),
                };
                Some(election.clone().build(client, Some(of_election))?)
            }
            None => None,
        };
        let leadership = candidate.as_ref().map(LeaderElector::leadership);
        let writer = match (&leadership, clients) {
            (None, _) => client.clone(),
            (Some(leadership), Some(clients)) => clients.writer(leadership),
            (Some(leadership), None) => leadership.guard(client.clone()),
        };
        let (recorder, work_events) = events().build(writer.clone());
        Ok(Manager {
            config: self,
            client,
            writer,
            candidate,
            events: [election_events, work_events],
            recorder,
            gate: CacheSync::default(),
        })
    }
}

impl Manager {
    /// What probes ask: whether it is at work, or stands by.
    pub fn health(&self) -> Health {
        let leadership = self.candidate.as_ref().map(LeaderElector::leadership);
        health::checks(leadership, self.gate.clone())
    }

    /// Must be called within a tokio runtime.
    pub fn spawn(self) -> Running {
        let (stopper, shutdown) = shutdown::channel();
        let [election_events, work_events] = self.events.map(events::Built::spawn);
        let controller = Controller::new(
            self.client,
            self.writer,
            &self.config,
            self.recorder,
            self.gate,
        );
        let candidate = self.candidate;
        let task = tokio::spawn(async move {
            let outcome = match candidate {
                None => {
                    controller.run(shutdown).await;
                    work_events.drain(LAST_WORDS).await;
                    Ok(())
                }
                Some(candidate) => elected(candidate, controller, work_events, shutdown).await,
            };
            election_events.drain(LAST_WORDS).await;
            outcome
        });
        Running { stopper, task }
    }
}

async fn elected(
    candidate: LeaderElector,
    controller: Controller,
    events: events::RecorderTask,
    shutdown: shutdown::Shutdown,
) -> Result<(), String> {
    let leadership = candidate.leadership();
    let ended = candidate
        .run(shutdown, move |shutdown| async move {
            controller.run(shutdown).await;
            // While the lease is still ours.
            events.drain(LAST_WORDS).await;
        })
        .await;
    match ended {
        leader_election::ElectionResult::Lost => Err(leadership.why_lost()),
        leader_election::ElectionResult::Crashed => {
            Err("the work ended in a panic, see the log".to_owned())
        }
        leader_election::ElectionResult::NeverLed | leader_election::ElectionResult::Stopped => {
            Ok(())
        }
    }
}

impl Running {
    /// Ends when the manager does: asked to, or because it cannot go on. It is drained all the same.
    pub async fn finished(&mut self) -> Result<(), String> {
        let failure = self.stopper.failure();
        tokio::select! {
            biased;
            failure = failure => Err(failure.to_string()),
            ended = &mut self.task => ended.unwrap_or_else(|error| Err(error.to_string())),
        }
    }

    pub async fn drain(self, deadline: Duration) {
        self.stopper.stop();
        // It may have been seen to its end before.
        if !self.task.is_finished() && tokio::time::timeout(deadline, self.task).await.is_err() {
            tracing::warn!("the manager did not end in time");
        }
    }
}
