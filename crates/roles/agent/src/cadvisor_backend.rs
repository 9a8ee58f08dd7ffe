//! The agent as the backend of the cAdvisor server, and its extra routes.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::ACCEPT;
use plimsoll_actuate::Line;
use plimsoll_cadvisor::exposition::{Dialect, Gathered};
use plimsoll_cadvisor::http::{Backend, ExtraPage, ExtraRoute, ExtraText, Failure, Query};
use plimsoll_cadvisor::rest::Versions;
use plimsoll_cadvisor::validate::{ManagedContainer, ValidateInput};
use plimsoll_cadvisor::version;
use plimsoll_containers::Namespace;
use plimsoll_containers::runtime::cri::ImageFs;
use plimsoll_containers::runtime::docker::Status;
use plimsoll_golang::GoDuration;
use plimsoll_host::cgroup::{Controller, Mode};
use plimsoll_observe::Observer;
use plimsoll_observe::needs::ReadPlan;
use plimsoll_observe::processes::child_cgroups;
use std::sync::atomic::Ordering;

use crate::NodeHandle;
use crate::node_handle::Half;
use crate::protect::audit::Refused;
use crate::protect::control::{Answer, Request};

/// Deadline for the status of a runtime.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(5);
/// Deadline for the runtime's disk usage; the summary then goes without.
const IMAGE_FS_PATIENCE: Duration = Duration::from_secs(2);

/// What `plimsoll qos` shows, for whoever may read debugging pages.
fn protection_pages(view: &Arc<NodeHandle>) -> Vec<ExtraRoute> {
    let page = |path, request: fn(&Query) -> Request| {
        let view = Arc::clone(view);
        let answer = move |query: &Query| {
            let started = view.protection.as_ref().ok_or_else(|| {
                Failure::new(
                    http::StatusCode::NOT_FOUND,
                    "protection is off; see --protect",
                )
            })?;
            let asked = started.protection.ask(request(query));
            match view.tokio.block_on(asked) {
                Answer::Ok(value) => Ok(value.to_string()),
                Answer::Error(text) => Err(Failure::internal(text)),
            }
        };
        ExtraRoute {
            path,
            page: ExtraPage::Json(Box::new(answer)),
        }
    };
    vec![
        page("/protection/status", |_| Request::Status),
        page("/protection/plan", |_| Request::Plan),
        page("/protection/diff", |_| Request::Diff),
        page("/protection/journal", |query| {
            let number = |name: &str| query.get(name)?.parse().ok();
            Request::Journal {
                after: number("after").unwrap_or(0),
                most: number("most")
                    .and_then(|most| usize::try_from(most).ok())
                    .unwrap_or(100),
            }
        }),
    ]
}

/// koordlet's audit page.
fn events_page(view: &Arc<NodeHandle>) -> ExtraRoute {
    let view = Arc::clone(view);
    let answer = move |query: &Query, headers: &HeaderMap| {
        let json = headers
            .get_all(ACCEPT)
            .iter()
            .any(|accept| accept == "application/json");
        view.events(query, json)
    };
    ExtraRoute {
        path: "/events",
        page: ExtraPage::Text(Box::new(answer)),
    }
}

impl NodeHandle {
    fn events(&self, query: &Query, json: bool) -> Result<ExtraText, Failure> {
        let lines: Vec<Line> = match &self.protection {
            None => Vec::new(),
            Some(started) => {
                let request = Request::Journal {
                    after: 0,
                    most: usize::MAX,
                };
                match self.tokio.block_on(started.protection.ask(request)) {
                    Answer::Ok(value) => {
                        serde_json::from_value(value).map_err(Failure::internal)?
                    }
                    Answer::Error(text) => return Err(Failure::internal(text)),
                }
            }
        };
        let Some(readers) = &self.audit else {
            return Err(Failure::internal("events are off"));
        };
        let known = self.cluster_state.current();
        let pods = known.pods.as_deref().unwrap_or_default();
        let asked = (query.get("size"), query.get("pageToken"));
        let now = self.observer.clock.monotonic();
        // It only has to be another one than those of the readers of now.
        let fresh = format!("{:032x}", fastrand::u128(..));
        let page = readers.page(&lines, pods, asked, now, fresh);
        let page = page.map_err(|refused| match refused {
            Refused::TooLarge { .. } => Failure::bad(refused),
            Refused::UnknownToken(_) => {
                Failure::new(http::StatusCode::CONFLICT, refused.to_string())
            }
        })?;
        Ok(match json {
            true => ExtraText {
                content_type: "application/json; charset=utf-8",
                headers: Vec::new(),
                body: serde_json::json!({
                    "NextPageToken": page.next.unwrap_or_default(),
                    "Events": page.events,
                })
                .to_string(),
            },
            false => ExtraText {
                content_type: "text/plain; charset=utf-8",
                headers: page
                    .next
                    .map(|token| ("next-page-token", token))
                    .into_iter()
                    .collect(),
                body: page
                    .events
                    .iter()
                    .filter_map(|event| serde_json::to_string(event).ok())
                    .map(|event| event + "\n")
                    .collect(),
            },
        })
    }

    /// What protection does, in one line.
    fn protection_line(&self) -> String {
        let Some(started) = &self.protection else {
            return "protection: off\n".to_owned();
        };
        let shown = started.protection.shown();
        let gate = match shown.gate.open {
            true => "open".to_owned(),
            false => {
                let waiting = shown.gate.waiting.iter();
                let waiting: Vec<&str> = waiting.map(|wait| wait.source.as_str()).collect();
                match waiting.is_empty() {
                    true => "closed".to_owned(),
                    false => format!("closed, waiting for {}", waiting.join(", ")),
                }
            }
        };
        format!("protection: {}, gate {gate}\n", shown.mode.as_str())
    }
}

impl Backend for NodeHandle {
    fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    fn versions(&self) -> Versions {
        let version = version(&self.observer, Dialect::Cadvisor);
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
        child_cgroups(&self.hierarchies, container)
    }

    fn self_metrics(&self) -> Gathered {
        self.own_families().into()
    }

    fn extra_routes(self: Arc<Self>) -> Vec<ExtraRoute> {
        let protection = protection_pages(&self);
        let koordlet = |path, half| {
            let view = Arc::clone(&self);
            let gather = move || {
                let mut page = Gathered::default();
                view.koordlet(&[half], &mut page);
                page
            };
            ExtraRoute {
                path,
                page: ExtraPage::Metrics(Box::new(gather)),
            }
        };
        let mut routes = vec![
            koordlet("/internal-metrics", Half::Internal),
            koordlet("/external-metrics", Half::External),
            ExtraRoute {
                path: "/debug/history",
                page: {
                    let view = Arc::clone(&self);
                    ExtraPage::Json(Box::new(move |query| view.listing(query)))
                },
            },
            // Its name before.
            ExtraRoute {
                path: "/debug/memory",
                page: ExtraPage::Moved("/debug/history"),
            },
        ];
        routes.extend(protection);
        if self.audit.is_some() {
            routes.push(events_page(&self));
        }
        routes
    }

    fn ready(&self) -> Result<(), String> {
        self.first_round_over()
    }

    fn reporting(&self) -> Option<bool> {
        self.tells_cluster()
    }

    fn details(&self) -> String {
        self.protection_line()
    }

    fn validate(&self) -> String {
        self.validate_input().report()
    }

    fn sources(&self, container: &str) -> Option<Vec<String>> {
        self.files_of(container)
    }

    fn plan(&self) -> &ReadPlan {
        &self.plan
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

impl NodeHandle {
    /// Every series of a metric, as JSON.
    fn listing(&self, query: &Query) -> Result<String, Failure> {
        let metric = query.filled("metric").unwrap_or("node_cpu_usage");
        let window = match query.filled("window") {
            None => Duration::from_secs(300),
            Some(text) => GoDuration::parse(text).map_err(Failure::bad)?.duration(),
        };
        let Some(history) = self.history() else {
            let said = "usage history is off; set --collect-res-used-interval";
            return Err(Failure::new(http::StatusCode::NOT_FOUND, said));
        };
        let now = self.observer.clock.now();
        let now = jiff::Timestamp::from_nanosecond(i128::from(now.nanos())).unwrap_or_default();
        let series: serde_json::Map<String, serde_json::Value> = history
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
        Ok(serde_json::Value::Object(series).to_string())
    }

    fn validate_input(&self) -> ValidateInput {
        let version = version(&self.observer, Dialect::Cadvisor);
        let counters = self.containers.counters();
        let machine = self.observer.machine.info();
        let mounts: Vec<_> = match self.hierarchies.mode() {
            Mode::V2 => {
                let trees = self.hierarchies.trees();
                let tree = trees.first().map(|tree| tree.display().to_string());
                tree.map(|tree| (Controller::Cpu, tree))
                    .into_iter()
                    .collect()
            }
            Mode::V1 | Mode::Hybrid => {
                let all = self.hierarchies.controllers();
                all.map(|(controller, at)| (controller, at.display().to_string()))
                    .collect()
            }
        };
        let containers = self.observer.store.all();
        let containers = containers.iter().map(|container| {
            let identity = container.lock().identity.clone();
            ManagedContainer {
                path: container.path().to_string(),
                namespace: identity.as_ref().map(|known| known.namespace.as_str()),
                aliases: identity.map_or_else(Vec::new, |known| known.aliases.clone()),
            }
        });
        ValidateInput {
            version: version.program,
            os: version.os,
            kernel: version.kernel,
            mode: self.hierarchies.mode(),
            mounts,
            has_kernel_log: self.kernel_log.is_some(),
            runtimes: counters
                .runtimes
                .iter()
                .map(|runtime| (runtime.kind, runtime.up.load(Ordering::Relaxed)))
                .collect(),
            disks: machine
                .disk_map
                .values()
                .map(|disk| (disk.name.clone(), disk.scheduler.clone()))
                .collect(),
            watches: counters.discovery.watches.load(Ordering::Relaxed),
            unwatched: counters.discovery.unwatched.load(Ordering::Relaxed),
            stretch: self.sampling.stretch_milli.load(Ordering::Relaxed),
            groups: self.observer.groups.iter().map(|g| g.name()).collect(),
            containers: containers.collect(),
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
