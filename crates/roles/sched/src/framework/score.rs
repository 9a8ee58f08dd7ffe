//! Scores: taken by plugin, brought to 0..100, weighted and summed.

use super::local::LocalEntry;
use super::plugin::Plugin;
use super::state::{Context, CycleState};
use crate::cluster::NodeId;
use crate::plugins;

pub const MAX_SCORE: i64 = 100;

/// Whether a plugin looks at the pod before it scores nodes.
pub fn has_pre_score(plugin: Plugin) -> bool {
    !matches!(
        plugin,
        Plugin::ImageLocality | Plugin::DynamicResources | Plugin::LoadAwareScheduling
    )
}

/// Whether a plugin has anything to say about a pod. With `true`, [`column`] may still find that it has not.
pub fn has_say(plugin: Plugin, context: &Context<'_>, state: &CycleState) -> bool {
    match plugin {
        Plugin::NodeAffinity => plugins::node_affinity::prefers(context),
        Plugin::NodeResourcesBalancedAllocation => {
            !plugins::balanced_allocation::is_best_effort(context)
        }
        Plugin::PodTopologySpread => state.spread.is_some(),
        Plugin::InterPodAffinity => state.affinity.is_some(),
        Plugin::DynamicResources => state.claims.is_some(),
        _ => true,
    }
}

/// A plugin's scores of the nodes that fit, in their order; `false` if it has none to give.
pub fn column(
    plugin: Plugin,
    context: &Context<'_>,
    state: &CycleState,
    nodes: &[NodeId],
    locals: &[LocalEntry],
    out: &mut Vec<i64>,
) -> bool {
    out.clear();
    if !has_say(plugin, context, state) {
        return false;
    }
    match plugin {
        Plugin::TaintToleration => {
            out.extend(locals.iter().map(|entry| i64::from(entry.untolerated)));
            normalize(out, true);
        }
        Plugin::NodeAffinity => {
            out.extend(locals.iter().map(|entry| i64::from(entry.affinity)));
            normalize(out, false);
        }
        Plugin::NodeResourcesFit => out.extend(locals.iter().map(|entry| i64::from(entry.fit))),
        Plugin::NodeResourcesBalancedAllocation => {
            out.extend(locals.iter().map(|entry| i64::from(entry.balance)));
        }
        Plugin::ImageLocality if state.nodes_as_empty => return false,
        Plugin::ImageLocality => return plugins::image_locality::score(context, nodes, out),
        Plugin::PodTopologySpread => {
            return plugins::pod_topology_spread::score(context, state, nodes, out);
        }
        Plugin::InterPodAffinity => {
            return plugins::inter_pod_affinity::score(context, state, nodes, out);
        }
        Plugin::DynamicResources => {
            return plugins::dynamic_resources::score(context, state, nodes, out);
        }
        Plugin::LoadAwareScheduling => {
            out.extend(
                nodes
                    .iter()
                    .map(|node| plugins::load_aware::score(context, *node)),
            );
        }
        _ => return false,
    }
    true
}

/// In proportion to the greatest; reversed, the greatest becomes 0.
pub fn normalize(scores: &mut [i64], reverse: bool) {
    let greatest = scores.iter().copied().max().unwrap_or(0);
    if greatest == 0 {
        if reverse {
            scores.fill(MAX_SCORE);
        }
        return;
    }
    for score in scores {
        let share = i128::from(MAX_SCORE) * i128::from(*score) / i128::from(greatest);
        *score = i64::try_from(share).unwrap_or(0);
        if reverse {
            *score = MAX_SCORE - *score;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalisation() {
        let check = |scores: &[i64], reverse, expected: &[i64]| {
            let mut scores = scores.to_vec();
            normalize(&mut scores, reverse);
            assert_eq!(scores, expected);
        };
        check(&[0, 5, 10], false, &[0, 50, 100]);
        check(&[0, 1, 3], true, &[100, 67, 0]);
        check(&[0, 0], true, &[100, 100]);
        check(&[0, 0], false, &[0, 0]);
    }
}
