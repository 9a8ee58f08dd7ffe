use super::*;
use crate::framework::events::{Action, Resource};

const NODE_ADD: ClusterEvent = ClusterEvent::new(Resource::Node, Action::ADD);
const FIT: PluginSet = PluginSet::of(Plugin::NodeResourcesFit);

fn open(_: PodId) -> Option<Plugin> {
    None
}

fn at(seconds: i64) -> Time {
    Time::from_secs(1000 + seconds)
}

fn helps(_: PodId, _: &Entry) -> Strategy {
    Strategy::AfterBackoff
}

fn queue(pods: &[(u32, i32)]) -> Queue {
    let mut queue = Queue::default();
    for (index, (id, priority)) in pods.iter().enumerate() {
        queue.add(PodId(*id), *priority, at(index as i64), &open);
    }
    queue
}

#[test]
fn the_important_and_the_old_go_first() {
    let mut queue = queue(&[(1, 0), (2, 5), (3, 0), (4, 5)]);
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|id| id.0).collect();
    assert_eq!(order, [2, 4, 1, 3]);
}

#[test]
fn a_changed_priority_changes_the_order() {
    let mut queue = queue(&[(1, 0), (2, 0)]);
    queue.set_priority(PodId(2), 7);
    assert_eq!(queue.pop(), Some(PodId(2)));
}

#[test]
fn refused_pods_wait_for_an_event_that_matters() {
    let mut queue = queue(&[(1, 0)]);
    let id = queue.pop().unwrap();
    queue.put_back(id, FIT, PluginSet::EMPTY, at(1), &open);
    assert_eq!(queue.pop(), None);
    let label_change = ClusterEvent::new(Resource::Node, Action::NODE_LABEL);
    assert_eq!(queue.move_all(label_change, at(2), &open, &mut helps), 0);
    assert_eq!(
        queue.move_all(NODE_ADD, at(2), &open, &mut |_, _| Strategy::Stay),
        0
    );
    assert_eq!(queue.move_all(NODE_ADD, at(2), &open, &mut helps), 1);
    // Still backing off at second 2, but there is nobody else.
    assert_eq!(queue.lengths().backoff, 1);
    assert_eq!(queue.pop(), Some(id));
}

#[test]
fn backoff_doubles_up_to_its_limit() {
    let mut queue = queue(&[(1, 0)]);
    for (attempt, seconds) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10)] {
        let id = queue.pop().unwrap();
        queue.put_back(id, FIT, PluginSet::EMPTY, at(0), &open);
        let entry = queue.get(id).unwrap();
        assert_eq!(
            entry.backoff_expiry(&queue.config),
            Some(at(seconds)),
            "attempt {attempt}"
        );
        assert!(entry.is_backing_off(&queue.config, at(seconds)));
        assert!(!entry.is_backing_off(&queue.config, at(seconds + 1)));
        queue.activate(id, at(0), &open);
    }
}

#[test]
fn errors_wait_their_time_even_if_nobody_else_is_there() {
    let mut queue = queue(&[(1, 0)]);
    let id = queue.pop().unwrap();
    queue.put_back(id, PluginSet::EMPTY, PluginSet::EMPTY, at(0), &open);
    assert_eq!(queue.pop(), None);
    assert_eq!(queue.next_wakeup(), Some(at(2)));
    queue.flush(at(1), &open);
    assert_eq!(queue.pop(), None);
    queue.flush(at(2), &open);
    assert_eq!(queue.pop(), Some(id));
}

#[test]
fn a_rejection_resets_the_errors() {
    let mut queue = queue(&[(1, 0)]);
    let id = queue.pop().unwrap();
    queue.put_back(id, PluginSet::EMPTY, PluginSet::EMPTY, at(0), &open);
    queue.flush(at(10), &open);
    queue.pop();
    queue.put_back(id, FIT, PluginSet::EMPTY, at(10), &open);
    let entry = queue.get(id).unwrap();
    assert_eq!(
        (entry.consecutive_errors, entry.unschedulable_count),
        (0, 1)
    );
}

#[test]
fn nobody_waits_for_ever() {
    let mut queue = queue(&[(1, 0)]);
    queue.flush(at(0), &open);
    let id = queue.pop().unwrap();
    queue.put_back(id, FIT, PluginSet::EMPTY, at(0), &open);
    queue.flush(at(290), &open);
    assert_eq!(queue.pop(), None);
    queue.flush(at(330), &open);
    assert_eq!(queue.pop(), Some(id));
}

#[test]
fn what_happened_during_the_attempt_counts() {
    let mut queue = queue(&[(1, 0)]);
    let id = queue.pop().unwrap();
    queue.move_all(NODE_ADD, at(1), &open, &mut helps);
    queue.put_back(id, FIT, PluginSet::EMPTY, at(1), &open);
    assert_eq!(queue.pop(), Some(id));
    queue.put_back(id, FIT, PluginSet::EMPTY, at(1), &open);
    assert_eq!(queue.pop(), None);
}

#[test]
fn somebody_who_waits_for_somebody_does_not_back_off() {
    let mut queue = queue(&[(1, 0)]);
    let id = queue.pop().unwrap();
    queue.put_back(id, PluginSet::EMPTY, FIT, at(0), &open);
    queue.move_all(NODE_ADD, at(0), &open, &mut |_, entry| {
        assert!(entry.pending.contains(Plugin::NodeResourcesFit));
        Strategy::Immediately
    });
    assert_eq!(queue.lengths().active, 1);
}

#[test]
fn gated_pods_listen_to_their_gate_only() {
    let mut queue = Queue::default();
    let gated = |_| Some(Plugin::SchedulingGates);
    queue.add(PodId(1), 0, at(0), &gated);
    assert_eq!(queue.lengths().gated, 1);
    assert_eq!(queue.move_all(NODE_ADD, at(1), &open, &mut helps), 0);
    let ungated = ClusterEvent::new(Resource::UnscheduledPod, Action::POD_GATES_ELIMINATED);
    assert_eq!(queue.move_all(ungated, at(1), &open, &mut helps), 1);
    assert_eq!(queue.pop(), Some(PodId(1)));
}

#[test]
fn a_removed_pod_is_nowhere() {
    let mut queue = queue(&[(1, 0), (2, 0), (3, 0)]);
    queue.remove(PodId(1));
    let second = queue.pop().unwrap();
    queue.put_back(second, FIT, PluginSet::EMPTY, at(0), &open);
    queue.remove(second);
    assert_eq!(queue.move_all(NODE_ADD, at(1), &open, &mut helps), 0);
    assert_eq!(queue.pop(), Some(PodId(3)));
    assert_eq!(queue.pop(), None);
}
