//! Registers the node, updates its status, and renews its lease.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use plimsoll_client::backoff::Backoff;
use plimsoll_client::explain;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Failure, Shutdown, ShutdownTrigger};
use plimsoll_host::Clock;
use plimsoll_waiting::Repeated;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lease::{self, renewed};
use super::node_facts::{Facts, Machine};
use super::object::{NodeReadiness, node};
use super::plan::{Step, plan};
use super::pod_finalizer;

/// Interval of heartbeats and status updates.
const EVERY: Duration = Duration::from_secs(10);
/// The first intervals are shorter: the agent learns much in its first moments.
const FIRST: Duration = Duration::from_secs(1);
const MANAGER: &str = "plimsoll-agent";

#[derive(Debug)]
pub struct Config {
    /// Of the node.
    pub name: String,
}

/// Put together, not started.
pub struct NodeRegistrar {
    name: String,
    client: kube::Client,
    nodes: Api<Node>,
    leases: Api<Lease>,
    machine: Arc<Mutex<Machine>>,
    clock: Clock,
    /// The last one written: with it the next renewal is one request.
    lease: Option<Lease>,
}

impl std::fmt::Debug for NodeRegistrar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeRegistrar")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The node is being kept.
#[derive(Debug)]
pub struct Running {
    stopper: ShutdownTrigger,
    ready: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Config {
    pub fn build(self, client: kube::Client, clock: Clock, machine: Machine) -> NodeRegistrar {
        NodeRegistrar {
            name: self.name,
            nodes: Api::all(client.clone()),
            leases: Api::namespaced(client.clone(), lease::NAMESPACE),
            client,
            machine: Arc::new(Mutex::new(machine)),
            clock,
            lease: None,
        }
    }
}

impl Running {
    /// Waits until the cluster says that the node is Ready.
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

    /// Ends the heartbeats and says in the cluster that the node is not ready any more.
    pub async fn drain(self, deadline: Duration) {
        self.stopper.stop();
        if tokio::time::timeout(deadline, self.task).await.is_err() {
            tracing::warn!("timeout while setting the node to NotReady");
        }
    }
}

impl NodeRegistrar {
    pub fn spawn(self) -> Running {
        let (stopper, shutdown) = shutdown::channel();
        let (sender, ready) = watch::channel(false);
        let client = self.client.clone();
        let letting_go =
            pod_finalizer::finalize_deleted_pods(client, self.name.clone(), shutdown.clone());
        shutdown.keep("letting go of pods", letting_go);
        Running {
            stopper,
            ready,
            task: shutdown.keep("keeping the node", self.run(shutdown.clone(), sender)),
        }
    }

    async fn run(mut self, shutdown: Shutdown, ready: watch::Sender<bool>) {
        let mut backoff = Backoff::default();
        let mut pause = FIRST;
        let mut trouble = Repeated::default();
        loop {
            let wait = match self.round(NodeReadiness::Running).await {
                Ok(()) => {
                    ready.send_replace(true);
                    if let Some(over) = trouble.well() {
                        let seconds = over.lasted.as_secs();
                        tracing::info!(
                            node = self.name,
                            seconds,
                            "updating the node object succeeds again"
                        );
                    }
                    std::mem::replace(&mut pause, EVERY)
                }
                Err(error) => {
                    if let Some(said) = trouble.failed() {
                        let (trouble, times) = (explain(&error), said.times);
                        tracing::warn!(
                            node = self.name,
                            trouble,
                            times,
                            "cannot update the node object, retrying"
                        );
                    }
                    backoff.next_wait().min(EVERY)
                }
            };
            tokio::select! {
                () = shutdown.begins() => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        if let Err(error) = self.round(NodeReadiness::Stopped).await {
            let trouble = explain(&error);
            tracing::warn!(node = self.name, trouble, "cannot set the node to NotReady");
        }
    }

    /// Updates the Node object and renews the lease.
    async fn round(&mut self, readiness: NodeReadiness) -> Result<(), kube::Error> {
        let Some(facts) = self.facts().await else {
            return Ok(());
        };
        let now = self.now();
        let mut current = self.nodes.get_opt(&self.name).await?;
        if current.is_none() && readiness == NodeReadiness::Stopped {
            return Ok(());
        }
        let wanted = node(&self.name, &facts, readiness, now);
        for step in plan(current.as_ref(), wanted, now) {
            current = Some(self.take(step).await?);
        }
        match current {
            Some(node) if readiness == NodeReadiness::Running => self.renew(&node, now).await,
            _ => Ok(()),
        }
    }

    /// Files are read beside the network; `None`: reading ended in a panic, which is in the log.
    async fn facts(&self) -> Option<Facts> {
        let machine = Arc::clone(&self.machine);
        let reading = tokio::task::spawn_blocking(move || machine.lock().facts());
        reading.await.ok()
    }

    fn now(&self) -> Timestamp {
        let nanos = i128::from(self.clock.now().nanos());
        Timestamp::from_nanosecond(nanos).unwrap_or_default()
    }

    async fn take(&self, step: Step) -> Result<Node, kube::Error> {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match step {
            Step::Register(node) => {
                let params = PostParams {
                    field_manager: Some(MANAGER.to_owned()),
                    ..PostParams::default()
                };
                let registered = self.nodes.create(&params, &node).await?;
                tracing::info!(node = self.name, "registered");
                Ok(registered)
            }
            Step::Labels(patch) => {
                let patch = Patch::Merge(patch);
                self.nodes.patch(&self.name, &params, &patch).await
            }
            Step::Status(patch) => {
                let patch = Patch::Strategic(patch);
                self.nodes.patch_status(&self.name, &params, &patch).await
            }
        }
    }

    async fn renew(&mut self, node: &Node, now: Timestamp) -> Result<(), kube::Error> {
        let known = self.lease.take();
        let current = match known {
            Some(lease) => Some(lease),
            None => self.leases.get_opt(&self.name).await?,
        };
        let wanted = renewed(current, node, now);
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let written = match wanted.metadata.resource_version {
            Some(_) => self.leases.replace(&self.name, &params, &wanted).await,
            None => self.leases.create(&params, &wanted).await,
        };
        match written {
            Ok(lease) => {
                self.lease = Some(lease);
                Ok(())
            }
            // Gone, or not as we left it: the next round looks first.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                tracing::debug!(
                    node = self.name,
                    "the node's lease was changed by another client"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
