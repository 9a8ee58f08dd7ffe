//! Fills in what clients may leave out. Defaults belong to types rather than kinds (a probe has its own wherever it
//! appears), so an object is walked along its type, and each struct on the way is completed before what it contains.

mod core;
mod groups;
mod workload;

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::quantity::Quantity;
use crate::schema::{Shape, Struct, TypeId, Types};

pub(super) type Fields = Map<String, Value>;

/// Completes one struct.
type Fill = fn(&mut Fields);

/// What completing an object of one type takes.
#[derive(Default)]
struct Plan {
    fill: Option<Fill>,
    /// Fields whose default is a plain value.
    values: Vec<(&'static str, Value)>,
    /// Fields in which something further down may have defaults.
    inner: Vec<(&'static str, &'static Shape)>,
}

pub fn apply(object: &mut Value, of: TypeId) {
    if let Some(fields) = object.as_object_mut() {
        apply_struct(fields, of);
    }
}

fn apply_struct(fields: &mut Fields, of: TypeId) {
    let Some(plan) = plans().get(&of) else {
        return;
    };
    if let Some(fill) = plan.fill {
        fill(fields);
    }
    for (name, value) in &plan.values {
        super::at::fill(fields, name, value.clone());
    }
    for (name, shape) in &plan.inner {
        if let Some(value) = fields.get_mut(*name) {
            apply_shape(value, shape);
        }
    }
}

fn apply_shape(value: &mut Value, shape: &Shape) {
    match (shape, value) {
        (Shape::Struct(of), Value::Object(fields)) => apply_struct(fields, *of),
        (Shape::List(inner, _), Value::Array(items)) => {
            for item in items {
                apply_shape(item, inner);
            }
        }
        (Shape::Map(inner, _), Value::Object(entries)) if **inner == Shape::Quantity => {
            entries.values_mut().for_each(round_up);
        }
        (Shape::Map(inner, _), Value::Object(entries)) => {
            for entry in entries.values_mut() {
                apply_shape(entry, inner);
            }
        }
        _ => {}
    }
}

/// Amounts in resource lists are kept to thousandths.
fn round_up(amount: &mut Value) {
    if let Value::String(text) = amount
        && text.ends_with(['n', 'u'])
    {
        let nanos = Quantity::of(text).0;
        let millis = nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) != 0);
        *text = Quantity(millis.saturating_mul(1_000_000)).decimal();
    }
}

fn is_resource_list(shape: &Shape) -> bool {
    matches!(shape, Shape::Map(inner, Some(go)) if **inner == Shape::Quantity && &**go == "v1.ResourceList")
}

fn plans() -> &'static FxHashMap<TypeId, Plan> {
    static PLANS: OnceLock<FxHashMap<TypeId, Plan>> = OnceLock::new();
    PLANS.get_or_init(|| {
        let types = Types::builtin();
        let fills: FxHashMap<&str, Fill> = [core::FILLS, workload::FILLS, groups::FILLS]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        let mut plans: FxHashMap<TypeId, Plan> = FxHashMap::default();
        for one in types.iter() {
            let Some(id) = types.find(&one.name) else {
                continue;
            };
            let plan = Plan {
                fill: fills.get(&*one.name).copied(),
                values: plain_defaults(one),
                inner: Vec::new(),
            };
            let rounds = one
                .fields
                .iter()
                .any(|field| is_resource_list(&field.shape));
            if plan.fill.is_some() || !plan.values.is_empty() || rounds {
                plans.insert(id, plan);
            }
        }
        // What contains a type with defaults has them too; repeat until nothing new is found.
        loop {
            let known = plans.len();
            for one in types.iter() {
                let has_inner = one.fields.iter().any(|field| leads(&field.shape, &plans));
                if let (true, Some(id)) = (has_inner, types.find(&one.name)) {
                    plans.entry(id).or_default();
                }
            }
            if plans.len() == known {
                break;
            }
        }
        let inner: Vec<(TypeId, Vec<(&str, &Shape)>)> = plans
            .keys()
            .map(|&id| {
                let fields = types.get(id).fields.iter();
                let inner = fields.filter(|field| leads(&field.shape, &plans));
                (
                    id,
                    inner.map(|field| (&*field.name, &field.shape)).collect(),
                )
            })
            .collect();
        for (id, inner) in inner {
            plans.entry(id).or_default().inner = inner;
        }
        plans
    })
}

fn leads(shape: &Shape, plans: &FxHashMap<TypeId, Plan>) -> bool {
    match shape {
        Shape::Struct(id) => plans.contains_key(id),
        Shape::List(inner, _) => leads(inner, plans),
        Shape::Map(inner, _) => is_resource_list(shape) || leads(inner, plans),
        _ => false,
    }
}

/// Defaults that the facts about a type declare. Empty ones only say how the field is published.
fn plain_defaults(one: &'static Struct) -> Vec<(&'static str, Value)> {
    let declared = one.fields.iter().filter(|field| !field.required);
    declared
        .filter_map(|field| {
            let value = field.default.as_ref()?;
            let meant = match value {
                Value::String(text) => !text.is_empty(),
                Value::Number(number) => number.as_i64() != Some(0),
                Value::Bool(_) => field.pointer,
                _ => false,
            };
            meant.then(|| (&*field.name, value.clone()))
        })
        .collect()
}

/// A field that is a struct, made where it is absent.
pub(super) fn sub<'f>(fields: &'f mut Fields, name: &str) -> &'f mut Fields {
    let value = fields
        .entry(name)
        .or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(inner) => inner,
        // Just made sure of; an empty map would be lost.
        _ => unreachable!("a struct field is an object"),
    }
}

fn is_absent(fields: &Fields, name: &str) -> bool {
    fields.get(name).is_none_or(Value::is_null)
}

fn text<'f>(fields: &'f Fields, name: &str) -> &'f str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Sets a number that is absent or zero.
fn fill_zero(fields: &mut Fields, name: &str, value: i64) {
    if fields.get(name).and_then(Value::as_i64).unwrap_or_default() == 0 {
        fields.insert(name.to_owned(), value.into());
    }
}
