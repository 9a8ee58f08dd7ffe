//! Quantities and versions.

use std::cmp::Ordering;

use cel::{ExecutionError, Value};
use plimsoll_api::quantity::Quantity;

use super::{Call, Found, error, text, unfit};
use crate::values::{Amount, Version};

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("quantity", |args| {
        let parsed: Result<Quantity, _> = text(args, 0)?.parse();
        let parsed = parsed.map_err(|_| {
            error(
                "quantity",
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            )
        });
        Ok(Amount(parsed?).value())
    }),
    ("isQuantity", |args| {
        Ok(Value::Bool(text(args, 0)?.parse::<Quantity>().is_ok()))
    }),
    ("sign", |args| {
        Ok(Value::Int(amount(args, 0)?.nanos().signum() as i64))
    }),
    ("isInteger", |args| {
        Ok(Value::Bool(is_whole(amount(args, 0)?)))
    }),
    ("asInteger", |args| {
        let amount = amount(args, 0)?;
        if !is_whole(amount) {
            return Err(error("asInteger", "cannot convert value to integer"));
        }
        Ok(Value::Int(amount.value()))
    }),
    ("asApproximateFloat", |args| {
        Ok(Value::Float(amount(args, 0)?.nanos() as f64 / 1e9))
    }),
    ("add", |args| sum(args, 1)),
    ("sub", |args| sum(args, -1)),
    ("compareTo", |args| Ok(Value::Int(compare(args)? as i64))),
    ("isGreaterThan", |args| {
        Ok(Value::Bool(compare(args)?.is_gt()))
    }),
    ("isLessThan", |args| Ok(Value::Bool(compare(args)?.is_lt()))),
    ("semver", |args| {
        version(args)?
            .map(Version::value)
            .map_err(|problem| error("semver", problem))
    }),
    ("isSemver", |args| Ok(Value::Bool(version(args)?.is_ok()))),
    ("major", |args| number(args, 0)),
    ("minor", |args| number(args, 1)),
    ("patch", |args| number(args, 2)),
];

fn amount(args: &[Value], at: usize) -> Result<&Quantity, ExecutionError> {
    let amount = args.get(at).and_then(Amount::of);
    amount.map(|amount| &amount.0).ok_or_else(unfit)
}

fn is_whole(amount: &Quantity) -> bool {
    amount.nanos() % 1_000_000_000 == 0
}

/// A quantity with another, or a whole number, added or taken away.
fn sum(args: &[Value], sign: i128) -> Found {
    let own = amount(args, 0)?;
    let more = match args.get(1) {
        Some(Value::Int(number)) => i128::from(*number).saturating_mul(1_000_000_000),
        _ => amount(args, 1)?.nanos(),
    };
    let nanos = own.nanos().saturating_add(more.saturating_mul(sign));
    Ok(Amount(Quantity::from_nanos(nanos, own.notation())).value())
}

fn compare(args: &[Value]) -> Result<Ordering, ExecutionError> {
    let [one, other] = args else {
        return Err(unfit());
    };
    if let (Some(one), Some(other)) = (Version::of(one), Version::of(other)) {
        return Ok(one.compare(other));
    }
    Ok(amount(args, 0)?.cmp(amount(args, 1)?))
}

/// What was given, if it is one; it need not be written strictly if that is said, too.
fn version(args: &[Value]) -> Result<Result<Version, String>, ExecutionError> {
    let text = text(args, 0)?;
    match args.get(1) {
        None | Some(Value::Bool(false)) => Ok(Version::parse(text)),
        Some(Value::Bool(true)) => Ok(Version::parse_lenient(text)),
        Some(_) => Err(unfit()),
    }
}

fn number(args: &[Value], at: usize) -> Found {
    let version = args.first().and_then(Version::of).ok_or_else(unfit)?;
    Ok(Value::Int(
        i64::try_from(version.numbers[at]).unwrap_or(i64::MAX),
    ))
}
