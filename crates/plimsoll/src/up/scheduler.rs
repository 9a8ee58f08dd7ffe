//! The scheduler of `up`: pods that are applied get their nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};
use plimsoll_ground::clients;
use plimsoll_ground::front;
use plimsoll_scheduler::config::Configuration;
use plimsoll_scheduler::live::{Connections, Options, Running};
use plimsoll_scheduler::server::{self, Serving};
use tokio::task::JoinHandle;

/// After a watch of nodes has failed.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Scheduler {
    /// Ends when it runs.
    starting: JoinHandle<Running>,
    serving: Serving,
}

impl Scheduler {
    /// It is the only one: nobody has to be elected.
    pub async fn start(kubeconfig: &Path, client: kube::Client) -> Result<Self> {
        let mut configuration = Configuration::default();
        configuration.leader_election.leader_elect = false;
        configuration.check()?;
        let ready = Options::new(configuration).build(Connections::one(client.clone()))?;
        let clients = clients::Config::from_flag(Some(kubeconfig.to_owned()));
        let mut front = front::Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        front.authentication.delegation.tolerate_lookup_failure = true;
        let front = front.build(&clients.build().await?).await?;
        let serving = server::spawn(front, ready.shared(), BTreeMap::new());
        // Without a node it could only tell every pod that there is none.
        let starting = tokio::spawn(async move {
            first_node(client).await;
            ready.spawn()
        });
        Ok(Self { starting, serving })
    }

    pub fn address(&self) -> SocketAddr {
        self.serving.local_addr()
    }

    pub async fn drain(self, within: Duration) {
        if self.starting.is_finished() {
            if let Ok(running) = self.starting.await {
                running.drain(within).await;
            }
        } else {
            self.starting.abort();
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
