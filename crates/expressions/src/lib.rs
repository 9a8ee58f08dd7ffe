//! Expressions in the Common Expression Language with what Kubernetes adds to it: types that are checked before anything
//! is computed, quantities, versions, addresses, URLs, times, named formats. *No I/O, no Kubernetes objects.*

mod check;
mod formats;
mod library;
mod literals;
mod lower;
mod macros;
mod signatures;
mod solve;
pub mod time;
mod types;
pub mod values;
mod version;
mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cel::{Context, Env, ExecutionError, IdedExpr, Value, extensions};

pub use library::{add as add_functions, type_name};
pub use types::{Object, Type};
pub use words::in_words;

/// An expression that makes sense.
#[derive(Debug)]
pub struct Expression {
    code: IdedExpr,
    pub kind: Type,
    variables: Vec<String>,
}

impl Expression {
    /// Reads it and checks its types. The error is in the words of the original compiler.
    pub fn compile(source: &str, variables: &BTreeMap<&str, Type>) -> Result<Self, String> {
        Self::compile_in(environment(), source, variables)
    }

    /// The same where `cel.bind` is known, too: of all expressions, it is those about devices.
    pub fn compile_with_bind(
        source: &str,
        variables: &BTreeMap<&str, Type>,
    ) -> Result<Self, String> {
        static WITH_BIND: OnceLock<Env> = OnceLock::new();
        let env = WITH_BIND.get_or_init(|| {
            let mut env = language();
            let _ = macros::add_bind(&mut env);
            env
        });
        Self::compile_in(env, source, variables)
    }

    fn compile_in(
        env: &Env,
        source: &str,
        variables: &BTreeMap<&str, Type>,
    ) -> Result<Self, String> {
        let program = env
            .compile(source)
            .map_err(|errors| syntax(source, &errors.to_string()))?;
        let code = program.expression();
        let mut checked = check::check(code, variables);
        if !checked.complaints.is_empty() {
            return Err(check::shown(&mut checked.complaints, program.source_info()));
        }
        let references = program.references();
        Ok(Self {
            kind: checked.of(code),
            variables: references
                .variables()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            code: lower::lower(code.clone(), &checked),
        })
    }

    pub fn uses(&self, variable: &str) -> bool {
        self.variables.iter().any(|name| name == variable)
    }

    pub fn evaluate(&self, context: &Context<'_, '_>) -> Result<Value, ExecutionError> {
        Value::resolve(&self.code, context)
    }
}

/// A context that knows all functions and no variables.
pub fn context() -> Context<'static, 'static> {
    let mut context = Context::with_env(Arc::clone(environment()));
    add_functions(&mut context);
    context
}

/// The language with its extensions.
pub fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| Arc::new(language()))
}

fn language() -> Env {
    let mut env = Env::stdlib();
    // As in the original, of a repeated key the last one counts.
    env.set_error_on_duplicate_map_keys(false);
    // Names of ours do not clash, so nothing is refused.
    let _ = env.add_extension(extensions::strings);
    let _ = env.add_extension(extensions::lists);
    let _ = macros::add(&mut env);
    env
}

/// The parser's words. The original indents the lines that it quotes, and does not quote nothing.
fn syntax(source: &str, words: &str) -> String {
    if source.is_empty() {
        let first = words.lines().next().unwrap_or_default();
        return first.replace("<input>:1:1:", "<input>:1:0:");
    }
    words.replace("\n| ", "\n | ")
}

#[cfg(test)]
mod tests;
