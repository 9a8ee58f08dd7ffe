//! `LoadAwareScheduling`: looks at what nodes really use, not only at what was asked for.

use std::collections::BTreeMap;

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::score::MAX_SCORE;
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};
use crate::model::{ControllerKind, NodeMetric, Pod, ResourceId};
use crate::time::Time;

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::NodeMetric, Action::ALL),
    ClusterEvent::new(Resource::Pod, Action::DELETE),
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_ALLOCATABLE)),
];

const RESOURCES: [ResourceId; 2] = [ResourceId::CPU, ResourceId::MEMORY];
const DEFAULTS: [i64; 2] = [250, 200 * 1024 * 1024];
/// Pods from here on are production work.
const PROD: std::ops::RangeInclusive<i32> = 9000..=9999;

/// cpu and memory, in percent; `None`: not looked at.
pub type Thresholds = [Option<i64>; 2];

#[derive(Debug, Clone)]
pub struct LoadArgs {
    pub thresholds: Thresholds,
    pub prod_thresholds: Option<Thresholds>,
    /// Kind of aggregate (`p95`), seconds (0: the longest) and thresholds.
    pub aggregated: Option<(Box<str>, i64, Thresholds)>,
    pub weights: [i64; 2],
    pub dominant_weight: i64,
    /// In percent of what was asked for.
    pub scaling: [i64; 2],
    pub expiration_seconds: i64,
    pub filter_expired: bool,
    pub score_by_prod_usage: bool,
}

impl Default for LoadArgs {
    fn default() -> Self {
        Self {
            thresholds: [Some(65), Some(95)],
            prod_thresholds: None,
            aggregated: None,
            weights: [1, 1],
            dominant_weight: 0,
            scaling: [85, 70],
            expiration_seconds: 180,
            filter_expired: true,
            score_by_prod_usage: false,
        }
    }
}

/// What a pod will probably use.
fn estimate(args: &LoadArgs, pod: &Pod, index: usize) -> i64 {
    let local = &pod.spec.local;
    let (request, limit) = (
        local.requests.get(RESOURCES[index]),
        local.limits.get(RESOURCES[index]),
    );
    let most = request.max(limit);
    if most == 0 {
        return DEFAULTS[index];
    }
    let scaled = (most as f64 * args.scaling[index] as f64 / 100.0).round() as i64;
    if limit > 0 { scaled.min(limit) } else { scaled }
}

fn is_expired(args: &LoadArgs, metric: &NodeMetric, now: Time) -> bool {
    let limit = std::time::Duration::from_secs(args.expiration_seconds.unsigned_abs());
    metric
        .updated
        .is_none_or(|updated| now.since(updated) >= limit)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Whole,
    Aggregated,
    Prod,
}

/// What the node uses, with what pods that are too new to be in the report will add.
fn used(context: &Context<'_>, metric: &NodeMetric, node: NodeId, view: View) -> [i64; 2] {
    let args = &context.profile.args.load;
    let reported: BTreeMap<_, _> = metric
        .pods
        .iter()
        .map(|usage| ((usage.namespace, &*usage.name), usage))
        .collect();
    let mut sum = match view {
        View::Whole => metric.usage,
        View::Aggregated => aggregate(args, metric).unwrap_or(metric.usage),
        View::Prod => {
            let mut prod = [0, 0];
            for usage in metric.pods.iter().filter(|usage| usage.prod) {
                for (sum, amount) in prod.iter_mut().zip(usage.usage) {
                    *sum += amount;
                }
            }
            prod
        }
    };
    let since = metric
        .updated
        .map(|updated| Time(updated.0 - metric.report_interval * 1_000_000));
    for id in context.cluster.nodes.pods(node) {
        let Some(record) = context.cluster.pods.get(*id) else {
            continue;
        };
        let pod = &record.pod;
        if view == View::Prod && !PROD.contains(&pod.priority) {
            continue;
        }
        let usage = reported.get(&(pod.namespace(), &*pod.name));
        let is_new = match (pod.started, since) {
            (Some(started), Some(since)) => started > since,
            _ => true,
        };
        if usage.is_some() && !is_new {
            continue;
        }
        for (index, sum) in sum.iter_mut().enumerate() {
            let known = usage.map_or(0, |usage| usage.usage[index]);
            *sum += (estimate(args, pod, index) - known).max(0);
        }
    }
    sum
}

fn aggregate(args: &LoadArgs, metric: &NodeMetric) -> Option<[i64; 2]> {
    let (kind, seconds, _) = args.aggregated.as_ref()?;
    let found = match seconds {
        0 => metric
            .aggregates
            .iter()
            .max_by_key(|aggregate| aggregate.seconds),
        wanted => metric
            .aggregates
            .iter()
            .find(|aggregate| aggregate.seconds == *wanted),
    };
    let usage = found?.usage.iter().find(|(name, _)| name == kind)?;
    Some(usage.1)
}

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    let args = &context.profile.args.load;
    let owner = context.class.spec.controller.as_ref();
    if owner.is_some_and(|owner| owner.kind == ControllerKind::DaemonSet) {
        return Ok(());
    }
    let Some(metric) = context
        .cluster
        .metrics
        .get(&context.cluster.nodes.name(node))
    else {
        return Ok(());
    };
    if is_expired(args, metric, context.now) {
        return match args.filter_expired {
            true => Err(Refusal::unschedulable("node(s) nodeMetric expired")),
            false => Ok(()),
        };
    }
    let is_prod = PROD.contains(&context.pod.priority);
    let (view, thresholds) = match (&args.prod_thresholds, &args.aggregated) {
        (Some(thresholds), _) if is_prod => (View::Prod, thresholds),
        (_, Some((_, _, thresholds))) => (View::Aggregated, thresholds),
        _ => (View::Whole, &args.thresholds),
    };
    let used = used(context, metric, node, view);
    for (index, threshold) in thresholds.iter().enumerate() {
        let there = context.cluster.nodes.allocatable(RESOURCES[index], node);
        let Some(threshold) = threshold.filter(|_| there > 0) else {
            continue;
        };
        let after = used[index] + estimate(args, context.pod, index);
        let percent = (after as f64 / there as f64 * 100.0).round() as i64;
        if percent > threshold {
            return Err(Refusal::unschedulable(match (index, view) {
                (0, View::Aggregated) => "node(s) cpu aggregated usage exceed threshold",
                (0, _) => "node(s) cpu usage exceed threshold",
                (_, View::Aggregated) => "node(s) memory aggregated usage exceed threshold",
                (_, _) => "node(s) memory usage exceed threshold",
            }));
        }
    }
    Ok(())
}

/// The less it uses, the better; without a fresh report, nothing.
pub fn score(context: &Context<'_>, node: NodeId) -> i64 {
    let args = &context.profile.args.load;
    let Some(metric) = context
        .cluster
        .metrics
        .get(&context.cluster.nodes.name(node))
    else {
        return 0;
    };
    if is_expired(args, metric, context.now) {
        return 0;
    }
    let by_prod = args.score_by_prod_usage && PROD.contains(&context.pod.priority);
    let used = used(
        context,
        metric,
        node,
        if by_prod { View::Prod } else { View::Whole },
    );
    let (mut sum, mut weights, mut least) = (0, 0, MAX_SCORE);
    for index in 0..RESOURCES.len() {
        let there = context.cluster.nodes.allocatable(RESOURCES[index], node);
        let after = used[index] + estimate(args, context.pod, index);
        let score = if there == 0 || after > there {
            0
        } else {
            (there - after) * MAX_SCORE / there
        };
        sum += args.weights[index] * score;
        weights += args.weights[index];
        least = least.min(score);
    }
    (sum + args.dominant_weight * least) / (weights + args.dominant_weight).max(1)
}

pub fn may_help(_: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Pod(Some(gone), None) => gone.node.is_some(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::{Kit, node, pod};

    const PLUGIN: Plugin = Plugin::LoadAwareScheduling;

    /// 10 cores and 10 GiB, of which so much is used.
    fn kit(cpu: &str, memory: &str, age: i64) -> Kit {
        let mut kit = Kit::with_nodes(&[&node("n", r#"{"cpu":"10","memory":"10Gi","pods":"10"}"#)]);
        kit.set_metric("n", cpu, memory, age);
        kit
    }

    #[test]
    fn thresholds_count_with_what_the_pod_will_use() {
        let asks = pod(r#"{"cpu":"1","memory":"1Gi"}"#);
        // 85 % of a core comes on top.
        kit("5", "1Gi", 0).check(PLUGIN, &asks, "n", "fits");
        kit("5700m", "1Gi", 0).check(
            PLUGIN,
            &asks,
            "n",
            "Unschedulable: node(s) cpu usage exceed threshold",
        );
        kit("1", "9Gi", 0).check(
            PLUGIN,
            &asks,
            "n",
            "Unschedulable: node(s) memory usage exceed threshold",
        );
        kit("9", "9Gi", 180).check(
            PLUGIN,
            &asks,
            "n",
            "Unschedulable: node(s) nodeMetric expired",
        );
        let daemon = r#"{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","controller":true}]}}"#;
        kit("9", "9Gi", 0).check(PLUGIN, daemon, "n", "fits");
        Kit::with_nodes(&[&node("n", r#"{"cpu":"10"}"#)]).check(PLUGIN, &asks, "n", "fits");
    }

    #[test]
    fn pods_too_new_for_the_report_are_estimated() {
        let mut kit = kit("5", "1Gi", 0);
        kit.place(&pod(r#"{"cpu":"1"}"#), "n");
        kit.check(
            PLUGIN,
            &pod(r#"{"cpu":"1"}"#),
            "n",
            "Unschedulable: node(s) cpu usage exceed threshold",
        );
    }

    #[test]
    fn less_use_scores_higher() {
        let mut kit = kit("4", "5Gi", 0);
        kit.add_node(&node("idle", r#"{"cpu":"10","memory":"10Gi","pods":"10"}"#));
        kit.set_metric("idle", "0", "0", 0);
        kit.add_node(&node(
            "silent",
            r#"{"cpu":"10","memory":"10Gi","pods":"10"}"#,
        ));
        // cpu: 10 - 4 - 0.85 = 51 %; memory: 10 - 5 - 0.7, just below 43 %.
        let asks = pod(r#"{"cpu":"1","memory":"1Gi"}"#);
        kit.check_scores(PLUGIN, &asks, &[("idle", 91), ("n", 46), ("silent", 0)]);
    }
}
