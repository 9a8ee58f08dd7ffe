//! The choice between nodes that preemption could empty.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Candidate;
use crate::time::Time;

/// Fewest broken budgets, least important victims, least importance in sum, fewest victims, youngest among the most
/// important victims; the first of those that are left.
pub fn best(candidates: &[Arc<Candidate>], now: Time) -> usize {
    let rank = |candidate: &Candidate| {
        let top = candidate
            .victims
            .first()
            .map_or(i32::MIN, |victim| victim.priority);
        // Shifted above zero, so that more victims of negative priority are never better than fewer.
        let sum: i64 = candidate
            .victims
            .iter()
            .map(|victim| i64::from(victim.priority) + (1 << 31))
            .sum();
        let oldest = candidate
            .victims
            .iter()
            .filter(|victim| victim.priority == top)
            .map(|victim| victim.started.unwrap_or(now))
            .min();
        (
            candidate.violations,
            top,
            sum,
            candidate.victims.len(),
            Reverse(oldest),
        )
    };
    let ranked = candidates.iter().enumerate();
    ranked
        .min_by_key(|(_, candidate)| rank(candidate))
        .map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::NodeId;
    use crate::plugins::testing::Kit;

    /// Victims by priority and start, and how many budgets their end would break.
    #[track_caller]
    fn check(nodes: &[(&[(i32, i64)], usize)], expected: usize) {
        let mut kit = Kit::default();
        let candidates: Vec<_> = nodes
            .iter()
            .enumerate()
            .map(|(index, (victims, violations))| {
                let victims = victims
                    .iter()
                    .map(|(priority, started)| {
                        let mut pod = kit.decode_pod("{}");
                        pod.priority = *priority;
                        pod.started = Some(Time(*started));
                        Arc::new(pod)
                    })
                    .collect();
                Arc::new(Candidate {
                    node: NodeId(index as u32),
                    victims,
                    ids: Vec::new(),
                    violations: *violations,
                })
            })
            .collect();
        assert_eq!(best(&candidates, Time(1000)), expected);
    }

    #[test]
    fn budgets_then_importance_then_number_then_age() {
        check(&[(&[(1, 0)], 1), (&[(9, 0), (9, 0)], 0)], 1);
        check(&[(&[(5, 0)], 0), (&[(3, 0), (3, 0), (3, 0)], 0)], 1);
        check(&[(&[(5, 0), (4, 0)], 0), (&[(5, 0), (1, 0)], 0)], 1);
        // Two victims of negative priority are not better than one.
        check(&[(&[(-5, 0), (-5, 0)], 0), (&[(-5, 0)], 0)], 1);
        check(&[(&[(5, 10)], 0), (&[(5, 20)], 0)], 1);
        // The oldest among the most important counts.
        check(&[(&[(5, 10), (5, 99)], 0), (&[(5, 20), (5, 30)], 0)], 1);
        check(&[(&[(5, 10)], 0), (&[(5, 10)], 0)], 0);
    }
}
