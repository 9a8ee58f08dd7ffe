//! Who of several pods matters more.

use std::sync::Arc;

use crate::model::Pod;

/// Up to here, the original sorts by insertion.
const INSERTED: usize = 12;

/// Whether the first comes before the second. A pod that has not started is taken to start when it is looked at, and of
/// two such the first is looked at first: that makes no order, but it is what the original does.
fn comes_first(one: &Pod, other: &Pod) -> bool {
    if one.priority != other.priority {
        return one.priority > other.priority;
    }
    match (one.started, other.started) {
        (Some(one), Some(other)) => one < other,
        (Some(_), None) | (None, None) => true,
        (None, Some(_)) => false,
    }
}

/// The most important first. Pods that nobody has started yet come in reverse.
pub fn sort<T>(items: &mut [T], pod: impl Fn(&T) -> Arc<Pod>) {
    if items.len() > INSERTED {
        items.reverse();
        items.sort_by_key(|item| {
            let pod = pod(item);
            let start = pod.started.map_or(i64::MAX, |started| started.0);
            (std::cmp::Reverse(pod.priority), start)
        });
        return;
    }
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && comes_first(&pod(&items[at]), &pod(&items[at - 1])) {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::Kit;
    use crate::time::Time;

    #[test]
    fn priority_then_start_then_whoever_came_last() {
        let mut kit = Kit::default();
        let mut pod = |priority: i32, started: Option<i64>| {
            let mut pod = kit.decode_pod("{}");
            pod.priority = priority;
            pod.started = started.map(Time);
            Arc::new(pod)
        };
        let check = |pods: Vec<Arc<Pod>>, expected: &[usize]| {
            let mut order: Vec<usize> = (0..pods.len()).collect();
            sort(&mut order, |index| Arc::clone(&pods[*index]));
            assert_eq!(order, expected);
        };
        check(
            vec![pod(1, Some(5)), pod(2, Some(9)), pod(1, Some(3))],
            &[1, 2, 0],
        );
        check(vec![pod(0, None), pod(0, None), pod(0, None)], &[2, 1, 0]);
        check(
            vec![pod(0, None), pod(0, Some(3)), pod(5, None)],
            &[2, 1, 0],
        );
        let many: Vec<Arc<Pod>> = (0..14).map(|_| pod(0, None)).collect();
        let reversed: Vec<usize> = (0..14).rev().collect();
        check(many, &reversed);
    }
}
