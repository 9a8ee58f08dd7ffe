//! POST to a pod's `eviction`: a deletion that disruption budgets have a say in.

use serde_json::{Value, json};

use super::actions::{BodyKind, set_condition};
use super::delete::{DeleteOptions, delete_object};
use super::options::write_options;
use super::{Call, is_being_deleted, meta};
use crate::answer::Answer;
use crate::kinds::Lookup;
use crate::kinds::policy::budget_covers;
use crate::status::StatusError;
use plimsoll_golang::time::show_seconds;

const EVICTION: BodyKind = BodyKind {
    group: "policy",
    version: "v1",
    kind: "Eviction",
    older: &["policy/v1beta1"],
};
const BUDGETS: &str = "poddisruptionbudgets.policy";
/// So many pods may be on their way out under one budget.
const MAX_DISRUPTED: usize = 2000;

pub async fn evict(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "CreateOptions", false)?;
    let mut warnings = Vec::new();
    let eviction = call.decode_as(EVICTION, body, &options, &mut warnings)?;
    let name = call.path.name.as_str();
    call.check_namespace(&call.path.namespace, name)?;
    if meta(&eviction, "name") != name {
        return Err(StatusError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let pod = call
        .server
        .get("pods", &call.path.namespace, name)
        .ok_or_else(|| call.not_found())?;
    let wish = &eviction["deleteOptions"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut deletion = DeleteOptions {
        grace: wish["gracePeriodSeconds"].as_i64(),
        uid: text(&wish["preconditions"]["uid"]),
        revision: text(&wish["preconditions"]["resourceVersion"]),
        orphan: wish["orphanDependents"].as_bool(),
        policy: text(&wish["propagationPolicy"]),
        dry_runs: Vec::new(),
        dry_run: options.dry_run || wish["dryRun"].as_array().is_some_and(|all| !all.is_empty()),
    };
    if !may_go_freely(&pod)
        && let Some(budget) = the_budget(call, &pod)?
    {
        if let Some(free) = unhealthy_may_go(&pod, &budget) {
            if !free {
                spend(call, &budget, name, deletion.dry_run).await?;
            }
            // What was judged must be what is deleted.
            deletion.revision = deletion
                .revision
                .or_else(|| Some(meta(&pod, "resourceVersion").to_owned()));
        } else {
            spend(call, &budget, name, deletion.dry_run).await?;
        }
    }
    let key = call.key();
    if !deletion.dry_run
        && deletion
            .uid
            .as_deref()
            .is_none_or(|uid| uid == meta(&pod, "uid"))
    {
        mark(call, &key).await?;
        if deletion.revision.as_deref() == Some(meta(&pod, "resourceVersion")) {
            deletion.revision = None;
        }
    }
    delete_object(call, &key, &deletion).await?;
    Ok(call.done(&warnings))
}

/// Pods that do not run, or are on their way out, disturb nobody.
fn may_go_freely(pod: &Value) -> bool {
    is_being_deleted(pod)
        || matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        )
}

fn the_budget(call: &Call<'_>, pod: &Value) -> Result<Option<Value>, StatusError> {
    let mut matching: Vec<Value> = call
        .server
        .list(BUDGETS, &call.path.namespace)
        .into_iter()
        .filter(|budget| budget_covers(budget, pod))
        .collect();
    match matching.len() {
        0 => Ok(None),
        1 => Ok(matching.pop()),
        _ => Err(StatusError::server_error(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )),
    }
}

/// What the budget's policy says about a pod that is not ready; `None`: the pod is ready.
fn unhealthy_may_go(pod: &Value, budget: &Value) -> Option<bool> {
    let ready = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    if ready {
        return None;
    }
    if budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
        return Some(true);
    }
    let current = budget["status"]["currentHealthy"].as_i64().unwrap_or(0);
    let desired = budget["status"]["desiredHealthy"].as_i64().unwrap_or(0);
    (current >= desired && desired > 0)
        .then_some(true)
        .or(Some(false))
}

/// Takes one disruption off the budget, if it has one left.
async fn spend(
    call: &Call<'_>,
    budget: &Value,
    pod: &str,
    dry_run: bool,
) -> Result<(), StatusError> {
    let name = meta(budget, "name");
    let key = format!("{}/{name}", call.path.namespace);
    call.amend(
        BUDGETS,
        &key,
        dry_run,
        || StatusError::not_found(call.served.resource.as_subject(), name),
        |budget| {
            let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
            let status = &budget["status"];
            if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
                let cause = format!("The disruption budget {name} is still being processed by the server.");
                return Err(refused(&cause, Some(10)));
            }
            let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
            let disrupted = status["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
            if disrupted > MAX_DISRUPTED {
                return Err(refused("DisruptedPods map too big - too many evictions not confirmed by PDB controller", None));
            }
            if allowed <= 0 {
                let desired = status["desiredHealthy"].as_i64().unwrap_or(0);
                let current = status["currentHealthy"].as_i64().unwrap_or(0);
                let cause = format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently");
                return Err(refused(&cause, None));
            }
            budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
            if allowed == 1 {
                set_condition(budget, json!({
                    "type": "DisruptionAllowed",
                    "status": "False",
                    "reason": "InsufficientPods",
                    "message": "",
                    "observedGeneration": budget["status"]["observedGeneration"],
                    "lastTransitionTime": show_seconds(call.now),
                }));
            }
            budget["status"]["disruptedPods"][pod] = show_seconds(call.now).into();
            Ok(())
        },
    )
    .await
    .map(|_| ())
}

fn refused(cause: &str, retry_after: Option<u32>) -> StatusError {
    let mut failure = StatusError::new(
        http::StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    failure.details.get_or_insert_default().insert(
        "causes".into(),
        json!([{"reason": "DisruptionBudget", "message": cause}]),
    );
    failure.retry_after = retry_after;
    failure
}

/// Whoever finds the pod gone can tell why.
async fn mark(call: &Call<'_>, key: &str) -> Result<(), StatusError> {
    call.amend(
        "pods",
        key,
        false,
        || call.not_found(),
        |pod| {
            set_condition(
                pod,
                json!({
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting",
                    "lastProbeTime": null,
                    "lastTransitionTime": show_seconds(call.now),
                }),
            );
            Ok(())
        },
    )
    .await
    .map(|_| ())
}
