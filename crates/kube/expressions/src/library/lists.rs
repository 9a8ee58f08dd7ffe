//! Lists and sets.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::{ExecutionError, Value};

use super::{Call, Found, error, list, string, times, type_name, unfit};
use crate::evaluate::compare;
use crate::values::Span;

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("isSorted", |args| {
        let sorted = list(args, 0)?
            .windows(2)
            .all(|pair| compare(&pair[0], &pair[1]).is_some_and(Ordering::is_le));
        Ok(Value::Bool(sorted))
    }),
    ("sum", |args| {
        let mut items = list(args, 0)?.iter();
        let Some(first) = items.next() else {
            return Ok(Value::Int(0));
        };
        if Span::of(first).is_some() {
            return times::sum_of(list(args, 0)?);
        }
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
    ("slice", slice),
    ("flatten", flatten),
    ("distinct", distinct),
    ("reverse", |args| match args.first() {
        Some(Value::String(text)) => Ok(string(text.chars().rev().collect::<String>())),
        _ => Ok(made(list(args, 0)?.iter().rev().cloned().collect())),
    }),
    ("sort", |args| {
        let items = list(args, 0)?;
        sorted(items.iter().map(|item| (item, item)).collect(), "sort")
    }),
    ("@sortByAssociatedKeys", |args| {
        let (items, keys) = (list(args, 0)?, list(args, 1)?);
        sorted(keys.iter().zip(items).collect(), "sortBy")
    }),
    ("lists.range", range),
];

fn contains(all: &[Value], some: &[Value]) -> bool {
    some.iter().all(|item| all.contains(item))
}

/// The first place of a value in a list, or the last.
pub fn place_of(name: &str, items: &[Value], wanted: &Value) -> Found {
    place(match name {
        "indexOf" => items.iter().position(|item| item == wanted),
        _ => items.iter().rposition(|item| item == wanted),
    })
}

fn place(index: Option<usize>) -> Found {
    let index = index.and_then(|index| i64::try_from(index).ok());
    Ok(Value::Int(index.unwrap_or(-1)))
}

fn extreme(args: &[Value], function: &str, wanted: Ordering) -> Found {
    let items = list(args, 0)?;
    let mut best = items
        .first()
        .ok_or_else(|| error(function, format!("{function} called on empty list")))?;
    for item in items {
        if compare(item, best) == Some(wanted) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn made(items: Vec<Value>) -> Value {
    Value::List(Arc::new(items))
}

fn whole(args: &[Value], at: usize) -> Result<i64, ExecutionError> {
    match args.get(at) {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(unfit()),
    }
}

fn slice(args: &[Value]) -> Found {
    let (items, start, end) = (list(args, 0)?, whole(args, 1)?, whole(args, 2)?);
    let invalid = |why: &str| {
        Err(error(
            "slice",
            format!("cannot slice({start}, {end}), {why}"),
        ))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return invalid("negative indexes not supported");
    };
    if from > to {
        return invalid("start index must be less than or equal to end index");
    }
    match items.get(from..to) {
        Some(part) => Ok(made(part.to_vec())),
        None => invalid(&format!("list is length {}", items.len())),
    }
}

fn flatten(args: &[Value]) -> Found {
    fn add(items: &[Value], depth: u64, to: &mut Vec<Value>) {
        for item in items {
            match item {
                Value::List(inner) if depth > 0 => add(inner, depth - 1, to),
                other => to.push(other.clone()),
            }
        }
    }
    let depth = if args.len() == 1 { 1 } else { whole(args, 1)? };
    let negative = |_| error("flatten", "level must be non-negative");
    let depth = u64::try_from(depth).map_err(negative)?;
    let mut flat = Vec::new();
    add(list(args, 0)?, depth, &mut flat);
    Ok(made(flat))
}

fn distinct(args: &[Value]) -> Found {
    let mut found: Vec<Value> = Vec::new();
    for item in list(args, 0)? {
        if !found.contains(item) {
            found.push(item.clone());
        }
    }
    Ok(made(found))
}

/// Values in the order of their keys.
fn sorted(mut pairs: Vec<(&Value, &Value)>, function: &str) -> Found {
    if let Some((first, _)) = pairs.first() {
        for (key, _) in &pairs {
            if type_name(key) != type_name(first) {
                return Err(error(function, "list elements must have the same type"));
            }
            if compare(first, key).is_none() {
                return Err(error(function, "list elements must be comparable"));
            }
        }
    }
    pairs.sort_by(|(one, _), (other, _)| compare(one, other).unwrap_or(Ordering::Equal));
    Ok(made(
        pairs.into_iter().map(|(_, item)| item.clone()).collect(),
    ))
}

fn range(args: &[Value]) -> Found {
    let end = whole(args, 0)?;
    match end {
        ..0 => Err(error(
            "lists.range",
            format!("size must be non-negative, got {end}"),
        )),
        end => Ok(made((0..end).map(Value::Int).collect())),
    }
}
