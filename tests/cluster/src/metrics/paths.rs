//! What the OpenAPI documents say of each path: operations, parameters, what is consumed and what is produced.
//! `metrics-server/paths.jsonl` has it of metrics-server 0.9.0, a line a path, without prose.
//!
//! The recorded answers have the same documents as digests, which tell that they differ, but not where.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::program::MetricsServer;
use super::shown::without_descriptions;

const FILE: &str = "paths.jsonl";
const DOCUMENTS: [&str; 5] = [
    "/openapi/v2",
    "/openapi/v3/apis",
    "/openapi/v3/apis/metrics.k8s.io",
    "/openapi/v3/apis/metrics.k8s.io/v1beta1",
    "/openapi/v3/version",
];

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    document: String,
    path: String,
    item: Value,
}

pub fn record(running: &MetricsServer, folder: &Path) -> Result<()> {
    let mut text = String::new();
    for line in lines_of(running)? {
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    fs::write(folder.join(FILE), text).with_context(|| format!("write {FILE}"))
}

/// How many paths there are; an error names every place where one differs.
pub fn compare(running: &MetricsServer, folder: &Path) -> Result<usize> {
    let text = fs::read_to_string(folder.join(FILE)).with_context(|| format!("read {FILE}"))?;
    let recorded = text
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect::<Result<Vec<Line>>>()?;
    let differences = differences(&by_path(&recorded), &by_path(&lines_of(running)?));
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(recorded.len())
}

fn lines_of(running: &MetricsServer) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for document in DOCUMENTS {
        let text = running.page(document)?;
        let mut value: Value = serde_json::from_str(&text).with_context(|| document.to_owned())?;
        without_descriptions(&mut value);
        let paths = value["paths"].as_object().context("no paths")?;
        for (path, item) in paths {
            lines.push(Line {
                document: document.to_owned(),
                path: path.clone(),
                item: item.clone(),
            });
        }
    }
    Ok(lines)
}

fn by_path(lines: &[Line]) -> BTreeMap<String, &Value> {
    lines
        .iter()
        .map(|line| (format!("{} {}", line.document, line.path), &line.item))
        .collect()
}

fn differences(
    expected: &BTreeMap<String, &Value>,
    found: &BTreeMap<String, &Value>,
) -> Vec<String> {
    let mut out = Vec::new();
    for (path, expected) in expected {
        match found.get(path) {
            None => out.push(format!("{path} is missing")),
            Some(found) => differing(path, expected, found, &mut out),
        }
    }
    let more = found.keys().filter(|path| !expected.contains_key(*path));
    out.extend(more.map(|path| format!("{path} is one too many")));
    out
}

fn differing(place: &str, expected: &Value, found: &Value, out: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> =
                one.keys().chain(other.keys()).collect();
            for key in keys {
                let (one, other) = (&expected[key.as_str()], &found[key.as_str()]);
                differing(&format!("{place} {key}"), one, other, out);
            }
        }
        _ if expected != found => out.push(format!("{place}: {expected} is {found}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_is_named_with_its_place() {
        let line = |path: &str, produces: Value| Line {
            document: "/openapi/v2".to_owned(),
            path: path.to_owned(),
            item: json!({"get": {"produces": produces, "operationId": "x"}}),
        };
        let expected = [line("/a", json!(["j"])), line("/b", json!([]))];
        let found = [line("/a", json!(["j", "k"])), line("/c", json!([]))];
        assert_eq!(
            differences(&by_path(&expected), &by_path(&found)),
            [
                "/openapi/v2 /a get produces: [\"j\"] is [\"j\",\"k\"]",
                "/openapi/v2 /b is missing",
                "/openapi/v2 /c is one too many",
            ]
        );
        assert_eq!(differences(&by_path(&found), &by_path(&found)), [""; 0]);
    }
}
