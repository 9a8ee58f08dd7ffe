//! Sentences for people.

use plimsoll_plan::{Reason, Value};

use crate::entry::Kind;

/// `be_cpu_suppress (node_cpu_percent 71.5), asked for by cpuSuppressThresholdPercent`.
pub(crate) fn why(reason: &Reason) -> String {
    let mut text = reason.code.to_owned();
    let mut between = " (";
    for (name, value) in reason.figures() {
        text.push_str(&format!("{between}{name} {}", rounded(value)));
        between = ", ";
    }
    if between == ", " {
        text.push(')');
    }
    if let Some(policy) = reason.policy {
        text.push_str(&format!(", asked for by {policy}"));
    }
    text
}

/// People need three places behind the point, and none where there is nothing.
fn rounded(value: f64) -> f64 {
    let rounded = (value * 1000.0).round() / 1000.0;
    match rounded.is_finite() {
        true => rounded,
        false => value,
    }
}

fn because(reason: Option<&Reason>) -> String {
    reason.map_or_else(String::new, |reason| {
        format!(", because of {}", why(reason))
    })
}

fn was(before: Option<&Value>) -> String {
    before.map_or_else(String::new, |before| format!(" (it was {before})"))
}

pub(crate) fn wrote(
    kind: Kind,
    asker: &str,
    file: &str,
    value: &Value,
    before: Option<&Value>,
    reason: Option<&Reason>,
) -> String {
    let (was, because) = (was(before), because(reason));
    match kind {
        Kind::Apply => format!("{asker} set {file} to {value}{was}{because}"),
        Kind::Repair => format!("{asker} put {file} right: {value}{was}{because}"),
        Kind::Restore => format!("{file} was given back: {value}{was}; {asker} had changed it"),
    }
}

pub(crate) fn planned(
    kind: Kind,
    asker: &str,
    file: &str,
    value: &Value,
    before: Option<&Value>,
    reason: Option<&Reason>,
) -> String {
    let (was, because) = (was(before), because(reason));
    match kind {
        Kind::Restore => format!("{file} would be given back: {value}{was}"),
        _ => format!("{asker} would set {file} to {value}{was}{because}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let reason = Reason::new("be_cpu_suppress")
            .with("node_cpu_percent", 71.5)
            .by("cpuSuppressThresholdPercent");
        let (file, value, before) = ("/f", Value::Number(1), Value::Number(2));
        assert_eq!(
            wrote(
                Kind::Apply,
                "cpu-suppress",
                file,
                &value,
                Some(&before),
                Some(&reason)
            ),
            "cpu-suppress set /f to 1 (it was 2), because of be_cpu_suppress (node_cpu_percent 71.5), \
             asked for by cpuSuppressThresholdPercent"
        );
        assert_eq!(
            wrote(Kind::Restore, "cpu-burst", file, &value, None, None),
            "/f was given back: 1; cpu-burst had changed it"
        );
        assert_eq!(
            planned(Kind::Apply, "cpu-burst", file, &value, None, None),
            "cpu-burst would set /f to 1"
        );
    }
}
