//! Answers of the agent as text for people.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn status(status: &Value) -> String {
    let mut out = String::new();
    let (mode, effective) = (text(status, "mode"), text(status, "effectiveMode"));
    // Writing to a String cannot fail.
    let _ = match mode == effective {
        true => writeln!(out, "mode      {mode}"),
        false => writeln!(
            out,
            "mode      {mode}, but it does as in {effective}: another agent changes the same files"
        ),
    };
    if let Some(file) = status["secondAgent"]["file"].as_str() {
        let _ = writeln!(
            out,
            "          {file} was changed back at once, several times. Stop the other agent, then run: plimsoll qos mode enforce"
        );
    }
    gate(&status["gate"], &mut out);
    for hold in rows(&status["holds"]) {
        let _ = writeln!(out, "hold      {}{}", text(hold, "what"), until(hold));
    }
    if let Some(error) = status["journalError"].as_str() {
        let _ = writeln!(
            out,
            "journal   cannot be written, so nothing new is changed: {error}"
        );
    }
    let counters = &status["counters"];
    let number = |field: &str| counters[field].as_u64().unwrap_or(0);
    let _ = writeln!(
        out,
        "since start  {} writes, {} given back, {} put right, {} refused",
        number("writes"),
        number("restored"),
        number("repaired"),
        number("refused"),
    );
    for note in rows(&status["notes"]) {
        let _ = writeln!(
            out,
            "note      {}: {}",
            text(note, "about"),
            text(note, "text")
        );
    }
    out.push('\n');
    out.push_str(&targets(&status["targets"]));
    out
}

fn gate(gate: &Value, out: &mut String) {
    let waiting: Vec<&str> = rows(&gate["waiting"])
        .iter()
        .map(|wait| text(wait, "for"))
        .collect();
    let _ = match (gate["open"] == true, waiting.is_empty()) {
        (true, true) => writeln!(out, "gate      open: everything is known and fresh"),
        (true, false) => writeln!(
            out,
            "gate      not fresh: {}; last plans are held, then released",
            waiting.join(", ")
        ),
        (false, _) => writeln!(
            out,
            "gate      closed, nothing is changed: not known yet: {}",
            waiting.join(", ")
        ),
    };
}

fn until(hold: &Value) -> String {
    let at = hold["until"]
        .as_i64()
        .and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
    at.map_or_else(String::new, |at| format!(" until {at:.0}"))
}

/// One block a target: file, what it has and had, who wants what and why.
pub fn targets(targets: &Value) -> String {
    let targets = rows(targets);
    if targets.is_empty() {
        return "nothing is changed\n".to_owned();
    }
    let mut out = String::new();
    for one in targets {
        let _ = writeln!(out, "{:11} {}", text(one, "state"), text(one, "file"));
        for (name, field) in [("wanted", "wanted"), ("has", "has"), ("base", "base")] {
            if !one[field].is_null() {
                let _ = writeln!(out, "            {name:7} {}", value(&one[field]));
            }
        }
        if let Some(asker) = one["asker"].as_str() {
            let why = text(one, "why");
            let _ = writeln!(out, "            by      {asker}: {why}");
        }
        for other in rows(&one["overruled"]) {
            let wanted = value(&other["wanted"]);
            let _ = writeln!(
                out,
                "            not     {} of {}",
                wanted,
                text(other, "asker")
            );
        }
        if let Some(error) = one["error"].as_str() {
            let _ = writeln!(out, "            error   {error}");
        }
    }
    out
}

/// A value as the plan's types write it, in words.
fn value(value: &Value) -> String {
    match serde_json::from_value::<plimsoll_plan::Value>(value.clone()) {
        Ok(typed) => typed.to_string(),
        Err(_) => value.to_string(),
    }
}

pub fn plan(plans: &Value) -> String {
    let mut out = String::new();
    for plan in rows(plans) {
        let effects = rows(&plan["effects"]);
        let _ = writeln!(out, "{}: {} values", text(plan, "asker"), effects.len());
        for effect in effects {
            let target = &effect["target"];
            let cgroup = &target["cgroup"];
            let place = match cgroup["path"].as_str() {
                Some(path) => format!("{path} {}", cgroup["knob"].to_string().replace('"', "")),
                None => target.to_string(),
            };
            let code = text(&effect["why"], "code");
            let _ = writeln!(out, "    {place} = {}  ({code})", value(&effect["value"]));
        }
    }
    match out.is_empty() {
        true => "nothing is wanted\n".to_owned(),
        false => out,
    }
}

pub fn journal(lines: &Value) -> String {
    let mut out = String::new();
    for line in rows(lines) {
        let at = line["at"]
            .as_i64()
            .and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
        let at = at.map_or_else(String::new, |at| format!("{at:.0}"));
        let number = line["seq"].as_u64().unwrap_or(0);
        let _ = writeln!(out, "{number:6}  {at}  {}", text(line, "text"));
    }
    match out.is_empty() {
        true => "the journal is empty: nothing was changed\n".to_owned(),
        false => out,
    }
}

pub fn done(value: &Value) -> String {
    format!("{}\n", text(value, "done"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_in_words() {
        let shown = status(&json!({
            "mode": "enforce", "effectiveMode": "enforce",
            "gate": {"open": false, "waiting": [{"for": "pods"}, {"for": "node"}], "held": []},
            "holds": [{"what": "/kubepods", "until": 1_700_000_000_000_000_000_i64}],
            "counters": {"writes": 3},
            "targets": [{
                "file": "/sys/fs/cgroup/a/cpu.max", "state": "applied", "asker": "cpuSuppress",
                "wanted": {"quota": {"quota_us": 5000, "period_us": 100_000}}, "why": "be_cpu_suppress (node 71)",
            }],
        }));
        for expected in [
            "mode      enforce\n",
            "closed, nothing is changed: not known yet: pods, node\n",
            "hold      /kubepods until 2023-11-14T22:13:20Z\n",
            "3 writes, 0 given back",
            "applied     /sys/fs/cgroup/a/cpu.max\n",
            "wanted  5000us per 100000us\n",
            "by      cpuSuppress: be_cpu_suppress (node 71)\n",
        ] {
            assert!(shown.contains(expected), "{expected:?} in\n{shown}");
        }
    }

    #[test]
    fn nothing_is_said_so() {
        assert_eq!(targets(&json!([])), "nothing is changed\n");
        assert_eq!(plan(&json!([])), "nothing is wanted\n");
        assert!(journal(&Value::Null).starts_with("the journal is empty"));
    }
}
