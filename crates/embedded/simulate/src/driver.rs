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
use plimsoll_client::backoff::Backoff;
use plimsoll_client::explain;
use plimsoll_client::reflector::Key;
use plimsoll_client::shutdown::Shutdown;
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
    /// Our pods, with the addresses that they have.
    known: FxHashMap<Key, Option<Ipv4Addr>>,
    /// While all are listed anew: those that have not been seen again yet.
    unseen: FxHashSet<Key>,
    /// Pods that wait for their turn, in order.
    queue: BTreeMap<u64, BoundPod>,
    queued: FxHashMap<Key, u64>,
    /// Pods with a request under way, and the addresses that they get by it; what is seen of them meanwhile waits in
    /// the queue.
    busy: FxHashMap<Key, Option<Ipv4Addr>>,
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
            known: FxHashMap::default(),
            unseen: FxHashSet::default(),
            queue: BTreeMap::new(),
            queued: FxHashMap::default(),
            busy: FxHashMap::default(),
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
            watcher::Event::Init => self.unseen = self.known.keys().cloned().collect(),
            watcher::Event::InitDone => {
                for key in std::mem::take(&mut self.unseen) {
                    self.gone(&key);
                }
            }
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
                if let Some(node) = self.ours(&pod) {
                    self.unseen.remove(&Key::of(&pod));
                    if let Some(pages) = &self.pages {
                        pages.see(&pod, node);
                    }
                    self.look(pod);
                }
            }
            watcher::Event::Delete(pod) => self.gone(&Key::of(&pod)),
        }
    }

    /// A pod that is no longer there, whether the watch has told it or a list has not shown it.
    fn gone(&mut self, key: &Key) {
        self.forget(key);
        if let Some(pages) = &self.pages {
            pages.forget(key);
        }
        if let Some(Some(address)) = self.known.remove(key) {
            self.addresses.give_back(address);
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
        let address: Option<Ipv4Addr> = pod.status.pod_ip.parse().ok();
        let address = address.filter(|_| !pod.spec.host_network);
        if let Some(address) = address {
            self.addresses.take(address);
        }
        // One of the same name may have had another.
        if let Some(Some(before)) = self.known.insert(key.clone(), address)
            && address != Some(before)
        {
            self.addresses.give_back(before);
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
            (!self.busy.contains_key(&key)).then_some((*place, key))
        })?;
        let pod = self.queue.remove(&place)?;
        self.queued.remove(&key);
        let (request, address) = self.request(pod)?;
        self.busy.insert(key, address);
        Some(request)
    }

    /// The next request about a pod, and the address that it gets by it.
    fn request(&mut self, pod: BoundPod) -> Option<(Request, Option<Ipv4Addr>)> {
        let now = (self.clock)();
        let api: Api<Pod> = Api::namespaced(
            self.client.clone(),
            pod.metadata.namespace.as_deref().unwrap_or_default(),
        );
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut given = None;
        let patch: Value = match pods::next(&pod, now) {
            Next::Start => {
                let node = nodes::index(&pod.spec.node_name)?;
                let host = nodes::address(node);
                let address = self.address(&pod, node);
                given = Some(address).filter(|_| !pod.spec.host_network);
                pods::started(&pod, host, address, now)
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
                let request = async move {
                    let outcome = api.delete(&name, &params).await.map(drop);
                    (pod, outcome)
                };
                return Some((Box::pin(request), None));
            }
            Next::At(_) | Next::Nothing => return None,
        };
        let request = async move {
            let patch = Patch::Strategic(patch);
            let outcome = api.patch_status(&name, &patching(), &patch).await.map(drop);
            (pod, outcome)
        };
        Some((Box::pin(request), given))
    }

    fn address(&mut self, pod: &BoundPod, node: u32) -> Ipv4Addr {
        match pod.spec.host_network {
            true => nodes::address(node),
            false => self.addresses.give(node),
        }
    }

    /// A pod has got its address, if it is still there.
    fn keep(&mut self, key: &Key, given: Option<Ipv4Addr>) {
        let Some(address) = given else { return };
        match self.known.get_mut(key) {
            Some(has @ None) => *has = Some(address),
            Some(Some(has)) if *has == address => {}
            // Gone, or another of the same name.
            _ => self.addresses.give_back(address),
        }
    }

    fn done(&mut self, pod: BoundPod, outcome: Result<(), kube::Error>) {
        let key = Key::of(&pod);
        let given = self.busy.remove(&key).flatten();
        let Err(error) = outcome else {
            return self.keep(&key, given);
        };
        // It may have been taken all the same; then the watch tells.
        if let Some(address) = given.filter(|given| self.known.get(&key) != Some(&Some(*given))) {
            self.addresses.give_back(address);
        }
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

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use watcher::Event;

    use super::*;

    fn driver() -> Driver {
        let nobody = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let config = Config {
            nodes: 2,
            ..Config::default()
        };
        Driver::new(&config, kube::Client::new(nobody, "default"))
    }

    fn pod(name: &str, status: Value) -> BoundPod {
        let pod = json!({
            "metadata": {"namespace": "default", "name": name, "uid": name},
            "spec": {"nodeName": "sim-0001", "containers": [{"name": "main", "image": "app"}]},
            "status": status,
        });
        serde_json::from_value(pod).unwrap()
    }

    fn running(name: &str, address: &str) -> BoundPod {
        let status =
            json!({"phase": "Running", "podIP": address, "startTime": "2026-01-01T00:00:00Z"});
        pod(name, status)
    }

    fn refused(code: u16) -> kube::Error {
        let status = kube::core::Status::failure("no", "No").with_code(code);
        kube::Error::Api(Box::new(status))
    }

    impl Driver {
        fn holds_nothing(&self) -> bool {
            self.known.is_empty()
                && self.queue.is_empty()
                && self.queued.is_empty()
                && self.timers.is_empty()
                && self.timed.is_empty()
                && self.busy.is_empty()
                && self.addresses.is_empty()
        }
    }

    #[tokio::test]
    async fn pods_that_a_list_does_not_show_are_forgotten() {
        let mut driver = driver();
        for (name, address) in [("a", "10.64.1.1"), ("b", "10.64.1.2")] {
            driver.take(Event::Apply(running(name, address)));
        }
        driver.take(Event::Apply(pod("c", json!({"phase": "Pending"}))));
        assert_eq!((driver.known.len(), driver.queue.len()), (3, 1));
        driver.take(Event::Init);
        driver.take(Event::InitApply(running("b", "10.64.1.2")));
        driver.take(Event::InitDone);
        let left: Vec<&str> = driver.known.keys().map(|key| key.name.as_ref()).collect();
        assert_eq!((left, driver.queue.len()), (vec!["b"], 0));
        driver.take(Event::Delete(running("b", "10.64.1.2")));
        assert!(driver.holds_nothing());
    }

    #[tokio::test]
    async fn an_address_that_a_pod_does_not_get_is_given_back() {
        let mut driver = driver();
        for _ in 0..1_000 {
            let new = pod("a", json!({"phase": "Pending"}));
            driver.take(Event::Apply(new.clone()));
            assert!(driver.next_request().is_some());
            driver.done(new.clone(), Err(refused(409)));
            assert!(driver.addresses.is_empty());
            driver.take(Event::Delete(new));
        }
        assert!(driver.holds_nothing());
    }

    #[tokio::test]
    async fn an_address_outlives_neither_order_of_the_news() {
        for told_first in [true, false] {
            let mut driver = driver();
            let new = pod("a", json!({"phase": "Pending"}));
            driver.take(Event::Apply(new.clone()));
            assert!(driver.next_request().is_some());
            if told_first {
                driver.take(Event::Apply(running("a", "10.64.1.1")));
                driver.take(Event::Delete(running("a", "10.64.1.1")));
                driver.done(new, Ok(()));
            } else {
                driver.done(new, Ok(()));
                driver.take(Event::Delete(running("a", "10.64.1.1")));
            }
            assert!(driver.holds_nothing(), "{told_first}");
        }
    }
}
