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

use super::counters::Counters;
use super::known::Pod;
use super::kubelet::Kubelet;
use super::{Board, objects};

/// New cgroups make the kubelet be asked at once, this often a second and at most this often in a row.
const BELL_RATE: (f64, u32) = (5.0, 10);
/// How long the node's object is waited for.
const NODE_WITHIN: Duration = Duration::from_secs(3);
/// A kubelet that has just started knows of no pods; one that says so for this long has none.
const EMPTY_FOR: Duration = Duration::from_secs(60);

/// Rung when a pod's cgroup appears, so that the pod is known before the next regular look. Clones ring the same.
#[derive(Debug, Clone, Default)]
pub struct Doorbell(Arc<Notify>);

impl Doorbell {
    pub fn ring(&self) {
        self.0.notify_one();
    }

    async fn rings(&self) {
        self.0.notified().await;
    }
}

/// Asks the kubelet again and again.
#[derive(Debug)]
pub struct Poller {
    pub kubelet: Arc<Kubelet>,
    pub board: Board,
    pub bell: Doorbell,
    pub every: Duration,
    pub counters: Arc<Counters>,
}

impl Poller {
    pub async fn run(self, shutdown: Shutdown) {
        // The node says where its kubelet is; without its word it is looked for where it usually is.
        let mut following = self.board.follow();
        let told = following.wait_for(|known| known.node.is_some());
        tokio::select! {
            () = shutdown.begins() => return,
            _ = tokio::time::timeout(NODE_WITHIN, told) => {}
        }
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut bucket = TokenBucket::new(BELL_RATE.0, BELL_RATE.1);
        let mut patience = Patience::default();
        let mut failing = Repeated::default();
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = ticks.tick() => {}
                // Beyond the rate the next regular look has to do.
                () = self.bell.rings() => if !bucket.try_take(Instant::now()) {
                    continue;
                },
            }
            let node = self.board.now().node;
            let listed = tokio::select! {
                () = shutdown.begins() => return,
                listed = self.kubelet.pods(node.as_deref()) => listed,
            };
            match listed {
                Ok(pods) => {
                    self.counters.pod_lists.add();
                    if let Some(over) = failing.well() {
                        let (failures, seconds) = (over.failures, over.lasted.as_secs());
                        tracing::info!(failures, seconds, "the kubelet tells its pods again");
                    }
                    let before = self.board.now().pods;
                    let known = before.as_deref().is_some_and(|pods| !pods.is_empty());
                    let believed = patience.believes(pods.is_empty(), known, Instant::now());
                    // Most lists say what the one before said: nobody is woken for them.
                    if believed && before.as_deref() != Some(&pods) {
                        self.board.change(|known| known.pods = Some(pods.into()));
                    }
                }
                Err(trouble) => {
                    self.counters.pod_list_failures.add();
                    if let Some(said) = failing.failed() {
                        tracing::warn!(
                            trouble,
                            times = said.times,
                            "the kubelet does not tell its pods, those known before stay; trying again"
                        );
                    }
                }
            }
        }
    }
}

/// Whether a list without pods is to be believed.
#[derive(Debug, Default)]
struct Patience {
    empty_since: Option<Instant>,
}

impl Patience {
    /// `known`: pods are known that would be forgotten.
    fn believes(&mut self, empty: bool, known: bool, now: Instant) -> bool {
        if !empty {
            self.empty_since = None;
            return true;
        }
        let since = *self.empty_since.get_or_insert(now);
        !known || now.duration_since(since) >= EMPTY_FOR
    }
}

/// Puts pods on the board that are followed at the API server.
#[derive(Debug)]
pub struct Followed {
    board: Board,
    pods: BTreeMap<Key, Pod>,
    /// The list that is being fetched.
    fresh: BTreeMap<Key, Pod>,
}

impl Followed {
    pub fn new(board: Board) -> Self {
        Self {
            board,
            pods: BTreeMap::new(),
            fresh: BTreeMap::new(),
        }
    }

    fn publish(&self) {
        let pods: Arc<[Pod]> = self.pods.values().cloned().collect();
        self.board.change(|known| known.pods = Some(pods));
    }
}

impl Sink<objects::Pod> for Followed {
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
        let mut patience = Patience::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        // Nothing would be lost.
        assert!(patience.believes(true, false, start));
        assert!(patience.believes(false, true, after(5)));
        assert!(!patience.believes(true, true, after(10)));
        assert!(!patience.believes(true, true, after(60)));
        assert!(patience.believes(true, true, after(70)));
        assert!(patience.believes(false, true, after(80)));
        assert!(!patience.believes(true, true, after(90)));
    }
}
