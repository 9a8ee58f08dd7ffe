//! A small API server: lists and watches of what a test puts into it, which may change while it runs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Runs as long as the guest does.
#[derive(Debug, Clone)]
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// By the plural of their kind.
    kinds: BTreeMap<&'static str, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    /// With the version of their last change.
    objects: BTreeMap<String, (u64, Value)>,
    watched: bool,
}

impl ApiServer {
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("an API server")?;
        let server = Self {
            address: listener.local_addr()?,
            shared: Arc::default(),
        };
        let shared = Arc::clone(&server.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // Whoever hangs up in the middle is none of our business.
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Ok(server)
    }

    /// Makes or changes an object. Kinds of which nothing was ever put are not known (404).
    pub fn put(&self, plural: &'static str, mut object: Value) {
        let mut state = self.shared.lock();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let name = name.to_owned();
        let kind = state.kinds.entry(plural).or_default();
        kind.objects.insert(name, (version, object));
        self.shared.changed.notify_all();
    }

    /// Whether somebody has listed such objects and follows them.
    pub fn is_watched(&self, plural: &str) -> bool {
        let state = self.shared.lock();
        state.kinds.get(plural).is_some_and(|kind| kind.watched)
    }

    pub fn kubeconfig(&self) -> Value {
        let server = format!("http://{}", self.address);
        // Nobody's certificate is checked: the guest has no authorities to check any against.
        let cluster = json!({"server": server, "insecure-skip-tls-verify": true});
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {}}],
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next() {
        let first = first?;
        let mut words = first.split(' ');
        let (method, target) = (words.next(), words.next().unwrap_or_default());
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        // Reports of the agent have bodies, and nobody reads them here.
        if method != Some("GET") {
            out.write_all(
                b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
            )?;
            return Ok(());
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let plural = path.rsplit('/').next().unwrap_or_default();
        if query.contains("watch=true") {
            return watch(out, shared, plural, query);
        }
        let list = list(shared, path, plural);
        let (status, body) = match &list {
            Some(list) => ("200 OK", list.to_string()),
            None => ("404 Not Found", "{}".to_owned()),
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
        out.write_all(head.as_bytes())?;
        out.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// `None`: the kind is not known.
fn list(shared: &Shared, path: &str, plural: &str) -> Option<Value> {
    let state = shared.lock();
    let objects = &state.kinds.get(plural)?.objects;
    let items: Vec<&Value> = objects.values().map(|(_, object)| object).collect();
    let group = path.strip_prefix("/apis/");
    let group = group.and_then(|path| path.rsplit_once('/'));
    Some(json!({
        "apiVersion": group.map_or("v1", |(group, _)| group),
        "kind": "List",
        "metadata": {"resourceVersion": state.version.to_string()},
        "items": items,
    }))
}

/// Tells of changes until the other side hangs up.
fn watch(mut out: TcpStream, shared: &Shared, plural: &str, query: &str) -> Result<()> {
    out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let since = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion="));
    let mut since: u64 = since.and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut state = shared.lock();
    loop {
        let mut news = Vec::new();
        let State { kinds, version } = &mut *state;
        if let Some((_, kind)) = kinds.iter_mut().find(|(name, _)| **name == plural) {
            kind.watched = true;
            let newer = kind.objects.values().filter(|(at, _)| *at > since);
            news.extend(newer.map(|(_, object)| object.clone()));
        }
        since = *version;
        drop(state);
        for object in news {
            let event = format!("{}\n", json!({"type": "MODIFIED", "object": object}));
            out.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
        }
        state = shared
            .changed
            .wait_while(shared.lock(), |state| state.version == since)
            .unwrap_or_else(PoisonError::into_inner);
    }
}
