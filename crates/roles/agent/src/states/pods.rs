//! The node's pods, from the kubelet or from the API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_client::rate_limiter::TokenBucket;
use plimsoll_client::reflector::{Key, Sink};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_waiting::Repeated;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use super::cluster_state::Pod;
use super::counters::Counters;
use super::kubelet::Kubelet;
use super::{ClusterStateCell, objects};

/// Rate limit (per second, burst) of pod list requests that new cgroups cause.
const HINT_RATE: (f64, u32) = (5.0, 10);
/// How long to wait for the Node object.
const NODE_WITHIN: Duration = Duration::from_secs(3);
/// A kubelet that has just started lists no pods; an empty list counts after this time.
const EMPTY_LIST_HOLD: Duration = Duration::from_secs(60);

/// Notified when a pod's cgroup appears, so that the pod list is fetched before the next regular poll.
#[derive(Debug, Clone, Default)]
pub struct PodHint(Arc<Notify>);

impl PodHint {
    pub fn notify(&self) {
        self.0.notify_one();
    }

    async fn notified(&self) {
        self.0.notified().await;
    }
}

/// Polls the kubelet for its pods.
#[derive(Debug)]
pub struct KubeletPodPoller {
    pub kubelet: Arc<Kubelet>,
    pub cluster_state: ClusterStateCell,
    pub pod_hint: PodHint,
    pub every: Duration,
    pub counters: Arc<Counters>,
}

impl KubeletPodPoller {
    pub async fn run(self, shutdown: Shutdown) {
        // The node says where its kubelet is; without its word it is looked for where it usually is.
        let mut following = self.cluster_state.subscribe();
        let told = following.wait_for(|known| known.node.is_some());
        tokio::select! {
            () = shutdown.begins() => return,
            _ = tokio::time::timeout(NODE_WITHIN, told) => {}
        }
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut bucket = TokenBucket::new(HINT_RATE.0, HINT_RATE.1);
        let mut patience = EmptyListGuard::default();
        let mut failing = Repeated::default();
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = ticks.tick() => {}
                // Beyond this rate, the next regular look has to do.
                () = self.pod_hint.notified() => if !bucket.try_take(Instant::now()) {
                    continue;
                },
            }
            let node = self.cluster_state.current().node;
            let listed = tokio::select! {
                () = shutdown.begins() => return,
                listed = self.kubelet.pods(node.as_deref()) => listed,
            };
            match listed {
                Ok(pods) => {
                    self.counters.pod_lists.add();
                    self.cluster_state.confirm_pods(self.every);
                    if let Some(over) = failing.well() {
                        let (failures, seconds) = (over.failures, over.lasted.as_secs());
                        tracing::info!(
                            failures,
                            seconds,
                            "listing pods from the kubelet succeeds again"
                        );
                    }
                    let before = self.cluster_state.current().pods;
                    let known = before.as_deref().is_some_and(|pods| !pods.is_empty());
                    let believed = patience.accept(pods.is_empty(), known, Instant::now());
                    // Most lists say what the one before said: nobody is woken for them.
                    if believed && before.as_deref() != Some(&pods) {
                        self.cluster_state
                            .update(|known| known.pods = Some(pods.into()));
                    }
                }
                Err(trouble) => {
                    self.counters.pod_list_failures.add();
                    if let Some(said) = failing.failed() {
                        tracing::warn!(
                            trouble,
                            times = said.times,
                            "cannot list pods from the kubelet; keeping the last list, retrying"
                        );
                    }
                }
            }
        }
    }
}

/// Decides whether an empty pod list is accepted.
#[derive(Debug, Default)]
struct EmptyListGuard {
    empty_since: Option<Instant>,
}

impl EmptyListGuard {
    /// `known`: the last list has pods.
    fn accept(&mut self, empty: bool, known: bool, now: Instant) -> bool {
        if !empty {
            self.empty_since = None;
            return true;
        }
        let since = *self.empty_since.get_or_insert(now);
        !known || now.duration_since(since) >= EMPTY_LIST_HOLD
    }
}

/// Writes pods from the API server's watch to the cluster state.
#[derive(Debug)]
pub struct PodInformerSink {
    cluster_state: ClusterStateCell,
    pods: BTreeMap<Key, Pod>,
    /// The list that is being fetched.
    fresh: BTreeMap<Key, Pod>,
}

impl PodInformerSink {
    pub fn new(cluster_state: ClusterStateCell) -> Self {
        Self {
            cluster_state,
            pods: BTreeMap::new(),
            fresh: BTreeMap::new(),
        }
    }

    fn publish(&self) {
        let pods: Arc<[Pod]> = self.pods.values().cloned().collect();
        self.cluster_state.update(|known| known.pods = Some(pods));
    }
}

impl Sink<objects::Pod> for PodInformerSink {
    fn begin(&mut self) {
        self.fresh.clear();
    }

    fn listed(&mut self, object: objects::Pod) {
        self.fresh.insert(Key::of(&object), object.into());
    }

    fn end(&mut self) {
        self.pods = std::mem::take(&mut self.fresh);
        self.publish();
    }

    fn apply(&mut self, object: objects::Pod) {
        self.pods.insert(Key::of(&object), object.into());
        self.publish();
    }

    fn delete(&mut self, object: objects::Pod) {
        if self.pods.remove(&Key::of(&object)).is_some() {
            self.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_empty_list_is_believed_late() {
        let mut patience = EmptyListGuard::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        // Nothing would be lost.
        assert!(patience.accept(true, false, start));
        assert!(patience.accept(false, true, after(5)));
        assert!(!patience.accept(true, true, after(10)));
        assert!(!patience.accept(true, true, after(60)));
        assert!(patience.accept(true, true, after(70)));
        assert!(patience.accept(false, true, after(80)));
        assert!(!patience.accept(true, true, after(90)));
    }
}
