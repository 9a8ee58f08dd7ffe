//! `NodeResourcesBalancedAllocation`: likes nodes whose resources are used up alike.

use crate::cluster::NodeId;
use crate::framework::score::MAX_SCORE;
use crate::framework::state::Context;
use crate::model::ResourceId;

/// It has nothing to say about pods that ask for nothing.
pub fn is_best_effort(context: &Context<'_>) -> bool {
    let asked = &context.class.spec.local.requests;
    let resources = &context.profile.args.balanced.resources;
    resources.iter().all(|resource| asked.get(*resource) == 0)
}

/// `as_empty`: as if nothing were on the node.
pub fn score(context: &Context<'_>, node: NodeId, as_empty: bool) -> i64 {
    let nodes = &context.cluster.nodes;
    let asked = &context.class.spec.local.requests;
    let (mut with, mut without) = (Balance::default(), Balance::default());
    for resource in &context.profile.args.balanced.resources {
        let ask = asked.get(*resource);
        if ask == 0 && *resource > ResourceId::EPHEMERAL_STORAGE {
            continue;
        }
        let there = nodes.allocatable(*resource, node);
        if there == 0 {
            continue;
        }
        let taken = match as_empty {
            true => 0,
            false => nodes.requested(*resource, node),
        };
        with.add(taken.saturating_add(ask), there);
        without.add(taken, there);
    }
    let half = MAX_SCORE / 2;
    let better = with.score().saturating_sub(without.score());
    half + better.saturating_add(half) / 2
}

/// Shares of resources, for their deviation from each other. Enough for the resources that are weighed in practice.
#[derive(Default)]
struct Balance {
    shares: [f64; 8],
    number: usize,
}

impl Balance {
    fn add(&mut self, taken: i64, there: i64) {
        if let Some(share) = self.shares.get_mut(self.number) {
            *share = (taken as f64 / there as f64).min(1.0);
            self.number += 1;
        }
    }

    fn score(&self) -> i64 {
        let shares = &self.shares[..self.number];
        let deviation = match shares {
            [] | [_] => 0.0,
            [one, other] => ((one - other) / 2.0).abs(),
            several => {
                let number = several.len() as f64;
                let mean = several.iter().sum::<f64>() / number;
                let squares: f64 = several
                    .iter()
                    .map(|share| (share - mean) * (share - mean))
                    .sum();
                (squares / number).sqrt()
            }
        };
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::{Kit, node, pod};

    #[test]
    fn balance_is_better() {
        let mut kit = Kit::with_nodes(&[
            &node("empty", r#"{"cpu":"10","memory":"10000","pods":"10"}"#),
            &node("cpu-heavy", r#"{"cpu":"10","memory":"10000","pods":"10"}"#),
            &node(
                "memory-heavy",
                r#"{"cpu":"10","memory":"10000","pods":"10"}"#,
            ),
        ]);
        kit.place(&pod(r#"{"cpu":"5"}"#), "cpu-heavy");
        kit.place(&pod(r#"{"memory":"5000"}"#), "memory-heavy");
        // With the pod: |0.4-0|/2, |0.9-0|/2, |0.4-0.5|/2 -> 80, 55, 95; without: 100, 75, 75.
        let asks = pod(r#"{"cpu":"4"}"#);
        kit.check_scores(
            Plugin::NodeResourcesBalancedAllocation,
            &asks,
            &[("empty", 65), ("cpu-heavy", 65), ("memory-heavy", 85)],
        );
    }

    #[test]
    fn nothing_asked_nothing_said() {
        let mut kit =
            Kit::with_nodes(&[&node("n", r#"{"cpu":"10","memory":"10000","pods":"10"}"#)]);
        assert_eq!(
            kit.scores(Plugin::NodeResourcesBalancedAllocation, &pod("{}")),
            None
        );
    }

    #[test]
    fn three_resources_deviate_from_their_mean() {
        let mut kit = Kit::with_nodes(&[&node(
            "n",
            r#"{"cpu":"10","memory":"10000","ephemeral-storage":"1000","pods":"10"}"#,
        )]);
        kit.profile
            .args
            .balanced
            .resources
            .push(crate::model::ResourceId::EPHEMERAL_STORAGE);
        // Shares 0.3, 0.6, 0.9: deviation 0.2449; 75 against 100 before.
        let asks = pod(r#"{"cpu":"3","memory":"6000","ephemeral-storage":"900"}"#);
        kit.check_scores(Plugin::NodeResourcesBalancedAllocation, &asks, &[("n", 62)]);
    }
}
