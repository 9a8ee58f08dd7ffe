//! The scheduler of `up`: pods that are applied get their nodes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use plimsoll_ground::clients;
use plimsoll_ground::front;
use plimsoll_scheduler::config::Configuration;
use plimsoll_scheduler::live::{Connections, Options, Running};
use plimsoll_scheduler::server::{self, Serving};

#[derive(Debug)]
pub struct Scheduler {
    running: Running,
    serving: Serving,
}

impl Scheduler {
    /// It is the only one: nobody has to be elected.
    pub async fn start(kubeconfig: &Path, client: kube::Client) -> Result<Self> {
        let mut configuration = Configuration::default();
        configuration.leader_election.leader_elect = false;
        configuration.check()?;
        let ready = Options::new(configuration).build(Connections::one(client))?;
        let clients = clients::Config::from_flag(Some(kubeconfig.to_owned()));
        let mut front = front::Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        front.authentication.delegation.tolerate_lookup_failure = true;
        let front = front.build(&clients.build().await?).await?;
        let serving = server::spawn(front, ready.shared());
        Ok(Self {
            running: ready.spawn(),
            serving,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.serving.local_addr()
    }

    pub async fn drain(self, within: Duration) {
        self.running.drain(within).await;
        self.serving.drain(within).await;
    }
}
