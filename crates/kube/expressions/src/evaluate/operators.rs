//! Operators on values.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{ExecutionError, Value};

use super::no_overload;
use crate::code::Operator;
use crate::library::{inner, times};
use crate::meter::{Failure, Meter, PIECE};
use crate::values::{Moment, Span};

type Found = Result<Value, Failure>;

pub fn binary(operator: Operator, one: Value, other: Value, meter: &mut Meter) -> Found {
    meter.charge(super::costs::of_operator(operator, &one, &other))?;
    match operator {
        Operator::Equals => Ok(Value::Bool(equal(&one, &other, meter)?)),
        Operator::NotEquals => Ok(Value::Bool(!equal(&one, &other, meter)?)),
        Operator::Less => order("_<_", &one, &other, meter).map(|order| Value::Bool(order.is_lt())),
        Operator::LessEquals => {
            order("_<=_", &one, &other, meter).map(|order| Value::Bool(order.is_le()))
        }
        Operator::Greater => {
            order("_>_", &one, &other, meter).map(|order| Value::Bool(order.is_gt()))
        }
        Operator::GreaterEquals => {
            order("_>=_", &one, &other, meter).map(|order| Value::Bool(order.is_ge()))
        }
        Operator::In | Operator::InWritten => contains(&one, &other, meter),
        Operator::Add => add(one, other, meter),
        Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
            Ok(compute(operator, &one, &other)?)
        }
    }
}

/// Whether they are the same, whatever their types.
pub fn equal(one: &Value, other: &Value, meter: &mut Meter) -> Result<bool, Failure> {
    meter.step(1)?;
    match (one, other) {
        (Value::List(one), Value::List(other)) => {
            if one.len() != other.len() {
                return Ok(false);
            }
            for (one, other) in one.iter().zip(other.iter()) {
                if !equal(one, other, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(one), Value::Map(other)) => {
            if one.map.len() != other.map.len() {
                return Ok(false);
            }
            for (key, value) in one.map.iter() {
                match other.get(key) {
                    Some(found) if equal(value, found, meter)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::String(one), Value::String(other)) => {
            meter.step((one.len().min(other.len()) / PIECE) as u64)?;
            Ok(one == other)
        }
        (Value::Bytes(one), Value::Bytes(other)) => {
            meter.step((one.len().min(other.len()) / PIECE) as u64)?;
            Ok(one == other)
        }
        (Value::Opaque(_), Value::Opaque(_)) => match (inner(one), inner(other)) {
            (Some(one), Some(other)) => equal(one, other, meter),
            (None, None) => Ok(one == other),
            _ => Ok(false),
        },
        (one, other) => Ok(one == other),
    }
}

fn order(name: &str, one: &Value, other: &Value, meter: &mut Meter) -> Result<Ordering, Failure> {
    if let (Value::String(one), Value::String(other)) = (one, other) {
        meter.step((one.len().min(other.len()) / PIECE) as u64)?;
    }
    if let (Value::Float(number), _) | (_, Value::Float(number)) = (one, other)
        && number.is_nan()
    {
        let words = "NaN values cannot be ordered";
        return Err(ExecutionError::function_error("", words).into());
    }
    compare(one, other).ok_or_else(|| no_overload(name, &[one, other]).into())
}

/// `None`: such values have no order.
pub fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    if let (Value::Bytes(one), Value::Bytes(other)) = (one, other) {
        return Some(one.cmp(other));
    }
    if let (Some(one), Some(other)) = (Span::of(one), Span::of(other)) {
        return Some(one.cmp(other));
    }
    if let (Some(one), Some(other)) = (Moment::of(one), Moment::of(other)) {
        return Some(one.cmp(other));
    }
    one.partial_cmp(other)
}

fn contains(one: &Value, other: &Value, meter: &mut Meter) -> Found {
    match other {
        Value::List(items) => {
            for item in items.iter() {
                if equal(one, item, meter)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Value::Map(map) => Ok(Value::Bool(entry(map, one).is_some())),
        other => Err(no_overload("@in", &[one, other]).into()),
    }
}

/// Whole numbers are the same key whatever their type.
fn entry<'m>(map: &'m Map, key: &Value) -> Option<&'m Value> {
    let key: Key = match key {
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Key::Int(*number as i64)
        }
        other => other.clone().try_into().ok()?,
    };
    map.get(&key)
}

pub fn item(of: &Value, index: &Value) -> Result<Value, ExecutionError> {
    match of {
        Value::Map(map) => entry(map, index).cloned().ok_or_else(|| match index {
            Value::String(key) => ExecutionError::NoSuchKey(Arc::clone(key)),
            other => match <Value as TryInto<Key>>::try_into(other.clone()) {
                Ok(key) => ExecutionError::no_such_key(&key.to_string()),
                Err(_) => no_overload("_[_]", &[of, index]),
            },
        }),
        Value::List(items) => {
            let at = match index {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::UInt(index) => usize::try_from(*index).ok(),
                Value::Float(index) if index.fract() == 0.0 && *index >= 0.0 => {
                    Some(*index as usize)
                }
                Value::Float(_) => None,
                _ => return Err(no_overload("_[_]", &[of, index])),
            };
            let found = at.and_then(|at| items.get(at)).cloned();
            found.ok_or_else(|| ExecutionError::IndexOutOfBounds(index.clone()))
        }
        _ => Err(no_overload("_[_]", &[of, index])),
    }
}

fn add(one: Value, other: Value, meter: &mut Meter) -> Found {
    match (&one, &other) {
        (Value::String(left), Value::String(right)) => {
            meter.make(left.len() + right.len())?;
            Ok(Value::String(Arc::new(format!("{left}{right}"))))
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            meter.make(left.len() + right.len())?;
            Ok(Value::Bytes(Arc::new(
                [left.as_slice(), right.as_slice()].concat(),
            )))
        }
        (Value::List(left), Value::List(right)) => {
            meter.make(size_of::<Value>() * (left.len() + right.len()))?;
            Ok(Value::List(Arc::new(
                [left.as_slice(), right.as_slice()].concat(),
            )))
        }
        _ => Ok(compute(Operator::Add, &one, &other)?),
    }
}

fn compute(operator: Operator, one: &Value, other: &Value) -> Result<Value, ExecutionError> {
    let overflow = || ExecutionError::Overflow(sign(operator), one.clone(), other.clone());
    match (one, other) {
        (Value::Int(left), Value::Int(right)) => {
            divides(operator, *right == 0, one)?;
            let result = match operator {
                Operator::Add => left.checked_add(*right),
                Operator::Subtract => left.checked_sub(*right),
                Operator::Multiply => left.checked_mul(*right),
                Operator::Divide => left.checked_div(*right),
                _ => left.checked_rem(*right),
            };
            result.map(Value::Int).ok_or_else(overflow)
        }
        (Value::UInt(left), Value::UInt(right)) => {
            divides(operator, *right == 0, one)?;
            let result = match operator {
                Operator::Add => left.checked_add(*right),
                Operator::Subtract => left.checked_sub(*right),
                Operator::Multiply => left.checked_mul(*right),
                Operator::Divide => left.checked_div(*right),
                _ => left.checked_rem(*right),
            };
            result.map(Value::UInt).ok_or_else(overflow)
        }
        (Value::Float(left), Value::Float(right)) if operator != Operator::Modulo => {
            Ok(Value::Float(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                _ => left / right,
            }))
        }
        (Value::Opaque(_), Value::Opaque(_)) if operator == Operator::Add => {
            times::added(&[one.clone(), other.clone()], 1)
        }
        (Value::Opaque(_), Value::Opaque(_)) if operator == Operator::Subtract => {
            times::taken(&[one.clone(), other.clone()])
        }
        _ => Err(no_overload(sign(operator), &[one, other])),
    }
}

fn divides(operator: Operator, by_zero: bool, one: &Value) -> Result<(), ExecutionError> {
    match operator {
        Operator::Divide if by_zero => Err(ExecutionError::DivisionByZero(one.clone())),
        Operator::Modulo if by_zero => Err(ExecutionError::RemainderByZero(one.clone())),
        _ => Ok(()),
    }
}

fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "_+_",
        Operator::Subtract => "_-_",
        Operator::Multiply => "_*_",
        Operator::Divide => "_/_",
        _ => "_%_",
    }
}
