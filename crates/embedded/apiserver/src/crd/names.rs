//! What the controllers of the original write into a definition's status: accepted names, conditions, versions in
//! which objects are stored, and the steps of removal.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use plimsoll_golang::strconv::quote;
use plimsoll_golang::time::show_seconds;

pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Resets the status of a new definition and protects its objects from being forgotten.
pub fn prepare_create(definition: &mut Value) {
    definition["status"] = json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": storage_version(definition),
    });
}

/// Notes the version in which objects are stored from now on.
pub fn note_storage_version(definition: &mut Value) {
    for version in storage_version(definition) {
        let stored = &mut definition["status"]["storedVersions"];
        match stored.as_array_mut() {
            Some(list) if list.iter().any(|one| *one == version) => {}
            Some(list) => list.push(version.into()),
            None => *stored = json!([version]),
        }
    }
}

fn storage_version(definition: &Value) -> Vec<String> {
    let versions = definition["spec"]["versions"].as_array();
    versions
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .filter_map(|version| Some(version["name"].as_str()?.to_owned()))
        .collect()
}

pub fn is_true(definition: &Value, condition: &str) -> bool {
    find(definition, condition).is_some_and(|found| found["status"] == "True")
}

/// Whether requests for its objects are answered.
pub fn is_served(definition: &Value) -> bool {
    is_true(definition, "Established")
}

fn find<'a>(definition: &'a Value, condition: &str) -> Option<&'a Value> {
    definition["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|one| one["type"] == condition)
}

/// Writes a condition; its time changes with its status only.
pub fn set_condition(
    definition: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let since = find(definition, kind)
        .filter(|old| old["status"] == status)
        .and_then(|old| old["lastTransitionTime"].as_str())
        .map_or_else(|| show_seconds(now), str::to_owned);
    let condition = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    });
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|one| one["type"] == kind) {
            Some(old) => *old = condition,
            None => list.push(condition),
        }
    }
}

/// Whether the definition has all the names that it wants.
pub fn has_its_names(definition: &Value) -> bool {
    definition["spec"]["names"] == definition["status"]["acceptedNames"]
}

/// Accepts the names that no other definition of the group has taken, and establishes the definition once all are.
/// `others` are the names accepted for the other definitions of the group. Says whether anything changed.
pub fn reconcile(definition: &mut Value, others: &[&Value], now: Timestamp) -> bool {
    let before = definition["status"].clone();
    if !has_its_names(definition) {
        let spec = &definition["spec"];
        let taken = Taken::by(others);
        let (names, conflict) =
            taken.settle(&spec["names"], &definition["status"]["acceptedNames"]);
        definition["status"]["acceptedNames"] = names;
        let (status, reason, message) = match &conflict {
            Some((reason, message)) => ("False", *reason, message.as_str()),
            None => ("True", "NoConflicts", "no conflicts found"),
        };
        set_condition(definition, "NamesAccepted", status, reason, message, now);
        if conflict.is_some() && find(definition, "Established").is_none() {
            set_condition(
                definition,
                "Established",
                "False",
                "NotAccepted",
                "not all names are accepted",
                now,
            );
        }
    }
    if is_true(definition, "NamesAccepted") && !is_true(definition, "Established") {
        set_condition(
            definition,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
            now,
        );
    }
    approval(definition, now);
    definition["status"] != before
}

/// Groups of the Kubernetes project need a word from it.
fn approval(definition: &mut Value, now: Timestamp) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|suffix| {
        group == *suffix
            || group
                .strip_suffix(suffix)
                .is_some_and(|rest| rest.ends_with('.'))
    });
    if !protected {
        return;
    }
    let annotation = definition["metadata"]["annotations"][ANNOTATION]
        .as_str()
        .unwrap_or_default();
    let is_url = annotation.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && !host.starts_with('/') && !host.is_empty()
    });
    let (status, reason, message) = if annotation.is_empty() {
        (
            "False",
            "MissingAnnotation",
            format!("protected groups must have approval annotation \"{ANNOTATION}\", {SEE}"),
        )
    } else if annotation.starts_with("unapproved") {
        (
            "False",
            "UnapprovedAnnotation",
            format!("not approved: {}", quote(annotation)),
        )
    } else if is_url {
        (
            "True",
            "ApprovedAnnotation",
            format!("approved in {annotation}"),
        )
    } else {
        (
            "False",
            "InvalidAnnotation",
            format!(
                "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason \
                 starting with \"unapproved\", {SEE}"
            ),
        )
    };
    let kind = "KubernetesAPIApprovalPolicyConformant";
    set_condition(definition, kind, status, reason, &message, now);
}

/// The first step of removal: no new objects.
pub fn start_removal(definition: &mut Value, now: Timestamp) {
    set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
        now,
    );
}

/// The last step, after all objects are gone: the definition may go too.
pub fn finish_removal(definition: &mut Value, now: Timestamp) {
    let (reason, message) = if is_true(definition, "Established") {
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    set_condition(definition, "Terminating", "False", reason, message, now);
    if let Some(finalizers) = definition["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != CLEANUP_FINALIZER);
    }
}

/// Names that are in use within a group.
struct Taken<'a> {
    resources: Vec<&'a str>,
    kinds: Vec<&'a str>,
}

impl<'a> Taken<'a> {
    fn by(others: &[&'a Value]) -> Self {
        let mut taken = Self {
            resources: Vec::new(),
            kinds: Vec::new(),
        };
        for names in others {
            let text = |field: &str| names[field].as_str();
            taken.resources.extend(text("plural"));
            taken.resources.extend(text("singular"));
            let short = names["shortNames"].as_array().into_iter().flatten();
            taken.resources.extend(short.filter_map(Value::as_str));
            taken.kinds.extend(text("kind"));
            taken.kinds.extend(text("listKind"));
        }
        taken
    }

    /// The names that the definition gets, and the last conflict.
    fn settle(&self, wanted: &Value, accepted: &Value) -> (Value, Option<(&'static str, String)>) {
        let mut names = accepted.as_object().cloned().unwrap_or_default();
        let mut conflict = None;
        let in_use = |name: &str| format!("{} is already in use", quote(name));
        let mut settle = |names: &mut Map<String, Value>, field: &str, used: &[&str], reason| {
            let name = wanted[field].as_str().unwrap_or_default();
            if wanted[field] != accepted[field] && used.contains(&name) {
                conflict = Some((reason, in_use(name)));
            } else if let Some(name) = wanted.get(field) {
                names.insert(field.to_owned(), name.clone());
            }
        };
        settle(&mut names, "plural", &self.resources, "PluralConflict");
        settle(&mut names, "singular", &self.resources, "SingularConflict");
        let own: Vec<&Value> = accepted["shortNames"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        let taken: Vec<String> = wanted["shortNames"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|name| !own.contains(name))
            .filter_map(Value::as_str)
            .filter(|name| self.resources.contains(name))
            .map(in_use)
            .collect();
        match taken.as_slice() {
            [] => match wanted.get("shortNames") {
                Some(short) => {
                    names.insert("shortNames".into(), short.clone());
                }
                None => {
                    names.remove("shortNames");
                }
            },
            [one] => conflict = Some(("ShortNamesConflict", one.clone())),
            several => {
                conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", "))));
            }
        }
        let mut settle = |names: &mut Map<String, Value>, field: &str, reason| {
            let name = wanted[field].as_str().unwrap_or_default();
            if wanted[field] != accepted[field] && self.kinds.contains(&name) {
                conflict = Some((reason, in_use(name)));
            } else if let Some(name) = wanted.get(field) {
                names.insert(field.to_owned(), name.clone());
            }
        };
        settle(&mut names, "kind", "KindConflict");
        settle(&mut names, "listKind", "ListKindConflict");
        match wanted.get("categories") {
            Some(categories) => names.insert("categories".into(), categories.clone()),
            None => names.remove("categories"),
        };
        (names.into(), conflict)
    }
}
