//! Lists, sets, maps and pairs.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{ExecutionError, Value};

use super::{Call, Found, error, list, unfit};
use crate::values::{Moment, Span};

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("isSorted", |args| {
        let sorted = list(args, 0)?
            .windows(2)
            .all(|pair| order(&pair[0], &pair[1]).is_some_and(Ordering::is_le));
        Ok(Value::Bool(sorted))
    }),
    ("sum", |args| {
        let mut items = list(args, 0)?.iter();
        let Some(first) = items.next() else {
            return Ok(Value::Int(0));
        };
        let overflow = || error("sum", "integer overflow");
        items.try_fold(first.clone(), |total, item| match (total, item) {
            (Value::Int(sum), Value::Int(more)) => {
                sum.checked_add(*more).map(Value::Int).ok_or_else(overflow)
            }
            (Value::UInt(sum), Value::UInt(more)) => {
                sum.checked_add(*more).map(Value::UInt).ok_or_else(overflow)
            }
            (Value::Float(sum), Value::Float(more)) => Ok(Value::Float(sum + more)),
            _ => Err(unfit()),
        })
    }),
    ("min", |args| extreme(args, "min", Ordering::Less)),
    ("max", |args| extreme(args, "max", Ordering::Greater)),
    ("@list_index_of", |args| {
        let (items, wanted) = (list(args, 0)?, args.get(1).ok_or_else(unfit)?);
        place(items.iter().position(|item| item == wanted))
    }),
    ("@list_last_index_of", |args| {
        let (items, wanted) = (list(args, 0)?, args.get(1).ok_or_else(unfit)?);
        place(items.iter().rposition(|item| item == wanted))
    }),
    ("sets.contains", |args| {
        Ok(Value::Bool(contains(list(args, 0)?, list(args, 1)?)))
    }),
    ("sets.equivalent", |args| {
        let (one, other) = (list(args, 0)?, list(args, 1)?);
        Ok(Value::Bool(contains(one, other) && contains(other, one)))
    }),
    ("sets.intersects", |args| {
        let (one, other) = (list(args, 0)?, list(args, 1)?);
        Ok(Value::Bool(one.iter().any(|item| other.contains(item))))
    }),
    ("@pairs", |args| {
        let pair = |one: Value, other: &Value| Value::List(Arc::new(vec![one, other.clone()]));
        let pairs = match args.first() {
            Some(Value::List(items)) => (0..)
                .zip(items.iter())
                .map(|(index, item)| pair(Value::Int(index), item))
                .collect(),
            Some(Value::Map(map)) => map
                .map
                .iter()
                .map(|(key, value)| pair(key.clone().into(), value))
                .collect(),
            _ => return Err(unfit()),
        };
        Ok(Value::List(Arc::new(pairs)))
    }),
    ("cel.@mapInsert", |args| {
        let mut map: HashMap<Key, Value> = entries(args, 0)?.clone();
        if let [_, key, value] = args {
            map.insert(key.clone().try_into().map_err(|_| unfit())?, value.clone());
        } else {
            map.extend(entries(args, 1)?.clone());
        }
        Ok(Value::Map(Map { map: Arc::new(map) }))
    }),
];

fn entries(args: &[Value], at: usize) -> Result<&HashMap<Key, Value>, ExecutionError> {
    match args.get(at) {
        Some(Value::Map(map)) => Ok(&map.map),
        _ => Err(unfit()),
    }
}

fn contains(all: &[Value], some: &[Value]) -> bool {
    some.iter().all(|item| all.contains(item))
}

fn place(index: Option<usize>) -> Found {
    let index = index.and_then(|index| i64::try_from(index).ok());
    Ok(Value::Int(index.unwrap_or(-1)))
}

fn order(one: &Value, other: &Value) -> Option<Ordering> {
    if let (Some(one), Some(other)) = (Span::of(one), Span::of(other)) {
        return Some(one.cmp(other));
    }
    if let (Some(one), Some(other)) = (Moment::of(one), Moment::of(other)) {
        return Some(one.cmp(other));
    }
    one.partial_cmp(other)
}

fn extreme(args: &[Value], function: &str, wanted: Ordering) -> Found {
    let items = list(args, 0)?;
    let mut best = items
        .first()
        .ok_or_else(|| error(function, format!("{function} called on empty list")))?;
    for item in items {
        if order(item, best) == Some(wanted) {
            best = item;
        }
    }
    Ok(best.clone())
}
