//! Where a pod may run: affinity, spreading, tolerations, gates.

use serde_json::Value;

use std::collections::HashMap;

use crate::kinds::at::{At, Errors};
use crate::kinds::metadata;
use crate::kinds::names;
use crate::met::Met;

const BAD_OPERATOR: &str = "not a valid selector operator";
pub const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub fn affinity(affinity: &At<'_>, errors: &mut Errors) {
    let node = affinity.get("nodeAffinity");
    let required = node.get("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_set() {
        node_selector(&required, errors);
    }
    for term in node
        .get("preferredDuringSchedulingIgnoredDuringExecution")
        .items()
    {
        weight(&term, errors);
        node_selector_term(&term.get("preference"), false, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(kind);
        for term in pods
            .get("requiredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            pod_term(&term, errors);
        }
        for term in pods
            .get("preferredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            weight(&term, errors);
            pod_term(&term.get("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &At<'_>, errors: &mut Errors) {
    let weight = term.get("weight");
    if !(1..=100).contains(&weight.number()) {
        errors.invalid(&weight, weight.number(), "must be in the range 1-100");
    }
}

pub fn node_selector(selector: &At<'_>, errors: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_selector_term(&term, true, errors);
    }
}

fn node_selector_term(term: &At<'_>, check_values: bool, errors: &mut Errors) {
    for requirement in term.get("matchExpressions").items() {
        let values = requirement.get("values");
        let operator = requirement.get("operator");
        match operator.text() {
            known if metadata::set_operator(known, &values, errors) => {}
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    errors.required(
                        &values,
                        "must be specified single value when `operator` is 'Lt' or 'Gt'",
                    );
                }
            }
            other => errors.invalid(&operator, other, BAD_OPERATOR),
        }
        errors.format(&requirement.get("key"), names::qualified_name);
        if check_values {
            for value in values.items() {
                errors.format(&value, names::label_value);
            }
        }
    }
    for requirement in term.get("matchFields").items() {
        let (key, values) = (requirement.get("key"), requirement.get("values"));
        let operator = requirement.get("operator");
        if !["In", "NotIn"].contains(&operator.text()) {
            errors.invalid(&operator, operator.text(), BAD_OPERATOR);
        } else if values.len() != 1 {
            errors.required(
                &values,
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            );
        }
        if key.text() == "metadata.name" {
            for value in values.items() {
                errors.format(&value, names::subdomain);
            }
        } else {
            errors.invalid(&key, key.text(), "not a valid field selector key");
        }
    }
}

fn pod_term(term: &At<'_>, errors: &mut Errors) {
    metadata::selector(&term.get("labelSelector"), errors);
    metadata::selector(&term.get("namespaceSelector"), errors);
    for namespace in term.get("namespaces").texts() {
        errors.format_of(&term.get("namespace"), namespace, names::label);
    }
    label_keys(term, errors);
    let key = term.get("topologyKey");
    if key.is_empty() {
        errors.required(&key, "can not be empty");
    }
    errors.format(&key, names::qualified_name);
}

/// `matchLabelKeys` and `mismatchLabelKeys` against the selector that they extend.
fn label_keys(term: &At<'_>, errors: &mut Errors) {
    let selector = term.get("labelSelector");
    let (matching, mismatching) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"));
    for keys in [&matching, &mismatching] {
        if keys.is_empty() {
            continue;
        }
        if selector.is_set() {
            for key in keys.items() {
                errors.format(&key, names::qualified_name);
            }
        } else {
            errors.forbidden(keys, "must not be specified when labelSelector is not set");
        }
    }
    let labels = selector.get("matchLabels");
    let mut known: Met<&str> = labels.entries().map(|(key, _)| key).collect();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, key) in matching.texts().enumerate() {
        places.entry(key).or_insert(index);
    }
    for expression in selector.get("matchExpressions").items() {
        let key = expression.get("key").text();
        if let Some(index) = places.get(key)
            && known.contains(&key)
        {
            errors.invalid(
                &term.item(*index),
                key,
                "exists in both matchLabelKeys and labelSelector",
            );
        }
        known.push(key);
    }
    let others: Met<&str> = mismatching.texts().collect();
    for key in matching.items() {
        if others.contains(&key.text()) {
            errors.invalid(
                &key,
                key.text(),
                "exists in both matchLabelKeys and mismatchLabelKeys",
            );
        }
    }
}

pub fn topology_spread(constraints: &At<'_>, errors: &mut Errors) {
    let identity = |one: &At<'_>| {
        let part = |field: &str| one.value.get(field).and_then(Value::as_str);
        ["topologyKey", "whenUnsatisfiable"].map(|field| part(field).unwrap_or_default().to_owned())
    };
    let all: Met<[String; 2]> = constraints.items().map(|one| identity(&one)).collect();
    let mut met = Met::default();
    for constraint in constraints.items() {
        errors.positive(&constraint.get("maxSkew"));
        let (key, action) = (
            constraint.get("topologyKey"),
            constraint.get("whenUnsatisfiable"),
        );
        if key.is_empty() {
            errors.required(&key, "can not be empty");
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action.text()) {
            errors.not_supported(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let own = identity(&constraint);
        let times = all.times(&own);
        // Of those that are the same, the last is no repetition.
        if met.meet(own) + 1 < times {
            errors.duplicate(
                &constraint.get("{topologyKey, whenUnsatisfiable}"),
                format!("{{{}, {}}}", key.text(), action.text()),
            );
        }
        let domains = constraint.get("minDomains");
        if domains.is_set() {
            errors.positive(&domains);
            if action.text() != "DoNotSchedule" {
                errors.invalid(
                    &domains,
                    domains.number(),
                    format!(
                        "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                        action.text()
                    ),
                );
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.optional_choice(&constraint.get(policy), &["Honor", "Ignore"]);
        }
        label_keys(&constraint, errors);
        metadata::selector(&constraint.get("labelSelector"), errors);
    }
}

pub fn tolerations(tolerations: &At<'_>, errors: &mut Errors) {
    for toleration in tolerations.items() {
        let [key, operator, value, effect] =
            ["key", "operator", "value", "effect"].map(|field| toleration.get(field));
        if !key.is_empty() {
            errors.format(&key, names::qualified_name);
        } else if operator.text() != "Exists" {
            errors.invalid(
                &operator,
                operator.text(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            errors.invalid(
                &effect,
                effect.text(),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator.text() {
            "Equal" | "" => {
                let complaints = names::label_value(value.text());
                if !complaints.is_empty() {
                    errors.invalid(&operator, value.text(), complaints.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errors.invalid(
                        &operator,
                        value.text(),
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            "Lt" | "Gt" => errors.not_supported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => errors.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.optional_choice(&effect, TAINT_EFFECTS);
        }
    }
}

pub fn gates(gates: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for gate in gates.items() {
        let name = gate.get("name").text();
        errors.format_of(&gate, name, names::qualified_name);
        if seen.contains(&name) {
            errors.duplicate(&gate, name);
        }
        seen.push(name);
    }
}

/// On creation, the labels that `matchLabelKeys` and `mismatchLabelKeys` name become part of the selectors.
pub fn merge_label_keys(pod: &mut Value) {
    let labels = crate::kinds::at::field(pod, &["metadata", "labels"]).clone();
    let Some(spec) = pod.get_mut("spec") else {
        return;
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, inner) in [
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                Some("podAffinityTerm"),
            ),
            ("requiredDuringSchedulingIgnoredDuringExecution", None),
        ] {
            let terms = spec
                .pointer_mut(&format!("/affinity/{kind}/{list}"))
                .and_then(Value::as_array_mut);
            for term in terms.into_iter().flatten() {
                let term = match inner {
                    Some(inner) => term.get_mut(inner),
                    None => Some(term),
                };
                if let Some(term) = term {
                    merge_keys(term, &labels);
                }
            }
        }
    }
    let constraints = spec
        .get_mut("topologySpreadConstraints")
        .and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        merge_keys(constraint, &labels);
    }
}

fn merge_keys(term: &mut Value, labels: &Value) {
    let mut additions = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term.get(field).and_then(Value::as_array).cloned();
        for key in keys.unwrap_or_default() {
            if let Some(value) = key.as_str().and_then(|key| labels.get(key)) {
                additions
                    .push(serde_json::json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else {
        return;
    };
    if additions.is_empty() {
        return;
    }
    let expressions = selector
        .entry("matchExpressions")
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = expressions {
        list.extend(additions);
    }
}
