//! `x-kubernetes-validations` of a definition: whether they can be rules at all.

use std::collections::BTreeMap;

use plimsoll_expressions::{Bounds, Expression, Type};
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

/// What one rule may cost, and all rules of a definition.
const RULE_LIMIT: u64 = 10_000_000;
const TOTAL_LIMIT: u64 = 100_000_000;

/// What the rules of a schema can cost together, and which of them cost most.
#[derive(Debug, Default)]
pub struct Total<'v> {
    cost: u64,
    dearest: Vec<(u64, At<'v>)>,
}

impl<'v> Total<'v> {
    fn add(&mut self, at: &At<'v>, cost: u64) {
        /// Of them no more are named, and none that costs less than a hundredth of the limit.
        const NAMED: usize = 4;
        self.cost = self.cost.saturating_add(cost);
        if cost >= TOTAL_LIMIT / 100 {
            self.dearest.push((cost, at.clone()));
            self.dearest
                .sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED);
        }
    }

    pub fn check(&self, schema: &At<'_>, errors: &mut Errors) {
        if self.cost <= TOTAL_LIMIT {
            return;
        }
        for (_, at) in &self.dearest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.forbidden(at, detail);
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(schema, too_dear(name, self.cost, TOTAL_LIMIT));
    }
}

fn too_dear(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Where rules stand.
#[derive(Clone, Copy)]
pub struct Place<'p, 'v> {
    /// In the schema of a whole object.
    pub root: bool,
    /// Within a list or map whose elements nobody can tell from one version of an object to the next.
    pub loose: Option<&'p At<'v>>,
    /// How many values the rules are for, if that is limited.
    pub count: Option<u64>,
}

/// Rules have to make sense to a compiler that knows the types of the schema, and must not cost too much.
pub fn compile<'v>(
    schema: &At<'v>,
    place: Place<'_, 'v>,
    total: &mut Total<'v>,
    errors: &mut Errors,
) {
    let rules = schema.get("x-kubernetes-validations");
    if rules.is_empty() {
        return;
    }
    let own = crate::crd::declared(schema.value, place.root).unwrap_or(Type::Dyn);
    let bounds = crate::crd::bounds(schema.value, place.root).unwrap_or_default();
    let count = place
        .count
        .unwrap_or_else(|| crate::crd::repeated(bounds.least_written));
    for rule in rules.items() {
        let optional_old = rule.get("optionalOldSelf");
        let variables = crate::crd::variables(own.clone(), optional_old.flag());
        let known = Known {
            variables: &variables,
            bounds: &bounds,
        };
        let about_change = known.compile(&rule, count, total, errors);
        if let Some(list) = place.loose.filter(|_| about_change) {
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

/// What is known of the variables of a rule.
struct Known<'k> {
    variables: &'k BTreeMap<&'k str, Type>,
    bounds: &'k Bounds,
}

impl Known<'_> {
    /// Whether the rule is about what an object was before.
    fn compile<'v>(
        &self,
        rule: &At<'v>,
        count: u64,
        total: &mut Total<'v>,
        errors: &mut Errors,
    ) -> bool {
        let shown = || diff::compact("ValidationRule", rule.value);
        let source = rule.get("rule");
        let compiled = match self.bounded(&source) {
            Ok((compiled, cost)) if compiled.kind == Type::Bool || compiled.kind.is_dyn() => {
                let cost = cost.saturating_mul(count);
                charge("estimated rule cost", &source, cost, total, errors);
                compiled
            }
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
            match self.bounded(&message) {
                Ok((compiled, cost)) if compiled.kind == Type::String || compiled.kind.is_dyn() => {
                    let name = "estimated messageExpression cost";
                    charge(name, &message, cost, total, errors);
                }
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

    fn bounded(&self, source: &At<'_>) -> Result<(Expression, u64), String> {
        expressions::compile_bounded(source.text(), self.variables, self.bounds)
    }
}

fn charge<'v>(name: &str, at: &At<'v>, cost: u64, total: &mut Total<'v>, errors: &mut Errors) {
    if cost > RULE_LIMIT {
        errors.forbidden(at, too_dear(name, cost, RULE_LIMIT));
    }
    total.add(at, cost);
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
            let place = Place {
                root: false,
                loose: None,
                count: Some(1),
            };
            compile(&At::root(schema), place, &mut Total::default(), &mut errors);
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
