//! When a job has failed or succeeded.

use super::status;
use crate::field::{ErrorType, FieldError};
use crate::kinds::at::{At, Errors};
use crate::kinds::names;
use crate::met::Met;
use plimsoll_golang::strconv::quote;

pub(super) const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];

/// Without showing the value.
pub(super) fn invalid_bare(at: &At<'_>, detail: &str, errors: &mut Errors) {
    errors.push(FieldError::without_shown(
        ErrorType::Invalid,
        &at.path(),
        detail,
    ));
}

pub(super) fn failure_policy(policy: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let rules = policy.get("rules");
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    let listed = |words: &[&str]| -> String {
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        format!("valid values: [{}]", words.join(" "))
    };
    for rule in rules.items() {
        let action = rule.get("action");
        match action.text() {
            "" => errors.required(&action, &listed(ACTIONS)),
            "FailIndex" if !spec.get("backoffLimitPerIndex").is_set() => errors.invalid(
                &action,
                "FailIndex",
                "requires the backoffLimitPerIndex to be set",
            ),
            _ => errors.optional_choice(&action, ACTIONS),
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.is_set() {
            let operator = codes.get("operator");
            if operator.is_empty() {
                errors.required(&operator, &listed(&["In", "NotIn"]));
            } else {
                errors.optional_choice(&operator, &["In", "NotIn"]);
            }
            exit_codes(&codes, spec, errors);
        }
        if conditions.len() > 20 {
            errors.too_many(&conditions, 20);
        }
        for pattern in conditions.items() {
            errors.format(&pattern.get("type"), names::qualified_name);
            let status = pattern.get("status");
            let allowed = &["False", "True", "Unknown"];
            if status.is_empty() {
                errors.required(&status, &listed(allowed));
            } else {
                errors.optional_choice(&status, allowed);
            }
        }
        match (codes.is_set(), conditions.is_empty()) {
            (true, false) => invalid_bare(
                &rule,
                "specifying both OnExitCodes and OnPodConditions is not supported",
                errors,
            ),
            (false, true) => invalid_bare(
                &rule,
                "specifying one of OnExitCodes and OnPodConditions is required",
                errors,
            ),
            _ => {}
        }
    }
}

pub(super) fn exit_codes(codes: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let name = codes.get("containerName");
    let known = ["containers", "initContainers"].iter().any(|list| {
        let containers = spec.dig(&["template", "spec", list]);
        containers
            .items()
            .any(|one| one.get("name").text() == name.text())
    });
    if name.is_set() && !known {
        errors.invalid(
            &name,
            name.text(),
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let values = codes.get("values");
    if values.is_empty() {
        errors.invalid(
            &values,
            values.value.clone(),
            "at least one value is required",
        );
    } else if values.len() > 255 {
        errors.too_many(&values, 255);
    }
    let mut seen = Met::default();
    let codes_in_order: Vec<i64> = values.items().map(|value| value.number()).collect();
    for value in values.items() {
        let code = value.number();
        if codes.get("operator").text() == "In" && code == 0 {
            errors.invalid(&value, 0, "must not be 0 for the In operator");
        }
        if seen.contains(&code) {
            errors.duplicate(&value, code);
        }
        seen.push(code);
    }
    if !codes_in_order.is_sorted() {
        errors.invalid(&values, values.value.clone(), "must be ordered");
    }
}

pub(super) fn success_policy(policy: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let rules = policy.get("rules");
    if rules.is_empty() {
        errors.required(
            &rules,
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    let completions = spec.get("completions").number();
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            errors.required(
                &rule,
                "at least one of succeededCount or succeededIndexes must be specified",
            );
        }
        let mut total = 0;
        if indexes.is_set() {
            match status::count_indexes(indexes.text(), completions) {
                Ok(counted) => total = counted,
                Err(why) => {
                    let detail = format!("error parsing succeededIndexes: {why}");
                    errors.invalid(&indexes, indexes.text(), detail);
                }
            }
        }
        errors.non_negative(&count);
        let above = |limit: i64, what: &str, errors: &mut Errors| {
            if count.number() > limit {
                let detail = format!("must be less than or equal to {limit} ({what})");
                errors.invalid(&count, count.number(), detail);
            }
        };
        above(completions, "the number of specified completions", errors);
        if indexes.is_set() {
            let what = "the number of indexes in the specified succeededIndexes field";
            above(total, what, errors);
        }
    }
}
