//! What Kubernetes adds to CEL, as far as it is of use to whoever selects devices.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::extractors::{Arguments, This};
use cel::objects::Opaque;
use cel::{Context, ExecutionError, Value};
use plimsoll_api::quantity::Quantity;

use super::version::Version;

#[derive(Debug, PartialEq, Eq)]
struct Amount(Quantity);

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Known(Version);

impl Opaque for Known {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Semver"
    }
}

pub fn quantity(amount: Quantity) -> Value {
    Value::Opaque(Arc::new(Amount(amount)))
}

fn known(version: Version) -> Value {
    Value::Opaque(Arc::new(Known(version)))
}

/// `None`: it is none.
pub fn version(text: &str) -> Option<Value> {
    Version::parse(text).ok().map(known)
}

fn type_name(value: &Value) -> &str {
    match value {
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Bytes(_) => "bytes",
        Value::Null => "null_type",
        Value::Opaque(opaque) => opaque.runtime_type_name(),
        _ => "function",
    }
}

fn unfit(function: &str, values: &[&Value]) -> ExecutionError {
    let types: Vec<&str> = values.iter().map(|value| type_name(value)).collect();
    let message = format!("no such overload: {function}({})", types.join(", "));
    ExecutionError::function_error(function, message)
}

/// A text, and whether it need not be written strictly.
fn given(function: &str, values: &[Value]) -> Result<Result<Version, String>, ExecutionError> {
    match values {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Ok(Version::parse(text))
        }
        [Value::String(text), Value::Bool(true)] => Ok(Version::parse_lenient(text)),
        other => Err(unfit(function, &other.iter().collect::<Vec<_>>())),
    }
}

fn amount(value: &Value) -> Option<&Quantity> {
    match value {
        Value::Opaque(opaque) => Some(&opaque.downcast_ref::<Amount>()?.0),
        _ => None,
    }
}

fn compare(function: &str, one: &Value, other: &Value) -> Result<Ordering, ExecutionError> {
    if let (Some(one), Some(other)) = (amount(one), amount(other)) {
        return Ok(one.cmp(other));
    }
    if let (Value::Opaque(one), Value::Opaque(other)) = (one, other)
        && let (Some(one), Some(other)) =
            (one.downcast_ref::<Known>(), other.downcast_ref::<Known>())
    {
        return Ok(one.0.compare(&other.0));
    }
    Err(unfit(function, &[one, other]))
}

/// A quantity with another, or a whole number, added or taken away.
fn sum(function: &str, own: &Value, other: &Value, sign: i128) -> Result<Value, ExecutionError> {
    let wrong = || unfit(function, &[own, other]);
    let amount_of_own = amount(own).ok_or_else(wrong)?;
    let more = match other {
        Value::Int(number) => i128::from(*number) * 1_000_000_000,
        other => amount(other).ok_or_else(wrong)?.nanos(),
    };
    let nanos = amount_of_own.nanos() + sign * more;
    let notation = amount_of_own.notation();
    Ok(quantity(Quantity::from_nanos(nanos, notation)))
}

fn number_of(function: &str, own: &Value, at: usize) -> Result<i64, ExecutionError> {
    let wrong = || unfit(function, &[own]);
    let Value::Opaque(opaque) = own else {
        return Err(wrong());
    };
    let version = opaque.downcast_ref::<Known>().ok_or_else(wrong)?;
    Ok(i64::try_from(version.0.numbers[at]).unwrap_or(i64::MAX))
}

fn pattern(function: &str, text: &str) -> Result<regex::Regex, ExecutionError> {
    regex::Regex::new(text).map_err(|error| ExecutionError::function_error(function, error))
}

/// The least or greatest of a list.
fn extreme(function: &str, list: &[Value], wanted: Ordering) -> Result<Value, ExecutionError> {
    let empty = format!("{function} called on empty list");
    let mut best = list
        .first()
        .ok_or_else(|| ExecutionError::function_error(function, empty))?;
    for value in list {
        let found = match value.partial_cmp(best) {
            Some(found) => found,
            None => compare(function, value, best)?,
        };
        if found == wanted {
            best = value;
        }
    }
    Ok(best.clone())
}

type Text = Arc<String>;
type List = Arc<Vec<Value>>;
type Found<T> = Result<T, ExecutionError>;

/// Lists as sets. CEL calls them `sets.contains` and so on; a macro turns that into these names.
fn sets(context: &mut Context<'_, '_>) {
    let has = |list: &List, value: &Value| list.iter().any(|one| one == value);
    let holds = move |list: &List, other: &List| other.iter().all(|value| has(list, value));
    let _ = context.add_function("@contains", move |list: List, other: List| {
        holds(&list, &other)
    });
    let _ = context.add_function("@equivalent", move |list: List, other: List| {
        holds(&list, &other) && holds(&other, &list)
    });
    let _ = context.add_function("@intersects", move |list: List, other: List| {
        other.iter().any(|value| has(&list, value))
    });
}

/// What is there already is not replaced.
pub fn add(context: &mut Context<'_, '_>) {
    let _ = context.add_function("quantity", |text: Text| -> Found<Value> {
        let parsed: Result<Quantity, _> = text.parse();
        parsed
            .map(quantity)
            .map_err(|error| ExecutionError::function_error("quantity", error))
    });
    let _ = context.add_function("isQuantity", |text: Text| text.parse::<Quantity>().is_ok());
    let _ = context.add_function("semver", |Arguments(values): Arguments| -> Found<Value> {
        given("semver", &values)?
            .map(known)
            .map_err(|problem| ExecutionError::function_error("semver", problem))
    });
    let _ = context.add_function("isSemver", |Arguments(values): Arguments| -> Found<bool> {
        Ok(given("isSemver", &values)?.is_ok())
    });
    sets(context);
    let _ = context.add_function(
        "compareTo",
        |This(own): This<Value>, other: Value| -> Found<i64> {
            Ok(compare("compareTo", &own, &other)? as i64)
        },
    );
    let _ = context.add_function(
        "isGreaterThan",
        |This(own): This<Value>, other: Value| -> Found<bool> {
            Ok(compare("isGreaterThan", &own, &other)?.is_gt())
        },
    );
    let _ = context.add_function(
        "isLessThan",
        |This(own): This<Value>, other: Value| -> Found<bool> {
            Ok(compare("isLessThan", &own, &other)?.is_lt())
        },
    );
    let _ = context.add_function(
        "add",
        |This(own): This<Value>, other: Value| -> Found<Value> { sum("add", &own, &other, 1) },
    );
    let _ = context.add_function(
        "sub",
        |This(own): This<Value>, other: Value| -> Found<Value> { sum("sub", &own, &other, -1) },
    );
    let _ = context.add_function("sign", |This(own): This<Value>| -> Found<i64> {
        let own = amount(&own).ok_or_else(|| unfit("sign", &[&own]))?;
        Ok(own.nanos().signum() as i64)
    });
    let _ = context.add_function("isInteger", |This(own): This<Value>| -> Found<bool> {
        let own = amount(&own).ok_or_else(|| unfit("isInteger", &[&own]))?;
        Ok(own.nanos() % 1_000_000_000 == 0)
    });
    let _ = context.add_function("asInteger", |This(own): This<Value>| -> Found<i64> {
        let own = amount(&own).ok_or_else(|| unfit("asInteger", &[&own]))?;
        let is_whole = own.nanos() % 1_000_000_000 == 0;
        let whole = "cannot convert value to integer";
        match is_whole {
            true => Ok(own.value()),
            false => Err(ExecutionError::function_error("asInteger", whole)),
        }
    });
    let _ = context.add_function(
        "asApproximateFloat",
        |This(own): This<Value>| -> Found<f64> {
            let own = amount(&own).ok_or_else(|| unfit("asApproximateFloat", &[&own]))?;
            Ok(own.nanos() as f64 / 1e9)
        },
    );
    let _ = context.add_function("major", |This(own): This<Value>| {
        number_of("major", &own, 0)
    });
    let _ = context.add_function("minor", |This(own): This<Value>| {
        number_of("minor", &own, 1)
    });
    let _ = context.add_function("patch", |This(own): This<Value>| {
        number_of("patch", &own, 2)
    });
    let _ = context.add_function(
        "matches",
        |This(own): This<Text>, wanted: Text| -> Found<bool> {
            Ok(pattern("matches", &wanted)?.is_match(&own))
        },
    );
    let _ = context.add_function(
        "find",
        |This(own): This<Text>, wanted: Text| -> Found<Text> {
            let found = pattern("find", &wanted)?.find(&own).map(|one| one.as_str());
            Ok(Arc::new(found.unwrap_or_default().to_owned()))
        },
    );
    let _ = context.add_function(
        "findAll",
        |This(own): This<Text>, wanted: Text| -> Found<List> {
            let pattern = pattern("findAll", &wanted)?;
            let found = pattern.find_iter(&own);
            let found = found.map(|one| Value::String(Arc::new(one.as_str().to_owned())));
            Ok(Arc::new(found.collect()))
        },
    );
    let _ = context.add_function("sum", |This(own): This<List>| -> Found<Value> {
        let mut total = Value::Int(0);
        for (index, value) in own.iter().enumerate() {
            total = match (total, value) {
                (_, first) if index == 0 => first.clone(),
                (Value::Int(sum), Value::Int(more)) => Value::Int(sum + more),
                (Value::UInt(sum), Value::UInt(more)) => Value::UInt(sum + more),
                (Value::Float(sum), Value::Float(more)) => Value::Float(sum + more),
                (total, value) => return Err(unfit("_+_", &[&total, value])),
            };
        }
        Ok(total)
    });
    let _ = context.add_function("min", |This(own): This<List>| {
        extreme("min", &own, Ordering::Less)
    });
    let _ = context.add_function("max", |This(own): This<List>| {
        extreme("max", &own, Ordering::Greater)
    });
    let _ = context.add_function("isSorted", |This(own): This<List>| {
        own.windows(2)
            .all(|pair| pair[0].partial_cmp(&pair[1]).is_none_or(Ordering::is_le))
    });
}
