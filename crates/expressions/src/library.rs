//! The functions that Kubernetes adds to the language.

mod amounts;
mod lists;
mod network;
mod texts;
mod times;

use std::sync::Arc;

use cel::common::value::CowVal;
use cel::objects::OptionalValue;
use cel::{Context, ExecutionError, FunctionContext, Value};

pub(crate) type Found = Result<Value, ExecutionError>;
/// What a method is called on comes first.
pub(crate) type Call = fn(&[Value]) -> Found;

type Boxed = Box<
    dyn for<'context, 'call> Fn(
            &mut FunctionContext<'context, 'call>,
        ) -> Result<CowVal<'context, 'call>, ExecutionError>
        + Send
        + Sync,
>;

/// Adds all of them.
pub fn add(context: &mut Context<'_, '_>) {
    for &(name, call) in amounts::FUNCTIONS
        .iter()
        .chain(lists::FUNCTIONS)
        .chain(network::FUNCTIONS)
        .chain(texts::FUNCTIONS)
        .chain(times::FUNCTIONS)
    {
        let boxed: Boxed = Box::new(move |context| {
            let mut args = Vec::with_capacity(context.args.len() + 1);
            for arg in context.this.iter().chain(&context.args) {
                args.push(Value::try_from(arg.as_ref())?);
            }
            let found = call(&args).map_err(|problem| named(problem, name, &args))?;
            Ok(CowVal::Owned(found.try_into()?))
        });
        // What is there already is not replaced.
        let _ = context.add_function(name, boxed);
    }
}

pub(crate) fn error(function: &str, words: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, words)
}

/// The function does not take such values.
pub(crate) fn unfit() -> ExecutionError {
    error("", UNFIT)
}

const UNFIT: &str = "no such overload";

/// Functions do not know by what name they were called.
fn named(problem: ExecutionError, name: &str, args: &[Value]) -> ExecutionError {
    if problem != unfit() {
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
