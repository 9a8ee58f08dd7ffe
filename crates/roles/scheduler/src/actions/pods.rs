//! What is written about pods: bindings, conditions, evictions.

use bytes::Bytes;
use jiff::Timestamp;
use plimsoll_sched::action::{NominatedNode, PodRef, ScheduledCondition};
use serde_json::{Map, Value, json};

use super::request::{Refused, Verb, ask};

fn path(pod: &PodRef, subresource: &str) -> String {
    format!(
        "/api/v1/namespaces/{}/pods/{}{subresource}",
        pod.namespace, pod.name
    )
}

/// Appends a text as JSON has it.
fn quoted(out: &mut String, text: &str) {
    // Names and UIDs have nothing to escape.
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\' && byte < 0x7f;
    if text.bytes().all(plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

pub fn binding(pod: &PodRef, node: &str) -> Bytes {
    let mut body = String::with_capacity(256);
    body.push_str(r#"{"apiVersion":"v1","kind":"Binding","metadata":{"namespace":"#);
    quoted(&mut body, &pod.namespace);
    body.push_str(r#","name":"#);
    quoted(&mut body, &pod.name);
    body.push_str(r#","uid":"#);
    quoted(&mut body, &pod.uid);
    body.push_str(r#"},"target":{"kind":"Node","name":"#);
    quoted(&mut body, node);
    body.push_str("}}");
    body.into()
}

pub async fn bind(client: &kube::Client, pod: &PodRef, node: &str) -> Result<(), Refused> {
    let path = path(pod, "/binding");
    ask(client, Verb::Post, &path, binding(pod, node), false).await?;
    Ok(())
}

/// The UID keeps a pod of the same name that came later from being meant.
pub fn status_patch(
    pod: &PodRef,
    condition: Option<&ScheduledCondition>,
    nominated: &NominatedNode,
    now: Timestamp,
) -> Value {
    let mut status = Map::new();
    if let Some(condition) = condition {
        let mut written = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastProbeTime": null,
        });
        if condition.is_new {
            written["lastTransitionTime"] = seconds(now).into();
        }
        if condition.observed_generation != 0 {
            written["observedGeneration"] = condition.observed_generation.into();
        }
        status.insert("conditions".to_owned(), json!([written]));
    }
    match nominated {
        NominatedNode::Keep => {}
        NominatedNode::Clear => {
            status.insert("nominatedNodeName".to_owned(), Value::Null);
        }
        NominatedNode::Set(node) => {
            status.insert("nominatedNodeName".to_owned(), (&**node).into());
        }
    }
    json!({"metadata": {"uid": &*pod.uid}, "status": status})
}

pub fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub async fn patch_status(
    client: &kube::Client,
    pod: &PodRef,
    condition: Option<&ScheduledCondition>,
    nominated: &NominatedNode,
) -> Result<(), Refused> {
    let patch = status_patch(pod, condition, nominated, Timestamp::now());
    write_status(client, pod, &patch).await
}

pub async fn write_status(
    client: &kube::Client,
    pod: &PodRef,
    patch: &Value,
) -> Result<(), Refused> {
    let body = Bytes::from(patch.to_string());
    let path = path(pod, "/status");
    ask(client, Verb::StrategicPatch, &path, body, true).await?;
    Ok(())
}

/// The condition `DisruptionTarget` of a victim, for its controller.
fn disruption_patch(victim: &PodRef, generation: i64, message: &str, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": seconds(now),
    });
    if generation != 0 {
        condition["observedGeneration"] = generation.into();
    }
    json!({"metadata": {"uid": &*victim.uid}, "status": {"conditions": [condition]}})
}

/// Says why first, so that its controller knows, then deletes it.
pub async fn evict(
    client: &kube::Client,
    victim: &PodRef,
    generation: i64,
    message: &str,
) -> Result<(), Refused> {
    let patch = disruption_patch(victim, generation, message, Timestamp::now());
    write_status(client, victim, &patch).await?;
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": &*victim.uid},
    });
    let body = Bytes::from(options.to_string());
    ask(client, Verb::Delete, &path(victim, ""), body, false).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> PodRef {
        PodRef {
            namespace: "ns".into(),
            name: "p".into(),
            uid: "u".into(),
            resource_version: "1".into(),
        }
    }

    #[test]
    fn a_binding() {
        let body: Value = serde_json::from_slice(&binding(&pod(), "n\"1")).unwrap();
        assert_eq!(
            body,
            json!({"apiVersion": "v1", "kind": "Binding",
                "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
                "target": {"kind": "Node", "name": "n\"1"}})
        );
    }

    #[test]
    fn a_condition() {
        let condition = ScheduledCondition {
            reason: "Unschedulable",
            message: "0/1 nodes are available: 1 Insufficient cpu.".into(),
            observed_generation: 2,
            is_new: true,
        };
        let now = "2026-01-02T03:04:05.9Z".parse().unwrap();
        let patch = status_patch(&pod(), Some(&condition), &NominatedNode::Clear, now);
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": null, "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient cpu.",
                "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 2}]}})
        );
        let set = NominatedNode::Set("n".into());
        let patch = status_patch(&pod(), None, &set, now);
        assert_eq!(patch["status"], json!({"nominatedNodeName": "n"}));
    }

    #[test]
    fn a_victims_condition_has_its_generation() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let patch = disruption_patch(&pod(), 3, "make room", now);
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u"}, "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "make room", "lastProbeTime": null,
                "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 3}]}})
        );
    }
}
