//! A job's status as its controller reports it.

use crate::field::{ErrorType, FieldError};
use crate::kinds::at::{At, Errors};
use crate::met::Met;

pub fn check(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.non_negative(&status.get(name));
    }
    uncounted(&status.get("uncountedTerminatedPods"), errors);
    let conditions = status.get("conditions");
    let is = |status: &At<'_>, kind: &str| {
        status.get("conditions").items().any(|condition| {
            condition.get("type").text() == kind && condition.get("status").text() == "True"
        })
    };
    let refuse = |wrong: bool, detail: &str, errors: &mut Errors| {
        if wrong {
            errors.push(FieldError::without_shown(
                ErrorType::Invalid,
                &conditions.path(),
                detail,
            ));
        }
    };
    let (complete, failed) = (is(&status, "Complete"), is(&status, "Failed"));
    let (target, met) = (
        is(&status, "FailureTarget"),
        is(&status, "SuccessCriteriaMet"),
    );
    // Only what was not already so is looked at.
    let newly_complete = complete && !is(&before, "Complete");
    let newly_failed = failed && !is(&before, "Failed");
    refuse(
        complete && failed,
        "cannot set Complete=True and Failed=true conditions",
        errors,
    );
    let detail = "cannot set Complete=True and FailureTarget=true conditions";
    refuse(complete && target, detail, errors);
    completion_time(&status, complete, errors);
    let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
    refuse(newly_failed && !target, detail, errors);
    let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
    refuse(newly_complete && !met, detail, errors);
    let finished = complete || failed;
    let active = status.get("active");
    if finished && active.number() > 0 {
        errors.invalid(
            &active,
            active.number(),
            "active>0 is invalid for finished job",
        );
    }
    let start = status.get("startTime");
    let started = before.get("startTime");
    let runs = !new.dig(&["spec", "suspend"]).flag();
    if runs && started.is_set() && start.text() != started.text() {
        errors.invalid(
            &start,
            start.text(),
            "field is immutable for unsuspended job once set",
        );
    }
    if !start.is_set() && (newly_complete || newly_failed) {
        errors.required(&start, "startTime is required for finished job");
    }
    let (completed, indexed) = (
        status.get("completedIndexes"),
        new.dig(&["spec", "completionMode"]).text() == "Indexed",
    );
    if !completed.is_empty() && !indexed {
        errors.invalid(
            &completed,
            completed.text(),
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        );
    }
    let completions = new.dig(&["spec", "completions"]);
    if completions.is_set()
        && let Err(why) = count_indexes(completed.text(), completions.number())
    {
        let detail = format!("error parsing completedIndexes: {why}");
        errors.invalid(&completed, completed.text(), detail);
    }
    let failed_indexes = status.get("failedIndexes");
    if failed_indexes.is_set() && !new.dig(&["spec", "backoffLimitPerIndex"]).is_set() {
        errors.invalid(
            &failed_indexes,
            failed_indexes.text(),
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        );
    }
    let ready = status.get("ready");
    if ready.number() > active.number() {
        errors.invalid(
            &ready,
            ready.number(),
            "cannot set more ready pods than active",
        );
    }
    let detail = "cannot set SuccessCriteriaMet=True and Failed=true conditions";
    refuse(met && failed, detail, errors);
    let detail = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
    refuse(met && target, detail, errors);
    for kind in ["Failed", "Complete", "FailureTarget"] {
        let detail = format!("cannot disable the terminal {kind}=True condition");
        refuse(is(&before, kind) && !is(&status, kind), &detail, errors);
    }
    let detail = "cannot disable the SuccessCriteriaMet=True condition";
    refuse(is(&before, "SuccessCriteriaMet") && !met, detail, errors);
    for name in ["failed", "succeeded"] {
        let at = status.get(name);
        if at.number() < before.get(name).number() {
            let detail = format!("cannot decrease the {name} counter");
            errors.invalid(&at, at.number(), detail);
        }
    }
}

/// Every pod that waits to be counted is named once.
fn uncounted(pods: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for list in ["succeeded", "failed"] {
        for pod in pods.get(list).items() {
            if pod.is_empty() {
                errors.invalid(&pod, "", "must not be empty");
            } else if seen.contains(&pod.text()) {
                errors.duplicate(&pod, pod.text());
            }
            seen.push(pod.text());
        }
    }
}

fn completion_time(status: &At<'_>, complete: bool, errors: &mut Errors) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    if end.is_set() && !complete {
        errors.invalid(
            &end,
            end.text(),
            "cannot set completionTime when there is no Complete=True condition",
        );
    }
    if !end.is_set() && complete {
        errors.required(&end, "completionTime is required for Complete jobs");
    }
    if start.is_set() && end.is_set() && end.text() < start.text() {
        errors.invalid(&end, end.text(), "must be equal to or after `startTime`");
    }
}

/// How many indexes a text such as `0,2-4` names.
pub fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let index = |text: &str| -> Result<i64, String> {
        let shown = plimsoll_golang::strconv::quote(text);
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {shown}"))?;
        if index >= completions {
            return Err(format!("too large index: {shown}"));
        }
        Ok(index)
    };
    let order = |previous: i64, current: i64| {
        format!("non-increasing order, previous: {previous}, current: {current}")
    };
    let (mut total, mut last) = (0, None);
    for interval in text.split(',') {
        let ends: Vec<&str> = interval.split('-').collect();
        let (low, high) = match ends.as_slice() {
            [one] => (index(one)?, index(one)?),
            [low, high] => (index(low)?, index(high)?),
            _ => {
                return Err(format!(
                    "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                    plimsoll_golang::strconv::quote(interval)
                ));
            }
        };
        if ends.len() == 2 && low >= high {
            return Err(order(low, high));
        }
        if let Some(last) = last.filter(|last| *last >= low) {
            return Err(order(last, low));
        }
        total += high - low + 1;
        last = Some(high);
    }
    Ok(total)
}
