//! How long each rung took last time, kept outside the checkout.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::workspace;

const FILE: &str = "test-times.json";

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastTime {
    pub tests: usize,
    pub seconds: f64,
    pub cpu_seconds: f64,
}

/// By the rung's name. Nothing depends on them, so a file that cannot be read is no times.
pub fn load() -> BTreeMap<String, LastTime> {
    let text = workspace::cache().and_then(|cache| Ok(fs::read_to_string(cache.join(FILE))?));
    text.map(|text| parse(&text)).unwrap_or_default()
}

/// Keeps the times of rungs that did not run now.
pub fn save(times: &BTreeMap<String, LastTime>) -> Result<()> {
    let path = workspace::cache()?.join(FILE);
    let mut all = load();
    all.extend(times.iter().map(|(name, time)| (name.clone(), *time)));
    let whole = path.with_extension(format!("{}", std::process::id()));
    fs::write(&whole, render(&all)).with_context(|| format!("write {}", whole.display()))?;
    fs::rename(&whole, &path).with_context(|| format!("replace {}", path.display()))
}

fn parse(text: &str) -> BTreeMap<String, LastTime> {
    let all: Value = serde_json::from_str(text).unwrap_or_default();
    let rungs = all.as_object().into_iter().flatten();
    let time = |value: &Value| {
        Some(LastTime {
            tests: usize::try_from(value["tests"].as_u64()?).ok()?,
            seconds: value["seconds"].as_f64()?,
            cpu_seconds: value["cpuSeconds"].as_f64()?,
        })
    };
    rungs
        .filter_map(|(name, value)| Some((name.clone(), time(value)?)))
        .collect()
}

fn render(times: &BTreeMap<String, LastTime>) -> String {
    let all: serde_json::Map<String, Value> = times
        .iter()
        .map(|(name, time)| {
            let value = json!({
                "tests": time.tests, "seconds": time.seconds, "cpuSeconds": time.cpu_seconds,
            });
            (name.clone(), value)
        })
        .collect();
    Value::Object(all).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let times = BTreeMap::from([(
            "unit".to_owned(),
            LastTime {
                tests: 3,
                seconds: 1.5,
                cpu_seconds: 2.25,
            },
        )]);
        assert_eq!(parse(&render(&times)), times);
        assert!(parse("not JSON").is_empty());
        assert!(parse(r#"{"unit": {"tests": -1}}"#).is_empty());
    }
}
