//! Finds out why usage is not reported to the cluster, and logs it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_client::reflector::{CacheSync, MissingKind, ReflectorStatus};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_waiting::Waiting;
use tokio::time::Instant;

use super::{ClusterState, ClusterStateCell};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Conditions that last shorter are not logged: objects arrive one after the other.
const SETTLED: Duration = Duration::from_secs(3);

/// The current reason; clones share it.
#[derive(Debug, Clone, Default)]
pub struct ReportingCheck(Arc<Mutex<Option<String>>>);

/// What reporting depends on.
pub(super) struct Watched {
    pub node: String,
    pub cluster_state: ClusterStateCell,
    pub gate: CacheSync,
    pub nodes: ReflectorStatus,
    pub collecting: ReflectorStatus,
    pub absence: MissingKind,
}

impl ReportingCheck {
    pub fn trouble(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Until told to stop.
    pub(super) async fn run(self, watched: Watched, shutdown: Shutdown) {
        let waiting = Waiting::new(
            format!("a way to report what the node {} uses", watched.node),
            "is the API server running?",
        );
        let mut since: Option<Instant> = None;
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                _ = ticks.tick() => {}
            }
            let trouble = watched.trouble();
            match &trouble {
                None => {
                    since = None;
                    waiting.over();
                }
                Some(trouble) => {
                    let since = *since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= SETTLED {
                        waiting.failed(trouble.as_str());
                    }
                }
            }
            *self.0.lock() = trouble;
        }
    }
}

impl Watched {
    fn trouble(&self) -> Option<String> {
        let missing = self.gate.missing();
        let is_stale = |rounds: &ReflectorStatus| !rounds.stale_for().is_zero();
        if is_stale(&self.nodes) && self.nodes.lists() > 0 {
            return Some("the API server cannot be followed".to_owned());
        }
        let listed = [self.nodes.lists() > 0, self.collecting.lists() > 0];
        let known = self.cluster_state.current();
        reason(
            &self.node,
            &known,
            listed,
            self.absence.is_told(),
            &missing,
            self.gate.is_silent(),
        )
    }
}

/// `listed`: whether nodes and NodeMetrics were listed once; `undefined`: the manager's kinds are not there.
fn reason(
    node: &str,
    known: &ClusterState,
    listed: [bool; 2],
    undefined: bool,
    missing: &[String],
    silent: bool,
) -> Option<String> {
    let [nodes, collecting] = listed;
    if nodes && known.node.is_none() {
        return Some(format!(
            "the cluster has no node {node}; give its name by --node-name, or wait for its kubelet to register it"
        ));
    }
    if undefined {
        return Some(
            "the cluster does not know NodeMetrics; apply deploy/manager/crds.yaml and start a manager".to_owned(),
        );
    }
    if nodes && collecting {
        return known.collect_policy.is_none().then(|| {
            format!(
                "there is no NodeMetric {node}; a manager makes it: does one run, and does it lead?"
            )
        });
    }
    let missing = missing.join(", ");
    Some(match silent {
        true => format!("no answer yet about {missing}; is the API server overloaded or stopped?"),
        false => format!("still missing {missing}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::states::Node;

    #[test]
    fn what_is_in_the_way() {
        let mut known = ClusterState::default();
        let missing = ["nodes (no)".to_owned()];
        let told = |known: &ClusterState, listed, undefined| {
            reason("n", known, listed, undefined, &missing, false)
        };
        let text = told(&known, [false, false], false).unwrap();
        assert_eq!(text, "still missing nodes (no)");
        let text = told(&known, [true, true], true).unwrap();
        assert!(text.starts_with("the cluster has no node n; "), "{text}");
        known.node = Some(Node::default().into());
        let text = told(&known, [true, false], true).unwrap();
        assert!(text.contains("crds.yaml"), "{text}");
        let text = told(&known, [true, true], false).unwrap();
        assert!(text.starts_with("there is no NodeMetric n; "), "{text}");
        known.collect_policy = Some(Arc::default());
        assert_eq!(told(&known, [true, true], false), None);
    }
}
