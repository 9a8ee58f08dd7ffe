//! The nodes: registered, and kept alive.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use parking_lot::Mutex;
use plimsoll_api::node_metric;
use plimsoll_client::explain;
use plimsoll_client::shutdown::Shutdown;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::nodes::{self, Size};
use crate::pages::Pages;
use crate::{Config, SIMULATED};

/// Requests at the same time.
const PARALLEL: usize = 16;
/// Every second some send their heartbeat: each node once in so many seconds …
const BEAT_SECONDS: u32 = 10;
/// … its status, which says nothing new, once in so many …
const STATUS_SECONDS: u32 = 300;
/// … and what it uses once in so many.
const REPORT_SECONDS: u32 = 60;
/// Trouble that goes on is told once so often.
const TELL_EVERY: Duration = Duration::from_secs(60);
pub const MANAGER: &str = "plimsoll-simulate";

pub struct Herd {
    count: u32,
    size: Size,
    clock: fn() -> Timestamp,
    /// The port of the nodes' pages.
    port: Option<u16>,
    nodes: Api<Node>,
    leases: Api<Lease>,
    /// Where reports come from, and where they go.
    reports: Option<(Pages, Api<DynamicObject>)>,
    /// Those whose report has been taken: the others try with every heartbeat.
    reported: Mutex<FxHashSet<u32>>,
    told: Option<Instant>,
}

impl Herd {
    pub fn new(config: &Config, client: kube::Client) -> Self {
        Self {
            count: config.nodes,
            size: config.size.clone(),
            clock: config.clock,
            port: config.pages.as_ref().map(Pages::port),
            nodes: Api::all(client.clone()),
            leases: Api::namespaced(client.clone(), nodes::LEASES),
            reports: config
                .pages
                .clone()
                .filter(|_| config.reports)
                .map(|pages| {
                    let kind = GroupVersionKind::gvk(
                        node_metric::GROUP,
                        node_metric::VERSION,
                        node_metric::KIND,
                    );
                    let kind = ApiResource::from_gvk_with_plural(&kind, node_metric::PLURAL);
                    (pages, Api::all_with(client, &kind))
                }),
            reported: Mutex::default(),
            told: None,
        }
    }

    /// Makes the nodes that are missing. Those of an earlier run that are too many stay, and are not ready.
    pub async fn register(&self) -> Result<(), kube::Error> {
        let labelled = ListParams::default().labels(SIMULATED);
        let found = self.nodes.list(&labelled).await?;
        let mut found: FxHashMap<String, Node> = found
            .into_iter()
            .filter_map(|node| Some((node.metadata.name.clone()?, node)))
            .collect();
        let wanted: Vec<(u32, Option<Node>)> = (1..=self.count)
            .map(|index| (index, found.remove(&nodes::name(index))))
            .collect();
        let left = found.into_iter().filter(|(_, node)| nodes::is_ready(node));
        stream::iter(left)
            .map(|(name, _)| async move {
                let patch = nodes::turn(false, (self.clock)());
                self.patch_status(&name, patch).await
            })
            .buffer_unordered(PARALLEL)
            .try_collect::<Vec<Node>>()
            .await?;
        stream::iter(wanted)
            .map(|(index, found)| self.enter(index, found))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await
    }

    async fn enter(&self, index: u32, found: Option<Node>) -> Result<(), kube::Error> {
        let now = (self.clock)();
        let name = nodes::name(index);
        let node = match found {
            Some(node) if nodes::is_ready(&node) => self.locate(node).await?,
            Some(node) => {
                self.patch_status(&name, nodes::turn(true, now)).await?;
                self.locate(node).await?
            }
            None => {
                let node = nodes::node(index, &self.size, self.port, now);
                let node = node.map_err(kube::Error::SerdeError)?;
                self.nodes.create(&posting(), &node).await?
            }
        };
        let uid = node.metadata.uid.unwrap_or_default();
        let lease = nodes::lease(&name, &uid, now).map_err(kube::Error::SerdeError)?;
        match self.leases.create(&posting(), &lease).await {
            Err(error) if is(&error, 409) => {
                let renewal = Patch::Merge(nodes::renewal(now));
                self.leases.patch(&name, &patching(), &renewal).await?;
            }
            created => drop(created?),
        }
        Ok(())
    }

    /// Pages are on another port in each run.
    async fn locate(&self, node: Node) -> Result<Node, kube::Error> {
        let Some(port) = self.port.filter(|port| nodes::port(&node) != Some(*port)) else {
            return Ok(node);
        };
        let name = node.metadata.name.clone().unwrap_or_default();
        let annotation = Patch::Merge(nodes::annotation(&name));
        self.nodes.patch(&name, &patching(), &annotation).await?;
        self.patch_status(&name, nodes::whereabouts(port)).await
    }

    /// Heartbeats, until told to stop.
    pub async fn live(mut self, shutdown: Shutdown) {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut second = 0;
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = seconds.tick() => {}
            }
            second = (second + 1) % STATUS_SECONDS;
            let mut beats = stream::iter(due(self.count, second))
                .map(|(index, status)| self.beat(index, status, second))
                .buffer_unordered(PARALLEL);
            let mut trouble = None;
            while let Some(outcome) = beats.next().await {
                if let Err(error) = outcome {
                    trouble = Some(explain(&error));
                }
            }
            drop(beats);
            if let Some(trouble) = trouble
                && self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY)
            {
                self.told = Some(Instant::now());
                tracing::warn!(trouble, "some simulated nodes cannot send their heartbeats");
            }
        }
    }

    async fn beat(&self, index: u32, status: bool, second: u32) -> Result<(), kube::Error> {
        let (name, now) = (nodes::name(index), (self.clock)());
        let renewal = Patch::Merge(nodes::renewal(now));
        match self.leases.patch(&name, &patching(), &renewal).await {
            // Somebody deleted the node: a machine that still runs registers again.
            Err(error) if is(&error, 404) => {
                let found = self.nodes.get_opt(&name).await?;
                return self.enter(index, found).await;
            }
            renewed => drop(renewed?),
        }
        if status {
            self.patch_status(&name, nodes::heartbeat(now)).await?;
        }
        let is_first = !self.reported.lock().contains(&index);
        if is_first || index % REPORT_SECONDS == second % REPORT_SECONDS {
            self.report(index, &name).await?;
        }
        Ok(())
    }

    async fn report(&self, index: u32, name: &str) -> Result<(), kube::Error> {
        let Some((pages, metrics)) = &self.reports else {
            return Ok(());
        };
        let patch = json!([{"op": "add", "path": "/status", "value": pages.report(index)}]);
        let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
        let patch = Patch::Json::<()>(patch);
        match metrics.patch_status(name, &patching(), &patch).await {
            // Nobody has asked for it yet.
            Err(error) if is(&error, 404) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                self.reported.lock().insert(index);
                Ok(())
            }
        }
    }

    async fn patch_status(&self, name: &str, patch: Value) -> Result<Node, kube::Error> {
        let patch = Patch::Strategic(patch);
        self.nodes.patch_status(name, &patching(), &patch).await
    }
}

/// Whose turn it is in this second, and whether with their status.
fn due(count: u32, second: u32) -> impl Iterator<Item = (u32, bool)> {
    (1..=count)
        .filter(move |index| index % BEAT_SECONDS == second % BEAT_SECONDS)
        .map(move |index| (index, index % STATUS_SECONDS == second))
}

fn posting() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

pub fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

pub fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn() {
        let count = 1234;
        let mut beats = vec![0; count as usize + 1];
        let mut statuses = vec![0; count as usize + 1];
        for second in 0..STATUS_SECONDS {
            for (index, status) in due(count, second) {
                beats[index as usize] += 1;
                statuses[index as usize] += u32::from(status);
            }
        }
        assert!(beats[1..].iter().all(|beats| *beats == 30));
        assert!(statuses[1..].iter().all(|statuses| *statuses == 1));
    }
}
