//! Patterns and named formats.

use std::sync::Arc;

use cel::{ExecutionError, Value};
use regex::{Regex, RegexBuilder};

use super::{Call, Found, error, optional, string, text, unfit};
use crate::formats;
use crate::values::Format;

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("matches", |args| matches(&read(args)?, args)),
    ("find", |args| find_one(&read(args)?, args)),
    ("findAll", |args| find_all(&read(args)?, args)),
    ("format.named", |args| {
        let format = formats::named(text(args, 0)?);
        Ok(optional(format.map(|name| Format(name).value())))
    }),
    ("validate", |args| {
        let format = args.first().and_then(Format::of).ok_or_else(unfit)?;
        let wrong = formats::objections(format.0, text(args, 1)?);
        let wrong: Vec<Value> = wrong.into_iter().map(string).collect();
        Ok(optional(
            (!wrong.is_empty()).then(|| Value::List(Arc::new(wrong))),
        ))
    }),
    (
        "format.dns1123Label",
        |_| Ok(Format("dns1123Label").value()),
    ),
    ("format.dns1123Subdomain", |_| {
        Ok(Format("dns1123Subdomain").value())
    }),
    (
        "format.dns1035Label",
        |_| Ok(Format("dns1035Label").value()),
    ),
    ("format.qualifiedName", |_| {
        Ok(Format("qualifiedName").value())
    }),
    ("format.dns1123LabelPrefix", |_| {
        Ok(Format("dns1123LabelPrefix").value())
    }),
    ("format.dns1123SubdomainPrefix", |_| {
        Ok(Format("dns1123SubdomainPrefix").value())
    }),
    ("format.dns1035LabelPrefix", |_| {
        Ok(Format("dns1035LabelPrefix").value())
    }),
    ("format.labelValue", |_| Ok(Format("labelValue").value())),
    ("format.uri", |_| Ok(Format("uri").value())),
    ("format.uuid", |_| Ok(Format("uuid").value())),
    ("format.byte", |_| Ok(Format("byte").value())),
    ("format.date", |_| Ok(Format("date").value())),
    ("format.datetime", |_| Ok(Format("datetime").value())),
];

/// Patterns are read within this many bytes, or, if they are written down in an expression, within that many.
const SMALL: usize = 1 << 20;
const LARGE: usize = 10 << 20;

/// Of a pattern that came with the values, and is read each time.
fn read(args: &[Value]) -> Result<Regex, ExecutionError> {
    sized(text(args, 1)?, SMALL)
}

pub fn pattern(text: &str) -> Result<Regex, ExecutionError> {
    sized(text, SMALL).or_else(|_| sized(text, LARGE))
}

fn sized(text: &str, limit: usize) -> Result<Regex, ExecutionError> {
    let read = RegexBuilder::new(text).size_limit(limit).build();
    read.map_err(|trouble| error("matches", trouble))
}

pub fn matches(pattern: &Regex, args: &[Value]) -> Found {
    Ok(Value::Bool(pattern.is_match(text(args, 0)?)))
}

pub fn find_one(pattern: &Regex, args: &[Value]) -> Found {
    let found = pattern.find(text(args, 0)?);
    Ok(string(
        found.map(|found| found.as_str()).unwrap_or_default(),
    ))
}

pub fn find_all(pattern: &Regex, args: &[Value]) -> Found {
    let most = match args.get(2) {
        Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let found = pattern.find_iter(text(args, 0)?).take(most);
    let found: Vec<Value> = found.map(|one| string(one.as_str())).collect();
    Ok(Value::List(Arc::new(found)))
}
