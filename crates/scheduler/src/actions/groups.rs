//! What is written about groups of pods.

use jiff::Timestamp;
use plimsoll_sched::model::GroupCondition;
use serde_json::json;

use super::pods::seconds;
use super::request::{Refused, Verb, ask_json};

/// Where groups are, the newest API first.
const VERSIONS: &[&str] = &["v1beta1", "v1alpha2"];

/// Says whether a group could be scheduled. The list of conditions is merged by their types.
pub async fn patch(
    client: &kube::Client,
    (namespace, name, uid): (&str, &str, &str),
    observed_generation: i64,
    condition: &GroupCondition,
) -> Result<(), Refused> {
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [{
        "type": "PodGroupScheduled",
        "status": if condition.holds { "True" } else { "False" },
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": observed_generation,
        "lastTransitionTime": seconds(Timestamp::now()),
    }]}});
    let mut outcome = Ok(());
    for version in VERSIONS {
        let path = format!(
            "/apis/scheduling.k8s.io/{version}/namespaces/{namespace}/podgroups/{name}/status"
        );
        outcome = ask_json(client, Verb::StrategicPatch, &path, Some(&patch))
            .await
            .map(|_| ());
        if !outcome.as_ref().is_err_and(Refused::is_gone) {
            break;
        }
    }
    outcome
}
