//! What pods need as a whole: sums over containers, and the quality of service that follows.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::resources::{is_huge_page, is_pod_level};
use crate::kinds::at::field;
use crate::kinds::defaults::{Fields, sub};
use crate::kinds::quantity::Quantity;

/// Amounts by resource, each with a text whose unit it is written in.
pub type Amounts<'v> = BTreeMap<&'v str, (Quantity, &'v str)>;

pub(super) fn add<'v>(to: &mut Amounts<'v>, list: &'v Value) {
    for (name, amount) in list.as_object().into_iter().flatten() {
        let text = amount.as_str().unwrap_or_default();
        let entry = to.entry(name).or_insert((Quantity(0), text));
        entry.0 = entry.0 + Quantity::of(text);
    }
}

pub(super) fn raise<'v>(to: &mut Amounts<'v>, by: &Amounts<'v>) {
    for (name, amount) in by {
        let entry = to.entry(name).or_insert(*amount);
        if amount.0 > entry.0 {
            *entry = *amount;
        }
    }
}

/// What the containers need together: all that run at the same time, or the largest init step. `list` is `requests`
/// or `limits`.
pub fn aggregate<'v>(spec: &'v Value, list: &str) -> Amounts<'v> {
    let mut total = Amounts::new();
    let containers = |kind: &str| field(spec, &[kind]).as_array().into_iter().flatten();
    for container in containers("containers") {
        add(&mut total, field(container, &["resources", list]));
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in containers("initContainers") {
        let amounts = field(container, &["resources", list]);
        if field(container, &["restartPolicy"]) == "Always" {
            add(&mut total, amounts);
            add(&mut sidecars, amounts);
            raise(&mut peak, &sidecars);
        } else {
            let mut step = sidecars.clone();
            add(&mut step, amounts);
            raise(&mut peak, &step);
        }
    }
    raise(&mut total, &peak);
    total
}

/// What a pod needs on its node: its own statement where it makes one, else the sum of its containers; and overhead.
pub fn pod_total<'v>(spec: &'v Value, list: &str) -> Amounts<'v> {
    let mut total = aggregate(spec, list);
    for (name, amount) in field(spec, &["resources", list])
        .as_object()
        .into_iter()
        .flatten()
    {
        if is_pod_level(name) {
            let text = amount.as_str().unwrap_or_default();
            total.insert(name, (Quantity::of(text), text));
        }
    }
    if list == "requests" {
        add(&mut total, field(spec, &["overhead"]));
    }
    total
}

/// Fills in the pod's own requests and limits where it states some of them.
pub fn default_pod_level(spec: &mut Fields) {
    let Some(Value::Object(own)) = spec.get("resources").cloned() else {
        return;
    };
    let is_filled = |name: &str| {
        own.get(name)
            .and_then(Value::as_object)
            .is_some_and(|list| !list.is_empty())
    };
    if !is_filled("limits") && !is_filled("requests") {
        return;
    }
    let snapshot = Value::Object(spec.clone());
    let own = sub(spec, "resources");
    let requests = own.get("requests").cloned().unwrap_or_default();
    for (name, (amount, like)) in aggregate(&snapshot, "limits") {
        if is_huge_page(name) && requests.get(name).is_none() {
            let limits = sub(own, "limits");
            limits
                .entry(name)
                .or_insert_with(|| amount.written_like(like).into());
        }
    }
    let Some(Value::Object(limits)) = own.get("limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let mut filled = requests.as_object().cloned().unwrap_or_else(Map::new);
    for (name, (amount, like)) in aggregate(&snapshot, "requests") {
        if matches!(name, "cpu" | "memory") {
            filled
                .entry(name)
                .or_insert_with(|| amount.written_like(like).into());
        }
    }
    for (name, limit) in limits {
        if is_pod_level(&name) {
            filled.entry(name).or_insert(limit);
        }
    }
    if !filled.is_empty() {
        own.insert("requests".to_owned(), filled.into());
    }
}

/// The class that decides who is evicted first.
pub fn quality_of_service(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut guaranteed = true;
    let mut take = |resources: &'_ Value, whole_pod: bool| {
        let counted = |list: &str| -> Vec<(&'static str, Quantity)> {
            ["cpu", "memory"]
                .into_iter()
                .map(|name| {
                    (
                        name,
                        Quantity::of(field(resources, &[list, name]).as_str().unwrap_or_default()),
                    )
                })
                .filter(|(_, amount)| amount.0 > 0)
                .collect()
        };
        for (name, amount) in counted("requests") {
            let entry = requests.entry(name).or_insert((Quantity(0), ""));
            entry.0 = entry.0 + amount;
        }
        let bounded = counted("limits");
        let none = field(resources, &["limits"])
            .as_object()
            .is_none_or(Map::is_empty);
        if bounded.len() < 2 && !(whole_pod && none) {
            guaranteed = false;
        }
        for (name, amount) in bounded {
            let entry = limits.entry(name).or_insert((Quantity(0), ""));
            entry.0 = entry.0 + amount;
        }
    };
    match field(spec, &["resources"]) {
        Value::Null => {
            for kind in ["containers", "initContainers"] {
                for container in field(spec, &[kind]).as_array().into_iter().flatten() {
                    take(field(container, &["resources"]), false);
                }
            }
        }
        own => take(own, true),
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
