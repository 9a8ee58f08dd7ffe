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
    for (name, call) in amounts::FUNCTIONS
        .iter()
        .chain(lists::FUNCTIONS)
        .chain(network::FUNCTIONS)
        .chain(texts::FUNCTIONS)
        .chain(times::FUNCTIONS)
    {
        let call = *call;
        let boxed: Boxed = Box::new(move |context| {
            let mut args = Vec::with_capacity(context.args.len() + 1);
            for arg in context.this.iter().chain(&context.args) {
                args.push(Value::try_from(arg.as_ref())?);
            }
            Ok(CowVal::Owned(call(&args)?.try_into()?))
        });
        // What is there already is not replaced.
        let _ = context.add_function(name, boxed);
    }
}

pub(crate) fn error(function: &str, words: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, words)
}

pub(crate) fn unfit() -> ExecutionError {
    ExecutionError::function_error("", "no such overload")
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
