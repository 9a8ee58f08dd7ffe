//! `x-kubernetes-validations` of a definition: whether they can be rules at all.

use std::collections::BTreeMap;

use plimsoll_expressions::Type;
use serde_json::Value;

use crate::expressions;
use crate::kinds::at::{At, Errors};
use crate::kinds::diff;

/// What can be said about rules without understanding them.
pub fn check_form(schema: &At<'_>, errors: &mut Errors) {
    for rule in schema.get("x-kubernetes-validations").items() {
        let source = rule.get("rule");
        if source.text().trim().is_empty() {
            errors.required(&source, "rule is not specified");
        }
        words(&rule, errors);
        errors.optional_choice(
            &rule.get("reason"),
            &[
                "FieldValueDuplicate",
                "FieldValueForbidden",
                "FieldValueInvalid",
                "FieldValueRequired",
            ],
        );
        let path = rule.get("fieldPath");
        if !is_field_of(schema.value, path.text()) {
            errors.invalid(&path, path.text(), "must be a valid path");
        }
    }
}

/// Rules have to make sense to a compiler that knows the types of the schema.
pub fn compile(schema: &At<'_>, root: bool, loose: Option<&At<'_>>, errors: &mut Errors) {
    let rules = schema.get("x-kubernetes-validations");
    if rules.is_empty() {
        return;
    }
    let own = crate::crd::declared(schema.value, root).unwrap_or(Type::Dyn);
    for rule in rules.items() {
        let optional_old = rule.get("optionalOldSelf");
        let variables = crate::crd::variables(own.clone(), optional_old.flag());
        let about_change = compile_one(&rule, &variables, errors);
        if let Some(list) = loose.filter(|_| about_change) {
            let source = rule.get("rule");
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {}",
                list.path()
            );
            errors.invalid(&source, source.text(), detail);
        } else if optional_old.is_set() && !about_change {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.invalid(&optional_old, optional_old.flag(), detail);
        }
    }
}

/// Whether the rule is about what an object was before.
fn compile_one(rule: &At<'_>, variables: &BTreeMap<&str, Type>, errors: &mut Errors) -> bool {
    let shown = || diff::compact("ValidationRule", rule.value);
    let source = rule.get("rule");
    let compiled = match expressions::compile_with(source.text(), variables) {
        Ok(compiled) if compiled.kind == Type::Bool || compiled.kind.is_dyn() => compiled,
        Ok(_) => {
            let detail = "cel expression must evaluate to a bool";
            errors.invalid_shown(&source, &shown(), detail);
            return false;
        }
        Err(words) => {
            errors.invalid_shown(&source, &shown(), words);
            return false;
        }
    };
    let message = rule.get("messageExpression");
    if !message.is_empty() {
        match expressions::compile_with(message.text(), variables) {
            Ok(compiled) if compiled.kind == Type::String || compiled.kind.is_dyn() => {}
            Ok(_) => {
                let detail = "messageExpression must evaluate to a string";
                errors.invalid_shown(&message, &shown(), detail);
            }
            Err(words) => {
                let detail = format!("messageExpression {words}");
                errors.invalid_shown(&message, &shown(), detail);
            }
        }
    }
    compiled.uses("oldSelf")
}

/// What a rule says when it is broken.
fn words(rule: &At<'_>, errors: &mut Errors) {
    let (message, computed) = (rule.get("message"), rule.get("messageExpression"));
    let is_blank = |at: &At<'_>| !at.is_empty() && at.text().trim().is_empty();
    if is_blank(&message) {
        errors.invalid(&message, message.text(), "must be non-empty if specified");
    } else if message.text().trim().contains('\n') {
        errors.invalid(&message, message.text(), "must not contain line breaks");
    } else if message.is_empty() && rule.get("rule").text().trim().contains('\n') {
        let detail = "message must be specified if rule contains line breaks";
        errors.required(&message, detail);
    }
    if is_blank(&computed) {
        let detail = "messageExpression must be non-empty if specified";
        errors.required(&computed, detail);
    }
}

/// Whether a path like `.a['b'].c` names a field that the schema has; nothing at all will do, too.
fn is_field_of(schema: &Value, path: &str) -> bool {
    let (mut rest, mut schema) = (path, schema);
    while !rest.is_empty() {
        let name;
        (name, rest) = match (rest.strip_prefix("['"), rest.strip_prefix('.')) {
            (Some(quoted), _) => match quoted.split_once("']") {
                Some(split) => split,
                None => return false,
            },
            (_, Some(plain)) => plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len())),
            _ => return false,
        };
        let further = &schema["additionalProperties"];
        schema = match schema["properties"].get(name) {
            Some(property) => property,
            None if further.is_object() => further,
            None => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(schema: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        check_form(&At::root(schema), &mut errors);
        if errors.is_empty() {
            compile(&At::root(schema), false, None, &mut errors);
        }
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_name_fields_of_the_schema() {
        let schema = json!({"properties": {"a": {"properties": {"b-c": {}}}, "m": {"additionalProperties": {}}}});
        for (path, expected) in [
            ("", true),
            (".a", true),
            (".a['b-c']", true),
            (".m.anything", true),
            ("a", false),
            (".x", false),
            (".a[0]", false),
            (".a['b-c", false),
        ] {
            assert_eq!(is_field_of(&schema, path), expected, "{path}");
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_named() {
        let of = |rule: Value| {
            complaints(
                &json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [rule]}),
            )
        };
        assert!(of(json!({"rule": "self.a > 1", "fieldPath": ".a"})).is_empty());
        assert!(of(json!({"rule": "self.a > oldSelf.a"})).is_empty());
        for (rule, expected) in [
            (json!({"rule": "self.b > 1"}), "undefined field 'b'"),
            (json!({"rule": "self.a"}), "must evaluate to a bool"),
            (json!({"rule": " "}), "rule is not specified"),
            (
                json!({"rule": "true", "message": "a\nb"}),
                "must not contain line breaks",
            ),
            (
                json!({"rule": "true", "messageExpression": "1"}),
                "must evaluate to a string",
            ),
            (
                json!({"rule": "true", "optionalOldSelf": true}),
                "oldSelf is not used",
            ),
        ] {
            let found = of(rule.clone());
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{rule}: {found:?}"
            );
        }
    }
}
