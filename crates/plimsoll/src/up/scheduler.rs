//! The scheduler of `up`: pods that are applied get their nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};

use plimsoll_scheduler::config::Configuration;
use plimsoll_scheduler::live::{Connections, Options, Running};
use plimsoll_scheduler::server::{self, Serving};
use plimsoll_serving::secure_serving;
use tokio::task::JoinHandle;

use super::supervise::Role;

/// After a watch of nodes has failed.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Scheduler {
    /// Ends when it runs; `None` once that was seen.
    starting: Option<JoinHandle<Running>>,
    running: Option<Running>,
    serving: Serving,
}

impl Scheduler {
    /// It is the only one: nobody has to be elected.
    pub async fn start(kubeconfig: PathBuf, client: kube::Client) -> Result<Self> {
        let mut configuration = Configuration::default();
        configuration.leader_election.leader_elect = false;
        configuration.check()?;
        let ready = Options::new(configuration).build(Connections::one(client.clone()))?;
        let clients = plimsoll_client::Config::from_flag(Some(kubeconfig));
        let mut front = secure_serving::Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        front.authentication.delegation.tolerate_lookup_failure = true;
        let front = front.build(&clients.build().await?).await?;
        let serving = server::spawn(front, ready.shared(), BTreeMap::new());
        // Without a node it could only tell every pod that there is none.
        let starting = tokio::spawn(async move {
            first_node(client).await;
            ready.spawn()
        });
        Ok(Self {
            starting: Some(starting),
            running: None,
            serving,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.serving.local_addr()
    }
}

impl Role for Scheduler {
    async fn failure(&mut self) -> String {
        if let Some(starting) = &mut self.starting {
            let started = starting.await;
            self.starting = None;
            match started {
                Ok(running) => self.running = Some(running),
                Err(error) => return error.to_string(),
            }
        }
        let Some(running) = &mut self.running else {
            return "it did not start".to_owned();
        };
        match running.finished().await {
            Ok(()) => "it ended too early".to_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    async fn drain(self, within: Duration) {
        let mut running = self.running;
        // It may have begun to run since it was last looked at.
        if let Some(starting) = self.starting {
            starting.abort();
            running = starting.await.ok();
        }
        if let Some(running) = running {
            running.drain(within).await;
        }
        self.serving.drain(within).await;
    }
}

async fn first_node(client: kube::Client) {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let mut events = watcher(nodes, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(_) | Event::Apply(_)) => return,
            Ok(_) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
