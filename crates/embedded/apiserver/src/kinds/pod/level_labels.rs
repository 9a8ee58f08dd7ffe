//! What a namespace's labels ask of its pods, and what is said of those that fall short.

use std::collections::BTreeMap;

use serde_json::Value;

use super::admission::forbidden;
use super::levels::violations;
use crate::field::{FieldError, Path};
use crate::kinds::Lookup;
use crate::kinds::at::{At, field, text};
use crate::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;

/// From lax to strict.
const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];
const PREFIX: &str = "pod-security.kubernetes.io/";
const LATEST: &str = "latest";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Level {
    strictness: usize,
    version: String,
}

impl Level {
    /// As people write it: `restricted:latest`, quoted.
    fn shown(&self) -> String {
        quote(&format!("{}:{}", LEVELS[self.strictness], self.version))
    }

    fn violations(&self, spec: &Value) -> Vec<String> {
        violations(&At::root(spec), LEVELS[self.strictness])
    }

    /// How a pod falls short of it, if it does.
    fn complaint(&self, spec: &Value) -> Option<String> {
        let found = self.violations(spec);
        (!found.is_empty()).then(|| format!("{}: {}", self.shown(), found.join(", ")))
    }
}

struct Policy {
    enforce: Level,
    warn: Level,
    errors: Vec<FieldError>,
}

impl Policy {
    fn of(namespace: &Value) -> Self {
        let labels = field(namespace, &["metadata", "labels"]);
        let mut errors = Vec::new();
        let mut level = |mode: &str, strictest_if_odd: bool| {
            let key = format!("{PREFIX}{mode}");
            let mut refuse = |key: &str, value: &str, detail: &str| {
                let path = Path::new("metadata").child("labels").key(key);
                errors.push(FieldError::invalid(&path, value, detail));
            };
            let given = labels.get(&key).and_then(Value::as_str);
            let known = given.map(|given| LEVELS.iter().position(|level| *level == given));
            if let (Some(given), Some(None)) = (given, known) {
                refuse(
                    &key,
                    given,
                    &format!("must be one of {}", LEVELS.join(", ")),
                );
            }
            let odd = if strictest_if_odd {
                LEVELS.len() - 1
            } else {
                0
            };
            let key = format!("{PREFIX}{mode}-version");
            let version = labels.get(&key).and_then(Value::as_str);
            if let Some(version) = version.filter(|version| !is_version(version)) {
                refuse(&key, version, "must be \"latest\" or \"v1.x\"");
            }
            let level = Level {
                strictness: known.map_or(0, |known| known.unwrap_or(odd)),
                version: version
                    .filter(|version| is_version(version))
                    .unwrap_or(LATEST)
                    .to_owned(),
            };
            (level, known, version.is_some())
        };
        let (enforce, enforced, _) = level("enforce", true);
        level("audit", false);
        let (mut warn, warned, has_version) = level("warn", false);
        // Who is told to enforce warns as well, unless told otherwise.
        if warned.is_none() && matches!(enforced, Some(Some(level)) if level > warn.strictness) {
            warn.strictness = enforce.strictness;
            if !has_version {
                warn.version.clone_from(&enforce.version);
            }
        }
        Self {
            enforce,
            warn,
            errors,
        }
    }

    fn in_namespace(namespace: &str, world: &dyn Lookup) -> Option<Self> {
        let namespace = world.get("namespaces", "", namespace)?;
        Some(Self::of(&namespace))
    }
}

fn is_version(text: &str) -> bool {
    let minor = text.strip_prefix("v1.").unwrap_or_default();
    let is_number = !minor.is_empty()
        && minor.bytes().all(|byte| byte.is_ascii_digit())
        && (minor == "0" || !minor.starts_with('0'));
    text == LATEST || is_number
}

/// Refuses a pod that its namespace's level does not allow.
pub fn enforce(pod: &Value, world: &dyn Lookup) -> Result<(), StatusError> {
    let namespace = text(pod, &["metadata", "namespace"]);
    let policy = Policy::in_namespace(namespace, world);
    match policy.and_then(|policy| policy.enforce.complaint(&pod["spec"])) {
        Some(found) => Err(forbidden(pod, &format!("violates PodSecurity {found}"))),
        None => Ok(()),
    }
}

/// What is said about pods that the namespace's level of warning does not allow. `pods` is where their specification is.
pub fn warning(
    object: &Value,
    old: Option<&Value>,
    pods: &str,
    world: &dyn Lookup,
) -> Option<String> {
    const OF_A_POD: &str = "/spec";
    if pods == OF_A_POD && old.is_some_and(|old| same_images(object, old)) {
        return None;
    }
    let spec = object.pointer(pods)?;
    let namespace = text(object, &["metadata", "namespace"]);
    let found = Policy::in_namespace(namespace, world)?
        .warn
        .complaint(spec)?;
    Some(format!("would violate PodSecurity {found}"))
}

fn same_images(pod: &Value, old: &Value) -> bool {
    let images = |pod: &Value| -> Vec<Value> {
        let lists = ["containers", "initContainers"];
        let containers = lists.iter().flat_map(|list| pod["spec"][list].as_array());
        containers
            .flatten()
            .map(|container| container["image"].clone())
            .collect()
    };
    images(pod) == images(old)
}

/// Refuses labels that mean nothing, unless they were there before.
pub fn check_namespace(namespace: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    let errors = Policy::of(namespace).errors;
    let before = old.map(|old| Policy::of(old).errors).unwrap_or_default();
    if errors.is_empty() || errors == before {
        return Ok(());
    }
    let subject = Subject {
        group: "",
        kind: "Namespace",
    };
    let name = text(namespace, &["metadata", "name"]);
    Err(StatusError::invalid(subject, name, &errors))
}

/// Which pods a stricter level would not have let in.
pub fn existing_pods(namespace: &Value, old: Option<&Value>, world: &dyn Lookup) -> Vec<String> {
    let (level, before) = match old {
        Some(old) => (Policy::of(namespace).enforce, Policy::of(old).enforce),
        None => return Vec::new(),
    };
    let is_stricter = level.strictness > before.strictness || level.version != before.version;
    if level == before || level.strictness == 0 || !is_stricter {
        return Vec::new();
    }
    let name = text(namespace, &["metadata", "name"]);
    // By what is wrong: the first pod's name and how many there are.
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in world.list("pods", name) {
        let reasons: Vec<String> = level
            .violations(&pod["spec"])
            .iter()
            .map(|violation| without_detail(violation).to_owned())
            .collect();
        if reasons.is_empty() {
            continue;
        }
        let pod = text(&pod, &["metadata", "name"]).to_owned();
        let entry = found
            .entry(reasons.join(", "))
            .or_insert_with(|| (pod.clone(), 0));
        entry.0 = entry.0.clone().min(pod);
        entry.1 += 1;
    }
    if found.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(reasons, (pod, count))| match count {
            1 => format!("{pod}: {reasons}"),
            2 => format!("{pod} (and 1 other pod): {reasons}"),
            _ => format!("{pod} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    lines.sort();
    let head = format!(
        "existing pods in namespace {} violate the new PodSecurity enforce level {}",
        quote(name),
        level.shown()
    );
    lines.insert(0, head);
    lines
}

/// `reason (detail)` without the detail.
fn without_detail(violation: &str) -> &str {
    violation
        .split_once(" (")
        .map_or(violation, |(reason, _)| reason)
}
