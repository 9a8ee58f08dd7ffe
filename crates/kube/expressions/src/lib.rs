//! Expressions in the Common Expression Language with what Kubernetes adds to it: types that are checked before anything
//! is computed, quantities, versions, addresses, URLs, times, named formats. *No I/O, no Kubernetes objects.*

mod check;
mod code;
pub mod devices;
mod estimate;
mod evaluate;
mod formats;
mod library;
mod limits;
mod literals;
mod lower;
mod macros;
mod meter;
mod signatures;
mod solve;
pub mod time;
mod types;
pub mod values;
mod version;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use cel::{Env, Value, extensions};

pub use estimate::{Bounds, Inside};
pub use library::type_name;
pub use meter::{Budget, Exhausted, Failure, Meter, PER_CALL, until};
pub use types::{Object, Type};
pub use words::in_words;

/// An expression that makes sense.
#[derive(Debug)]
pub struct Expression {
    code: code::Code,
    pub kind: Type,
    variables: BTreeSet<String>,
}

impl Expression {
    /// Reads it and checks its types. The error is in the words of the original compiler.
    pub fn compile(source: &str, variables: &BTreeMap<&str, Type>) -> Result<Self, String> {
        Ok(Self::compile_in(environment(), source, variables, None)?.0)
    }

    /// The same, and the most that it can cost, given what is known of the sizes of its variables.
    pub fn compile_bounded(
        source: &str,
        variables: &BTreeMap<&str, Type>,
        bounds: &Bounds,
    ) -> Result<(Self, u64), String> {
        Self::compile_in(environment(), source, variables, Some(bounds))
    }

    /// An expression about a device, and the most that it can cost. Of all expressions, these know `cel.bind`.
    pub fn compile_of_device(source: &str) -> Result<(Self, u64), String> {
        static WITH_BIND: OnceLock<(Env, Bounds)> = OnceLock::new();
        let (env, bounds) = WITH_BIND.get_or_init(|| {
            let mut env = language();
            let _ = macros::add_bind(&mut env);
            (env, devices::bounds())
        });
        Self::compile_in(env, source, &devices::variables(), Some(bounds))
    }

    fn compile_in(
        env: &Env,
        source: &str,
        variables: &BTreeMap<&str, Type>,
        bounds: Option<&Bounds>,
    ) -> Result<(Self, u64), String> {
        let depth = limits::measure(source)?;
        limits::with_stack(depth, || Self::read(env, source, variables, bounds))
    }

    /// Everything that walks the parser's tree, and drops it.
    fn read(
        env: &Env,
        source: &str,
        variables: &BTreeMap<&str, Type>,
        bounds: Option<&Bounds>,
    ) -> Result<(Self, u64), String> {
        let parser = env.parser().max_recursion_depth(limits::DEPTH as u16);
        let (code, info) = parser
            .parse_with_source_info(source)
            .map_err(|errors| syntax(source, &errors.to_string()))?;
        let mut checked = check::check(&code, variables);
        if !checked.complaints.is_empty() {
            return Err(check::shown(&mut checked.complaints, &info));
        }
        let kind = checked.of(&code);
        let most = bounds.map_or(0, |bounds| estimate::estimate(&code, &checked, bounds));
        let (code, variables) = lower::lower(&code, variables)?;
        let expression = Self {
            code,
            kind,
            variables,
        };
        Ok((expression, most))
    }

    pub fn uses(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// Computes it within what the meter allows.
    pub fn evaluate(
        &self,
        variables: &[(&str, Value)],
        meter: &mut Meter,
    ) -> Result<Value, Failure> {
        evaluate::evaluate(&self.code, variables, meter)
    }
}

/// The language with its extensions.
fn environment() -> &'static Arc<Env> {
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
mod class_tests;
#[cfg(test)]
mod tests;
