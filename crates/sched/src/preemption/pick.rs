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
