//! Which pods go because the agent of their node asks for it.
//!
//! The agent knows what its node lacks; the manager makes sure that the pod is on that node, that it may be evicted, and
//! that not too many go. Disruption budgets are the eviction API's.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::eviction_wishes::Wish;

use super::objects::Pod;

/// Wishes older than that are not met any more. Clocks of nodes differ, too.
const FRESH: i64 = 120;
/// Evictions of one node in a minute.
const BUDGET: usize = 10;
/// An eviction that was refused is tried again after that.
const AGAIN: i64 = 10;
/// The API server's copy of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Pods of this priority and above are the cluster's own.
const CRITICAL: i32 = 2_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Tried {
    at: i64,
    evicted: bool,
}

/// What was tried of late, by node and UID.
#[derive(Debug, Default)]
pub struct Evictions(BTreeMap<String, BTreeMap<String, Tried>>);

impl Evictions {
    /// Pods that go now. `pods`: those on the node; `now`: Unix seconds.
    pub fn due(
        &mut self,
        node: &str,
        wishes: Vec<Wish>,
        pods: &[Arc<Pod>],
        now: i64,
    ) -> Vec<(Wish, Arc<Pod>)> {
        if wishes.is_empty() && !self.0.contains_key(node) {
            return Vec::new();
        }
        let tried = self.0.entry(node.to_owned()).or_default();
        tried.retain(|_, tried| now.saturating_sub(tried.at) <= FRESH);
        let in_minute = tried
            .values()
            .filter(|tried| tried.evicted && now.saturating_sub(tried.at) < 60);
        let left = BUDGET.saturating_sub(in_minute.count());
        let due: Vec<(Wish, Arc<Pod>)> = wishes
            .into_iter()
            .filter(|wish| now.saturating_sub(wish.at).saturating_abs() <= FRESH)
            .filter(|wish| {
                tried
                    .get(&wish.uid)
                    .is_none_or(|tried| !tried.evicted && now.saturating_sub(tried.at) >= AGAIN)
            })
            .filter_map(|wish| {
                let pod = pods.iter().find(|pod| is_of(pod, &wish))?;
                may_go(pod).then(|| (wish, Arc::clone(pod)))
            })
            .take(left)
            .collect();
        if tried.is_empty() && due.is_empty() {
            self.0.remove(node);
        }
        due
    }

    pub fn tried(&mut self, node: &str, uid: &str, evicted: bool, now: i64) {
        let tried = self.0.entry(node.to_owned()).or_default();
        tried.insert(uid.to_owned(), Tried { at: now, evicted });
    }

    pub fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }
}

fn is_of(pod: &Pod, wish: &Wish) -> bool {
    let meta = &pod.metadata;
    !wish.uid.is_empty()
        && meta.uid.as_deref() == Some(&wish.uid)
        && meta.name.as_deref() == Some(&wish.name)
        && meta.namespace.as_deref() == Some(&wish.namespace)
}

fn may_go(pod: &Pod) -> bool {
    let meta = &pod.metadata;
    let annotations = meta.annotations.as_ref();
    let is_static = annotations.is_some_and(|all| all.contains_key(MIRROR));
    let critical = pod.spec.priority.is_some_and(|of| of >= CRITICAL);
    !is_static && !critical && meta.deletion_timestamp.is_none() && pod.is_alive()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, more: serde_json::Value) -> Arc<Pod> {
        let mut object = json!({
            "metadata": {"name": format!("p-{uid}"), "namespace": "d", "uid": uid},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
        });
        for (pointer, value) in more.as_object().unwrap() {
            object[pointer.as_str()]
                .as_object_mut()
                .unwrap()
                .extend(value.as_object().unwrap().clone());
        }
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn wish(uid: &str, at: i64) -> Wish {
        Wish {
            uid: uid.to_owned(),
            namespace: "d".to_owned(),
            name: format!("p-{uid}"),
            feature: "BEMemoryEvict".to_owned(),
            reason: String::new(),
            at,
        }
    }

    fn uids(due: &[(Wish, Arc<Pod>)]) -> Vec<&str> {
        due.iter().map(|(wish, _)| wish.uid.as_str()).collect()
    }

    #[track_caller]
    fn check(wish: Wish, pod: Arc<Pod>, expected: bool) {
        let due = Evictions::default().due("n", vec![wish], &[pod], 1000);
        assert_eq!(!due.is_empty(), expected);
    }

    #[test]
    fn only_pods_of_the_node_that_may_go() {
        let plain = || pod("a", json!({}));
        check(wish("a", 1000), plain(), true);
        check(wish("b", 1000), plain(), false);
        check(wish("a", 879), plain(), false);
        check(wish("a", 1121), plain(), false);
        let renamed = Wish {
            name: "other".to_owned(),
            ..wish("a", 1000)
        };
        check(renamed, plain(), false);
        let critical = pod("a", json!({"spec": {"priority": CRITICAL}}));
        check(wish("a", 1000), critical, false);
        let mirror = json!({"metadata": {"annotations": {MIRROR: "x"}}});
        check(wish("a", 1000), pod("a", mirror), false);
        let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        check(wish("a", 1000), pod("a", gone), false);
        let over = json!({"status": {"phase": "Succeeded"}});
        check(wish("a", 1000), pod("a", over), false);
    }

    #[test]
    fn a_node_has_a_budget() {
        let names: Vec<String> = (0..15).map(|number| number.to_string()).collect();
        let pods: Vec<_> = names.iter().map(|uid| pod(uid, json!({}))).collect();
        let wishes = |at| names.iter().map(|uid| wish(uid, at)).collect::<Vec<_>>();
        let mut evictions = Evictions::default();
        let due = evictions.due("n", wishes(1000), &pods, 1000);
        assert_eq!(due.len(), BUDGET);
        for (wish, _) in &due {
            evictions.tried("n", &wish.uid, true, 1000);
        }
        assert_eq!(
            uids(&evictions.due("n", wishes(1000), &pods, 1059)),
            [""; 0]
        );
        let rest = evictions.due("n", wishes(1000), &pods, 1060);
        assert_eq!(uids(&rest), ["10", "11", "12", "13", "14"]);
    }

    #[test]
    fn what_was_refused_is_tried_again() {
        let pods = [pod("a", json!({}))];
        let mut evictions = Evictions::default();
        evictions.tried("n", "a", false, 1000);
        let mut at = |now| evictions.due("n", vec![wish("a", now)], &pods, now).len();
        assert_eq!((at(1009), at(1010)), (0, 1));
        let after = evictions.due("n", Vec::new(), &pods, 1200);
        assert!(after.is_empty() && evictions.0.is_empty());
    }
}
