//! Patterns and named formats.

use std::sync::Arc;

use cel::{ExecutionError, Value};
use regex::Regex;

use super::{Call, error, optional, string, text, unfit};
use crate::formats;
use crate::values::Format;

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("matches", |args| {
        Ok(Value::Bool(pattern(args)?.is_match(text(args, 0)?)))
    }),
    ("find", |args| {
        let found = pattern(args)?
            .find(text(args, 0)?)
            .map(|found| found.as_str().to_owned());
        Ok(string(found.unwrap_or_default()))
    }),
    ("findAll", |args| {
        let pattern = pattern(args)?;
        let most = match args.get(2) {
            Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let found = pattern.find_iter(text(args, 0)?).take(most);
        let found: Vec<Value> = found.map(|one| string(one.as_str())).collect();
        Ok(Value::List(Arc::new(found)))
    }),
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

fn pattern(args: &[Value]) -> Result<Regex, ExecutionError> {
    Regex::new(text(args, 1)?).map_err(|trouble| error("matches", trouble))
}
