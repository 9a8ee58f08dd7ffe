//! Scenarios: a cluster, and what happens in it step by step. `tests/cluster/scheduler/README.md` describes the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_sched::sandbox::ObjectKey;
use serde::Deserialize;
use serde_json::{Value, json};

use super::kinds::parse_key;
use super::shorthand::expand;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What the family is about.
    #[expect(dead_code, reason = "for those who read the file")]
    about: String,
    /// In every cluster of the family.
    #[serde(default)]
    objects: Vec<Value>,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    scenarios: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    about: String,
    #[serde(default)]
    objects: Vec<Value>,
    /// Not with the family's objects.
    #[serde(default)]
    alone: bool,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    /// The scenario once for each, with `$each` replaced by the value, or `$each.NAME` by a part of it.
    #[serde(default)]
    each: BTreeMap<String, Value>,
    steps: Vec<Value>,
}

#[derive(Debug)]
pub struct Scenario {
    /// `FAMILY/NAME`.
    pub name: String,
    pub about: String,
    pub objects: Vec<Value>,
    pub setup: Setup,
    pub steps: Vec<Vec<Operation>>,
}

/// A scenario as it stands in a file.
#[derive(Debug)]
pub struct Told {
    pub objects: Vec<Value>,
    pub steps: Vec<Value>,
    pub config: Value,
}

impl Told {
    /// An entry of a family's file.
    pub fn text(&self) -> String {
        let mut text = format!("    config: {}\n", self.config);
        for (title, list) in [("objects", &self.objects), ("steps", &self.steps)] {
            text.push_str(&format!("    {title}:\n"));
            for value in list {
                text.push_str(&format!("      - {value}\n"));
            }
        }
        text
    }

    pub fn scenario(&self, name: &str) -> Result<Scenario> {
        let steps = self.steps.iter().map(|step| Ok(vec![operation(step)?]));
        Ok(Scenario {
            name: name.to_owned(),
            about: String::new(),
            objects: self.objects.iter().map(expand).collect::<Result<_>>()?,
            setup: Setup {
                config: self.config.to_string(),
                gates: BTreeMap::new(),
            },
            steps: steps.collect::<Result<_>>()?,
        })
    }
}

/// How the scheduler is configured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setup {
    /// A part of a KubeSchedulerConfiguration, as JSON.
    pub config: String,
    pub gates: BTreeMap<String, bool>,
}

#[derive(Debug, Clone)]
pub enum Operation {
    Create(Value),
    Patch {
        key: ObjectKey,
        subresource: Option<&'static str>,
        patch: Value,
    },
    Delete {
        key: ObjectKey,
        grace: i64,
        /// It may have gone already.
        maybe: bool,
    },
    /// Time passes, where the original only looks now and then.
    Pause(Duration),
}

impl Scenario {
    pub fn family(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    pub fn short_name(&self) -> &str {
        self.name.split_once('/').map_or("", |(_, name)| name)
    }
}

/// All scenarios of a folder whose name contains the filter.
pub fn load(folder: &Path, filter: Option<&str>) -> Result<Vec<Scenario>> {
    let listing = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut files = listing
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    let mut scenarios = Vec::new();
    for path in files {
        let family = path.file_stem().and_then(|name| name.to_str());
        let family = family.context("a family's name is not UTF-8")?;
        // What stands before the slash must end a family's name: files of others need not be read.
        let wanted = filter.and_then(|filter| filter.split_once('/'));
        if wanted.is_some_and(|(wanted, _)| !family.ends_with(wanted)) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        scenarios.extend(parse(family, &text).with_context(|| format!("family {family}"))?);
    }
    scenarios.retain(|scenario| filter.is_none_or(|wanted| scenario.name.contains(wanted)));
    Ok(scenarios)
}

fn parse(family: &str, text: &str) -> Result<Vec<Scenario>> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: File = serde_saphyr::from_str_with_options(text, options)?;
    let mut scenarios = Vec::new();
    for (name, entry) in &file.scenarios {
        let mut variants = vec![(name.clone(), entry.clone())];
        if !entry.each.is_empty() {
            variants = entry
                .each
                .iter()
                .map(|(variant, value)| (format!("{name}-{variant}"), entry.with(value)))
                .collect();
        }
        for (name, entry) in variants {
            let scenario = plan(family, &name, &file, &entry);
            scenarios.push(scenario.with_context(|| format!("scenario {name}"))?);
        }
    }
    Ok(scenarios)
}

impl Entry {
    fn with(&self, each: &Value) -> Self {
        let all = |list: &[Value]| list.iter().map(|value| replaced(value, each)).collect();
        Self {
            objects: all(&self.objects),
            steps: all(&self.steps),
            config: replaced(&self.config, each),
            ..self.clone()
        }
    }
}

fn replaced(value: &Value, each: &Value) -> Value {
    match value {
        Value::String(text) if text == "$each" => each.clone(),
        Value::String(text) => match text.strip_prefix("$each.") {
            Some(part) => each.get(part).cloned().unwrap_or(Value::Null),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| replaced(item, each)).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, inner)| (name.clone(), replaced(inner, each)))
                .filter(|(_, inner)| !inner.is_null());
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

fn plan(family: &str, name: &str, file: &File, entry: &Entry) -> Result<Scenario> {
    let shared: &[Value] = if entry.alone { &[] } else { &file.objects };
    let objects = shared
        .iter()
        .chain(&entry.objects)
        .map(expand)
        .collect::<Result<_>>()?;
    let mut config = file.config.clone();
    if !entry.config.is_null() {
        config = entry.config.clone();
    }
    if config.is_null() {
        config = json!({});
    }
    let mut gates = file.gates.clone();
    gates.extend(entry.gates.clone());
    let steps = entry
        .steps
        .iter()
        .map(|step| match step {
            Value::Array(operations) => operations.iter().map(operation).collect(),
            one => Ok(vec![operation(one)?]),
        })
        .collect::<Result<_>>()?;
    Ok(Scenario {
        name: format!("{family}/{name}"),
        about: entry.about.clone(),
        objects,
        setup: Setup {
            config: config.to_string(),
            gates,
        },
        steps,
    })
}

fn operation(value: &Value) -> Result<Operation> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    for (name, subresource) in [
        ("patch", None),
        ("status", Some("status")),
        ("resize", Some("resize")),
    ] {
        if let Some(key) = text(name) {
            let patch = value.get("with").context("a patch needs `with`")?;
            return Ok(Operation::Patch {
                key: parse_key(key)?,
                subresource,
                patch: patch.clone(),
            });
        }
    }
    if let Some(seconds) = value.get("pause").and_then(Value::as_u64) {
        return Ok(Operation::Pause(Duration::from_secs(seconds)));
    }
    if let Some(key) = text("delete") {
        ensure!(value.get("with").is_none(), "`delete` takes no `with`");
        let grace = value.get("grace").and_then(Value::as_i64).unwrap_or(0);
        return Ok(Operation::Delete {
            key: parse_key(key)?,
            grace,
            maybe: value.get("maybe") == Some(&json!(true)),
        });
    }
    if value.is_object() {
        return Ok(Operation::Create(expand(value)?));
    }
    bail!("{value} is no operation")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_scenarios() {
        let text = "
about: x
objects: [{node: n}]
scenarios:
  one:
    steps: [{pod: p}, [{delete: pod/p}, {patch: node/n, with: {spec: {unschedulable: true}}}]]
  many:
    each: {a: {cpu: 1}, b: {cpu: 2}}
    steps: [{pod: p, cpu: $each.cpu}]
";
        let scenarios = parse("f", text).unwrap();
        let names: Vec<_> = scenarios.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["f/many-a", "f/many-b", "f/one"]);
        assert_eq!(scenarios[2].steps[1].len(), 2);
        let Operation::Create(pod) = &scenarios[1].steps[0][0] else {
            panic!("not a pod");
        };
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"],
            "2"
        );
    }
}
