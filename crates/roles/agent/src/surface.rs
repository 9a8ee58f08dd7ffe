//! The agent as its server sees it.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::Namespace;
use plimsoll_containers::runtime::cri::ImageFs;
use plimsoll_containers::runtime::docker::Status;
use plimsoll_observe::Observer;
use plimsoll_observe::exposition::{Dialect, Gathered};
use plimsoll_observe::needs::ReadPlan;
use plimsoll_observe::rest::Versions;

use crate::View;
use crate::http::{Half, Surface};

/// Pages that show a runtime's own words wait no longer for them.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(5);
/// A summary goes without the runtime's disk usage rather than wait longer.
const IMAGE_FS_PATIENCE: Duration = Duration::from_secs(2);

impl Surface for View {
    fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    fn versions(&self) -> Versions {
        let version = self.version(Dialect::Cadvisor);
        Versions {
            kernel: version.kernel,
            container_os: version.os,
            docker: version.docker,
            docker_api: String::new(),
            cadvisor: version.program,
        }
    }

    fn node_name(&self) -> String {
        self.node_name.clone().unwrap_or_else(|| {
            let name = rustix::system::uname();
            name.nodename().to_string_lossy().to_lowercase()
        })
    }

    fn metrics_page(&self, dialect: Dialect, only: Option<Namespace>) -> Result<Gathered, String> {
        Ok(self.page(dialect, only))
    }

    fn children(&self, container: &str) -> Vec<String> {
        self.directories_below(container)
    }

    fn self_metrics(&self) -> Gathered {
        self.own_families().into()
    }

    fn koordlet_metrics(&self, half: Half) -> Gathered {
        let mut page = Gathered::default();
        self.koordlet(&[half], &mut page);
        page
    }

    fn ready(&self) -> Result<(), String> {
        self.first_round_over()
    }

    fn reporting(&self) -> Option<bool> {
        self.tells_cluster()
    }

    fn validate(&self) -> String {
        self.report()
    }

    fn sources(&self, container: &str) -> Option<Vec<String>> {
        self.files_of(container)
    }

    fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    fn remembered(&self, metric: &str, window: Duration) -> Option<String> {
        let memory = self.memory()?;
        let now = self.observer.clock.now();
        let now = jiff::Timestamp::from_nanosecond(i128::from(now.nanos())).unwrap_or_default();
        let series: serde_json::Map<String, serde_json::Value> = memory
            .listing(metric, window, now)
            .into_iter()
            .map(|(key, of)| {
                let figures = serde_json::json!({
                    "avg": of.avg, "last": of.last, "p50": of.p50, "p90": of.p90, "p95": of.p95,
                    "p99": of.p99, "count": of.count, "span_seconds": of.span.as_secs_f64(),
                });
                (key.to_string(), figures)
            })
            .collect();
        Some(serde_json::Value::Object(series).to_string())
    }

    fn image_fs(&self) -> Option<ImageFs> {
        let asking = tokio::time::timeout(IMAGE_FS_PATIENCE, self.containers.image_fs());
        self.tokio.block_on(async { asking.await.ok().flatten() })
    }

    fn runtime(&self, namespace: Namespace) -> Result<Vec<(String, String)>, String> {
        let asking = async {
            let engine = self.containers.engine(namespace).await;
            let engine = engine.map_err(|error| error.to_string())?;
            let Some(engine) = engine else {
                return Err(format!("no {} is configured", namespace.as_str()));
            };
            engine.status().await.map_err(|error| error.to_string())
        };
        let status = self
            .tokio
            .block_on(async { tokio::time::timeout(RUNTIME_PATIENCE, asking).await });
        match status {
            Ok(status) => status.map(|s| rows(&s)),
            Err(_) => Err(format!("{} did not answer in time", namespace.as_str())),
        }
    }
}

fn rows(status: &Status) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = [
        ("Version", status.version.clone()),
        ("API version", status.api_version.clone()),
        ("Kernel", status.kernel_version.clone()),
        ("OS", status.os.clone()),
        ("Host", status.hostname.clone()),
        ("Root directory", status.root_dir.clone()),
        ("Storage driver", status.driver.clone()),
        ("Images", status.images.to_string()),
        ("Containers", status.containers.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    rows.extend(status.driver_status.clone());
    rows
}
