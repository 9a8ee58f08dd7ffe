//! What the default admission plugins do to pods: tolerations of failing nodes, priority, runtime class, limit ranges.

use serde_json::{Value, json};

use crate::kinds::Lookup;
use crate::kinds::at::{drop_void, field, same, text};
use crate::kinds::limits;
use crate::kinds::names::NameRule;
use crate::status::{StatusError, Subject};

pub fn admit(pod: &mut Value, old: Option<&Value>, world: &dyn Lookup) -> Result<(), StatusError> {
    if let Some(old) = old {
        keep_priority(pod, old);
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            drop_void(spec, "overhead");
        }
        tolerate_failing_nodes(pod);
        return Ok(());
    }
    limits::admit_pod(pod, world);
    tolerate_failing_nodes(pod);
    priority(pod, world)?;
    runtime_class(pod, world)
}

pub(super) fn forbidden(pod: &Value, why: &str) -> StatusError {
    let subject = Subject {
        group: "",
        kind: "pods",
    };
    StatusError::forbidden(subject, text(pod, &["metadata", "name"]), why)
}

/// Pods leave a node that has failed after five minutes, unless they say otherwise.
fn tolerate_failing_nodes(pod: &mut Value) {
    const EFFECT: &str = "NoExecute";
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerations = spec.get("tolerations").and_then(Value::as_array);
        let tolerated = tolerations.into_iter().flatten().any(|one| {
            let (own_key, effect) = (text(one, &["key"]), text(one, &["effect"]));
            (own_key == key || own_key.is_empty()) && (effect == EFFECT || effect.is_empty())
        });
        if !tolerated
            && let Value::Array(list) = spec.entry("tolerations").or_insert_with(|| json!([]))
        {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": EFFECT, "tolerationSeconds": 300,
            }));
        }
    }
}

fn keep_priority(pod: &mut Value, old: &Value) {
    for name in ["priority", "preemptionPolicy"] {
        let before = field(old, &["spec", name]);
        if field(pod, &["spec", name]).is_null() && !before.is_null() {
            pod["spec"][name] = before.clone();
        }
    }
}

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";

fn priority(pod: &mut Value, world: &dyn Lookup) -> Result<(), StatusError> {
    let name = text(pod, &["spec", "priorityClassName"]).to_owned();
    let class = if name.is_empty() {
        default_class(world)
    } else {
        let found = world.get(PRIORITY_CLASSES, "", &name);
        if found.is_none() {
            let why = format!("no PriorityClass with name {name} was found");
            return Err(forbidden(pod, &why));
        }
        found
    };
    let value = class.as_ref().map_or(0, |class| {
        field(class, &["value"]).as_i64().unwrap_or_default()
    });
    let policy = match &class {
        Some(class) => field(class, &["preemptionPolicy"]).clone(),
        None => json!("PreemptLowerPriority"),
    };
    if let Some(given) = field(pod, &["spec", "priority"]).as_i64()
        && given != value
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    let given = field(pod, &["spec", "preemptionPolicy"]);
    if !policy.is_null() && !given.is_null() && *given != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            given.as_str().unwrap_or_default(),
            policy.as_str().unwrap_or_default()
        );
        return Err(forbidden(pod, &why));
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    if let (true, Some(class)) = (name.is_empty(), &class) {
        let name = text(class, &["metadata", "name"]);
        spec.insert("priorityClassName".to_owned(), name.into());
    }
    spec.insert("priority".to_owned(), value.into());
    if !policy.is_null() {
        spec.insert("preemptionPolicy".to_owned(), policy);
    }
    Ok(())
}

/// Should there be several, the lowest counts.
pub fn default_class(world: &dyn Lookup) -> Option<Value> {
    world
        .list(PRIORITY_CLASSES, "")
        .into_iter()
        .filter(|class| class["globalDefault"] == true)
        .min_by_key(|class| class["value"].as_i64())
}

/// Refuses an overhead that no class stands for.
pub(super) fn approve_overhead(pod: &Value, world: &dyn Lookup) -> Result<(), StatusError> {
    let class = text(pod, &["spec", "runtimeClassName"]);
    let class = world.get("runtimeclasses.node.k8s.io", "", class);
    let has_overhead = class.is_some_and(|class| !class["overhead"].is_null());
    if field(pod, &["spec", "overhead"]).is_null() || has_overhead {
        return Ok(());
    }
    Err(forbidden(
        pod,
        "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
    ))
}

/// A name that fits into no path makes a question that cannot be asked, which the original takes for its own fault.
fn no_runtime_class(pod: &Value, name: &str) -> StatusError {
    if name.is_empty() {
        return StatusError::server_error("resource name may not be empty");
    }
    let shown = plimsoll_golang::strconv::quote(name);
    let complaints = NameRule::PathSegment.complaints(name, false);
    if complaints.is_empty() {
        return forbidden(
            pod,
            &format!("pod rejected: RuntimeClass {shown} not found"),
        );
    }
    StatusError::server_error(format!(
        "invalid resource name {shown}: [{}]",
        complaints.join(" ")
    ))
}

fn runtime_class(pod: &mut Value, world: &dyn Lookup) -> Result<(), StatusError> {
    let name = field(pod, &["spec", "runtimeClassName"])
        .as_str()
        .map(str::to_owned);
    let class = match &name {
        None => None,
        Some(name) => {
            let found = world.get("runtimeclasses.node.k8s.io", "", name);
            if found.is_none() {
                return Err(no_runtime_class(pod, name));
            }
            found
        }
    };
    let fixed = class.as_ref().map_or(Value::Null, |class| {
        field(class, &["overhead", "podFixed"]).clone()
    });
    let given = field(pod, &["spec", "overhead"]).clone();
    let has_overhead = class
        .as_ref()
        .is_some_and(|class| !class["overhead"].is_null());
    if has_overhead {
        let stated = given.as_object().is_some_and(|given| !given.is_empty());
        if stated && !same(&given, &fixed) {
            return Err(forbidden(
                pod,
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ));
        }
        if !fixed.is_null() {
            pod["spec"]["overhead"] = fixed;
        } else if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("overhead");
        }
    }
    match class {
        Some(class) => runtime_scheduling(pod, &class),
        None => Ok(()),
    }
}

fn runtime_scheduling(pod: &mut Value, class: &Value) -> Result<(), StatusError> {
    let selector = field(class, &["scheduling", "nodeSelector"]);
    for (key, value) in selector.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let own = field(pod, &["spec", "nodeSelector", key]).as_str();
        if let Some(own) = own.filter(|own| *own != value) {
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            );
            return Err(forbidden(pod, &why));
        }
        pod["spec"]["nodeSelector"][key] = value.into();
    }
    let added = field(class, &["scheduling", "tolerations"]).as_array();
    for toleration in added.into_iter().flatten() {
        let own = field(pod, &["spec", "tolerations"]).as_array();
        if own.is_some_and(|own| own.contains(toleration)) {
            continue;
        }
        match pod
            .pointer_mut("/spec/tolerations")
            .and_then(Value::as_array_mut)
        {
            Some(list) => list.push(toleration.clone()),
            None => pod["spec"]["tolerations"] = json!([toleration]),
        }
    }
    Ok(())
}
