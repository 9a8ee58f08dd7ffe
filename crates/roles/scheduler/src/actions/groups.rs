//! What is written about groups of pods.

use jiff::Timestamp;
use plimsoll_sched::model::GroupCondition;
use serde_json::{Value, json};

use super::pods::seconds;
use super::request::{Refused, Verb, ask_json};

/// The newest API first, as they are followed.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha2"];

/// A group, and the generation of it that was looked at.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub generation: i64,
}

/// Says whether its pods have places.
pub async fn patch_status(
    client: &kube::Client,
    group: Group<'_>,
    condition: &GroupCondition,
) -> Result<(), Refused> {
    let patch = status_patch(group, condition, Timestamp::now());
    let mut outcome = Ok(());
    for version in VERSIONS {
        let path = format!(
            "/apis/scheduling.k8s.io/{version}/namespaces/{}/podgroups/{}/status",
            group.namespace, group.name
        );
        let asked = ask_json(client, Verb::StrategicPatch, &path, Some(&patch)).await;
        outcome = asked.map(drop);
        match &outcome {
            Err(refused) if refused.is_gone() => {}
            _ => break,
        }
    }
    outcome
}

fn status_patch(group: Group<'_>, condition: &GroupCondition, now: Timestamp) -> Value {
    json!({
        "metadata": {"uid": group.uid},
        "status": {"conditions": [{
            "type": "PodGroupScheduled",
            "status": if condition.holds { "True" } else { "False" },
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": group.generation,
            "lastTransitionTime": seconds(now),
        }]},
    })
}
