//! Probes and lifecycle hooks.

use super::containers::Scope;
use crate::kinds::at::{At, Errors};
use crate::kinds::names;

const SIGNALS_OF_WINDOWS: &[&str] = &["SIGKILL", "SIGTERM"];

pub fn probes(container: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    for (field, once) in [
        ("livenessProbe", true),
        ("readinessProbe", false),
        ("startupProbe", true),
    ] {
        let probe = container.get(field);
        if probe.is_set() {
            check(&probe, scope, errors);
            let threshold = probe.get("successThreshold");
            if once && threshold.number() != 1 {
                errors.invalid(&threshold, threshold.number(), "must be 1");
            }
            let grace = probe.get("terminationGracePeriodSeconds");
            if !once && grace.is_set() {
                errors.invalid(
                    &grace,
                    grace.number(),
                    "must not be set for readinessProbes",
                );
            }
        }
    }
}

fn check(probe: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    handler(
        probe,
        &["exec", "httpGet", "tcpSocket", "grpc"],
        scope,
        errors,
    );
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.non_negative(&probe.get(field));
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.is_set() && grace.number() <= 0 {
        errors.invalid(&grace, grace.number(), "must be greater than 0");
    }
}

pub fn lifecycle(lifecycle: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.get(hook);
        if hook.is_set() {
            handler(
                &hook,
                &["exec", "httpGet", "tcpSocket", "sleep"],
                scope,
                errors,
            );
        }
    }
    let signal = lifecycle.get("stopSignal");
    if !signal.is_set() {
        return;
    }
    match scope.os {
        None => errors.forbidden(
            &signal,
            "may not be set for containers with empty `spec.os.name`",
        ),
        Some("windows") => errors.optional_choice(&signal, SIGNALS_OF_WINDOWS),
        Some(_) => {}
    }
}

/// Exactly one way to act.
fn handler(at: &At<'_>, kinds: &[&'static str], scope: &Scope<'_>, errors: &mut Errors) {
    let mut found = false;
    for kind in kinds {
        let action = at.get(kind);
        if !action.is_set() {
            continue;
        }
        if found {
            errors.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" => errors.non_empty(&action.get("command")),
            "httpGet" => http_get(&action, errors),
            "tcpSocket" => port(&action.get("port"), errors),
            "grpc" => {
                let number = action.get("port");
                if let Some(complaint) = names::port_number(number.number()) {
                    errors.invalid(&number, number.number(), complaint);
                }
            }
            _ => sleep(&action, scope, errors),
        }
    }
    if !found {
        errors.required(at, "must specify a handler type");
    }
}

fn http_get(action: &At<'_>, errors: &mut Errors) {
    errors.non_empty(&action.get("path"));
    port(&action.get("port"), errors);
    let scheme = action.get("scheme");
    if !["HTTP", "HTTPS"].contains(&scheme.text()) {
        errors.not_supported(&scheme, &["HTTP", "HTTPS"]);
    }
    let headers = action.get("httpHeaders");
    for header in headers.items() {
        errors.format_of(&headers, header.get("name").text(), names::http_header);
    }
}

/// A port by number or name.
pub fn port(at: &At<'_>, errors: &mut Errors) {
    match at.value.as_str() {
        Some(_) => errors.format(at, names::port_name),
        None => {
            if let Some(complaint) = names::port_number(at.number()) {
                errors.invalid(at, at.number(), complaint);
            }
        }
    }
}

fn sleep(action: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let seconds = action.get("seconds").number();
    if let Some(grace) = scope.grace
        && !(0..=grace).contains(&seconds)
    {
        errors.invalid(
            action,
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        );
    }
}
