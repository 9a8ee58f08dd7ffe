//! `x-kubernetes-validations`: rules in the Common Expression Language that objects of a schema must satisfy.

use std::sync::{Arc, OnceLock};

use cel::objects::OptionalValue;
use cel::{Context, ExecutionError, Value as Cel};
use plimsoll_expressions::{Expression, Type, in_words};
use serde_json::Value;

use super::declared::{declared, variables};
use super::schema::{Additional, Schema};
use super::visible::convert;
use crate::field::{FieldError, Path};

/// One rule. It is compiled when it is first checked: a definition may have hundreds, and few of them ever see a value.
#[derive(Debug)]
pub struct Rule {
    text: String,
    /// What the rule is about.
    own: Type,
    program: OnceLock<Option<Expression>>,
    optional_old: bool,
    message: String,
    message_expression: String,
    message_program: OnceLock<Option<Expression>>,
    reason: String,
    /// `a.b`, from the object that the rule is about.
    field: String,
}

impl Rule {
    /// The rules of this schema; `root`: which is that of a whole object.
    pub fn read_all(schema: &Value, root: bool) -> Vec<Self> {
        let Some(rules) = schema["x-kubernetes-validations"].as_array() else {
            return Vec::new();
        };
        let own = declared(schema, root).unwrap_or(Type::Dyn);
        let properties = schema["properties"].is_object();
        let read = |rule| Self::read(rule, own.clone(), properties);
        rules.iter().map(read).collect()
    }

    fn read(rule: &Value, own: Type, properties: bool) -> Self {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().trim().to_owned();
        Self {
            text: text("rule"),
            own,
            program: OnceLock::new(),
            optional_old: rule["optionalOldSelf"] == true,
            message: text("message"),
            message_expression: text("messageExpression"),
            message_program: OnceLock::new(),
            reason: text("reason"),
            field: normalised(&text("fieldPath"), properties),
        }
    }

    /// `None`: it uses what this server does not know, and is not held against anybody.
    fn program(&self) -> Option<&Expression> {
        let program = || self.compile(&self.text);
        self.program.get_or_init(program).as_ref()
    }

    fn message_program(&self) -> Option<&Expression> {
        if self.message_expression.is_empty() {
            return None;
        }
        let program = || self.compile(&self.message_expression);
        self.message_program.get_or_init(program).as_ref()
    }

    fn compile(&self, source: &str) -> Option<Expression> {
        let variables = variables(self.own.clone(), self.optional_old);
        let compiled = Expression::compile(source, &variables);
        let warn =
            |error| tracing::warn!(rule = source, %error, "rule cannot be read and is ignored");
        compiled.map_err(warn).ok()
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

fn context(own: &Cel, old: Option<Cel>) -> Context<'static, 'static> {
    let mut context = plimsoll_expressions::context();
    context.add_variable_from_value("self", own.clone());
    if let Some(old) = old {
        context.add_variable_from_value("oldSelf", old);
    }
    context
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
                let earlier = old.and_then(|old| schema.earlier_elements(old));
                for (index, item) in items.iter().enumerate() {
                    let old = earlier.as_ref().and_then(|earlier| earlier.of(item));
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
        let Some(program) = rule.program() else {
            continue;
        };
        let uses_old = program.uses("oldSelf");
        if uses_old && earlier.is_none() && !rule.optional_old {
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
        match program.evaluate(&context) {
            Ok(Cel::Bool(true)) => continue,
            Ok(_) => {}
            Err(error) => {
                let words = evaluation_error(&error, rule.name());
                errors.push(FieldError::invalid(path, type_name, words));
                continue;
            }
        }
        // What was so before may stay, unless the rule is about the change.
        if unchanged && !uses_old {
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
    if let Some(program) = rule.message_program()
        && let Ok(Cel::String(text)) = program.evaluate(context)
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
    let words = in_words(error);
    match words.starts_with("no such overload") {
        true => format!(
            "'{words}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
        ),
        false => format!("{words} evaluating rule: {rule}"),
    }
}
