//! Disruption budgets.

use std::sync::Arc;

use crate::cluster::{Cluster, PodId};
use crate::model::Pod;

/// Whose eviction would break a budget, given that those before go, too.
pub fn violating(cluster: &Cluster, pods: &[(PodId, Arc<Pod>)]) -> Vec<bool> {
    if cluster.budgets.is_empty() {
        return vec![false; pods.len()];
    }
    let budgets: Vec<_> = cluster
        .budgets
        .values()
        .filter(|budget| !budget.selector.is_empty())
        .collect();
    let mut left: Vec<i32> = budgets
        .iter()
        .map(|budget| budget.disruptions_allowed)
        .collect();
    pods.iter()
        .map(|(_, pod)| {
            if pod.spec.labels.is_empty() {
                return false;
            }
            // Every budget that covers it is used up a little more, whatever the others say.
            let mut violates = false;
            for (budget, left) in budgets.iter().zip(&mut left) {
                let covered = budget.namespace == pod.namespace()
                    && budget.selector.matches(&pod.spec.labels, &cluster.names)
                    && !budget.disrupted.contains(&pod.name);
                if !covered {
                    continue;
                }
                *left = left.saturating_sub(1);
                violates |= *left < 0;
            }
            violates
        })
        .collect()
}
