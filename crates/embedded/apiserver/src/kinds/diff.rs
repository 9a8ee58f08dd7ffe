//! The differences that refused updates are explained with: Kubernetes compares its internal form of the two
//! specifications, which names every field, line by line.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use plimsoll_golang::json::escape_html;
use serde_json::{Value, json};

use crate::kinds::at::field;

/// `kind` is the name of an internal type: `PodSpec`.
pub fn of(kind: &str, old: &Value, new: &Value) -> String {
    unified(&laid_out(kind, old), &laid_out(kind, new))
}

/// The internal form on one line, as problems show it.
pub fn compact(kind: &str, value: &Value) -> String {
    let lines = laid_out(kind, value);
    let parts = lines.iter().map(|line| {
        let line = line.trim_start();
        // Quotes within texts are escaped, so the first bare one with a colon ends the field's name.
        match line.find("\": ") {
            Some(end) if !line[..end].ends_with('\\') => {
                format!("{}\":{}", &line[..end], &line[end + 3..])
            }
            _ => line.to_owned(),
        }
    });
    parts.collect()
}

/// Name in Go, name in JSON (`^` in front: a field of the parent), shape.
type Field = (&'static str, &'static str, &'static str);

fn layout(kind: &str) -> &'static [Field] {
    static LAYOUT: OnceLock<HashMap<&'static str, Vec<Field>>> = OnceLock::new();
    let layout = LAYOUT.get_or_init(|| {
        let mut types: HashMap<&str, Vec<Field>> = HashMap::new();
        let mut current = "";
        for line in include_str!("../../data/layout.txt").lines() {
            match line.strip_prefix('\t') {
                None => current = line,
                Some(line) => {
                    let mut parts = line.split('\t');
                    let mut part = || parts.next().unwrap_or_default();
                    types
                        .entry(current)
                        .or_default()
                        .push((part(), part(), part()));
                }
            }
        }
        types
    });
    layout.get(kind).map_or(&[], Vec::as_slice)
}

/// The value as a Go programmer sees it, in lines.
fn laid_out(kind: &str, value: &Value) -> Vec<String> {
    let mut text = String::new();
    write_value(&mut text, kind, value, &Value::Null, 0);
    escape_html(&text).lines().map(str::to_owned).collect()
}

fn write_value(out: &mut String, shape: &str, value: &Value, parent: &Value, depth: usize) {
    let (shape, pointer) = match shape.strip_prefix('*') {
        Some(inner) => (inner, true),
        None => (shape, false),
    };
    let absent = value.is_null();
    if absent && (pointer || shape.starts_with("[]") || shape.starts_with("map:") || shape == "any")
    {
        out.push_str("null");
    } else if let Some(inner) = shape.strip_prefix("[]") {
        let items: Vec<(Option<&str>, &str, &Value)> = value
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| (None, inner, item))
            .collect();
        write_items(out, ['[', ']'], &items, value, depth);
    } else if let Some(inner) = shape.strip_prefix("map:") {
        let items: Vec<(Option<&str>, &str, &Value)> = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, item)| (Some(key.as_str()), inner, item))
            .collect();
        write_items(out, ['{', '}'], &items, value, depth);
    } else {
        let fallback = match shape {
            "string" => "\"\"",
            "int" | "intorstring" => "0",
            "bool" => "false",
            "quantity" => "\"0\"",
            _ => "",
        };
        match (fallback, absent) {
            ("", _) if shape == "any" => write_published(out, value, depth),
            ("", true) if shape == "orbool" => out.push_str("null"),
            ("", false) if shape == "orbool" => {
                let either = match value {
                    Value::Bool(allows) => json!({"allows": allows}),
                    schema => json!({"allows": true, "schema": schema}),
                };
                write_value(out, "JSONSchemaPropsOrBool", &either, parent, depth);
            }
            ("", _) => {
                let fields: Vec<(Option<&str>, &str, &Value)> = layout(shape)
                    .iter()
                    .map(|&(go, json, shape)| match json.strip_prefix('^') {
                        Some(json) => (Some(go), shape, field(parent, &[json])),
                        None => (Some(go), shape, field(value, &[json])),
                    })
                    .collect();
                write_items(out, ['{', '}'], &fields, value, depth);
            }
            (fallback, true) => out.push_str(fallback),
            (_, false) => {
                let _ = write!(out, "{value}");
            }
        }
    }
}

fn write_items(
    out: &mut String,
    [open, close]: [char; 2],
    items: &[(Option<&str>, &str, &Value)],
    parent: &Value,
    depth: usize,
) {
    out.push(open);
    for (index, (name, shape, item)) in items.iter().enumerate() {
        if out.len() > MOST_LAID_OUT {
            break;
        }
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.push_str(&" ".repeat(depth + 1));
        if let Some(name) = name {
            let _ = write!(out, "{}: ", Value::from(*name));
        }
        write_value(out, shape, item, parent, depth + 1);
    }
    if !items.is_empty() {
        out.push('\n');
        out.push_str(&" ".repeat(depth));
    }
    out.push(close);
}

/// Label selectors have no other form than the published one; their labels come before their expressions.
fn write_published(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            let is_written = |value: &Value| value.as_array().is_none_or(|list| !list.is_empty());
            let mut fields: Vec<_> = fields
                .iter()
                .filter(|(_, value)| is_written(value))
                .collect();
            fields.sort_by_key(|(name, _)| name.as_str() == "matchExpressions");
            let items: Vec<(Option<&str>, &str, &Value)> = fields
                .into_iter()
                .map(|(name, item)| (Some(name.as_str()), "any", item))
                .collect();
            write_items(out, ['{', '}'], &items, value, depth);
        }
        Value::Array(list) => {
            let items: Vec<(Option<&str>, &str, &Value)> =
                list.iter().map(|item| (None, "any", item)).collect();
            write_items(out, ['[', ']'], &items, value, depth);
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

const CONTEXT: usize = 3;
/// Lines of both texts. To compare all of them takes time that grows with the square of it.
const MOST_COMPARED: usize = 4000;
/// Every field is named, so that an object becomes many times longer when it is laid out.
const MOST_LAID_OUT: usize = 4 << 20;

/// Lines `a` of the old text and `b` of the new one, and how many of them are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    size: usize,
}

/// A run of lines that are the same in both texts, or that replace each other.
struct Run {
    same: bool,
    a: std::ops::Range<usize>,
    b: std::ops::Range<usize>,
}

/// A unified difference as clients know it, without file names.
fn unified(a: &[String], b: &[String]) -> String {
    let mut out = String::new();
    let hunks = hunks(runs(&matching(a, b)));
    for hunk in hunks {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
            continue;
        };
        let _ = writeln!(
            out,
            "@@ -{} +{} @@",
            range(first.a.start, last.a.end),
            range(first.b.start, last.b.end)
        );
        for run in &hunk {
            let mut lines = |mark: char, lines: &[String]| {
                for line in lines {
                    let _ = writeln!(out, "{mark}{line}");
                }
            };
            let old = a.get(run.a.clone()).unwrap_or_default();
            if run.same {
                lines(' ', old);
            } else {
                lines('-', old);
                lines('+', b.get(run.b.clone()).unwrap_or_default());
            }
        }
    }
    out
}

fn runs(matches: &[Match]) -> Vec<Run> {
    let mut runs = Vec::new();
    let (mut at_a, mut at_b) = (0, 0);
    for found in matches {
        if at_a < found.a || at_b < found.b {
            runs.push(Run {
                same: false,
                a: at_a..found.a,
                b: at_b..found.b,
            });
        }
        (at_a, at_b) = (found.a + found.size, found.b + found.size);
        if found.size > 0 {
            runs.push(Run {
                same: true,
                a: found.a..at_a,
                b: found.b..at_b,
            });
        }
    }
    runs
}

/// Keeps a few lines around what differs, and parts what is far from each other.
fn hunks(mut runs: Vec<Run>) -> Vec<Vec<Run>> {
    if let Some(first) = runs.first_mut().filter(|run| run.same) {
        keep_end(first);
    }
    if let Some(last) = runs.last_mut().filter(|run| run.same) {
        keep_start(last);
    }
    let mut hunks = Vec::new();
    let mut current: Vec<Run> = Vec::new();
    for mut run in runs {
        if run.same && run.a.len() > 2 * CONTEXT {
            let mut head = Run {
                same: true,
                a: run.a.clone(),
                b: run.b.clone(),
            };
            keep_start(&mut head);
            current.push(head);
            hunks.push(std::mem::take(&mut current));
            keep_end(&mut run);
        }
        current.push(run);
    }
    hunks.push(current);
    hunks.retain(|hunk| hunk.iter().any(|run| !run.same));
    hunks
}

fn keep_start(run: &mut Run) {
    run.a.end = run.a.end.min(run.a.start + CONTEXT);
    run.b.end = run.b.end.min(run.b.start + CONTEXT);
}

fn keep_end(run: &mut Run) {
    run.a.start = run.a.start.max(run.a.end.saturating_sub(CONTEXT));
    run.b.start = run.b.start.max(run.b.end.saturating_sub(CONTEXT));
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

/// The longest runs of equal lines, found by halving around the longest one each time; ends with an empty match.
fn matching(a: &[String], b: &[String]) -> Vec<Match> {
    if a.len() + b.len() > MOST_COMPARED {
        return ends(a, b);
    }
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in b.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    // Lines that are everywhere say nothing about what belongs together.
    if b.len() >= 200 {
        let limit = b.len() / 100 + 1;
        places.retain(|_, found| found.len() <= limit);
    }
    let mut found = Vec::new();
    let mut queue = vec![(0, a.len(), 0, b.len())];
    while let Some((a_low, a_high, b_low, b_high)) = queue.pop() {
        let longest = longest(a, b, &places, (a_low, a_high), (b_low, b_high));
        if longest.size == 0 {
            continue;
        }
        found.push(longest);
        queue.push((a_low, longest.a, b_low, longest.b));
        queue.push((
            longest.a + longest.size,
            a_high,
            longest.b + longest.size,
            b_high,
        ));
    }
    found.sort_by_key(|one| (one.a, one.b));
    let mut joined: Vec<Match> = Vec::new();
    for next in found {
        match joined.last_mut() {
            Some(last) if last.a + last.size == next.a && last.b + last.size == next.b => {
                last.size += next.size;
            }
            _ => joined.push(next),
        }
    }
    joined.push(Match {
        a: a.len(),
        b: b.len(),
        size: 0,
    });
    joined
}

/// Only what is the same at both ends, of texts that are too long for more.
fn ends(a: &[String], b: &[String]) -> Vec<Match> {
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (&a[head..], &b[head..]);
    let both = rest_a.iter().rev().zip(rest_b.iter().rev());
    let tail = both.take_while(|(a, b)| a == b).count();
    let run = |a, b, size| Match { a, b, size };
    vec![
        run(0, 0, head),
        run(a.len() - tail, b.len() - tail, tail),
        run(a.len(), b.len(), 0),
    ]
}

fn longest(
    a: &[String],
    b: &[String],
    places: &HashMap<&str, Vec<usize>>,
    (a_low, a_high): (usize, usize),
    (b_low, b_high): (usize, usize),
) -> Match {
    let mut best = Match {
        a: a_low,
        b: b_low,
        size: 0,
    };
    // Length of the run that ends at each line of `b`, for the previous line of `a`.
    let mut runs: HashMap<usize, usize> = HashMap::new();
    for (index, line) in a.iter().enumerate().take(a_high).skip(a_low) {
        let mut next = HashMap::new();
        for &place in places.get(line.as_str()).into_iter().flatten() {
            if place < b_low {
                continue;
            }
            if place >= b_high {
                break;
            }
            let before = place.checked_sub(1).and_then(|before| runs.get(&before));
            let size = before.copied().unwrap_or_default() + 1;
            next.insert(place, size);
            if size > best.size {
                best = Match {
                    a: index + 1 - size,
                    b: place + 1 - size,
                    size,
                };
            }
        }
        runs = next;
    }
    // Frequent lines next to the run join it.
    while best.a > a_low && best.b > b_low && a[best.a - 1] == b[best.b - 1] {
        best = Match {
            a: best.a - 1,
            b: best.b - 1,
            size: best.size + 1,
        };
    }
    while best.a + best.size < a_high
        && best.b + best.size < b_high
        && a[best.a + best.size] == b[best.b + best.size]
    {
        best.size += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_texts_are_compared_from_both_ends() {
        let container =
            |index: usize, image: &str| json!({"name": format!("c{index}"), "image": image});
        let all = |image: &str| -> Value {
            let image = |index| if index == 50 { image } else { "i" };
            let all: Vec<Value> = (0..100)
                .map(|index| container(index, image(index)))
                .collect();
            json!({"containers": all})
        };
        let text = of("PodSpec", &all("old"), &all("new"));
        let has = |image: &str| text.contains(&format!("\"Image\": \"{image}\""));
        assert!(has("old") && has("new"), "{text}");
        assert!(text.lines().count() < 20, "{text}");
    }

    #[test]
    fn a_difference_reads_as_on_a_real_server() {
        let old = json!({
            "containers": [{"name": "a", "image": "a", "resources": {}, "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        let mut new = old.clone();
        new["nodeSelector"] = json!({"a": "b"});
        new["hostNetwork"] = json!(true);
        new["dnsPolicy"] = json!("Default");
        expect_test::expect![[r#"
            @@ -38,13 +38,15 @@
              "RestartPolicy": "Always",
              "TerminationGracePeriodSeconds": 30,
              "ActiveDeadlineSeconds": null,
            - "DNSPolicy": "ClusterFirst",
            - "NodeSelector": null,
            + "DNSPolicy": "Default",
            + "NodeSelector": {
            +  "a": "b"
            + },
              "ServiceAccountName": "",
              "AutomountServiceAccountToken": null,
              "NodeName": "",
              "SecurityContext": {
            -  "HostNetwork": false,
            +  "HostNetwork": true,
               "HostPID": false,
               "HostIPC": false,
               "ShareProcessNamespace": null,
        "#]]
        .assert_eq(&of("PodSpec", &old, &new));
    }
}
