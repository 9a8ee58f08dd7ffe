//! The server against a made-up machine: asked directly, and over real connections.

mod doors;
mod live;
mod pages;
mod slow;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::exposition::{Dialect, Gathered};
use crate::rest::Versions;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::ShutdownTrigger;
use plimsoll_containers::{Health, Identity, Namespace};
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::{Clock, HostRoot, Timestamp};
use plimsoll_observe::events::{Detail, Event, EventStore};
use plimsoll_observe::machine::{MachineState, StaticInfo, Storage};
use plimsoll_observe::needs::ReadPlan;
use plimsoll_observe::oom::OomCounters;
use plimsoll_observe::sampler;
use plimsoll_observe::store::Store;
use plimsoll_observe::{Group, GroupSet, Observer, OnDemandSampler, Sample, events};
use plimsoll_serving as kit;

use super::auth::Auth;
use super::backend::Backend;
use super::counters::Counters;
use super::route::Mounts;
use super::server::Shown;
use super::service::{Door, Limits, ServerState, serve};
use super::{ExtraPage, ExtraRoute, ExtraText, Failure, Query};

const START: i64 = 1_794_778_000;
const SAMPLES: i64 = 90;
const POD: &str = "/kubepods/burstable/pod1";
const ID: &str = "790e9e19c76ae37544b1c082dc4f54fc8ee0b30e2d31b8e05cfec2451a970e12";

#[derive(Debug)]
pub struct Machine {
    observer: Arc<Observer>,
    plan: ReadPlan,
    ready: Result<(), String>,
    /// Of the pages of metrics.
    lines: usize,
}

impl Machine {
    pub fn new() -> Self {
        let clock = Clock::stepped(Timestamp::from_secs(START + SAMPLES));
        let info = MachineInfo {
            num_cores: 2,
            memory_capacity: 1 << 34,
            ..MachineInfo::default()
        };
        let machine = MachineState::new(clock.clone(), StaticInfo::default(), info);
        machine.set_filesystems(
            Vec::new(),
            vec![Storage {
                device: "/dev/vda".to_owned(),
                mount_point: "/".to_owned(),
                labels: vec!["root"],
                uuid: Some("u-1".to_owned()),
                ..Storage::default()
            }],
        );
        let observer = Observer {
            store: Arc::new(Store::new(Duration::from_secs(3600))),
            events: Arc::new(EventStore::new(events::Limits::default())),
            oom: Arc::new(OomCounters::default()),
            machine: Arc::new(machine),
            clock,
            root: HostRoot::new("/"),
            groups: GroupSet::from_flags(None, None).unwrap(),
            is_v2: true,
            on_demand: OnDemandSampler::default(),
        };
        let machine = Self {
            observer: Arc::new(observer),
            plan: sampler::Config::default().plan(),
            ready: Ok(()),
            lines: 20_000,
        };
        for path in ["/", "/kubepods", "/kubepods/burstable", POD, "/system"] {
            machine.add(path, None);
        }
        machine.add(
            &format!("{POD}/{ID}"),
            Some(identity(Namespace::Containerd, ID, ID)),
        );
        machine
    }

    pub fn add(&self, path: &str, identity: Option<Identity>) {
        let container = self.observer.store.insert(path.into());
        let mut state = container.lock();
        state.identity = identity.map(Arc::new);
        state.created = Timestamp::from_secs(START - 100);
        state.spec.has_cpu = true;
        state.spec.has_memory = true;
        state.sampled = true;
        for second in 0..SAMPLES {
            let mut sample = Sample {
                at: Timestamp::from_secs(START + second),
                groups: GroupSet::of(&[Group::Cpu, Group::Memory, Group::DiskIo]),
                ..Sample::default()
            };
            sample.cpu.total_ns = second as u64 * 250_000_000;
            sample.memory.working_set = 1 << 20;
            sample.memory.rss = 4096;
            state.history.push(&mut sample);
            state.derived.add(sample.at, sample.cpu.total_ns, 1 << 20);
            state.latest = sample;
        }
    }

    pub fn event(&self, container: &str, detail: Detail) {
        self.observer.events.add(Event {
            container: container.into(),
            at: Timestamp::from_secs(START),
            detail,
        });
    }
}

pub fn identity(namespace: Namespace, name: &str, id: &str) -> Identity {
    let labels = [
        ("io.kubernetes.container.name", "main"),
        ("io.kubernetes.pod.name", "limited"),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", "1"),
    ];
    Identity {
        namespace,
        id: id.to_owned(),
        aliases: vec![name.to_owned(), id.to_owned()],
        image: "box:1".to_owned(),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        envs: BTreeMap::new(),
        created: None,
        started: None,
        pid: Some(1),
        owns_network: false,
        health: Health::default(),
        writable_layer: None,
        log_dir: None,
    }
}

impl Backend for Machine {
    fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    fn versions(&self) -> Versions {
        Versions {
            cadvisor: "v0.60.6".to_owned(),
            ..Versions::default()
        }
    }

    fn node_name(&self) -> String {
        "node-1".to_owned()
    }

    fn metrics_page(&self, dialect: Dialect, only: Option<Namespace>) -> Result<Gathered, String> {
        let mut page = Gathered::default();
        page.written(format!("# {dialect:?} {only:?}\n").into_bytes())
            .written("x 1\n".repeat(self.lines).into_bytes());
        Ok(page)
    }

    fn self_metrics(&self) -> Gathered {
        let mut page = Gathered::default();
        page.written(b"own 1\n".to_vec());
        page
    }

    fn ready(&self) -> Result<(), String> {
        self.ready.clone()
    }

    fn reporting(&self) -> Option<bool> {
        Some(false)
    }

    fn validate(&self) -> String {
        "all is well\n".to_owned()
    }

    fn sources(&self, container: &str) -> Option<Vec<String>> {
        if container == "/panic" {
            panic!("a defect");
        }
        (container == "/").then(|| vec!["/proc/stat".to_owned(), "/proc/meminfo".to_owned()])
    }

    fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    fn extra_routes(self: Arc<Self>) -> Vec<ExtraRoute> {
        let json = |query: &Query| match query.get("metric") {
            Some(metric) => Ok(format!("[{}]", plimsoll_golang::strconv::quote(metric))),
            None => Err(Failure::bad("which metric?")),
        };
        vec![
            ExtraRoute {
                path: "/debug/extra",
                page: ExtraPage::Json(Box::new(json)),
            },
            ExtraRoute {
                path: "/extra-text",
                page: ExtraPage::Text(Box::new(|query, headers| {
                    Ok(ExtraText {
                        content_type: "text/plain; charset=utf-8",
                        headers: vec![("next-page-token", "t1".to_owned())],
                        body: format!("{:?} {}", query.get("size"), headers.contains_key("accept")),
                    })
                })),
            },
            ExtraRoute {
                path: "/extra-metrics",
                page: ExtraPage::Metrics(Box::new(move || self.self_metrics())),
            },
        ]
    }

    fn runtime(&self, namespace: Namespace) -> Result<Vec<(String, String)>, String> {
        match namespace {
            Namespace::Podman => Ok(vec![("version".to_owned(), "<5>".to_owned())]),
            _ => Err("failed to connect".to_owned()),
        }
    }
}

fn families(counters: &Counters) -> String {
    Gathered::from(counters.families()).to_string()
}

/// A server without sockets.
pub struct Rig {
    pub machine: Arc<Machine>,
    pub shared: Arc<ServerState>,
    pub sockets: Arc<kit::Counters>,
    pub drain: ShutdownTrigger,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(
            Machine::new(),
            Mounts::default(),
            Auth::default(),
            Limits::default(),
        )
    }

    pub fn with(machine: Machine, mounts: Mounts, auth: Auth, limits: Limits) -> Self {
        Self::showing(Shown::Everything, machine, mounts, auth, limits)
    }

    pub fn showing(
        shown: Shown,
        machine: Machine,
        mounts: Mounts,
        auth: Auth,
        limits: Limits,
    ) -> Self {
        let machine = Arc::new(machine);
        let (drain, draining) = shutdown::channel();
        let backend: Arc<dyn Backend> = Arc::clone(&machine) as _;
        let sockets = Arc::<kit::Counters>::default();
        let counters = Arc::new(Counters::new(Arc::clone(&sockets)));
        let door = Door { shown, gate: None };
        let auth = Arc::new(auth);
        let shared = ServerState::new(backend, door, mounts, limits, auth, counters, draining);
        Self {
            machine,
            shared: Arc::new(shared),
            sockets,
            drain,
        }
    }

    pub async fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        self.ask_with(method, target, body, &[]).await
    }

    pub async fn ask_with(
        &self,
        method: &str,
        target: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let reply = serve(Arc::clone(&self.shared), request).await;
        let (head, body) = reply.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
            bytes: body,
        }
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "").await
    }

    pub async fn json(&self, target: &str) -> serde_json::Value {
        let answer = self.get(target).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
        assert_eq!(
            answer.header("content-type"),
            "application/json",
            "{target}"
        );
        serde_json::from_str(&answer.body).unwrap()
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
    pub bytes: Bytes,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}
