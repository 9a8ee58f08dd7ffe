//! What a call costs, and how much it may make. It is charged before the call.

use cel::Value;

use crate::code::Operator;
use crate::formats;
use crate::library::inner;
use crate::meter::{Failure, Meter, PIECE};
use crate::values::{Format, Span};

/// To read a text once, by letter; to try one letter of a pattern.
const LETTER: f64 = 0.1;
const PATTERN_LETTER: f64 = 0.25;
const LIST: u64 = 10;

fn rounded(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Of a text its letters, of a list or map its entries.
pub fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.chars().count() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::List(items) => items.len() as u64,
        Value::Map(map) => map.map.len() as u64,
        other => inner(other).map_or(1, size),
    }
}

/// Kubernetes' own types are compared at once.
fn is_own(value: &Value) -> bool {
    matches!(value, Value::Opaque(_)) && inner(value).is_none() && Span::of(value).is_none()
}

pub fn of_operator(operator: Operator, one: &Value, other: &Value) -> u64 {
    let is_text = matches!(one, Value::String(_) | Value::Bytes(_));
    match operator {
        Operator::Equals | Operator::NotEquals if is_own(one) => 1,
        Operator::Equals | Operator::NotEquals => rounded(size(one).min(size(other)), LETTER),
        Operator::Less | Operator::LessEquals | Operator::Greater | Operator::GreaterEquals
            if is_text =>
        {
            rounded(size(one).min(size(other)), LETTER)
        }
        Operator::Add if is_text => rounded(size(one) + size(other), LETTER),
        Operator::In if matches!(other, Value::List(_)) => size(other),
        // The original looks it up, and does not count that.
        Operator::InWritten => 0,
        _ => 1,
    }
}

pub fn charge(name: &str, args: &[Value], meter: &mut Meter) -> Result<(), Failure> {
    let cost = cost(name, args, meter)?;
    meter.charge(cost)?;
    work(name, args, meter)
}

fn cost(name: &str, args: &[Value], meter: &mut Meter) -> Result<u64, Failure> {
    let sized = |at: usize| args.get(at).map_or(1, size);
    let text = |at: usize, factor: f64| rounded(sized(at), factor * LETTER);
    let is_list = matches!(args.first(), Some(Value::List(_)));
    let squared = || {
        let of = args.last().filter(|_| name != "sort" && name != "distinct");
        let of = of.or(args.first());
        let compares = match of {
            Some(Value::List(items)) => match items.first() {
                Some(Value::String(_) | Value::Bytes(_)) => 2.0 + LETTER,
                _ => 2.0,
            },
            _ => 2.0,
        };
        let size = of.map_or(0, size);
        ((size.saturating_mul(size)) as f64 * compares) as u64 + 1 + LIST
    };
    Ok(match name {
        "check" => 350_000,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            return args.first().map_or(Ok(0), |of| traversal(of, meter));
        }
        "startsWith" | "endsWith" | "strings.quote" | "format" | "url" | "lowerAscii"
        | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "quantity"
        | "isQuantity" | "semver" | "isSemver" => text(0, 1.0),
        "bytes" | "string" if matches!(args, [Value::String(_) | Value::Bytes(_)]) => text(0, 1.0),
        "ip" if matches!(args, [Value::String(_)]) => text(0, 1.0),
        "replace" | "split" | "ip.isCanonical" => text(0, 2.0),
        "join" => rounded(joined(args) as u64, 2.0 * LETTER),
        "contains" => text(0, 1.0).saturating_mul(text(1, 1.0)),
        "matches" | "find" | "findAll" => {
            let letters = rounded(sized(0) + 1, LETTER);
            letters.saturating_mul(rounded(sized(1), PATTERN_LETTER))
        }
        "validate" => match args.first().and_then(Format::of) {
            Some(format) => rounded(sized(1) + 1, LETTER)
                .saturating_mul(rounded(formats::pattern_size(format.0), PATTERN_LETTER)),
            None => 1,
        },
        "containsIP" => match args.get(1) {
            Some(Value::String(_)) => 1 + text(1, 1.0),
            _ => 1,
        },
        "containsCIDR" => match args.get(1) {
            Some(Value::String(_)) => 3 + text(1, 1.0),
            _ => 3,
        },
        "sets.contains" | "sets.intersects" => sized(0).saturating_mul(sized(1)) + 1,
        "sets.equivalent" => sized(0).saturating_mul(sized(1)).saturating_mul(2) + 1,
        "slice" | "lists.range" => match args.last() {
            Some(Value::Int(end)) => {
                let start = match args.get(1).filter(|_| name == "slice") {
                    Some(Value::Int(start)) => *start,
                    _ => 0,
                };
                u64::try_from(end.saturating_sub(start)).unwrap_or(0) + 1 + LIST
            }
            _ => 1,
        },
        "reverse" if is_list => sized(0) + 1 + LIST,
        "flatten" => {
            let depth = match args.get(1) {
                Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                _ => 1,
            };
            sized(0).saturating_mul(depth) + 1 + LIST
        }
        "distinct" | "sort" | "@sortByAssociatedKeys" => squared(),
        _ => 1,
    })
}

/// What it costs to look at everything in a value.
fn traversal(value: &Value, meter: &mut Meter) -> Result<u64, Failure> {
    meter.step(1)?;
    let text = |length: usize| Ok((length as f64 * LETTER) as u64);
    match value {
        Value::String(of) => text(of.len()),
        Value::Bytes(of) => text(of.len()),
        Value::List(items) => {
            let mut cost = 0_u64;
            for item in items.iter() {
                cost = cost.saturating_add(traversal(item, meter)?);
            }
            Ok(cost)
        }
        Value::Map(map) => {
            let mut cost = 0_u64;
            for item in map.map.values() {
                cost = cost.saturating_add(traversal(item, meter)?.saturating_add(1));
            }
            Ok(cost)
        }
        _ => Ok(1),
    }
}

/// Bytes of the texts of a list with what goes between them.
fn joined(args: &[Value]) -> usize {
    let between = args.get(1).map_or(0, length);
    match args.first() {
        Some(Value::List(items)) => {
            let texts = items
                .iter()
                .map(length)
                .fold(0_usize, usize::saturating_add);
            texts.saturating_add(between.saturating_mul(items.len().saturating_sub(1)))
        }
        _ => 0,
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        _ => 0,
    }
}

fn text(args: &[Value], at: usize) -> &str {
    match args.get(at) {
        Some(Value::String(text)) => text,
        _ => "",
    }
}

/// What the costs of the original do not say: what is really looked at, and made.
fn work(name: &str, args: &[Value], meter: &mut Meter) -> Result<(), Failure> {
    const VALUE: usize = size_of::<Value>();
    /// A text of its own, without its letters.
    const TEXT: usize = VALUE + 40;
    let first = args.first().map_or(0, length);
    match name {
        // They look at the value itself, not into it.
        "dyn" | "type" | "optional.of" | "optional.none" | "hasValue" | "value" | "or"
        | "orValue" => Ok(()),
        "size" => meter.step((first / PIECE) as u64),
        "slice" | "reverse" | "unwrapOpt" | "optional.unwrap" => match args.first() {
            Some(Value::List(items)) => meter.make(VALUE * items.len()),
            _ => meter.make(first.saturating_mul(4)),
        },
        "lists.range" => match args.first() {
            Some(Value::Int(end)) => {
                let end = usize::try_from(*end).unwrap_or(0);
                meter.make(VALUE.saturating_mul(end))
            }
            _ => Ok(()),
        },
        "sets.contains" | "sets.intersects" | "sets.equivalent" => {
            let (one, other) = (weight(args, 0, meter)?, weight(args, 1, meter)?);
            let (left, right) = (args.first().map_or(0, size), args.get(1).map_or(0, size));
            let steps = left.saturating_mul(other);
            meter.step(steps.saturating_add(right.saturating_mul(one)))
        }
        "distinct" => {
            let all = weight(args, 0, meter)?;
            meter.step(all.saturating_mul(args.first().map_or(0, size)))
        }
        "sort" | "@sortByAssociatedKeys" => {
            let all = weight(args, 0, meter)? + weight(args, 1, meter)?;
            let rounds = u64::from(u64::BITS - args.first().map_or(0, size).leading_zeros());
            meter.step(all.saturating_mul(rounds))?;
            meter.make(VALUE * 2 * args.first().map_or(0, size) as usize)
        }
        "indexOf" | "lastIndexOf" | "contains" => {
            let needle = args.get(1).map_or(0, length);
            weight(args, 0, meter)?;
            // Letter by letter at worst.
            meter.step((first / PIECE).saturating_mul(needle / PIECE) as u64)
        }
        "join" => meter.make(joined(args)),
        "replace" => {
            let (from, to) = (text(args, 1), text(args, 2));
            weight(args, 0, meter)?;
            let count = match from {
                "" => first + 1,
                from => text(args, 0).matches(from).count(),
            };
            meter.make(first.saturating_add(count.saturating_mul(to.len())))
        }
        "split" => {
            weight(args, 0, meter)?;
            let count = match text(args, 1) {
                "" => first + 1,
                by => text(args, 0).matches(by).count() + 1,
            };
            meter.make(first.saturating_add(count.saturating_mul(TEXT)))
        }
        "matches" | "find" => weight(args, 0, meter).map(|_| ()),
        "findAll" => meter.make(first.saturating_add(first.saturating_mul(TEXT))),
        "format" => {
            let all = weight(args, 1, meter)? as usize;
            // A number has at most this many letters with the digits that may be asked for.
            const NUMBER: usize = 450;
            meter.make(first.saturating_add(all.saturating_mul(NUMBER)))
        }
        _ => {
            for at in 0..args.len() {
                weight(args, at, meter)?;
            }
            meter.make(first)
        }
    }
}

fn weight(args: &[Value], at: usize, meter: &mut Meter) -> Result<u64, Failure> {
    args.get(at).map_or(Ok(0), |value| meter.weigh(value))
}
