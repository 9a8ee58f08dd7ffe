//! Admission policies and what binds them.

use std::collections::BTreeSet;

use super::at::{At, Errors};
use super::extensions::{ADMISSION, counted, rule};
use super::rules::Rules;
use super::{metadata, names};
use crate::expressions;

pub(super) static KINDS: &[&Rules] = &[
    &VALIDATING_POLICY,
    &VALIDATING_POLICY_BINDING,
    &MUTATING_POLICY,
    &MUTATING_POLICY_BINDING,
];

static VALIDATING_POLICY: Rules = Rules {
    known_finalizers: false,
    validate: |policy, errors| validating(policy, errors),
    ..counted(ADMISSION, "ValidatingAdmissionPolicy", true)
};

static VALIDATING_POLICY_BINDING: Rules = Rules {
    known_finalizers: false,
    validate: |binding, errors| {
        let spec = binding.get("spec");
        bound(&spec, errors);
        actions(&spec.get("validationActions"), errors);
    },
    ..counted(ADMISSION, "ValidatingAdmissionPolicyBinding", false)
};

static MUTATING_POLICY: Rules = Rules {
    known_finalizers: false,
    validate: |policy, errors| mutating(&policy.get("spec"), errors),
    ..counted(ADMISSION, "MutatingAdmissionPolicy", false)
};

static MUTATING_POLICY_BINDING: Rules = Rules {
    known_finalizers: false,
    validate: |binding, errors| bound(&binding.get("spec"), errors),
    ..counted(ADMISSION, "MutatingAdmissionPolicyBinding", false)
};

fn validating(policy: &At<'_>, errors: &mut Errors) {
    let spec = policy.get("spec");
    matched(&spec, errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        const ONE: &str = "validations or auditAnnotations must contain at least one item";
        errors.required(&validations, ONE);
        errors.required(&annotations, ONE);
        return;
    }
    for validation in validations.items() {
        self::validation(&validation, &spec, errors);
    }
    let mut seen = BTreeSet::new();
    for annotation in annotations.items() {
        let key = annotation.get("key");
        let policy = policy.dig(&["metadata", "name"]);
        if !policy.is_empty() {
            let name = format!("{}/{}", policy.text(), key.text());
            errors.format_of(&key, &name, names::qualified_name);
        }
        let value = annotation.get("valueExpression");
        if value.text().trim().is_empty() {
            errors.required(&value, "valueExpression is not specified");
        } else {
            compiles(&value, &spec, &["string", "null_type"], errors);
        }
        if !seen.insert(key.text()) {
            errors.duplicate(&key, key.text());
        }
    }
}

/// What policies of both sorts begin with.
fn matched(spec: &At<'_>, errors: &mut Errors) {
    errors.given_choice(&spec.get("failurePolicy"), &["Fail", "Ignore"]);
    let params = spec.get("paramKind");
    if params.is_set() {
        param_kind(&params, errors);
    }
    let constraints = spec.get("matchConstraints");
    if constraints.is_set() {
        resources(&constraints, errors);
        errors.non_empty(&constraints.get("resourceRules"));
    } else {
        errors.required(&constraints, "");
    }
    conditions(&spec.get("matchConditions"), spec, errors);
    for variable in spec.get("variables").items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        if name.text().trim().is_empty() {
            errors.required(&name, "name is not specified");
        } else if !names::c_identifier(name.text()).is_empty() {
            errors.invalid(&name, name.text(), "must be a valid CEL identifier");
        }
        if expression.text().trim().is_empty() {
            errors.required(&expression, "expression is not specified");
        } else {
            compiles(&expression, spec, &[], errors);
        }
    }
}

/// What an expression may speak of depends on what the policy has. `wanted`: types that it may have; none, any.
fn compiles(expression: &At<'_>, spec: &At<'_>, wanted: &[&str], errors: &mut Errors) {
    let mut variables = vec![
        "object",
        "oldObject",
        "request",
        "namespaceObject",
        "authorizer",
    ];
    if spec.get("paramKind").is_set() {
        variables.push("params");
    }
    if !spec.get("variables").is_empty() {
        variables.push("variables");
    }
    let compiled = match expressions::compile(expression.text(), &variables) {
        Ok(compiled) => compiled,
        Err(complaint) => {
            errors.invalid(expression, expression.text(), complaint);
            return;
        }
    };
    if let Some(found) = expressions::other_than(&compiled, wanted).filter(|_| !wanted.is_empty()) {
        let wanted = match wanted {
            [one] => (*one).to_owned(),
            many => format!("one of [{}]", many.join(" ")),
        };
        let detail = format!("must evaluate to {wanted} but got {found}");
        errors.invalid(expression, expression.text(), detail);
    }
}

fn mutating(spec: &At<'_>, errors: &mut Errors) {
    matched(spec, errors);
    let mutations = spec.get("mutations");
    if mutations.is_empty() {
        errors.required(&mutations, "mutations must contain at least one item");
    }
    for mutation in mutations.items() {
        self::mutation(&mutation, errors);
    }
    errors.choice(&spec.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
}

fn mutation(mutation: &At<'_>, errors: &mut Errors) {
    let kind = mutation.get("patchType");
    let (wanted, other) = match kind.text() {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        _ => {
            errors.choice(&kind, &["ApplyConfiguration", "JSONPatch"]);
            return;
        }
    };
    let (given, excess) = (mutation.get(wanted), mutation.get(other));
    let expression = given.get("expression");
    if !given.is_set() {
        let detail = format!("must be specified when patchType is {}", kind.text());
        errors.required(&given, &detail);
    } else if expression.text().trim().is_empty() {
        errors.required(&expression, "");
    }
    if excess.is_set() {
        let detail = format!("must not be specified when patchType is {}", kind.text());
        errors.invalid(&excess, format!("{{{other}}}"), detail);
    }
}

fn validation(validation: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let [expression, message, reason] =
        ["expression", "message", "reason"].map(|name| validation.get(name));
    if expression.text().trim().is_empty() {
        errors.required(&expression, "expression is not specified");
    } else {
        compiles(&expression, spec, &["bool"], errors);
    }
    let words = validation.get("messageExpression");
    if !words.is_empty() && words.text().trim().is_empty() {
        errors.invalid(&words, words.text(), "must be non-empty if specified");
    } else if !words.is_empty() {
        compiles(&words, spec, &["string"], errors);
    }
    if !message.is_empty() && message.text().trim().is_empty() {
        errors.invalid(&message, message.text(), "must be non-empty if specified");
    } else if message.text().trim().contains(['\n', '\r']) {
        errors.invalid(
            &message,
            message.text(),
            "message must not contain line breaks",
        );
    }
    errors.optional_choice(&reason, &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
}

pub(super) fn conditions(conditions: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let (name, expression) = (condition.get("name"), condition.get("expression"));
        if expression.text().trim().is_empty() {
            errors.required(&expression, "");
        } else {
            compiles(&expression, spec, &["bool"], errors);
        }
        if name.is_empty() {
            errors.required(&name, "");
            continue;
        }
        errors.format(&name, names::qualified_name);
        if !seen.insert(name.text()) {
            errors.duplicate(&name, name.text());
        }
    }
}

fn param_kind(params: &At<'_>, errors: &mut Errors) {
    let (version, kind) = (params.get("apiVersion"), params.get("kind"));
    let part = |text: &str, complaints: Vec<String>, errors: &mut Errors| {
        if !complaints.is_empty() {
            errors.invalid(&version, text, complaints.join(","));
        }
    };
    match version.text().split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.required(&version, ""),
        [only] => part(only, names::label_1035(only), errors),
        [group, own] => {
            if !group.is_empty() {
                part(group, names::subdomain(group), errors);
            }
            if own.is_empty() {
                errors.invalid(&version, version.text(), "version must be specified");
            } else {
                part(own, names::label_1035(own), errors);
            }
        }
        _ => {
            let detail = format!("unexpected GroupVersion string: {}", version.text());
            errors.invalid(&version, version.text(), detail);
        }
    }
    let complaints = names::label_1035(&kind.text().to_lowercase());
    if kind.is_empty() {
        errors.required(&kind, "");
    } else if !complaints.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            complaints.join(",")
        );
        errors.invalid(&kind, kind.text(), detail);
    }
}

fn resources(matching: &At<'_>, errors: &mut Errors) {
    errors.given_choice(&matching.get("matchPolicy"), &["Equivalent", "Exact"]);
    for name in ["namespaceSelector", "objectSelector"] {
        let selector = matching.get(name);
        if selector.is_set() {
            metadata::selector(&selector, errors);
        } else {
            errors.required(&selector, "");
        }
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for one in matching.get(list).items() {
            let mut seen = BTreeSet::new();
            for name in one.get("resourceNames").items() {
                errors.format(&name, names::path_segment);
                if !seen.insert(name.text()) {
                    errors.duplicate(&name, name.text());
                }
            }
            rule(&one, errors);
        }
    }
}

/// What bindings of both sorts say.
fn bound(spec: &At<'_>, errors: &mut Errors) {
    let policy = spec.get("policyName");
    if policy.is_empty() {
        errors.required(&policy, "");
    } else {
        errors.format(&policy, names::subdomain);
    }
    let params = spec.get("paramRef");
    if params.is_set() {
        param_reference(&params, errors);
    }
    let matching = spec.get("matchResources");
    if matching.is_set() {
        resources(&matching, errors);
    }
}

fn param_reference(params: &At<'_>, errors: &mut Errors) {
    let (name, selector) = (params.get("name"), params.get("selector"));
    if !name.is_empty() {
        errors.format(&name, names::path_segment);
        if selector.is_set() {
            errors.forbidden(&name, "name and selector are mutually exclusive");
        }
    }
    if selector.is_set() {
        metadata::selector(&selector, errors);
        if !name.is_empty() {
            errors.forbidden(&selector, "name and selector are mutually exclusive");
        }
    }
    if name.is_empty() && !selector.is_set() {
        errors.required(params, "one of name or selector must be specified");
    }
    let missing = params.get("parameterNotFoundAction");
    if missing.is_set() {
        errors.choice(&missing, &["Deny", "Allow"]);
    } else {
        errors.required(&missing, "");
    }
}

fn actions(actions: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        errors.optional_choice(&action, &["Audit", "Deny", "Warn"]);
        if !seen.insert(action.text()) {
            errors.duplicate(&action, action.text());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        errors.invalid(
            actions,
            actions.value.clone(),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        );
    }
    if seen.is_empty() {
        errors.required(actions, "at least one validation action is required");
    }
}
