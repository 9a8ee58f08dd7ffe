//! An applied configuration on top of a live object: no field goes, what both have is taken from the configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::Step;
use super::typed::{Atom, List, Type};

/// `applied` has been validated: its lists have no element twice.
pub fn merge(live: &Value, applied: &Value, of: Type<'_>) -> Value {
    merge_values(Some(live), Some(applied), of).unwrap_or(Value::Null)
}

fn merge_values(live: Option<&Value>, applied: Option<&Value>, of: Type<'_>) -> Option<Value> {
    let leaf = || applied.or(live).cloned();
    match of.atom(applied.or(live)) {
        Atom::Scalar(_) => leaf(),
        Atom::List(list) => {
            let (was, is) = (elements(live), elements(applied));
            if list.is_atomic() || (was.is_empty() && is.is_empty()) {
                return leaf();
            }
            let merged = merge_elements(was, is, list);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        Atom::Map(fields) => {
            let was = live
                .and_then(Value::as_object)
                .filter(|map| !map.is_empty());
            let is = applied
                .and_then(Value::as_object)
                .filter(|map| !map.is_empty());
            if fields.atomic || (was.is_none() && is.is_none()) {
                return leaf();
            }
            let mut merged = Map::new();
            let mut take = |name: &String, was: Option<&Value>, is: Option<&Value>| {
                let value = match fields.get(name) {
                    Some(inner) => merge_values(was, is, inner),
                    None => is.or(was).cloned(),
                };
                if let Some(value) = value {
                    merged.insert(name.clone(), value);
                }
            };
            for (name, value) in was.into_iter().flatten() {
                take(name, Some(value), is.and_then(|is| is.get(name)));
            }
            for (name, value) in is.into_iter().flatten() {
                if !was.is_some_and(|was| was.contains_key(name)) {
                    take(name, None, Some(value));
                }
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

fn elements(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Elements of both come in the applied order; those of the live object only stay where they were between them.
fn merge_elements(live: &[Value], applied: &[Value], list: List<'_>) -> Vec<Value> {
    let live = indexed(live, list);
    let applied = indexed(applied, list);
    // What is there more than once cannot be merged with, only replaced.
    let mut live_by_step: BTreeMap<&Step, &Value> = BTreeMap::new();
    for (step, value) in &live {
        let among = live_by_step.entry(step);
        among
            .and_modify(|was| *was = &Value::Null)
            .or_insert(*value);
    }
    let applied_steps: BTreeSet<&Step> = applied.iter().map(|(step, _)| step).collect();
    let mut shared = applied
        .iter()
        .map(|(step, _)| step)
        .filter(|step| live_by_step.contains_key(step))
        .peekable();
    let mut merged_steps: BTreeSet<&Step> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let merged_with_live = |step: &Step, value: &Value| {
        let was = live_by_step.get(step).copied();
        merge_values(was, Some(value), list.element)
    };
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < applied.len() {
        if let (Some((was, _)), Some((is, value))) = (live.get(left), applied.get(right)) {
            if was == is {
                merged_steps.insert(is);
                out.extend(merged_with_live(is, value));
                left += 1;
                right += 1;
                shared.next();
                continue;
            }
            // Shared, but not the one whose turn it is.
            if applied_steps.contains(was) && shared.peek().is_some_and(|next| *next != was) {
                left += 1;
                continue;
            }
        }
        if let Some((was, value)) = live.get(left) {
            if !applied_steps.contains(was) {
                out.extend(merge_values(Some(value), None, list.element));
                left += 1;
                continue;
            }
            if merged_steps.contains(was) {
                left += 1;
            }
        }
        if let Some((is, value)) = applied.get(right) {
            merged_steps.insert(is);
            out.extend(merged_with_live(is, value));
            right += 1;
            shared.next_if(|next| *next == is);
        }
    }
    out
}

fn indexed<'v>(values: &'v [Value], list: List<'_>) -> Vec<(Step, &'v Value)> {
    values
        .iter()
        .filter_map(|value| Some((list.step(value).ok()?, value)))
        .collect()
}
