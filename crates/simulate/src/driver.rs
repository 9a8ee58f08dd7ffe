//! Pods: one watch on all that are bound to a node, and what happens to those that are ours.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::runtime::watcher;
use plimsoll_ground::backoff::Backoff;
use plimsoll_ground::clients::explain;
use plimsoll_ground::reflect::Key;
use plimsoll_ground::shutdown::Shutdown;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use tokio::sync::watch;

use crate::Config;
use crate::addresses::Addresses;
use crate::herd::{is, patching};
use crate::nodes;
use crate::pages::Pages;
use crate::pods::{self, BoundPod, Next};

/// Requests at the same time.
const PARALLEL: usize = 16;
/// After a request that failed.
const AGAIN: SignedDuration = SignedDuration::from_secs(1);
/// Timers need not be finer: times in pods are whole seconds.
const LOOK_EVERY: Duration = Duration::from_millis(200);

type Request = Pin<Box<dyn Future<Output = (BoundPod, Result<(), kube::Error>)> + Send>>;

pub struct Driver {
    nodes: u32,
    clock: fn() -> Timestamp,
    client: kube::Client,
    addresses: Addresses,
    pages: Option<Pages>,
    /// Pods that wait for their turn, in order.
    queue: BTreeMap<u64, BoundPod>,
    queued: FxHashMap<Key, u64>,
    /// Pods with a request under way; what is seen of them meanwhile waits in the queue.
    busy: FxHashSet<Key>,
    /// Those for which something is to be done later.
    timers: BTreeMap<(Timestamp, u64), BoundPod>,
    timed: FxHashMap<Key, (Timestamp, u64)>,
    count: u64,
}

impl Driver {
    pub fn new(config: &Config, client: kube::Client) -> Self {
        Self {
            nodes: config.nodes,
            clock: config.clock,
            client,
            addresses: Addresses::default(),
            pages: config.pages.clone(),
            queue: BTreeMap::new(),
            queued: FxHashMap::default(),
            busy: FxHashSet::default(),
            timers: BTreeMap::new(),
            timed: FxHashMap::default(),
            count: 0,
        }
    }

    /// Runs until told to stop; `synced` is told when all pods have been seen once.
    pub async fn run(mut self, shutdown: Shutdown, synced: watch::Sender<bool>) {
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let api: Api<BoundPod> = Api::all(self.client.clone());
        let mut events = watcher(api, bound).boxed();
        let mut backoff = Backoff::default();
        let mut requests: FuturesUnordered<Request> = FuturesUnordered::new();
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        if matches!(event, watcher::Event::InitDone) {
                            synced.send_replace(true);
                        }
                        self.take(event);
                    }
                    Some(Err(error)) => {
                        tracing::warn!(%error, "cannot follow pods, trying again");
                        // The requests under way can wait as well: it is the same server that fails.
                        tokio::select! {
                            () = shutdown.begins() => return,
                            () = tokio::time::sleep(backoff.next_wait()) => {}
                        }
                    }
                    None => return,
                },
                Some((pod, outcome)) = requests.next() => self.done(pod, outcome),
                _ = ticks.tick(), if !self.timers.is_empty() => self.ring(),
            }
            while requests.len() < PARALLEL {
                let Some(request) = self.next_request() else {
                    break;
                };
                requests.push(request);
            }
        }
    }

    fn take(&mut self, event: watcher::Event<BoundPod>) {
        match event {
            watcher::Event::Init | watcher::Event::InitDone => {}
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
                if let Some(node) = self.ours(&pod) {
                    if let Some(pages) = &self.pages {
                        pages.see(&pod, node);
                    }
                    self.look(pod);
                }
            }
            watcher::Event::Delete(pod) => {
                let key = Key::of(&pod);
                self.forget(&key);
                if let Some(pages) = &self.pages {
                    pages.forget(&key);
                }
                if let Ok(address) = pod.status.pod_ip.parse() {
                    self.addresses.give_back(address);
                }
            }
        }
    }

    /// On which of our nodes it is.
    fn ours(&self, pod: &BoundPod) -> Option<u32> {
        nodes::index(&pod.spec.node_name).filter(|index| *index <= self.nodes)
    }

    fn forget(&mut self, key: &Key) {
        if let Some(place) = self.queued.remove(key) {
            self.queue.remove(&place);
        }
        if let Some(place) = self.timed.remove(key) {
            self.timers.remove(&place);
        }
    }

    /// A pod as it is now.
    fn look(&mut self, pod: BoundPod) {
        let key = Key::of(&pod);
        self.forget(&key);
        if let Ok(address) = pod.status.pod_ip.parse()
            && !pod.spec.host_network
        {
            self.addresses.take(address);
        }
        self.count += 1;
        match pods::next(&pod, (self.clock)()) {
            Next::Nothing => {}
            Next::At(when) => self.wait_until(when, pod),
            Next::Start | Next::Finish | Next::Remove => {
                self.queued.insert(key, self.count);
                self.queue.insert(self.count, pod);
            }
        }
    }

    fn wait_until(&mut self, when: Timestamp, pod: BoundPod) {
        self.timed.insert(Key::of(&pod), (when, self.count));
        self.timers.insert((when, self.count), pod);
    }

    /// Those whose time has come.
    fn ring(&mut self) {
        let now = (self.clock)();
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            let pod = first.remove();
            self.look(pod);
        }
    }

    fn next_request(&mut self) -> Option<Request> {
        let (place, key) = self.queue.iter().find_map(|(place, pod)| {
            let key = Key::of(pod);
            (!self.busy.contains(&key)).then_some((*place, key))
        })?;
        let pod = self.queue.remove(&place)?;
        self.queued.remove(&key);
        let request = self.request(pod)?;
        self.busy.insert(key);
        Some(request)
    }

    fn request(&mut self, pod: BoundPod) -> Option<Request> {
        let now = (self.clock)();
        let api: Api<Pod> = Api::namespaced(
            self.client.clone(),
            pod.metadata.namespace.as_deref().unwrap_or_default(),
        );
        let name = pod.metadata.name.clone().unwrap_or_default();
        let patch: Value = match pods::next(&pod, now) {
            Next::Start => {
                let node = nodes::index(&pod.spec.node_name)?;
                let host = nodes::address(node);
                pods::started(&pod, host, self.address(&pod, node), now)
            }
            Next::Finish => pods::finished(&pod, now),
            Next::Remove => {
                let params = DeleteParams {
                    grace_period_seconds: Some(0),
                    preconditions: Some(Preconditions {
                        uid: pod.metadata.uid.clone(),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                return Some(Box::pin(async move {
                    let outcome = api.delete(&name, &params).await.map(drop);
                    (pod, outcome)
                }));
            }
            Next::At(_) | Next::Nothing => return None,
        };
        Some(Box::pin(async move {
            let patch = Patch::Strategic(patch);
            let outcome = api.patch_status(&name, &patching(), &patch).await.map(drop);
            (pod, outcome)
        }))
    }

    fn address(&mut self, pod: &BoundPod, node: u32) -> Ipv4Addr {
        match pod.spec.host_network {
            true => nodes::address(node),
            false => self.addresses.give(node),
        }
    }

    fn done(&mut self, pod: BoundPod, outcome: Result<(), kube::Error>) {
        let key = Key::of(&pod);
        self.busy.remove(&key);
        let Err(error) = outcome else { return };
        // Gone, or another of the same name: the watch has told, or will.
        if is(&error, 404) || is(&error, 409) {
            return;
        }
        let (name, trouble) = (&key.name, explain(&error));
        tracing::warn!(pod = %name, trouble, "a simulated pod is stuck, trying again");
        if !self.queued.contains_key(&key) {
            self.count += 1;
            self.wait_until((self.clock)() + AGAIN, pod);
        }
    }
}
