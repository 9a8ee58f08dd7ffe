//! `NodeResourcesFit`: a node must have room for what a pod asks; how full it would be is its score.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::profile::Strategy;
use crate::framework::score::MAX_SCORE;
use crate::framework::state::Context;
use crate::framework::status::{Code, Reason, Refusal, Verdict};
use crate::model::devices::DeviceClass;
use crate::model::symbol::{DEVICE_CLASS_PREFIX, is_extended_resource};
use crate::model::{Node, Pod, ResourceId};
use crate::plugins::dynamic_resources::extended;

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::Pod, Action::DELETE.or(Action::POD_SCALE_DOWN)),
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_ALLOCATABLE)),
    ClusterEvent::new(Resource::DeviceClass, Action::ADD.or(Action::UPDATE)),
];

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    let nodes = &context.cluster.nodes;
    let requests = &context.class.spec.local.requests;
    let crowded = nodes.pods(node).len() as i64 + 1 > nodes.pod_limit(node);
    let room = |resource: ResourceId| {
        let there = nodes.allocatable(resource, node);
        there.saturating_sub(nodes.requested(resource, node))
    };
    let lacking = |(resource, amount): &(ResourceId, i64)| {
        *amount > 0
            && *amount > room(*resource)
            && !is_ignored(context, *resource)
            && !extended::is_delegated(context, *resource, node)
    };
    if !crowded && !requests.iter().any(|ask| lacking(&ask)) {
        return Ok(());
    }
    let mut reasons = Vec::new();
    if crowded {
        reasons.push(Reason::Text("Too many pods"));
    }
    let mut hopeless = false;
    for (resource, amount) in requests.iter().filter(lacking) {
        hopeless |= amount > nodes.allocatable(resource, node);
        reasons.push(Reason::Insufficient(resource));
    }
    let code = if hopeless {
        Code::Unresolvable
    } else {
        Code::Unschedulable
    };
    let reasons = reasons.into();
    Err(Refusal { code, reasons })
}

fn is_ignored(context: &Context<'_>, resource: ResourceId) -> bool {
    let args = &context.profile.args.fit;
    if args.ignored.is_empty() && args.ignored_groups.is_empty() {
        return false;
    }
    let name = context.cluster.names.resource_name(resource);
    let group = name.split('/').next().unwrap_or_default();
    is_extended_resource(name)
        && (args.ignored.contains(&resource)
            || args
                .ignored_groups
                .iter()
                .any(|ignored| &**ignored == group))
}

fn is_scalar(resource: ResourceId) -> bool {
    resource > ResourceId::EPHEMERAL_STORAGE
}

/// How much of a resource would be taken with the pod, and how much there is; `None` where it does not matter.
fn after(
    context: &Context<'_>,
    resource: ResourceId,
    node: NodeId,
    as_empty: bool,
) -> Option<(i64, i64)> {
    let nodes = &context.cluster.nodes;
    let asked = context.class.spec.local.scored.get(resource);
    if asked == 0 && is_scalar(resource) {
        return None;
    }
    let there = nodes.allocatable(resource, node);
    if there == 0 {
        return None;
    }
    let taken = match resource {
        _ if as_empty => 0,
        ResourceId::CPU => nodes.scored(node)[0],
        ResourceId::MEMORY => nodes.scored(node)[1],
        other => nodes.requested(other, node),
    };
    Some((taken.wrapping_add(asked), there))
}

/// `as_empty`: as if nothing were on the node.
pub fn score(context: &Context<'_>, node: NodeId, as_empty: bool) -> i64 {
    let args = &context.profile.args.fit;
    let (mut sum, mut weights) = (0_i64, 0_i64);
    for (resource, weight) in &args.resources {
        let Some((taken, there)) = after(context, *resource, node, as_empty) else {
            continue;
        };
        let score = match &args.strategy {
            Strategy::LeastAllocated if taken > there => 0,
            // Of exbibytes, a hundred times as much is more than there are numbers; the original goes on nevertheless.
            Strategy::LeastAllocated => there
                .wrapping_sub(taken)
                .wrapping_mul(MAX_SCORE)
                .wrapping_div(there),
            Strategy::MostAllocated => taken.min(there).wrapping_mul(MAX_SCORE).wrapping_div(there),
            Strategy::RequestedToCapacityRatio(shape) => {
                let score = along(
                    shape,
                    if taken > there {
                        100
                    } else {
                        taken.wrapping_mul(100).wrapping_div(there)
                    },
                );
                if score <= 0 {
                    continue;
                }
                score
            }
        };
        sum = score.saturating_mul(*weight).saturating_add(sum);
        weights = weight.saturating_add(weights);
    }
    match (weights, &args.strategy) {
        (0, _) => 0,
        (_, Strategy::RequestedToCapacityRatio(_)) => (sum as f64 / weights as f64).round() as i64,
        _ => sum.saturating_div(weights),
    }
}

/// The value of a line through points, level before the first and after the last.
pub fn along(shape: &[(i64, i64)], at: i64) -> i64 {
    let mut before: Option<(i64, i64)> = None;
    for (x, y) in shape {
        if at <= *x {
            return match before {
                None => *y,
                Some((x0, y0)) => {
                    let [x, y, x0, y0, at] = [*x, *y, x0, y0, at].map(i128::from);
                    let value = y0 + (y - y0) * (at - x0) / (x - x0).max(1);
                    i64::try_from(value).unwrap_or(i64::MAX)
                }
            };
        }
        before = Some((*x, *y));
    }
    before.map_or(0, |(_, y)| y)
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Pod(Some(gone), None) => gone.node.is_some() || gone.nominated.is_some(),
        Change::Pod(Some(old), Some(new)) => scaled_down(context, old, new),
        Change::Node(old, Some(new)) => {
            fits_empty(context, new) && old.is_none_or(|old| grew(context, old, new))
        }
        Change::DeviceClass(old, Some(new)) => class_may_help(context, old, new),
        _ => true,
    }
}

fn scaled_down(context: &Context<'_>, old: &Pod, new: &Pod) -> bool {
    if new.uid == context.pod.uid {
        return true;
    }
    let (before, now) = (&old.charge().requests, &new.charge().requests);
    let mut asked = context.class.spec.local.requests.iter();
    new.node.is_some() && asked.any(|(id, amount)| amount != 0 && before.get(id) > now.get(id))
}

/// Whether devices would have to stand for a resource that an otherwise empty node does not have.
fn is_left_to_devices(context: &Context<'_>, resource: ResourceId, node: &Node) -> bool {
    is_scalar(resource)
        && node.allocatable.get(resource) == 0
        && extended::class_of(context, resource).is_some()
}

/// Whether the node could take the pod if there were nobody else.
fn fits_empty(context: &Context<'_>, node: &Node) -> bool {
    let mut asked = context.class.spec.local.requests.iter();
    node.pods >= 1
        && asked.all(|(id, amount)| {
            amount <= node.allocatable.get(id) || is_left_to_devices(context, id, node)
        })
}

/// Whether there is more of something that the pod asks for.
fn grew(context: &Context<'_>, old: &Node, new: &Node) -> bool {
    let mut asked = context.class.spec.local.requests.iter();
    new.pods > old.pods
        || asked.any(|(id, amount)| {
            let more = new.allocatable.get(id) > old.allocatable.get(id);
            amount > 0 && (more || is_left_to_devices(context, id, new))
        })
}

/// Whether devices of a class stand for something that the pod asks for, now that the class is there or has changed.
fn class_may_help(context: &Context<'_>, old: Option<&DeviceClass>, new: &DeviceClass) -> bool {
    if old.is_some_and(|old| old.resource == new.resource) {
        return false;
    }
    let names = &context.cluster.names;
    let mut asked = context.class.spec.local.requests.iter();
    asked.any(|(id, _)| {
        let name = names.resource_name(id);
        let by_class = name.strip_prefix(DEVICE_CLASS_PREFIX);
        new.resource.as_deref() == Some(name) || (old.is_none() && by_class == Some(&*new.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::{Kit, node, pod};

    #[test]
    fn room_is_counted() {
        let check = |asks: &str, expected| {
            let mut kit = Kit::with_nodes(&[&node(
                "n",
                r#"{"cpu":"2","memory":"4Gi","pods":"3","ephemeral-storage":"1Gi","example.com/gpu":"1"}"#,
            )]);
            kit.place(&pod(r#"{"cpu":"1","memory":"1Gi"}"#), "n");
            kit.check(Plugin::NodeResourcesFit, &pod(asks), "n", expected);
        };
        check("{}", "fits");
        check(r#"{"cpu":"1","memory":"3Gi"}"#, "fits");
        check(r#"{"cpu":"1001m"}"#, "Unschedulable: Insufficient cpu");
        check(r#"{"cpu":"2001m"}"#, "Unresolvable: Insufficient cpu");
        check(
            r#"{"cpu":"2","memory":"4Gi"}"#,
            "Unschedulable: Insufficient cpu, Insufficient memory",
        );
        check(
            r#"{"ephemeral-storage":"2Gi"}"#,
            "Unresolvable: Insufficient ephemeral-storage",
        );
        check(r#"{"example.com/gpu":"1"}"#, "fits");
        check(
            r#"{"example.com/gpu":"2"}"#,
            "Unresolvable: Insufficient example.com/gpu",
        );
        check(
            r#"{"example.com/fpga":"1"}"#,
            "Unresolvable: Insufficient example.com/fpga",
        );
        check(r#"{"example.com/fpga":"0"}"#, "fits");
    }

    #[test]
    fn pods_are_counted_too() {
        let mut kit = Kit::with_nodes(&[&node("n", r#"{"cpu":"2","pods":"1"}"#)]);
        kit.place(&pod("{}"), "n");
        kit.check(
            Plugin::NodeResourcesFit,
            &pod("{}"),
            "n",
            "Unschedulable: Too many pods",
        );
        kit.check(
            Plugin::NodeResourcesFit,
            &pod(r#"{"cpu":"9"}"#),
            "n",
            "Unresolvable: Too many pods, Insufficient cpu",
        );
    }

    #[test]
    fn ignored_resources_are_somebody_elses() {
        let mut kit = Kit::with_nodes(&[&node("n", r#"{"cpu":"2","pods":"10"}"#)]);
        let gpu = kit.cluster.names.resource("example.com/gpu");
        kit.profile.args.fit.ignored.push(gpu);
        kit.profile
            .args
            .fit
            .ignored_groups
            .push("other.example.com".into());
        kit.check(
            Plugin::NodeResourcesFit,
            &pod(r#"{"other.example.com/fpga":"1"}"#),
            "n",
            "fits",
        );
        kit.check(
            Plugin::NodeResourcesFit,
            &pod(r#"{"example.com/gpu":"1"}"#),
            "n",
            "fits",
        );
    }

    fn kit() -> Kit {
        let mut kit = Kit::with_nodes(&[
            &node("empty", r#"{"cpu":"4","memory":"10000","pods":"10"}"#),
            &node("half", r#"{"cpu":"4","memory":"10000","pods":"10"}"#),
        ]);
        kit.place(&pod(r#"{"cpu":"2","memory":"2000"}"#), "half");
        kit
    }

    #[test]
    fn the_three_strategies() {
        let asks = pod(r#"{"cpu":"1","memory":"3000"}"#);
        let mut kit = kit();
        // empty: (75 + 70) / 2; half: (25 + 50) / 2
        kit.check_scores(
            Plugin::NodeResourcesFit,
            &asks,
            &[("empty", 72), ("half", 37)],
        );
        kit.profile.args.fit.strategy = Strategy::MostAllocated;
        kit.check_scores(
            Plugin::NodeResourcesFit,
            &asks,
            &[("empty", 27), ("half", 62)],
        );
        kit.profile.args.fit.resources = vec![(ResourceId::CPU, 3), (ResourceId::MEMORY, 1)];
        kit.check_scores(
            Plugin::NodeResourcesFit,
            &asks,
            &[("empty", 26), ("half", 68)],
        );
        kit.profile.args.fit.strategy =
            Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 100)]);
        kit.check_scores(
            Plugin::NodeResourcesFit,
            &asks,
            &[("empty", 26), ("half", 69)],
        );
    }

    #[test]
    fn containers_without_requests_weigh_something() {
        let mut kit = Kit::with_nodes(&[
            &node("a", r#"{"cpu":"1","memory":"2000Mi","pods":"10"}"#),
            &node("b", r#"{"cpu":"1","memory":"2000Mi","pods":"10"}"#),
        ]);
        kit.place(&pod("{}"), "a");
        // a: 1000m - 2·100m, 2000Mi - 2·200Mi
        kit.check_scores(
            Plugin::NodeResourcesFit,
            &pod("{}"),
            &[("a", 80), ("b", 90)],
        );
    }

    #[test]
    fn lines_between_points() {
        let shape = [(10, 20), (30, 60), (50, 0)];
        for (at, expected) in [
            (0, 20),
            (10, 20),
            (20, 40),
            (30, 60),
            (40, 30),
            (50, 0),
            (90, 0),
        ] {
            assert_eq!(along(&shape, at), expected, "{at}");
        }
    }

    #[test]
    fn hints() {
        let mut kit = Kit::default();
        let asks = pod(r#"{"cpu":"2"}"#);
        let small = node("n", r#"{"cpu":"1","pods":"10"}"#);
        let big = node("n", r#"{"cpu":"4","pods":"10"}"#);
        let wide = node("n", r#"{"cpu":"4","memory":"1Gi","pods":"10"}"#);
        let plugin = Plugin::NodeResourcesFit;
        kit.check_node_hint(plugin, &asks, None, &big, true);
        kit.check_node_hint(plugin, &asks, None, &small, false);
        kit.check_node_hint(plugin, &asks, Some(&small), &big, true);
        kit.check_node_hint(plugin, &asks, Some(&big), &wide, false);
        kit.check_pod_gone_hint(plugin, &asks, r#"{"spec":{"nodeName":"n"}}"#, true);
        kit.check_pod_gone_hint(plugin, &asks, "{}", false);
    }
}
