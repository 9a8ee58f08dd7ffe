//! Selectors of labels and nodes on the wire.

use serde::Deserialize;

use super::Result;
use super::meta::{Place, Strings};
use crate::model::selector::{NodeTerm, Operator, Requirement, Selector};
use crate::model::symbol::Names;

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireSelector {
    pub match_labels: Option<Strings>,
    pub match_expressions: Option<Vec<WireRequirement>>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct WireRequirement {
    pub key: String,
    pub operator: String,
    pub values: Option<Vec<String>>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireNodeTerm {
    pub match_expressions: Option<Vec<WireRequirement>>,
    pub match_fields: Option<Vec<WireRequirement>>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireNodeSelector {
    pub node_selector_terms: Vec<WireNodeTerm>,
}

pub fn requirement(
    wire: &WireRequirement,
    place: Place<'_>,
    names: &mut Names,
) -> Result<Requirement> {
    let operator = match wire.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        other => return Err(place.unknown("operator", other)),
    };
    let mut values: Vec<_> = wire
        .values
        .iter()
        .flatten()
        .map(|value| names.intern(value))
        .collect();
    values.sort_unstable();
    values.dedup();
    Ok(Requirement {
        key: names.intern(&wire.key),
        operator,
        values: values.into(),
    })
}

pub fn requirements(
    list: Option<&Vec<WireRequirement>>,
    place: Place<'_>,
    names: &mut Names,
) -> Result<Box<[Requirement]>> {
    list.into_iter()
        .flatten()
        .map(|wire| requirement(wire, place, names))
        .collect()
}

pub fn selector(
    wire: Option<&WireSelector>,
    place: Place<'_>,
    names: &mut Names,
) -> Result<Selector> {
    let Some(wire) = wire else {
        return Ok(Selector::Nothing);
    };
    let mut all: Vec<_> = wire
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| Requirement::equals(names.intern(key), names.intern(value)))
        .collect();
    all.extend(requirements(wire.match_expressions.as_ref(), place, names)?);
    Ok(Selector::All(all.into()))
}

/// What is wrong with the values of a requirement; `path` is theirs.
pub fn value_problems(wire: &WireRequirement, path: &str) -> Vec<String> {
    const LABEL: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
        start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
        '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let mut problems = Vec::new();
    let values = wire.values.iter().flatten().enumerate();
    for (index, value) in values.clone() {
        if matches!(wire.operator.as_str(), "Gt" | "Lt") && value.parse::<i64>().is_err() {
            problems.push(format!(
                "{path}[{index}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ));
        }
    }
    for (index, value) in values {
        let place = format!("{path}[{index}][{}]: Invalid value: {value:?}", wire.key);
        let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
        if value.len() > 63 {
            problems.push(format!("{place}: must be no more than 63 bytes"));
        }
        if !value.chars().all(is_inner)
            || !is_edge(value.chars().next())
            || !is_edge(value.chars().last())
        {
            problems.push(format!("{place}: {LABEL}"));
        }
    }
    problems
}

pub fn node_term(wire: &WireNodeTerm, place: Place<'_>, names: &mut Names) -> Result<NodeTerm> {
    Ok(NodeTerm {
        expressions: requirements(wire.match_expressions.as_ref(), place, names)?,
        fields: requirements(wire.match_fields.as_ref(), place, names)?,
    })
}

pub fn node_terms(
    wire: &WireNodeSelector,
    place: Place<'_>,
    names: &mut Names,
) -> Result<Box<[NodeTerm]>> {
    wire.node_selector_terms
        .iter()
        .map(|term| node_term(term, place, names))
        .collect()
}
