//! The whole room on a temporary tree, with engines that are well, late, silent or mad.

#![expect(
    clippy::unwrap_used,
    reason = "a test says by panicking that something is wrong"
)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plimsoll_containers::runtime::Endpoint;
use plimsoll_containers::{Config, ContainerEvent, Handle, Namespace};
use plimsoll_host::cgroup::Hierarchies;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(60);

fn id(n: usize) -> String {
    format!("{n:064}")
}

/// A Docker that knows the ids it is told of.
#[derive(Clone, Default)]
struct Engine {
    running: Arc<Mutex<HashSet<String>>>,
    ended: Arc<Mutex<HashSet<String>>>,
    inspects: Arc<Mutex<usize>>,
}

impl Engine {
    fn run(&self, n: usize) {
        self.running.lock().unwrap().insert(id(n));
    }

    fn end(&self, n: usize) {
        self.running.lock().unwrap().remove(&id(n));
        self.ended.lock().unwrap().insert(id(n));
    }

    fn answer(&self, path: &str) -> Option<String> {
        let running = self.running.lock().unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            ["", "info"] => Some(r#"{"DockerRootDir":"/d","Driver":"overlay2"}"#.to_owned()),
            ["", "version"] => Some(r#"{"Version":"1"}"#.to_owned()),
            ["", "containers", "json"] => {
                let rows: Vec<String> = running
                    .iter()
                    .map(|id| format!(r#"{{"Id":"{id}"}}"#))
                    .collect();
                Some(format!("[{}]", rows.join(",")))
            }
            ["", "containers", id, "json"] => {
                *self.inspects.lock().unwrap() += 1;
                let is_running = running.contains(*id);
                let is_known = is_running || self.ended.lock().unwrap().contains(*id);
                let state = format!(r#"{{"Running":{is_running},"Pid":1,"ExitCode":5}}"#);
                is_known.then(|| {
                    format!(
                        r#"{{"Id":"{id}","Name":"/n","State":{state},"Config":{{"Image":"i"}}}}"#
                    )
                })
            }
            _ => None,
        }
    }

    async fn serve(self, listener: UnixListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let engine = self.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&request[..read]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or("").to_owned();
                if path.starts_with("/events") {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                    std::future::pending::<()>().await;
                }
                let (status, body) = match engine.answer(&path) {
                    Some(body) => ("200 OK", body),
                    None => ("404 Not Found", String::new()),
                };
                let length = body.len();
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    }
}

struct Rig {
    tokio: Runtime,
    dir: tempfile::TempDir,
    handle: Option<Handle>,
    changes: Receiver<ContainerEvent>,
    heard: Vec<String>,
}

impl Rig {
    fn new(
        endpoints: impl FnOnce(&Path) -> Vec<Endpoint>,
        prepare: impl FnOnce(&Runtime, &Path),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("cgroup")).unwrap();
        let tokio = Runtime::new().unwrap();
        prepare(&tokio, dir.path());
        let trees = Hierarchies::v2(dir.path().join("cgroup"));
        let mut config = Config::new(trees);
        config.runtimes = endpoints(dir.path());
        let built = config.build().unwrap();
        let (handle, changes) = built.spawn(tokio.handle()).unwrap();
        Self {
            tokio,
            dir,
            handle: Some(handle),
            changes,
            heard: Vec::new(),
        }
    }

    fn cgroup(&self, n: usize) -> PathBuf {
        self.dir
            .path()
            .join("cgroup")
            .join(format!("docker-{}.scope", id(n)))
    }

    fn make(&self, n: usize) {
        std::fs::create_dir(self.cgroup(n)).unwrap();
    }

    /// Listens until something was said.
    #[track_caller]
    fn hear(&mut self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.heard.iter().any(|heard| heard == wanted) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(change) = self.changes.recv_timeout(left) else {
                panic!("never heard {wanted:?} in {:?}", self.heard);
            };
            self.heard.push(words(&change));
        }
    }

    /// Waits for a figure that another thread counts.
    #[track_caller]
    fn until(&self, reached: impl Fn(&Handle) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !reached(self.handle.as_ref().unwrap()) {
            assert!(Instant::now() < deadline, "never reached");
            std::thread::yield_now();
        }
    }

    fn end(mut self) {
        let handle = self.handle.take().unwrap();
        assert!(self.tokio.block_on(handle.shutdown(PATIENCE)));
        // The channel is closed: nothing speaks any more.
        while self.changes.recv_timeout(PATIENCE).is_ok() {}
    }
}

fn words(change: &ContainerEvent) -> String {
    let short = |path: &str| {
        let digits = path
            .trim_start_matches("/docker-")
            .trim_end_matches(".scope");
        digits.trim_start_matches('0').to_owned()
    };
    match change {
        ContainerEvent::Appeared { path, .. } => format!("appeared {}", short(path)),
        ContainerEvent::NoRuntime { path } => format!("unclaimed {}", short(path)),
        ContainerEvent::Identified { path, identity } => {
            format!("{} {}", identity.namespace.as_str(), short(path))
        }
        ContainerEvent::Vanished { path, exit_code } => {
            format!("vanished {} {exit_code:?}", short(path))
        }
    }
}

fn docker(dir: &Path) -> Vec<Endpoint> {
    vec![Endpoint::Docker {
        socket: dir.join("docker"),
    }]
}

fn serve(engine: &Engine) -> impl FnOnce(&Runtime, &Path) {
    let engine = engine.clone();
    move |tokio, dir| {
        let _guard = tokio.enter();
        let listener = UnixListener::bind(dir.join("docker")).unwrap();
        tokio.spawn(engine.serve(listener));
    }
}

#[test]
fn named_and_ended() {
    let engine = Engine::default();
    let mut rig = Rig::new(docker, serve(&engine));
    // The cgroup is there before the engine admits to the container.
    rig.make(1);
    rig.hear("appeared 1");
    engine.run(1);
    rig.hear("docker 1");
    engine.end(1);
    std::fs::remove_dir(rig.cgroup(1)).unwrap();
    rig.hear("vanished 1 Some(5)");
    rig.end();
}

#[test]
fn an_engine_that_comes_late_is_asked_for_the_list_first() {
    let engine = Engine::default();
    engine.run(7);
    let mut rig = Rig::new(docker, |_, _| ());
    (1..=40).for_each(|n| rig.make(n));
    rig.hear("appeared 40");
    serve(&engine)(&rig.tokio, rig.dir.path());
    rig.hear("docker 7");
    rig.until(|handle| handle.counters().runtimes[0].lists.load(Relaxed) > 0);
    // Strangers cost a list, not a question each.
    assert!(*engine.inspects.lock().unwrap() < 40);
    rig.end();
}

#[test]
fn a_silent_engine_costs_the_other_nothing() {
    let podman = Engine::default();
    podman.run(1);
    let endpoints = |dir: &Path| {
        let socket = dir.join("silent");
        [
            docker(dir),
            vec![
                Endpoint::Podman {
                    socket: dir.join("podman"),
                },
                Endpoint::Cri { socket },
            ],
        ]
        .concat()
    };
    let mut silent = Vec::new();
    let mut rig = Rig::new(endpoints, |tokio, dir| {
        let _guard = tokio.enter();
        tokio.spawn(
            podman
                .clone()
                .serve(UnixListener::bind(dir.join("podman")).unwrap()),
        );
        // Connections are taken by the kernel and never answered.
        silent.push(UnixListener::bind(dir.join("docker")).unwrap());
        silent.push(UnixListener::bind(dir.join("silent")).unwrap());
    });
    rig.make(1);
    rig.hear("podman 1");
    // The silent one was not waited for: the deadline of its first call has not passed yet.
    let counters = rig.handle.as_ref().unwrap().counters();
    assert_eq!(counters.runtimes[0].timeouts.load(Relaxed), 0);
    rig.make(2);
    rig.hear("unclaimed 2");
    rig.until(|handle| handle.counters().runtimes[2].timeouts.load(Relaxed) > 0);
    rig.end();
}

#[test]
fn mad_engines_are_counted_and_survived() {
    let endpoints = |dir: &Path| {
        let socket = dir.join("docker");
        let namespace = "k8s.io".to_owned();
        vec![
            Endpoint::Docker {
                socket: socket.clone(),
            },
            Endpoint::Containerd {
                socket: socket.clone(),
                namespace,
            },
            Endpoint::Cri { socket },
        ]
    };
    let mut rig = Rig::new(endpoints, |tokio, dir| {
        let _guard = tokio.enter();
        let listener = UnixListener::bind(dir.join("docker")).unwrap();
        tokio.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&[0x9c; 256]).await;
            }
        });
    });
    rig.until(|handle| {
        let runtimes = &handle.counters().runtimes;
        runtimes
            .iter()
            .all(|runtime| runtime.errors.load(Relaxed) > 0)
    });
    rig.make(1);
    rig.hear("appeared 1");
    let handle = rig.handle.as_ref().unwrap();
    assert!(
        rig.tokio
            .block_on(handle.engine(Namespace::Docker))
            .is_err()
    );
    assert!(
        rig.tokio
            .block_on(handle.engine(Namespace::Podman))
            .unwrap()
            .is_none()
    );
    rig.end();
}
