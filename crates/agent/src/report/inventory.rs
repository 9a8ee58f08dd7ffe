//! Keeps the device object.

use std::time::Duration;

use kube::api::Api;
use kube::core::DynamicObject;
use plimsoll_ground::clients::explain;
use plimsoll_ground::shutdown::Shutdown;
use plimsoll_host::gpu::Device as Gpu;
use serde_json::Value;
use tokio::time::Instant;

use super::device;
use super::live::{Config, Sources};
use super::send::{Wanted, keep, objects};

const LOOK_EVERY: Duration = Duration::from_secs(3);
/// What others may have done to the object is looked at this often.
const REPAIR: Duration = Duration::from_secs(300);

struct WantedDevice<'a> {
    object: Value,
    gpus: &'a [Gpu],
}

impl Wanted for WantedDevice<'_> {
    fn object(&self) -> Option<Value> {
        (!self.gpus.is_empty()).then(|| self.object.clone())
    }

    fn merged(&self, present: &Value) -> Option<Value> {
        device::merged(present, &self.object)
    }
}

pub struct Inventory {
    api: Api<DynamicObject>,
    name: String,
    sources: Sources,
}

impl Inventory {
    pub fn new(config: &Config, client: kube::Client, sources: &Sources) -> Self {
        Self {
            api: objects(
                client,
                device::GROUP,
                device::VERSION,
                device::KIND,
                device::PLURAL,
            ),
            name: config.name.clone(),
            sources: sources.clone(),
        }
    }

    /// Until told to stop.
    pub async fn run(self, shutdown: Shutdown) {
        let mut kept: Option<(Vec<Gpu>, Instant)> = None;
        let mut failing = false;
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = ticks.tick() => {}
            }
            let Some(node) = self.sources.board.now().node else {
                continue;
            };
            let gpus = self.sources.figures.gpus();
            let fresh = kept
                .as_ref()
                .is_some_and(|(before, at)| *before == gpus && at.elapsed() < REPAIR);
            if fresh {
                continue;
            }
            let wanted = WantedDevice {
                object: device::device(&self.name, &node.uid, &gpus, self.sources.now()),
                gpus: &gpus,
            };
            match keep(&self.api, &self.name, &wanted).await {
                Ok(_) => {
                    failing = false;
                    kept = Some((gpus, Instant::now()));
                }
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    let trouble = explain(&error);
                    tracing::warn!(trouble, "cannot tell which devices there are, trying again");
                }
                Err(_) => {}
            }
        }
    }
}
