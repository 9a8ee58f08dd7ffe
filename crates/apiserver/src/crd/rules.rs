//! `x-kubernetes-validations`: rules in the Common Expression Language that objects of a schema must satisfy.

use std::sync::{Arc, OnceLock};

use cel::extractors::This;
use cel::objects::OptionalValue;
use cel::{Context, Env, ExecutionError, Program, Value as Cel, extensions};
use regex::Regex;
use serde_json::Value;

use super::schema::{Additional, Schema};
use super::visible::convert;
use crate::field::{FieldError, Path};

/// One rule, ready to run.
#[derive(Debug)]
pub struct Rule {
    text: String,
    /// `None`: it uses what this server does not know, and is not held against anybody.
    program: Option<Program>,
    uses_old: bool,
    optional_old: bool,
    message: String,
    message_program: Option<Program>,
    reason: String,
    /// `a.b`, from the object that the rule is about.
    field: String,
}

impl Rule {
    pub fn read(rule: &Value, properties: bool) -> Self {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().trim().to_owned();
        let compile = |source: &str| match environment().compile(source) {
            Ok(program) if unknown_function(&program).is_none() => Some(program),
            Ok(program) => {
                let function = unknown_function(&program).unwrap_or_default();
                tracing::warn!(
                    rule = source,
                    function,
                    "rule uses an unknown function and is ignored"
                );
                None
            }
            Err(error) => {
                tracing::warn!(rule = source, %error, "rule cannot be read and is ignored");
                None
            }
        };
        let program = compile(&text("rule"));
        let message_expression = text("messageExpression");
        Self {
            uses_old: program
                .as_ref()
                .is_some_and(|program| program.references().has_variable("oldSelf")),
            program,
            optional_old: rule["optionalOldSelf"] == true,
            message: text("message"),
            message_program: (!message_expression.is_empty())
                .then(|| compile(&message_expression))
                .flatten(),
            reason: text("reason"),
            field: normalised(&text("fieldPath"), properties),
            text: text("rule"),
        }
    }

    /// What is said of a rule in errors about itself.
    fn name(&self) -> &str {
        if self.message.is_empty() {
            &self.text
        } else {
            &self.message
        }
    }
}

/// `.a['b']` as `a.b`, or `a[b]` where the keys are not the schema's.
fn normalised(path: &str, properties: bool) -> String {
    let mut out = path.strip_prefix('.').unwrap_or(path).to_owned();
    while let Some(start) = out.find("['") {
        let Some(length) = out[start..].find("']") else {
            break;
        };
        let key = out[start + 2..start + length].to_owned();
        let replacement = match (properties, start) {
            (false, _) => format!("[{key}]"),
            (true, 0) => key,
            (true, _) => format!(".{key}"),
        };
        out.replace_range(start..start + length + 2, &replacement);
    }
    out
}

fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut env = Env::stdlib();
        // As in cel-go, of a repeated key the last one counts.
        env.set_error_on_duplicate_map_keys(false);
        let added = env
            .add_extension(extensions::strings)
            .and_then(|()| env.add_extension(extensions::lists))
            .and_then(|()| env.add_extension(extensions::math));
        if let Err(error) = added {
            tracing::warn!(%error, "functions for rules are missing");
        }
        Arc::new(env)
    })
}

/// Functions that make values of types which are not known here.
const UNKNOWN: [&str; 9] = [
    "duration",
    "timestamp",
    "quantity",
    "url",
    "isURL",
    "ip",
    "cidr",
    "semver",
    "isSemver",
];

fn unknown_function(program: &Program) -> Option<&'static str> {
    let references = program.references();
    UNKNOWN
        .into_iter()
        .find(|function| references.has_function(function))
}

/// The functions that Kubernetes adds to those of the language are added to every context.
fn context(own: &Cel, old: Option<Cel>) -> Context<'static, 'static> {
    let mut context = Context::with_env(environment().clone());
    context.add_variable_from_value("self", own.clone());
    if let Some(old) = old {
        context.add_variable_from_value("oldSelf", old);
    }
    add_functions(&mut context);
    context
}

/// Functions that Kubernetes adds to those of the language.
pub fn add_functions(context: &mut Context<'static, 'static>) {
    // The names are free, so nothing can refuse them.
    let _ = context.add_function("matches", matches);
    let _ = context.add_function("find", find);
    let _ = context.add_function("findAll", find_all);
    let _ = context.add_function("isSorted", |This(list): This<Arc<Vec<Cel>>>| {
        list.is_sorted_by(|a, b| a.partial_cmp(b).is_some_and(std::cmp::Ordering::is_le))
    });
    let _ = context.add_function("sum", sum);
    let _ = context.add_function("min", |This(list): This<Arc<Vec<Cel>>>| {
        extreme(&list, "min", std::cmp::Ordering::Less)
    });
    let _ = context.add_function("max", |This(list): This<Arc<Vec<Cel>>>| {
        extreme(&list, "max", std::cmp::Ordering::Greater)
    });
    let _ = context.add_function("isIP", |text: Arc<String>| {
        text.parse::<std::net::IpAddr>().is_ok()
    });
    let _ = context.add_function("isCIDR", |text: Arc<String>| super::formats::is_cidr(&text));
    let _ = context.add_function("isQuantity", |text: Arc<String>| {
        text.parse::<plimsoll_api::quantity::Quantity>().is_ok()
    });
}

fn regex(text: &str, function: &str) -> Result<Regex, ExecutionError> {
    Regex::new(text).map_err(|error| ExecutionError::function_error(function, error))
}

fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<bool, ExecutionError> {
    Ok(regex(&pattern, "matches")?.is_match(&text))
}

fn find(
    This(text): This<Arc<String>>,
    pattern: Arc<String>,
) -> Result<Arc<String>, ExecutionError> {
    let found = regex(&pattern, "find")?
        .find(&text)
        .map(|found| found.as_str().to_owned());
    Ok(Arc::new(found.unwrap_or_default()))
}

fn find_all(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<Cel, ExecutionError> {
    let found: Vec<Cel> = regex(&pattern, "findAll")?
        .find_iter(&text)
        .map(|found| found.as_str().into())
        .collect();
    Ok(Cel::List(Arc::new(found)))
}

fn sum(This(list): This<Arc<Vec<Cel>>>) -> Result<Cel, ExecutionError> {
    let mut whole = 0i64;
    let mut float = None;
    for item in list.iter() {
        match item {
            Cel::Int(value) => {
                whole = whole
                    .checked_add(*value)
                    .ok_or_else(|| ExecutionError::function_error("sum", "integer overflow"))?;
            }
            Cel::Float(value) => *float.get_or_insert(0.0) += *value,
            other => return Err(ExecutionError::unsupported_target_type(other.clone())),
        }
    }
    Ok(float.map_or(Cel::Int(whole), Cel::Float))
}

fn extreme(
    list: &[Cel],
    function: &str,
    wanted: std::cmp::Ordering,
) -> Result<Cel, ExecutionError> {
    let mut best: Option<&Cel> = None;
    for item in list {
        if best.is_none_or(|best| item.partial_cmp(best) == Some(wanted)) {
            best = Some(item);
        }
    }
    best.cloned().ok_or_else(|| {
        ExecutionError::function_error(function, format!("{function} called on empty list"))
    })
}

/// Checks a value and all within it. `root`: it is an object of the API, whose metadata rules can see in part.
pub fn check(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &Path,
    root: bool,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() {
        return;
    }
    let old = old.filter(|old| !old.is_null());
    if !schema.rules.is_empty() {
        check_here(schema, value, old, path, root, errors);
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let old = old.and_then(|old| old.get(name));
                if let Some(property) = schema.properties.get(name) {
                    check(property, value, old, &path.child(name), false, errors);
                } else if let Additional::Of(further) = &schema.additional {
                    check(further, value, old, &path.key(name), false, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(items_schema) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| schema.earlier_element(item, old));
                    check(items_schema, item, old, &path.index(index), false, errors);
                }
            }
        }
        _ => {}
    }
}

fn check_here(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &Path,
    root: bool,
    errors: &mut Vec<FieldError>,
) {
    let own = convert(schema, value, root);
    let earlier = old.map(|old| convert(schema, old, root));
    let type_name = schema.types.first().map_or("", |one| one.name());
    let unchanged = old.is_some_and(|old| schema.unchanged(value, old));
    for rule in &schema.rules {
        let Some(program) = &rule.program else {
            continue;
        };
        if rule.uses_old && earlier.is_none() && !rule.optional_old {
            continue;
        }
        let old_value = if rule.optional_old {
            Some(Cel::Opaque(Arc::new(match &earlier {
                Some(earlier) => OptionalValue::of(earlier.clone()),
                None => OptionalValue::none(),
            })))
        } else {
            earlier.clone()
        };
        let context = context(&own, old_value);
        match program.execute(&context) {
            Ok(Cel::Bool(true)) => continue,
            Ok(_) => {}
            // As for rules that were found to be beyond us when they were read.
            Err(ExecutionError::UndeclaredReference(_)) => continue,
            Err(error) => {
                let words = evaluation_error(&error, rule.name());
                errors.push(FieldError::invalid(path, type_name, words));
                continue;
            }
        }
        // What was so before may stay, unless the rule is about the change.
        if unchanged && !rule.uses_old {
            continue;
        }
        let detail = message(rule, &context);
        let path = if rule.field.is_empty() {
            path.clone()
        } else {
            path.child(&rule.field)
        };
        let whole = matches!(type_name, "object" | "array");
        errors.push(match rule.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(&path, detail),
            "FieldValueRequired" => FieldError::required(&path, &detail),
            "FieldValueDuplicate" if whole => FieldError::duplicate_omitted(&path),
            "FieldValueDuplicate" => FieldError::duplicate(&path, value.clone()),
            _ if whole => FieldError::invalid_omitted(&path, &detail),
            _ => FieldError::invalid(&path, value.clone(), detail),
        });
    }
}

fn message(rule: &Rule, context: &Context<'_, '_>) -> String {
    /// Longer messages are not used.
    const MAX_MESSAGE: usize = 5 * 1024;
    if let Some(program) = &rule.message_program
        && let Ok(Cel::String(text)) = program.execute(context)
    {
        let text = text.trim();
        if !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE {
            return text.to_owned();
        }
    }
    if rule.message.is_empty() {
        format!("failed rule: {}", rule.text)
    } else {
        rule.message.clone()
    }
}

fn evaluation_error(error: &ExecutionError, rule: &str) -> String {
    let words = match error {
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::ValuesNotComparable(..) => {
            return format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature \
                 for rule: {rule}"
            );
        }
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    format!("{words} evaluating rule: {rule}")
}
