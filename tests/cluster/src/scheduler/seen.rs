//! What can be seen of a scheduler's work after a step, in a form that can be written down and compared.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_sched::sandbox::ObjectKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kinds::short_key;

/// So many attempts are recorded where the original tries again and again without a pause.
pub const ENDLESS: u64 = 1000;

/// Scores by node.
pub type Scores = BTreeMap<String, i64>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// What the server made of what it was given, beyond what it was given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stored: BTreeMap<String, Value>,
    /// Pods, claims, volumes and groups, with what schedulers write.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, Value>,
    /// Events that were not there before.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub events: BTreeSet<String>,
    /// Scheduling cycles, by how they ended. Whether errors came once or again is a matter of time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attempts: BTreeMap<String, u64>,
    /// Of pods that could choose between nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, Scores>,
}

/// Replaces UIDs by the names of what they belong to.
#[derive(Debug, Clone, Default)]
pub struct Uids(BTreeMap<String, String>);

impl Uids {
    pub fn insert(&mut self, uid: &str, key: &ObjectKey) {
        if !uid.is_empty() {
            self.0
                .insert(uid.to_owned(), format!("<{}>", short_key(key)));
        }
    }

    pub fn has(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    pub fn of(&self, name: &str) -> Option<&str> {
        let wanted = format!("<{name}>");
        let found = self.0.iter().find(|(_, key)| **key == wanted);
        found.map(|(uid, _)| uid.as_str())
    }

    pub fn mask(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (uid, key) in &self.0 {
            if text.contains(uid.as_str()) {
                text = text.replace(uid.as_str(), key);
            }
        }
        text
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer);
    found.and_then(Value::as_str).unwrap_or_default()
}

/// What an object is called here. Of claims that a scheduler makes, the server chooses the end of the name.
pub fn title(key: &ObjectKey, object: &Value) -> String {
    const MADE: &str = "-extended-resources-";
    let extended = "/metadata/annotations/resource.kubernetes.io~1extended-resource-claim";
    let title = short_key(key);
    match title.find(MADE) {
        Some(at) if object.pointer(extended).is_some() => {
            format!("{}<made>", &title[..at + MADE.len()])
        }
        _ => title,
    }
}

/// What is of interest in an object; `None` if nothing is.
pub fn digest(key: &ObjectKey, object: &Value, uids: &Uids) -> Option<Value> {
    let digest = match key.kind.as_str() {
        "Pod" => pod(object, uids),
        "PersistentVolumeClaim" => {
            let annotation = "/metadata/annotations/volume.kubernetes.io~1selected-node";
            let node = text(object, annotation);
            (!node.is_empty()).then(|| json!({"selected": node}))?
        }
        "PersistentVolume" => {
            let claim = text(object, "/spec/claimRef/name");
            (!claim.is_empty()).then(|| json!({"claim": claim}))?
        }
        "ResourceClaim" => claim(object)?,
        "PodGroup" => json!({"conditions": conditions(object, None, uids)}),
        _ => return None,
    };
    Some(digest)
}

fn pod(object: &Value, uids: &Uids) -> Value {
    let mut digest = json!({});
    for (name, pointer) in [
        ("node", "/spec/nodeName"),
        ("nominated", "/status/nominatedNodeName"),
    ] {
        let value = text(object, pointer);
        if !value.is_empty() {
            digest[name] = json!(value);
        }
    }
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        digest["terminating"] = json!(true);
    }
    for (name, kind) in [
        ("scheduled", "PodScheduled"),
        ("disrupted", "DisruptionTarget"),
    ] {
        let found = conditions(object, Some(kind), uids);
        // Of a pod that has a node, the condition says nothing more.
        let bound = digest.get("node").is_some() && name == "scheduled";
        if let Some(condition) = found.into_iter().next().filter(|_| !bound) {
            digest[name] = condition;
        }
    }
    if let Some(status) = object.pointer("/status/extendedResourceClaimStatus/requestMappings") {
        digest["extended"] = status.clone();
    }
    digest
}

/// `[status, reason, message]`, with the type in front if all are wanted. `DisruptionTarget` has its `observedGeneration`
/// at the end: nothing but the generation tells a controller which spec of the pod the condition is about.
fn conditions(object: &Value, kind: Option<&str>, uids: &Uids) -> Vec<Value> {
    let list = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter(|condition| kind.is_none_or(|kind| text(condition, "/type") == kind))
        .map(|condition| {
            let mut parts = vec![
                json!(text(condition, "/status")),
                json!(text(condition, "/reason")),
                json!(uids.mask(text(condition, "/message"))),
            ];
            if kind.is_none() {
                parts.insert(0, json!(text(condition, "/type")));
            }
            if kind == Some("DisruptionTarget") {
                parts.push(condition["observedGeneration"].clone());
            }
            Value::Array(parts)
        })
        .collect()
}

fn claim(object: &Value) -> Option<Value> {
    let mut digest = json!({});
    if let Some(allocation) = object
        .pointer("/status/allocation")
        .filter(|value| !value.is_null())
    {
        let mut devices = allocation
            .pointer("/devices/results")
            .cloned()
            .unwrap_or(json!([]));
        for device in devices.as_array_mut().into_iter().flatten() {
            if let Some(share) = device.get_mut("shareID") {
                *share = json!("<share>");
            }
        }
        digest["devices"] = devices;
        if let Some(nodes) = allocation
            .get("nodeSelector")
            .filter(|value| !value.is_null())
        {
            digest["nodes"] = nodes.clone();
        }
    }
    let pods = object
        .pointer("/status/reservedFor")
        .and_then(Value::as_array);
    let pods: Vec<&str> = pods
        .into_iter()
        .flatten()
        .map(|consumer| text(consumer, "/name"))
        .collect();
    if !pods.is_empty() {
        digest["reserved"] = json!(pods);
    }
    (digest != json!({})).then_some(digest)
}

/// One line an event. Which of several equal nodes it was is said by the pod.
pub fn event(regarding: &ObjectKey, parts: [&str; 5], uids: &Uids) -> String {
    let [kind, reason, action, note, controller] = parts;
    let mut note = uids.mask(note);
    if reason == "Scheduled"
        && let Some(end) = note.rfind(" to ")
    {
        note.truncate(end);
        note.push_str(" to <node>");
    }
    format!(
        "{}: {kind} {reason} {action} by {controller}: {note}",
        short_key(regarding)
    )
}

/// Where ours differs from what was recorded, in words; empty if nowhere.
pub fn differences(recorded: &Seen, ours: &Seen) -> Vec<String> {
    let mut found = Vec::new();
    let keys: BTreeSet<_> = recorded.objects.keys().chain(ours.objects.keys()).collect();
    for key in keys {
        let (theirs, mine) = (recorded.objects.get(key), ours.objects.get(key));
        if theirs == mine || equally_good(recorded, key, theirs, mine) {
            continue;
        }
        let show = |value: Option<&Value>| value.map_or("not there".to_owned(), Value::to_string);
        found.push(format!(
            "{key}:\n    theirs {}\n    ours   {}",
            show(theirs),
            show(mine)
        ));
    }
    for event in recorded.events.difference(&ours.events) {
        found.push(format!("missing event {event}"));
    }
    for event in ours.events.difference(&recorded.events) {
        found.push(format!("further event {event}"));
    }
    let mut attempts = ours.attempts.clone();
    for (word, count) in &mut attempts {
        if recorded.attempts.get(word) == Some(&ENDLESS) && *count > 0 {
            *count = ENDLESS;
        }
    }
    if recorded.attempts != attempts {
        found.push(format!(
            "attempts: theirs {:?}, ours {:?}",
            recorded.attempts, ours.attempts
        ));
    }
    for (pod, scores) in &recorded.scores {
        if ours.scores.get(pod) != Some(scores) {
            found.push(format!(
                "scores of {pod}: theirs {scores:?}, ours {:?}",
                ours.scores.get(pod)
            ));
        }
    }
    found
}

/// Whether they differ in the node only, and both nodes have the highest score.
fn equally_good(recorded: &Seen, key: &str, theirs: Option<&Value>, ours: Option<&Value>) -> bool {
    let (Some(theirs), Some(ours), Some(scores)) = (theirs, ours, recorded.scores.get(key)) else {
        return false;
    };
    let best = scores.values().max();
    let is_best = |value: &Value| scores.get(text(value, "/node")) == best;
    let mut same = ours.clone();
    if let Some(node) = theirs.get("node") {
        same["node"] = node.clone();
    }
    best.is_some() && same == *theirs && is_best(theirs) && is_best(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::kinds::parse_key;

    #[test]
    fn equal_scores_are_equally_good() {
        let recorded = Seen {
            objects: [("pod/p".to_owned(), json!({"node": "a"}))].into(),
            scores: [(
                "pod/p".to_owned(),
                [
                    ("a".to_owned(), 3),
                    ("b".to_owned(), 3),
                    ("c".to_owned(), 2),
                ]
                .into(),
            )]
            .into(),
            ..Seen::default()
        };
        let on = |node: &str| Seen {
            objects: [("pod/p".to_owned(), json!({"node": node}))].into(),
            ..recorded.clone()
        };
        assert_eq!(differences(&recorded, &on("b")), Vec::<String>::new());
        assert_eq!(differences(&recorded, &on("c")).len(), 1);
    }

    #[test]
    fn events_name_pods_instead_of_uids() {
        let mut uids = Uids::default();
        let key = parse_key("pod/q").unwrap();
        uids.insert("123-4", &key);
        let note = "Preempted by pod 123-4 on node n";
        let line = event(
            &key,
            ["Normal", "Preempted", "Preempting", note, "s"],
            &uids,
        );
        assert_eq!(
            line,
            "pod/q: Normal Preempted Preempting by s: Preempted by pod <pod/q> on node n"
        );
    }
}
