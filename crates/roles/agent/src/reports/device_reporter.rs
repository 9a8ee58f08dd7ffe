//! Writes the Device object.

use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use kube::core::DynamicObject;
use plimsoll_client::explain;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_host::ReadBuf;
use plimsoll_host::machine::{RdmaDevice, rdma_cards};
use plimsoll_waiting::Waiting;
use serde_json::Value;
use tokio::time::Instant;

use super::device::{self, DeviceInventory};
use super::live::{Config, Counters, Devices, Sources, blocking};
use super::upsert::{ADVICE, DesiredObject, objects, owned, upsert};
use super::xpu::{self, Xpu};

const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Interval of reading the PCI bus and the XPU device files.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of comparing with the object in the cluster.
const RESYNC_INTERVAL: Duration = Duration::from_secs(300);

struct WantedDevice<'a> {
    object: Value,
    found: &'a DeviceInventory,
    name: &'a str,
    uid: &'a str,
}

impl DesiredObject for WantedDevice<'_> {
    fn object(&self) -> Option<Value> {
        (!self.found.is_empty()).then(|| self.object.clone())
    }

    fn merged(&self, present: &Value) -> Option<Value> {
        let merged = device::merged(present, &self.object);
        owned(present, merged, self.name, self.uid)
    }
}

pub struct DeviceReporter {
    api: Api<DynamicObject>,
    name: String,
    wanted: Devices,
    sources: Sources,
    counters: Arc<Counters>,
    looked: Option<Instant>,
    cards: Vec<RdmaDevice>,
    xpus: Vec<Xpu>,
    /// What was last wrong with the files of others, so that it is said once.
    complained: Vec<String>,
}

impl DeviceReporter {
    pub fn new(
        config: &Config,
        client: kube::Client,
        sources: &Sources,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            api: objects(
                client,
                device::GROUP,
                device::VERSION,
                device::KIND,
                device::PLURAL,
            ),
            name: config.name.clone(),
            wanted: config.devices.clone(),
            sources: sources.clone(),
            counters: Arc::clone(counters),
            looked: None,
            cards: Vec::new(),
            xpus: Vec::new(),
            complained: Vec::new(),
        }
    }

    /// Runs until stopped.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut kept: Option<(DeviceInventory, Box<str>, Instant)> = None;
        let waiting = Waiting::new("the cluster to take which devices there are", ADVICE);
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = ticks.tick() => {}
            }
            let Some(node) = self.sources.cluster_state.current().node else {
                continue;
            };
            let found = self.found().await;
            let fresh = kept.as_ref().is_some_and(|(before, uid, at)| {
                *before == found && *uid == node.uid && at.elapsed() < RESYNC_INTERVAL
            });
            if fresh {
                continue;
            }
            let wanted = WantedDevice {
                object: device::device(&self.name, &node.uid, &found, self.sources.now()),
                found: &found,
                name: &self.name,
                uid: &node.uid,
            };
            let outcome = waiting.during(upsert(&self.api, &self.name, &wanted)).await;
            self.counters.devices.count(&outcome);
            match outcome {
                Ok(_) => {
                    waiting.over();
                    kept = Some((found, node.uid.clone(), Instant::now()));
                }
                Err(error) => waiting.failed(explain(&error)),
            }
        }
    }

    async fn found(&mut self) -> DeviceInventory {
        if self
            .looked
            .is_none_or(|looked| looked.elapsed() >= REFRESH_INTERVAL)
        {
            self.look().await;
            self.looked = Some(Instant::now());
        }
        let wants_gpus = self.wanted.gpus && !self.wanted.only_xpu_files;
        DeviceInventory {
            gpus: match wants_gpus {
                true => self.sources.figures.gpus(),
                false => Vec::new(),
            },
            xpus: self.xpus.clone(),
            rdma: self.cards.clone(),
        }
    }

    /// At the bus, and at what others tell; what cannot be read stays as it was.
    async fn look(&mut self) {
        let (root, wanted) = (self.sources.root.clone(), self.wanted.clone());
        let looked = blocking(move || {
            let cards = wanted
                .rdma
                .then(|| rdma_cards(&root, &mut ReadBuf::default()));
            let xpus = wanted.gpus.then(|| xpu::read(&root.path(&wanted.xpu_dir)));
            (cards, xpus.unwrap_or_default())
        });
        let Some((cards, (xpus, problems))) = looked.await else {
            return;
        };
        match cards {
            Some(Ok(cards)) => self.cards = cards,
            Some(Err(error)) => {
                tracing::debug!(%error, "cannot read RDMA devices");
            }
            None => {}
        }
        self.xpus = xpus;
        if problems != self.complained {
            for problem in &problems {
                tracing::warn!(problem, "cannot parse an XPU device file");
            }
            self.complained = problems;
        }
    }
}
