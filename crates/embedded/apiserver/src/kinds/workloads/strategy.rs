//! How updates roll out: counts and shares of pods.

use crate::field::{ErrorType, FieldError};
use crate::kinds::at::{At, Errors};
use crate::kinds::{names, shown};
use plimsoll_golang::strconv::quote;

/// Kubernetes shows a strategy in its internal form.
pub(super) fn bad_strategy(strategy: &At<'_>, allowed: &[&str], errors: &mut Errors) {
    let allowed: Vec<String> = allowed.iter().map(|one| quote(one)).collect();
    errors.push(FieldError::with_shown(
        ErrorType::NotSupported,
        &strategy.path(),
        &shown_strategy(strategy),
        &format!("supported values: {}", allowed.join(", ")),
    ));
}

pub(super) fn shown_strategy(strategy: &At<'_>) -> String {
    let rolling = strategy.get("rollingUpdate");
    let inner = if rolling.is_set() {
        let fields = ["partition", "maxUnavailable", "maxSurge"];
        shown_rolling(&rolling, &fields)
    } else {
        "null".to_owned()
    };
    let kind = quote(strategy.get("type").text());
    format!("{{\"Type\":{kind},\"RollingUpdate\":{inner}}}")
}

/// Of a stateful set, where what is not said about unavailable pods is shown too.
pub(super) fn shown_set_strategy(strategy: &At<'_>) -> String {
    let rolling = strategy.get("rollingUpdate");
    let inner = if rolling.is_set() {
        let [partition, unavailable] =
            ["partition", "maxUnavailable"].map(|name| rolling.get(name).value);
        shown::fields(&[("Partition", partition), ("MaxUnavailable", unavailable)])
    } else {
        "null".to_owned()
    };
    let kind = quote(strategy.get("type").text());
    format!("{{\"Type\":{kind},\"RollingUpdate\":{inner}}}")
}

pub(super) fn shown_rolling(rolling: &At<'_>, fields: &[&'static str]) -> String {
    let shown: Vec<String> = fields
        .iter()
        .map(|field| (field, rolling.get(field)))
        .filter(|(_, at)| at.is_set())
        .map(|(field, at)| {
            let (head, tail) = field.split_at(1);
            format!("\"{}{tail}\":{}", head.to_uppercase(), at.value)
        })
        .collect();
    format!("{{{}}}", shown.join(","))
}

/// A count or a share.
pub(in crate::kinds) fn int_or_percent(at: &At<'_>, errors: &mut Errors) {
    match at.value.as_str() {
        Some(text) => {
            for complaint in names::percent(text) {
                errors.invalid(at, text, complaint);
            }
        }
        None => errors.non_negative(at),
    }
}

/// The number in a count or a share.
pub(super) fn share(at: &At<'_>) -> i64 {
    match at.value.as_str() {
        Some(text) => text
            .strip_suffix('%')
            .unwrap_or(text)
            .parse()
            .unwrap_or_default(),
        None => at.number(),
    }
}

pub(in crate::kinds) fn at_most_all(at: &At<'_>, errors: &mut Errors) {
    if let Some(text) = at.value.as_str()
        && names::percent(text).is_empty()
        && share(at) > 100
    {
        errors.invalid(at, text, "must not be greater than 100%");
    }
}
