//! Computes the writes that make the cluster's Node object correct.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use serde_json::{Map, Value, json};

/// An unchanged status is still written at this interval.
pub const REPORT_EVERY: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The cluster does not have it.
    Register(Box<Node>),
    /// A merge patch of the object: labels that are missing or wrong.
    Labels(Value),
    /// A strategic merge patch of the status.
    Status(Value),
}

/// The steps from the current node to the wanted one. Labels, resources and conditions of others stay.
pub fn plan(current: Option<&Node>, wanted: Node, now: Timestamp) -> Vec<Step> {
    let Some(current) = current else {
        return vec![Step::Register(Box::new(wanted))];
    };
    let labels = labels(current, &wanted).map(Step::Labels);
    let status = wanted.status.unwrap_or_default();
    let before = current.status.clone().unwrap_or_default();
    let status = self::status(&before, status, now).map(Step::Status);
    labels.into_iter().chain(status).collect()
}

fn labels(current: &Node, wanted: &Node) -> Option<Value> {
    let has = current.metadata.labels.as_ref();
    let missing: Map<String, Value> = wanted
        .metadata
        .labels
        .iter()
        .flatten()
        .filter(|(key, value)| has.and_then(|labels| labels.get(*key)) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone().into()))
        .collect();
    (!missing.is_empty()).then(|| json!({"metadata": {"labels": missing}}))
}

fn status(before: &NodeStatus, mut wanted: NodeStatus, now: Timestamp) -> Option<Value> {
    let mut conditions = wanted.conditions.take().unwrap_or_default();
    for condition in &mut conditions {
        keep_transition(before, condition);
    }
    let told = conditions.iter().all(|wanted| {
        found(before, &wanted.type_).is_some_and(|before| {
            before.status == wanted.status
                && before.reason == wanted.reason
                && before.message == wanted.message
                && !is_old(before, now)
        })
    });
    let same_amounts = [
        (&before.capacity, &wanted.capacity),
        (&before.allocatable, &wanted.allocatable),
    ]
    .iter()
    .all(|(before, wanted)| {
        let mut wanted = wanted.iter().flatten();
        wanted.all(|(name, amount)| before.as_ref().and_then(|b| b.get(name)) == Some(amount))
    });
    let same_addresses = before.addresses == wanted.addresses;
    let same_pages = before.daemon_endpoints == wanted.daemon_endpoints;
    let same_info = before.node_info == wanted.node_info;
    if told && same_amounts && same_addresses && same_pages && same_info {
        return None;
    }
    let mut patch = json!({
        "capacity": wanted.capacity,
        "allocatable": wanted.allocatable,
        "nodeInfo": wanted.node_info,
        "conditions": conditions,
    });
    if !same_pages {
        patch["daemonEndpoints"] = json!(wanted.daemon_endpoints);
    }
    if !same_addresses {
        // Merged by their type, old addresses would stay.
        let mut addresses = vec![json!({"$patch": "replace"})];
        addresses.extend(
            wanted
                .addresses
                .iter()
                .flatten()
                .map(|address| json!(address)),
        );
        patch["addresses"] = addresses.into();
    }
    Some(json!({"status": patch}))
}

fn found<'a>(status: &'a NodeStatus, kind: &str) -> Option<&'a NodeCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind)
}

/// An unchanged condition keeps its transition time.
fn keep_transition(before: &NodeStatus, wanted: &mut NodeCondition) {
    if let Some(before) = found(before, &wanted.type_)
        && before.status == wanted.status
        && before.last_transition_time.is_some()
    {
        wanted.last_transition_time = before.last_transition_time.clone();
    }
}

fn is_old(condition: &NodeCondition, now: Timestamp) -> bool {
    let told = condition.last_heartbeat_time.as_ref();
    told.is_none_or(|told| now.duration_since(told.0) >= REPORT_EVERY)
}
