//! The functions that Kubernetes adds to the language.

mod amounts;
mod basics;
mod lists;
mod network;
mod texts;
pub(crate) mod times;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{CallExpr, Expr};
use cel::objects::OptionalValue;
use cel::{Context, ExecutionError, IdedExpr, Value};

pub(crate) use texts::{find_all, find_one, matches, pattern};

use crate::values::{Moment, Span};

pub(crate) type Found = Result<Value, ExecutionError>;
/// What a method is called on comes first.
pub(crate) type Call = fn(&[Value]) -> Found;

/// The function of this name, if it is one of ours.
pub(crate) fn find(name: &str) -> Option<Call> {
    static FUNCTIONS: OnceLock<BTreeMap<&str, Call>> = OnceLock::new();
    let functions = FUNCTIONS.get_or_init(|| {
        let all = [
            amounts::FUNCTIONS,
            basics::FUNCTIONS,
            lists::FUNCTIONS,
            network::FUNCTIONS,
            texts::FUNCTIONS,
            times::FUNCTIONS,
        ];
        all.into_iter().flatten().copied().collect()
    });
    functions.get(name).copied()
}

pub(crate) fn run(call: Call, name: &str, args: &[Value]) -> Found {
    call(args).map_err(|problem| named(problem, name, args))
}

/// A call of one of the crate's functions with variables for its arguments.
pub(crate) fn foreign(name: &str, count: usize) -> IdedExpr {
    let ident = |index: usize| IdedExpr {
        id: 0,
        expr: Expr::Ident(variable(index).to_owned()),
    };
    let (space, own) = match name.split_once('.') {
        Some((space, own)) => (Some(space), own),
        None => (None, name),
    };
    let is_method = space.is_none()
        && !matches!(
            name,
            "string" | "int" | "uint" | "double" | "bool" | "bytes"
        );
    let (target, first) = match space {
        Some(space) => {
            let expr = Expr::Ident(space.to_owned());
            (Some(Box::new(IdedExpr { id: 0, expr })), 0)
        }
        None if is_method => (Some(Box::new(ident(0))), 1),
        None => (None, 0),
    };
    IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: own.to_owned(),
            target,
            args: (first..count).map(ident).collect(),
        }),
    }
}

fn variable(index: usize) -> &'static str {
    ["@0", "@1", "@2", "@3", "@4"]
        .get(index)
        .copied()
        .unwrap_or("@5")
}

thread_local! {
    /// To make it takes longer than most calls.
    static LANGUAGE: Context<'static, 'static> = Context::with_env(Arc::clone(crate::environment()));
}

pub(crate) fn run_foreign(call: &IdedExpr, name: &str, args: Vec<Value>) -> Found {
    if let Some(found) = instead(name, &args) {
        return found;
    }
    LANGUAGE.with(|language| {
        let mut context = language.new_inner_scope();
        for (index, arg) in args.into_iter().enumerate() {
            context.add_variable_as_val(variable(index), arg.try_into()?);
        }
        Value::resolve(call, &context)
    })
}

/// What is ours of functions that the crate has for other values.
fn instead(name: &str, args: &[Value]) -> Option<Found> {
    let first = args.first()?;
    let is_time = Span::of(first).is_some() || Moment::of(first).is_some();
    match (name, first) {
        ("string", _) if is_time => Some(times::string_of(first)),
        ("int", _) if is_time => Some(times::int_of(first)),
        ("indexOf" | "lastIndexOf", Value::List(items)) => {
            Some(lists::place_of(name, items, args.get(1)?))
        }
        _ => None,
    }
}

/// What an optional has.
pub(crate) fn inner(value: &Value) -> Option<&Value> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<OptionalValue>()?.value(),
        _ => None,
    }
}

pub(crate) fn is_optional(value: &Value) -> bool {
    matches!(value, Value::Opaque(opaque) if opaque.downcast_ref::<OptionalValue>().is_some())
}

pub(crate) fn error(function: &str, words: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, words)
}

/// The function does not take such values.
pub(crate) fn unfit() -> ExecutionError {
    error("", UNFIT)
}

const UNFIT: &str = "no such overload";
/// The language's own functions do not say what they were called with.
const STANDARD: [&str; 4] = ["size", "contains", "startsWith", "endsWith"];

/// Functions do not know by what name they were called.
pub(crate) fn named(problem: ExecutionError, name: &str, args: &[Value]) -> ExecutionError {
    if problem != unfit() || STANDARD.contains(&name) {
        return problem;
    }
    let types: Vec<&str> = args.iter().map(type_name).collect();
    error(name, format!("{UNFIT}: {name}({})", types.join(", ")))
}

/// What the language calls the type of a value.
pub fn type_name(value: &Value) -> &str {
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

pub(crate) fn text(args: &[Value], at: usize) -> Result<&str, ExecutionError> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(unfit()),
    }
}

pub(crate) fn list(args: &[Value], at: usize) -> Result<&[Value], ExecutionError> {
    match args.get(at) {
        Some(Value::List(list)) => Ok(list),
        _ => Err(unfit()),
    }
}

pub(crate) fn string(text: impl Into<String>) -> Value {
    Value::String(Arc::new(text.into()))
}

pub(crate) fn optional(value: Option<Value>) -> Value {
    Value::Opaque(Arc::new(match value {
        Some(value) => OptionalValue::of(value),
        None => OptionalValue::none(),
    }))
}
