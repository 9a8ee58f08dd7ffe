//! Cron jobs.

use super::{job_spec, schedule};
use crate::field::FieldError;
use crate::kinds::at::{At, Errors};
use crate::kinds::shown;

pub(super) fn cron_job(job: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let spec = job.get("spec");
    let at = spec.get("schedule");
    let zone = spec.get("timeZone");
    if at.is_empty() {
        errors.required(&at, "");
    } else {
        if let Some(complaint) = schedule::complaint(at.text()) {
            errors.invalid(&at, at.text(), complaint);
        }
        let before = old.is_some_and(|old| old.dig(&["spec", "schedule"]).text().contains("TZ"));
        if at.text().contains("TZ") {
            if !before {
                errors.invalid(
                    &at,
                    at.text(),
                    "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
                );
            } else if zone.is_set() {
                errors.invalid(
                    &at,
                    at.text(),
                    "cannot use both timeZone field and TZ or CRON_TZ in schedule",
                );
            }
        }
    }
    errors.non_negative(&spec.get("startingDeadlineSeconds"));
    if old.is_none_or(|old| old.dig(&["spec", "timeZone"]).value != zone.value) {
        time_zone(&zone, errors);
    }
    errors.choice(
        &spec.get("concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
    );
    let template = spec.dig(&["jobTemplate", "spec"]);
    job_spec(&template, errors);
    let selector = template.get("selector");
    if selector.is_set() {
        errors.invalid_shown(
            &selector,
            &shown::published(selector.value, shown::LABEL_SELECTOR),
            "`selector` will be auto-generated",
        );
    }
    let manual = template.get("manualSelector");
    if manual.flag() {
        errors.push(FieldError::not_supported(
            &manual.path(),
            true,
            &["nil", "false"],
        ));
    }
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.non_negative(&spec.get(name));
    }
}

pub(super) fn time_zone(zone: &At<'_>, errors: &mut Errors) {
    if !zone.is_set() {
        return;
    }
    let name = zone.text();
    if name.is_empty() {
        errors.invalid(zone, name, "timeZone must be nil or non-empty string");
        return;
    }
    let good = |part: &str| {
        (1..=14).contains(&part.len())
            && part != "."
            && part != ".."
            && !part.starts_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte))
    };
    let well_formed = name.split('/').all(good);
    if well_formed && name.eq_ignore_ascii_case("local") {
        errors.invalid(
            zone,
            name,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    let mut zones = include_str!("../../../data/timezones.txt").lines();
    let known = zones.any(|zone| zone == name);
    if !well_formed || (!known && name != "Local") {
        errors.invalid(zone, name, format!("unknown time zone {name}"));
    }
}
