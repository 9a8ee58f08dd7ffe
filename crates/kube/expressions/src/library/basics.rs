//! What every value, text and optional can be asked.

use cel::{ExecutionError, Value};

use super::{Call, error, inner, is_optional, list, optional, string, text, type_name, unfit};
use crate::values::TypeName;

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("size", |args| {
        let size = match args.first() {
            Some(Value::String(text)) => text.chars().count(),
            Some(Value::Bytes(bytes)) => bytes.len(),
            Some(Value::List(items)) => items.len(),
            Some(Value::Map(map)) => map.map.len(),
            _ => return Err(unfit()),
        };
        Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    }),
    ("contains", |args| {
        Ok(Value::Bool(text(args, 0)?.contains(text(args, 1)?)))
    }),
    ("startsWith", |args| {
        Ok(Value::Bool(text(args, 0)?.starts_with(text(args, 1)?)))
    }),
    ("endsWith", |args| {
        Ok(Value::Bool(text(args, 0)?.ends_with(text(args, 1)?)))
    }),
    ("join", |args| {
        let between = if args.len() > 1 { text(args, 1)? } else { "" };
        let texts = list(args, 0)?.iter().map(|item| match item {
            Value::String(text) => Ok(text.as_str()),
            _ => Err(unfit()),
        });
        let texts: Vec<&str> = texts.collect::<Result<_, ExecutionError>>()?;
        Ok(string(texts.join(between)))
    }),
    ("dyn", |args| args.first().cloned().ok_or_else(unfit)),
    ("type", |args| {
        let value = args.first().ok_or_else(unfit)?;
        Ok(TypeName(type_name(value).to_owned()).value())
    }),
    ("optional.of", |args| Ok(optional(args.first().cloned()))),
    ("optional.none", |_| Ok(optional(None))),
    ("optional.ofNonZeroValue", |args| {
        let value = args.first().filter(|value| !value.is_zero());
        Ok(optional(value.cloned()))
    }),
    ("hasValue", |args| {
        Ok(Value::Bool(inner(own(args)?).is_some()))
    }),
    ("value", |args| {
        let none = || error("value", "optional.none() dereference");
        inner(own(args)?).cloned().ok_or_else(none)
    }),
    ("or", |args| {
        let own = own(args)?;
        let other = args.get(1).ok_or_else(unfit)?;
        Ok(if inner(own).is_some() { own } else { other }.clone())
    }),
    ("orValue", |args| {
        let other = args.get(1).ok_or_else(unfit)?;
        Ok(inner(own(args)?).unwrap_or(other).clone())
    }),
    ("unwrapOpt", unwrapped),
    ("optional.unwrap", unwrapped),
];

fn own(args: &[Value]) -> Result<&Value, ExecutionError> {
    let own = args.first().filter(|value| is_optional(value));
    own.ok_or_else(unfit)
}

/// The values that there are.
fn unwrapped(args: &[Value]) -> super::Found {
    let values = list(args, 0)?.iter().filter_map(inner).cloned();
    Ok(Value::List(std::sync::Arc::new(values.collect())))
}
