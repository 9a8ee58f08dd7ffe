//! A case: requests in order, as a person writes them down. `tests/cluster/README.md` describes the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What the case proves.
    about: String,
    /// Paths that are deleted before and after: what is not in the case's namespace.
    #[serde(default)]
    cleanup: Vec<String>,
    /// The request line of steps that have none.
    #[serde(default, rename = "do")]
    request: Option<String>,
    /// The body that steps with `set` start from.
    #[serde(default)]
    base: Option<Value>,
    /// The case changes what others would see: it runs when no other does.
    #[serde(default)]
    alone: bool,
    /// The case sees what others leave behind for a time: it runs, alone, before any of them.
    #[serde(default)]
    untouched: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `METHOD PATH`; `@GROUP/VERSION/REST` is a path inside the case's namespace.
    #[serde(default, rename = "do")]
    request: Option<String>,
    /// Arguments of kubectl instead of a request; `body` or `raw` is its input.
    #[serde(default)]
    kubectl: Option<String>,
    #[serde(default)]
    pub body: Option<Value>,
    /// Body text that is sent as it is.
    #[serde(default)]
    pub raw: Option<String>,
    /// JSON pointers into the base and what stands there instead; null removes.
    #[serde(default)]
    pub set: Option<BTreeMap<String, Value>>,
    /// Content type: a short name or a media type; `none` sends no header.
    #[serde(default, rename = "type")]
    pub content_type: Option<String>,
    #[serde(default)]
    pub accept: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `USER,GROUP…` to impersonate, or `none` for a request without credentials.
    #[serde(default, rename = "as")]
    pub identity: Option<String>,
    /// A bearer token instead of the administrator's.
    #[serde(default)]
    pub token: Option<String>,
    /// Values of the answer (JSON pointers) that later steps use as `$NAME`.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Asked again until the answer is so.
    #[serde(default)]
    pub until: Option<Until>,
    /// Only these parts of the answer are compared.
    #[serde(default)]
    pub only: Vec<String>,
    /// These parts of the answer are not; `*` stands for any index or name.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Lists of the answer whose order is chance.
    #[serde(default)]
    pub sort: Vec<String>,
    /// Only the status is compared: the step is there for the ones after it.
    #[serde(default)]
    pub quiet: bool,
    /// The step is done once for each, as `$each`.
    #[serde(default)]
    each: Vec<String>,
    /// How long the text `$pad` is.
    #[serde(default)]
    pub pad: usize,
    /// Opens a watch under this name; its events are read by a later `collect`.
    #[serde(default)]
    pub open: Option<String>,
    /// Reads the events of an open watch.
    #[serde(default)]
    pub collect: Option<String>,
    /// How many events are expected; one more would be found out.
    #[serde(default)]
    pub count: usize,
    /// The server must end the watch after them.
    #[serde(default)]
    pub end: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Until {
    Status(u16),
    Values(BTreeMap<String, Value>),
}

/// The method of a step that runs kubectl.
pub const KUBECTL: &str = "kubectl";

/// When a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// By itself, on a server that no case has changed.
    First,
    Together,
    /// By itself.
    Last,
}

/// A case with its defaults filled in.
#[derive(Debug)]
pub struct Case {
    /// `AREA/NAME`.
    pub name: String,
    pub about: String,
    pub cleanup: Vec<String>,
    pub turn: Turn,
    pub steps: Vec<Planned>,
}

#[derive(Debug)]
pub struct Planned {
    /// As it is written, for people and to see whether a recording belongs to it.
    pub title: String,
    pub method: String,
    pub path: String,
    pub each: Option<String>,
    pub step: Step,
}

impl Case {
    pub fn area(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    pub fn needs_kubectl(&self) -> bool {
        self.steps.iter().any(|planned| planned.method == KUBECTL)
    }

    /// Everything that the steps say, to tell what a server chose from what it was told.
    pub fn written(&self) -> String {
        let mut text = String::new();
        for planned in &self.steps {
            text.push_str(&planned.path);
            text.push_str(planned.step.raw.as_deref().unwrap_or_default());
            text.extend(planned.step.body.iter().map(Value::to_string));
        }
        text
    }

    /// The prefixes that servers are asked to make names of.
    pub fn generated_prefixes(&self) -> Vec<String> {
        let bodies = self
            .steps
            .iter()
            .filter_map(|planned| planned.step.body.as_ref());
        let prefixes = bodies.filter_map(|body| body.pointer("/metadata/generateName")?.as_str());
        prefixes
            .filter(|prefix| !prefix.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        // `y` and `on` are words here, as in YAML 1.2.
        let options = serde_saphyr::options! { strict_booleans: true };
        let file: File = serde_saphyr::from_str_with_options(text, options)?;
        let mut steps = Vec::new();
        for (index, step) in file.steps.into_iter().enumerate() {
            let planned = plan(step, file.request.as_deref(), file.base.as_ref());
            steps.extend(planned.with_context(|| format!("step {}", index + 1))?);
        }
        Ok(Self {
            name,
            about: file.about,
            cleanup: file.cleanup,
            turn: match (file.untouched, file.alone) {
                (true, _) => Turn::First,
                (false, true) => Turn::Last,
                (false, false) => Turn::Together,
            },
            steps,
        })
    }
}

fn plan(mut step: Step, request: Option<&str>, base: Option<&Value>) -> Result<Vec<Planned>> {
    let line = step.request.as_deref().or(request);
    let title = match (&step.collect, &step.kubectl, line) {
        (Some(watch), _, _) => format!("COLLECT {watch}"),
        (None, Some(arguments), _) => format!("{KUBECTL} {arguments}"),
        (None, None, Some(line)) => line.to_owned(),
        (None, None, None) => bail!("neither `do` nor `collect`"),
    };
    let (method, path) = title
        .split_once(' ')
        .with_context(|| format!("{title:?} is not METHOD PATH"))?;
    ensure!(
        !(step.body.is_some() && step.raw.is_some()),
        "both `body` and `raw`"
    );
    if let Some(changes) = &step.set {
        let mut body = base.context("`set` without a `base`")?.clone();
        for (pointer, value) in changes {
            assign(&mut body, pointer, value.clone())?;
        }
        step.body = Some(body);
    }
    let one = |each: Option<String>| Planned {
        title: title.clone(),
        method: method.to_owned(),
        path: path.to_owned(),
        each,
        step: step.clone(),
    };
    if step.each.is_empty() {
        return Ok(vec![one(None)]);
    }
    Ok(step
        .each
        .iter()
        .cloned()
        .map(|each| one(Some(each)))
        .collect())
}

/// Puts a value where the pointer says; missing objects on the way are made, null removes.
fn assign(target: &mut Value, pointer: &str, value: Value) -> Result<()> {
    let Some(rest) = pointer.strip_prefix('/') else {
        bail!("{pointer:?} is not a JSON pointer");
    };
    let unescape = |part: &str| part.replace("~1", "/").replace("~0", "~");
    let (head, tail) = match rest.split_once('/') {
        Some((head, tail)) => (unescape(head), Some(format!("/{tail}"))),
        None => (unescape(rest), None),
    };
    match target {
        Value::Array(items) => {
            if head == "-" && tail.is_none() {
                items.push(value);
                return Ok(());
            }
            let index: usize = head
                .parse()
                .with_context(|| format!("index in {pointer}"))?;
            ensure!(index < items.len(), "no element {index} in {pointer}");
            match tail {
                Some(tail) => assign(&mut items[index], &tail, value),
                None if value.is_null() => {
                    items.remove(index);
                    Ok(())
                }
                None => {
                    items[index] = value;
                    Ok(())
                }
            }
        }
        Value::Object(fields) => match tail {
            Some(tail) => {
                let empty = || Value::Object(serde_json::Map::new());
                assign(fields.entry(head).or_insert_with(empty), &tail, value)
            }
            None => {
                if value.is_null() {
                    fields.remove(&head);
                } else {
                    fields.insert(head, value);
                }
                Ok(())
            }
        },
        _ => bail!("{pointer} goes into a scalar"),
    }
}

/// All cases below a folder whose name contains the filter, in order of their names.
pub fn load(folder: &Path, filter: Option<&str>) -> Result<Vec<Case>> {
    let mut files = Vec::new();
    for area in entries(folder)? {
        if area.is_dir() {
            files.extend(entries(&area)?);
        }
    }
    let mut cases = Vec::new();
    for file in files {
        let name = case_name(folder, &file)?;
        if filter.is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| format!("read {name}"))?;
        cases.push(Case::parse(name.clone(), &text).with_context(|| format!("case {name}"))?);
    }
    Ok(cases)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listing = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut paths = listing
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn case_name(folder: &Path, file: &Path) -> Result<String> {
    let relative = file.strip_prefix(folder)?.with_extension("");
    let name = relative.to_str().context("a case's name is not UTF-8")?;
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_take_their_defaults_from_the_case() {
        let text = "
about: x
do: POST @v1/pods
base: {metadata: {name: a}, spec: {containers: [{name: c}]}}
steps:
  - set: {/metadata/name: null, /spec/containers/0/image: i}
  - do: GET @v1/pods/$each
    each: [a, b]
";
        let case = Case::parse("area/x".to_owned(), text).unwrap();
        assert_eq!(case.steps.len(), 3);
        assert_eq!(
            case.steps[0].step.body,
            Some(json!({"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        );
        assert_eq!(case.steps[2].each.as_deref(), Some("b"));
        assert_eq!(case.steps[0].method, "POST");
    }

    #[test]
    fn mistakes_are_found_before_anything_runs() {
        let check = |text: &str, expected: &str| {
            let error = Case::parse("a/b".to_owned(), text).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        };
        check("about: x\nsteps: [{bdy: 1}]", "bdy");
        check("about: x\nsteps: [{body: 1}]", "neither `do` nor `collect`");
        check(
            "about: x\nsteps: [{do: GET /, set: {/a: 1}}]",
            "`set` without a `base`",
        );
    }
}
