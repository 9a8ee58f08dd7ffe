//! `LoadAwareScheduling`: looks at what nodes really use, not only at what was asked for.

use std::collections::BTreeMap;

use plimsoll_api::quantity::Quantity;
use serde_json::Value;

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::score::MAX_SCORE;
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};
use crate::model::{ControllerKind, Names, NodeMetric, Pod, ResourceId};
use crate::time::Time;
use plimsoll_golang::GoDuration;

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::NodeMetric, Action::ALL),
    ClusterEvent::new(Resource::Pod, Action::DELETE),
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_ALLOCATABLE)),
];

const RESOURCES: [ResourceId; 2] = [ResourceId::CPU, ResourceId::MEMORY];
const DEFAULTS: [i64; 2] = [250, 200 * 1024 * 1024];
/// Priorities of production work; of what takes what production leaves for a while, and from one moment to the next.
const PROD: std::ops::RangeInclusive<i32> = 9000..=9999;
const MID: std::ops::RangeInclusive<i32> = 7000..=7999;
const BATCH: std::ops::RangeInclusive<i32> = 5000..=5999;
/// What a node has, where others have changed what it says it has.
const RAW_ALLOCATABLE: &str = "node.koordinator.sh/raw-allocatable";
/// Thresholds of one node.
const OWN_THRESHOLDS: &str = "scheduling.koordinator.sh/usage-thresholds";

/// cpu and memory, in percent; `None`: not looked at.
pub type Thresholds = [Option<i64>; 2];

#[derive(Debug, Clone)]
pub struct LoadArgs {
    pub thresholds: Thresholds,
    pub prod_thresholds: Option<Thresholds>,
    /// Kind of aggregate (`p95`), window (0: the longest) and thresholds.
    pub aggregated: Option<(Box<str>, GoDuration, Thresholds)>,
    pub weights: [i64; 2],
    pub dominant_weight: i64,
    /// In percent of what was asked for.
    pub scaling: [i64; 2],
    pub expiration_seconds: i64,
    pub filter_expired: bool,
    /// Nodes whose report is too old are as good as others.
    pub schedule_when_expired: bool,
    pub score_by_prod_usage: bool,
    /// What the system itself uses counts as production's.
    pub prod_includes_system: bool,
    /// Kind of aggregate and window that scores are taken from.
    pub score_aggregated: Option<(Box<str>, GoDuration)>,
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
            schedule_when_expired: false,
            score_by_prod_usage: false,
            prod_includes_system: false,
            score_aggregated: None,
        }
    }
}

/// The resource that pods of this priority ask for instead of cpu or memory.
fn asked_for(names: &Names, priority: i32, index: usize) -> Option<ResourceId> {
    let lent = |cpu: &str, memory: &str| names.find_resource([cpu, memory][index]);
    match priority {
        priority if BATCH.contains(&priority) => {
            lent("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
        }
        priority if MID.contains(&priority) => {
            lent("kubernetes.io/mid-cpu", "kubernetes.io/mid-memory")
        }
        _ => Some(RESOURCES[index]),
    }
}

/// What a pod will probably use.
fn estimate(context: &Context<'_>, pod: &Pod, index: usize) -> i64 {
    let args = &context.profile.args.load;
    let local = &pod.spec.local;
    let resource = asked_for(&context.cluster.names, pod.priority, index);
    let (request, limit) = resource.map_or((0, 0), |resource| {
        (local.requests.get(resource), local.limits.get(resource))
    });
    let most = request.max(limit);
    if most == 0 {
        return DEFAULTS[index];
    }
    let scaled = (most as f64 * args.scaling[index] as f64 / 100.0).round() as i64;
    if limit > 0 { scaled.min(limit) } else { scaled }
}

/// What a node's annotation says, as JSON.
fn annotation(context: &Context<'_>, node: NodeId, key: &str) -> Option<Value> {
    let names = &context.cluster.names;
    let node = context.cluster.nodes.object(node)?;
    let text = names.text(node.annotations.get(names.find(key)?)?);
    serde_json::from_str(text).ok()
}

/// How much a node has.
fn capacity(context: &Context<'_>, node: NodeId, index: usize) -> i64 {
    let raw = annotation(context, node, RAW_ALLOCATABLE);
    let raw = raw.and_then(|raw| {
        let text = raw[["cpu", "memory"][index]].as_str()?.to_owned();
        let amount: Quantity = text.parse().ok()?;
        Some(match index {
            0 => amount.milli(),
            _ => amount.value(),
        })
    });
    raw.unwrap_or_else(|| context.cluster.nodes.allocatable(RESOURCES[index], node))
}

fn is_expired(args: &LoadArgs, metric: &NodeMetric, now: Time) -> bool {
    let limit = std::time::Duration::from_secs(args.expiration_seconds.unsigned_abs());
    metric
        .updated
        .is_none_or(|updated| now.since(updated) >= limit)
}

/// Which figures of a report count.
#[derive(Debug, Clone, PartialEq, Eq)]
enum View {
    Whole,
    /// Kind and window; 0: the longest.
    Aggregated(Box<str>, GoDuration),
    Prod,
}

/// Which figures count against which thresholds.
fn limits(context: &Context<'_>, node: NodeId) -> (View, Thresholds) {
    let args = &context.profile.args.load;
    let (mut whole, mut prod) = (args.thresholds, args.prod_thresholds);
    let mut aggregated = args.aggregated.clone();
    if let Some(own) = annotation(context, node, OWN_THRESHOLDS) {
        let pair = |value: &Value| {
            value
                .is_object()
                .then(|| [value["cpu"].as_i64(), value["memory"].as_i64()])
        };
        whole = pair(&own["usageThresholds"]).unwrap_or(whole);
        prod = pair(&own["prodUsageThresholds"]).or(prod);
        let nodes = &own["aggregatedUsage"];
        if let Some(thresholds) = pair(&nodes["usageThresholds"]) {
            let kind = nodes["usageAggregationType"].as_str().unwrap_or("p95");
            aggregated = Some((kind.into(), GoDuration::default(), thresholds));
        }
    }
    let is_prod = PROD.contains(&context.pod.priority);
    match (prod, aggregated) {
        (Some(thresholds), _) if is_prod => (View::Prod, thresholds),
        (_, Some((kind, window, thresholds))) => (View::Aggregated(kind, window), thresholds),
        _ => (View::Whole, whole),
    }
}

/// What the node uses, with what pods that are too new to be in the report will add.
fn used(context: &Context<'_>, metric: &NodeMetric, node: NodeId, view: &View) -> [i64; 2] {
    let args = &context.profile.args.load;
    let aggregated = match view {
        View::Aggregated(kind, window) => Some(aggregate(kind, *window, metric)),
        View::Whole | View::Prod => None,
    };
    // Without the aggregate that is asked for, all there is to go by is what pods will probably use.
    let knows_nothing = aggregated == Some(None);
    let reported: BTreeMap<_, _> = metric
        .pods
        .iter()
        .map(|usage| ((usage.namespace, &*usage.name), usage))
        .collect();
    let mut sum = match view {
        View::Whole => metric.usage,
        View::Aggregated(..) => aggregated.flatten().unwrap_or_default(),
        View::Prod => {
            let mut prod = match args.prod_includes_system {
                true => metric.system,
                false => [0, 0],
            };
            for usage in metric.pods.iter().filter(|usage| usage.prod) {
                for (sum, amount) in prod.iter_mut().zip(usage.usage) {
                    *sum = sum.saturating_add(amount);
                }
            }
            prod
        }
    };
    let since = metric.updated.map(|updated| {
        let interval = metric.report_interval.saturating_mul(1_000_000);
        Time(updated.0.saturating_sub(interval))
    });
    for id in context.cluster.nodes.pods(node) {
        let Some(record) = context.cluster.pods.get(*id) else {
            continue;
        };
        let pod = &record.pod;
        if *view == View::Prod && !PROD.contains(&pod.priority) {
            continue;
        }
        let usage = reported
            .get(&(pod.namespace(), &*pod.name))
            .filter(|_| !knows_nothing);
        let is_new = match (pod.started, since) {
            (Some(started), Some(since)) => started > since,
            _ => true,
        };
        if usage.is_some() && !is_new {
            continue;
        }
        for (index, sum) in sum.iter_mut().enumerate() {
            let known = usage.map_or(0, |usage| usage.usage[index]);
            let more = estimate(context, pod, index).saturating_sub(known);
            *sum = sum.saturating_add(more.max(0));
        }
    }
    sum
}

fn aggregate(kind: &str, window: GoDuration, metric: &NodeMetric) -> Option<[i64; 2]> {
    let found = match window {
        GoDuration(0) => metric
            .aggregates
            .iter()
            .max_by_key(|aggregate| aggregate.window),
        wanted => metric
            .aggregates
            .iter()
            .find(|aggregate| aggregate.window == wanted),
    };
    let usage = found?.usage.iter().find(|(name, _)| **name == *kind)?;
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
        return match args.filter_expired && !args.schedule_when_expired {
            true => Err(Refusal::unschedulable("node(s) nodeMetric expired")),
            false => Ok(()),
        };
    }
    let (view, thresholds) = limits(context, node);
    let used = used(context, metric, node, &view);
    for (index, threshold) in thresholds.iter().enumerate() {
        let there = capacity(context, node, index);
        let Some(threshold) = threshold.filter(|_| there > 0) else {
            continue;
        };
        let after = used[index].saturating_add(estimate(context, context.pod, index));
        let percent = (after as f64 / there as f64 * 100.0).round() as i64;
        if percent > threshold {
            return Err(Refusal::unschedulable(match (index, view) {
                (0, View::Aggregated(..)) => "node(s) cpu aggregated usage exceed threshold",
                (0, _) => "node(s) cpu usage exceed threshold",
                (_, View::Aggregated(..)) => "node(s) memory aggregated usage exceed threshold",
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
    let view = match (&args.score_aggregated, by_prod) {
        (_, true) => View::Prod,
        (Some((kind, window)), _) => View::Aggregated(kind.clone(), *window),
        (None, _) => View::Whole,
    };
    let used = used(context, metric, node, &view);
    let (mut sum, mut weights, mut least) = (0_i64, 0_i64, MAX_SCORE);
    for (index, used) in used.iter().enumerate() {
        let there = capacity(context, node, index);
        let after = used.saturating_add(estimate(context, context.pod, index));
        let score = if there <= 0 || after > there {
            0
        } else {
            let left = i128::from(there.saturating_sub(after).max(0));
            (left * i128::from(MAX_SCORE) / i128::from(there)) as i64
        };
        let score = score.min(MAX_SCORE);
        sum = args.weights[index]
            .saturating_mul(score)
            .saturating_add(sum);
        weights = args.weights[index].saturating_add(weights);
        least = least.min(score);
    }
    let dominant = args.dominant_weight.saturating_mul(least);
    let weights = weights.saturating_add(args.dominant_weight).max(1);
    sum.saturating_add(dominant) / weights
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

    /// cpu of the node in percent of ten cores: 60 used, 40 by production, 10 by the system, 50 and 70 on average.
    const REPORT: &str = r#"{"nodeUsage":{"resources":{"cpu":"6","memory":"1Gi"}},
        "systemUsage":{"resources":{"cpu":"1","memory":"0"}},
        "aggregatedNodeUsages":[
            {"duration":"5m","usage":{"p95":{"resources":{"cpu":"5","memory":"1Gi"}}}},
            {"duration":"30m","usage":{"p95":{"resources":{"cpu":"7","memory":"1Gi"}}}}]}"#;

    /// A pod that will use 1 % of the node by estimate, under these arguments, on a node with these annotations.
    #[track_caller]
    fn check(
        change: impl FnOnce(&mut super::LoadArgs),
        annotations: &str,
        priority: i32,
        fits: bool,
    ) {
        let json = format!(
            r#"{{"metadata":{{"name":"n","annotations":{annotations}}},
                "status":{{"allocatable":{{"cpu":"10","memory":"10Gi","pods":"10"}}}}}}"#
        );
        let mut kit = Kit::with_nodes(&[&json]);
        kit.set_report(
            "n",
            REPORT,
            r#"[{"namespace":"d","name":"a","priority":"koord-prod",
            "podUsage":{"resources":{"cpu":"4","memory":"0"}}}]"#,
        );
        change(&mut kit.profile.args.load);
        let pod = format!(
            r#"{{"metadata":{{"namespace":"d","name":"p"}},"spec":{{"priority":{priority},"containers":
                [{{"resources":{{"requests":{{"cpu":"118m","memory":"1Mi"}}}}}}]}}}}"#
        );
        let verdict = kit.verdict(PLUGIN, &pod, "n");
        assert_eq!(verdict == "fits", fits, "{verdict}");
    }

    #[test]
    fn which_figures_count_against_which_thresholds() {
        let at = |cpu: i64| [Some(cpu), None];
        // 61 % of it would be used.
        check(|args| args.thresholds = at(61), "{}", 0, true);
        check(|args| args.thresholds = at(60), "{}", 0, false);
        // Production alone: 41 %, with the system 51 %.
        for (limit, system, fits) in [
            (41, false, true),
            (40, false, false),
            (50, true, false),
            (51, true, true),
        ] {
            let change = |args: &mut super::LoadArgs| {
                args.prod_thresholds = Some(at(limit));
                args.prod_includes_system = system;
            };
            check(change, "{}", 9500, fits);
        }
        // Who is not production is held against the whole, 65 %.
        check(|args| args.prod_thresholds = Some(at(1)), "{}", 100, true);
        // Aggregates: of five minutes 51 %, of the longest time 71 %; one that is not there is no use.
        for (kind, seconds, limit, fits) in [
            ("p95", 300, 51, true),
            ("p95", 300, 50, false),
            ("p95", 0, 71, true),
            ("p95", 0, 70, false),
            ("p99", 300, 1, true),
        ] {
            let change = |args: &mut super::LoadArgs| {
                args.aggregated = Some((
                    kind.into(),
                    super::GoDuration::from_secs(seconds),
                    at(limit),
                ));
            };
            check(change, "{}", 0, fits);
        }
    }

    #[test]
    fn nodes_have_a_word_of_their_own() {
        let own = r#"{"scheduling.koordinator.sh/usage-thresholds":"{\"usageThresholds\":{\"cpu\":60}}"}"#;
        check(|_| {}, own, 0, false);
        let own = r#"{"scheduling.koordinator.sh/usage-thresholds":"{\"usageThresholds\":{\"cpu\":61}}"}"#;
        check(|args| args.thresholds = [Some(10), None], own, 0, true);
        // Twenty cores in truth: 31 %.
        let raw = r#"{"node.koordinator.sh/raw-allocatable":"{\"cpu\":\"20\"}"}"#;
        check(|args| args.thresholds = [Some(31), None], raw, 0, true);
        check(|args| args.thresholds = [Some(30), None], raw, 0, false);
    }

    #[test]
    fn old_reports() {
        let asks = pod(r#"{"cpu":"1"}"#);
        let mut kit = kit("9", "9Gi", 180);
        kit.profile.args.load.schedule_when_expired = true;
        kit.check(PLUGIN, &asks, "n", "fits");
        kit.profile.args.load.schedule_when_expired = false;
        kit.profile.args.load.filter_expired = false;
        kit.check(PLUGIN, &asks, "n", "fits");
        kit.profile.args.load.filter_expired = true;
        kit.profile.args.load.expiration_seconds = 300;
        kit.check(
            PLUGIN,
            &asks,
            "n",
            "Unschedulable: node(s) cpu usage exceed threshold",
        );
    }

    /// What batch pods ask for is their own; without anything, little is assumed.
    #[test]
    fn estimates() {
        for (priority, requests, percent) in [
            (0, r#"{"cpu":"1"}"#, 9),
            (0, r#"{"kubernetes.io/batch-cpu":"4000"}"#, 3),
            (5500, r#"{"kubernetes.io/batch-cpu":"4000"}"#, 34),
            (7500, r#"{"kubernetes.io/mid-cpu":"2000"}"#, 17),
            (0, "{}", 3),
        ] {
            let mut kit = kit("0", "0", 0);
            let pod = format!(
                r#"{{"spec":{{"priority":{priority},"containers":[{{"resources":{{"requests":{requests}}}}}]}}}}"#
            );
            for (limit, fits) in [(percent, true), (percent - 1, false)] {
                kit.profile.args.load.thresholds = [Some(limit), None];
                let verdict = kit.verdict(PLUGIN, &pod, "n");
                assert_eq!(verdict == "fits", fits, "{requests} {limit}: {verdict}");
            }
        }
    }

    #[test]
    fn the_scarcest_resource_may_weigh_more() {
        let mut kit = kit("4", "9Gi", 0);
        let asks = pod(r#"{"cpu":"1","memory":"1Mi"}"#);
        // 51 % and 9 % would be left.
        kit.check_scores(PLUGIN, &asks, &[("n", 30)]);
        kit.profile.args.load.dominant_weight = 2;
        kit.check_scores(PLUGIN, &asks, &[("n", 19)]);
        kit.profile.args.load.weights = [1, 0];
        kit.profile.args.load.dominant_weight = 0;
        kit.check_scores(PLUGIN, &asks, &[("n", 51)]);
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
