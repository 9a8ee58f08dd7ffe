//! This machine in the cluster: the agent that watches it, and the node that it is.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use plimsoll_agent::{World, registration, reports, states};
use plimsoll_cadvisor::http;
use plimsoll_host::{Clock, HostRoot};

use super::supervise::Role;
use crate::agent_args::AgentArgs;
use crate::cluster_args::Member;

const PAGES: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9120);

/// The machine as a role. What cannot be had is left out and told.
#[derive(Debug)]
pub struct Machine {
    pub node: registration::Running,
    pub agent: Option<Agent>,
    /// What the agent reports to the cluster.
    member: Option<Member>,
    /// What a person should know about it.
    pub remarks: Vec<String>,
}

#[derive(Debug)]
pub struct Agent {
    running: plimsoll_agent::Running,
    serving: http::Running,
    /// Where its pages are.
    pub pages: SocketAddr,
}

impl Machine {
    pub async fn start(name: String, data_dir: PathBuf, client: kube::Client) -> Result<Self> {
        let world = World {
            clock: Clock::Real,
            root: HostRoot::detect(),
        };
        let mut remarks = Vec::new();
        let agent = match Agent::start(&name, &data_dir, world.clone()).await {
            Ok(agent) => Some(agent),
            Err(error) => {
                remarks.push(format!(
                    "the agent cannot run: {error:#}; the node is registered all the same"
                ));
                None
            }
        };
        if let Some(agent) = &agent
            && agent.pages.port() != PAGES.port()
        {
            remarks.push(format!(
                "port {} is taken, so the agent's pages are on another",
                PAGES.port()
            ));
        }
        if !rustix::process::geteuid().is_root() {
            remarks.push(
                "without root the agent sees neither the kernel log nor other users' processes and sockets: run as root \
                 to see everything"
                    .to_owned(),
            );
        }
        let view = agent.as_ref().map(|agent| agent.running.view());
        let member = view.as_ref().map(|view| {
            let (states, reports) = (states::Config::new(&name), reports::Config::new(&name));
            Member::start(client.clone(), states, reports, view, &world)
        });
        let machine = registration::Machine::new(world.root, &world.clock, view)
            .context("cannot read this machine's facts; leave it out with --no-agent")?
            .with_pages(agent.as_ref().map(|agent| agent.pages.port()));
        let registration = registration::Config { name }.build(client, world.clock, machine);
        Ok(Self {
            node: registration.spawn(),
            agent,
            member,
            remarks,
        })
    }
}

impl Role for Machine {
    async fn failure(&mut self) -> String {
        let member = async {
            match &self.member {
                Some(member) => member.failure().await,
                None => std::future::pending().await,
            }
        };
        let agent = async {
            match &self.agent {
                Some(agent) => agent.running.failure().await,
                None => std::future::pending().await,
            }
        };
        let failure = tokio::select! {
            failure = self.node.failure() => failure,
            failure = member => failure,
            failure = agent => failure,
        };
        failure.to_string()
    }

    async fn drain(self, deadline: Duration) {
        if let Some(member) = self.member {
            member.drain(deadline).await;
        }
        self.node.drain(deadline).await;
        if let Some(agent) = self.agent {
            agent.serving.drain(deadline).await;
            agent.running.drain(deadline).await;
        }
    }
}

impl Agent {
    async fn start(name: &str, data_dir: &Path, world: World) -> Result<Self> {
        let args = AgentArgs::defaults()?;
        let mut config = args.config()?;
        config.data_dir = Some(data_dir.join("agent"));
        config.node_name = Some(name.to_owned());
        if let Some(history) = &mut config.usage_history {
            history.standalone = false;
        }
        let agent = config.build(world)?;
        let server = match args.http(PAGES).bind().await {
            Err(error) if is_taken(&error) => {
                let elsewhere = SocketAddr::new(PAGES.ip(), 0);
                args.http(elsewhere).bind().await?
            }
            server => server?,
        };
        let pages = server.address();
        let running = agent.spawn().context("cannot start the agent's threads")?;
        let serving = server.spawn(running.view());
        Ok(Self {
            running,
            serving,
            pages,
        })
    }
}

fn is_taken(error: &http::BindError) -> bool {
    matches!(error, http::BindError::Bind(plimsoll_serving::BindError::Listen { source, .. })
        if source.kind() == std::io::ErrorKind::AddrInUse)
}
