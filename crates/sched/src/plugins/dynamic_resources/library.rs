//! What Kubernetes adds to CEL, as far as it is of use to whoever selects devices.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::extractors::This;
use cel::objects::Opaque;
use cel::{Context, ExecutionError, Value};
use plimsoll_api::quantity::Quantity;

#[derive(Debug, PartialEq, Eq)]
struct Amount(Quantity);

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

/// A semantic version.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    /// Empty: it is released.
    before: Vec<Part>,
}

/// Numbers come before words.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl Opaque for Version {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Semver"
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let text = text.split('+').next()?;
        let (plain, before) = match text.split_once('-') {
            Some((plain, before)) => (plain, Some(before)),
            None => (text, None),
        };
        let numbers: Vec<u64> = plain
            .split('.')
            .map(|part| part.parse().ok())
            .collect::<Option<_>>()?;
        let before = before.into_iter().flat_map(|before| before.split('.'));
        let before = before.map(|part| match part.parse() {
            Ok(number) => Part::Number(number),
            Err(_) => Part::Word(part.to_owned()),
        });
        Some(Self {
            numbers: numbers.try_into().ok()?,
            before: before.collect(),
        })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let released = |version: &Self| version.before.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| released(self).cmp(&released(other)))
            .then_with(|| self.before.cmp(&other.before))
    }
}

pub fn quantity(amount: Quantity) -> Value {
    Value::Opaque(Arc::new(Amount(amount)))
}

/// `None`: it is none.
pub fn version(text: &str) -> Option<Value> {
    Some(Value::Opaque(Arc::new(Version::parse(text)?)))
}

fn unfit(function: &str) -> ExecutionError {
    ExecutionError::function_error(function, "no such overload")
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
        && let (Some(one), Some(other)) = (
            one.downcast_ref::<Version>(),
            other.downcast_ref::<Version>(),
        )
    {
        return Ok(one.compare(other));
    }
    Err(unfit(function))
}

/// A quantity with another, or a whole number, added or taken away.
fn sum(function: &str, own: &Value, other: &Value, sign: i128) -> Result<Value, ExecutionError> {
    let own = amount(own).ok_or_else(|| unfit(function))?;
    let more = match other {
        Value::Int(number) => i128::from(*number) * 1_000_000_000,
        other => amount(other).ok_or_else(|| unfit(function))?.nanos(),
    };
    let nanos = own.nanos() + sign * more;
    Ok(quantity(Quantity::from_nanos(nanos, own.notation())))
}

fn number_of(function: &str, own: &Value, at: usize) -> Result<i64, ExecutionError> {
    let Value::Opaque(opaque) = own else {
        return Err(unfit(function));
    };
    let version = opaque.downcast_ref::<Version>();
    let version = version.ok_or_else(|| unfit(function))?;
    Ok(i64::try_from(version.numbers[at]).unwrap_or(i64::MAX))
}

fn pattern(function: &str, text: &str) -> Result<regex::Regex, ExecutionError> {
    regex::Regex::new(text).map_err(|error| ExecutionError::function_error(function, error))
}

/// The least or greatest of a list.
fn extreme(function: &str, list: &[Value], wanted: Ordering) -> Result<Value, ExecutionError> {
    let mut best = list.first().ok_or_else(|| unfit(function))?;
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

/// What is there already is not replaced.
pub fn add(context: &mut Context<'_, '_>) {
    let _ = context.add_function("quantity", |text: Text| -> Found<Value> {
        let parsed: Result<Quantity, _> = text.parse();
        parsed
            .map(quantity)
            .map_err(|error| ExecutionError::function_error("quantity", error))
    });
    let _ = context.add_function("isQuantity", |text: Text| text.parse::<Quantity>().is_ok());
    let _ = context.add_function("semver", |text: Text| -> Found<Value> {
        version(&text).ok_or_else(|| ExecutionError::function_error("semver", "no version"))
    });
    let _ = context.add_function("isSemver", |text: Text| Version::parse(&text).is_some());
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
        let own = amount(&own).ok_or_else(|| unfit("sign"))?;
        Ok(own.nanos().signum() as i64)
    });
    let _ = context.add_function("isInteger", |This(own): This<Value>| -> Found<bool> {
        let own = amount(&own).ok_or_else(|| unfit("isInteger"))?;
        Ok(own.nanos() % 1_000_000_000 == 0)
    });
    let _ = context.add_function("asInteger", |This(own): This<Value>| -> Found<i64> {
        let own = amount(&own).ok_or_else(|| unfit("asInteger"))?;
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
            let own = amount(&own).ok_or_else(|| unfit("asApproximateFloat"))?;
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
                _ => return Err(unfit("sum")),
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
