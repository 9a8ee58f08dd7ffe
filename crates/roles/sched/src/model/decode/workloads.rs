//! Namespaces, services, owners, budgets and groups.

use serde::Deserialize;

use super::meta::{Meta, Place, Strings, labels};
use super::selectors::{WireSelector, selector};
use super::{Result, parse};
use crate::model::objects::{
    DisruptionBudget, GroupCondition, Namespace, PodGroup, Service, Workload,
};
use crate::model::pod::ControllerKind;
use crate::model::selector::{Requirement, Selector};
use crate::model::symbol::Names;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wire<S: Default> {
    metadata: Meta,
    spec: S,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Nothing {}

pub fn namespace(json: &[u8], names: &mut Names) -> Result<Namespace> {
    let wire: Wire<Nothing> = parse("Namespace", json)?;
    Ok(Namespace {
        name: names.intern(&wire.metadata.name),
        labels: labels(wire.metadata.labels.as_ref(), names),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireService {
    selector: Option<Strings>,
}

pub fn service(json: &[u8], names: &mut Names) -> Result<Service> {
    let wire: Wire<WireService> = parse("Service", json)?;
    Ok(Service {
        namespace: names.intern(&wire.metadata.namespace),
        name: wire.metadata.name.as_str().into(),
        selector: wire
            .spec
            .selector
            .as_ref()
            .map(|pairs| labels(Some(pairs), names)),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireWorkload<S> {
    selector: Option<S>,
}

/// A ReplicationController selects by labels only, the other kinds by a selector.
pub fn workload(kind: ControllerKind, json: &[u8], names: &mut Names) -> Result<Workload> {
    let (meta, selector) = if kind == ControllerKind::ReplicationController {
        let wire: Wire<WireWorkload<Strings>> = parse("ReplicationController", json)?;
        let all = wire
            .spec
            .selector
            .iter()
            .flatten()
            .map(|(key, value)| Requirement::equals(names.intern(key), names.intern(value)))
            .collect();
        (wire.metadata, Selector::All(all))
    } else {
        let wire: Wire<WireWorkload<WireSelector>> = parse("workload", json)?;
        let place = Place {
            kind: "workload",
            object: &wire.metadata.name,
        };
        let selector = selector(wire.spec.selector.as_ref(), place, names)?;
        (wire.metadata, selector)
    };
    Ok(Workload {
        kind,
        namespace: names.intern(&meta.namespace),
        name: names.intern(&meta.name),
        selector,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireBudget {
    metadata: Meta,
    spec: WireWorkload<WireSelector>,
    status: WireBudgetStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireBudgetStatus {
    disruptions_allowed: i32,
    disrupted_pods: Option<Strings>,
}

pub fn disruption_budget(json: &[u8], names: &mut Names) -> Result<DisruptionBudget> {
    let wire: WireBudget = parse("PodDisruptionBudget", json)?;
    let place = Place {
        kind: "PodDisruptionBudget",
        object: &wire.metadata.name,
    };
    Ok(DisruptionBudget {
        namespace: names.intern(&wire.metadata.namespace),
        name: wire.metadata.name.as_str().into(),
        selector: selector(wire.spec.selector.as_ref(), place, names)?,
        disruptions_allowed: wire.status.disruptions_allowed,
        disrupted: wire
            .status
            .disrupted_pods
            .iter()
            .flatten()
            .map(|(name, _)| name.as_str().into())
            .collect(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireGroup {
    scheduling_policy: WirePolicy,
    priority: Option<i32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WirePolicy {
    gang: Option<WireGang>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireGang {
    min_count: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireWholeGroup {
    metadata: Meta,
    spec: WireGroup,
    status: WireGroupStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireGroupStatus {
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCondition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

pub fn pod_group(json: &[u8], names: &mut Names) -> Result<PodGroup> {
    let wire: WireWholeGroup = parse("PodGroup", json)?;
    let mut conditions = wire.status.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.r#type == "PodGroupScheduled");
    Ok(PodGroup {
        generation: wire.metadata.generation,
        scheduled: scheduled.map(|condition| GroupCondition {
            holds: condition.status == "True",
            reason: condition.reason.as_str().into(),
            message: condition.message.as_str().into(),
        }),
        namespace: names.intern(&wire.metadata.namespace),
        name: wire.metadata.name.as_str().into(),
        uid: wire.metadata.uid.as_str().into(),
        min_count: wire.spec.scheduling_policy.gang.map(|gang| gang.min_count),
        priority: wire.spec.priority.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_select_by_their_kind() {
        let mut names = Names::default();
        let json = br#"{"metadata":{"name":"w","namespace":"d"},"spec":{"selector":{"app":"x"}}}"#;
        let plain = workload(ControllerKind::ReplicationController, json, &mut names).unwrap();
        let json = br#"{"metadata":{"name":"w","namespace":"d"},"spec":{"selector":{"matchLabels":{"app":"x"}}}}"#;
        let set = workload(ControllerKind::ReplicaSet, json, &mut names).unwrap();
        assert_eq!(plain.selector, set.selector);
    }

    #[test]
    fn a_budget() {
        let mut names = Names::default();
        let json = br#"{"metadata":{"name":"b","namespace":"d"},"spec":{"selector":{}},
            "status":{"disruptionsAllowed":2,"disruptedPods":{"p":"2026-01-01T00:00:00Z"}}}"#;
        let budget = disruption_budget(json, &mut names).unwrap();
        assert!(budget.selector.is_empty());
        assert_eq!(budget.disruptions_allowed, 2);
        assert_eq!(&*budget.disrupted[0], "p");
    }
}
