//! Reports what the node uses.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use plimsoll_api::node_metric as api;
use plimsoll_client::explain;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_host::ReadBuf;
use plimsoll_host::machine::NodeNumaInfo;
use plimsoll_predict::Amount;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::live::{Config, Counters, Sources, blocking};
use super::node_metric::{self, Input};
use super::schedule::{ReportKind, ReportSchedule, interval};
use super::upsert::{MANAGER, objects};
use super::usage_source::UsageSource;
use crate::states::ClusterState;
use plimsoll_history::metrics::{NODE_CPU_USAGE, NODE_MEMORY_USAGE};

/// How often usage is looked at to see whether it has moved.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After a start the first report waits this long for the pod list: one without them would
/// take back what was lent of their requests.
const PODS_WITHIN: Duration = Duration::from_secs(30);

pub struct NodeMetricReporter {
    api: Api<DynamicObject>,
    name: String,
    sources: Sources,
    schedule: ReportSchedule,
    counters: Arc<Counters>,
}

impl NodeMetricReporter {
    pub fn new(
        config: &Config,
        client: kube::Client,
        sources: &Sources,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            api: objects(client, api::GROUP, api::VERSION, api::KIND, api::PLURAL),
            name: config.name.clone(),
            sources: sources.clone(),
            schedule: ReportSchedule::new(config.early),
            counters: Arc::clone(counters),
        }
    }

    /// Runs until stopped.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let patience = Instant::now() + PODS_WITHIN;
        let mut asked: Option<Arc<api::CollectPolicy>> = None;
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = ticks.tick() => {}
            }
            let cluster = self.sources.cluster_state.current();
            // The manager creates the object; until then nothing is reported.
            let Some(collect) = cluster.collect_policy.clone() else {
                continue;
            };
            if cluster.pods.is_none() && Instant::now() < patience {
                continue;
            }
            // Another object, or another wish: an object without a report makes the manager take back what is lent.
            if !asked.is_some_and(|before| Arc::ptr_eq(&before, &collect)) {
                self.schedule.reset();
            }
            asked = Some(Arc::clone(&collect));
            let window = node_metric::window(&collect);
            let (figures, now) = (Arc::clone(&self.sources.figures), self.sources.now());
            let usage = blocking(move || usage(&*figures, window, now)).await;
            let Some(usage) = usage.flatten() else {
                continue;
            };
            let now = Instant::now();
            let capacity = capacity(&cluster);
            let Some(due) = self.schedule.due(now, interval(&collect), usage, capacity) else {
                continue;
            };
            self.report(cluster, due, usage, now).await;
        }
    }

    async fn report(
        &mut self,
        cluster: ClusterState,
        due: ReportKind,
        usage: Amount,
        now: Instant,
    ) {
        let sources = self.sources.clone();
        let status = blocking(move || {
            let numa_nodes = NodeNumaInfo::read(&sources.root, &mut ReadBuf::default());
            let input = Input {
                cluster: &cluster,
                figures: &*sources.figures,
                numa_nodes: numa_nodes.map_or(0, |numa| numa.nodes.len()),
                gpus: &sources.figures.gpus(),
                now: sources.now(),
            };
            node_metric::status(&input)
        });
        let Some(status) = status.await.flatten() else {
            return;
        };
        let sending = &self.counters.sending;
        match sending.during(self.send(json!(status))).await {
            Ok(()) => {
                self.counters.reports.add();
                if due == ReportKind::Early {
                    self.counters.early.add();
                }
                sending.over();
                self.schedule.reported(now, usage);
            }
            Err(kube::Error::Api(gone)) if gone.code == 404 => {
                self.counters.absent.add();
                tracing::debug!(node = self.name, "there is no NodeMetric to report to");
            }
            Err(error) => {
                self.counters.failures.add();
                sending.failed(explain(&error));
            }
        }
    }

    /// Replaced as a whole, whatever its version: nobody else writes it.
    async fn send(&self, status: Value) -> Result<(), kube::Error> {
        let patch = json!([{"op": "add", "path": "/status", "value": status}]);
        let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.api
            .patch_status(&self.name, &params, &Patch::Json::<()>(patch))
            .await?;
        Ok(())
    }
}

fn usage(figures: &dyn UsageSource, window: Duration, now: Timestamp) -> Option<Amount> {
    Some(Amount {
        cpu: figures.summary(&NODE_CPU_USAGE.of(&[]), window, now)?.avg,
        memory: figures
            .summary(&NODE_MEMORY_USAGE.of(&[]), window, now)?
            .avg,
    })
}

fn capacity(cluster: &ClusterState) -> Amount {
    let of = |name: &str| {
        let amount = cluster.node.as_ref()?.capacity.get(name)?;
        Some(amount.nanos() as f64 / 1e9)
    };
    Amount {
        cpu: of("cpu").unwrap_or(0.0),
        memory: of("memory").unwrap_or(0.0),
    }
}
