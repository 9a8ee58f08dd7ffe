//! Quotas: what they may say, and what they still allow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::at::{At, Errors, field, text};
use super::pod::resources;
use super::quantity::Quantity;
use super::rules::Rules;
use super::{Lookup, diff};
use crate::met::Met;
use crate::status::{StatusError, Subject};

pub(super) static RESOURCE_QUOTA: Rules = Rules {
    kind: "ResourceQuota",
    status: true,
    validate: quota,
    validate_update: Some(|new, old, errors| {
        quota(new, errors);
        let (scopes, before) = (new.dig(&["spec", "scopes"]), old.dig(&["spec", "scopes"]));
        let set = |list: &At<'_>| list.texts().map(str::to_owned).collect::<BTreeSet<_>>();
        if set(&scopes) != set(&before) {
            errors.invalid(&scopes, scopes.value.clone(), "field is immutable");
        }
    }),
    validate_status: |new, _, errors| {
        for list in ["hard", "used"] {
            for (name, amount) in new.dig(&["status", list]).entries() {
                quota_name(&amount, name, errors);
                resources::resource_amount(&amount, name, errors);
            }
        }
    },
    ..Rules::namespaced("")
};

const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

fn quota_name(at: &At<'_>, name: &str, errors: &mut Errors) {
    resources::resource_name(at, name, errors);
    let standard = resources::is_quota_name(name);
    if !name.contains('/') && !standard {
        errors.invalid(at, name, "must be a standard resource for quota");
    }
}

fn quota(quota: &At<'_>, errors: &mut Errors) {
    let spec = quota.get("spec");
    let hard = spec.get("hard");
    for (name, amount) in hard.entries() {
        quota_name(&amount, name, errors);
        resources::resource_amount(&amount, name, errors);
    }
    let scopes = spec.get("scopes");
    // How many resources have nothing to do with a scope.
    let mut foreign: HashMap<&str, usize> = HashMap::new();
    let mut seen = Met::default();
    for scope in scopes.texts() {
        if errors.is_full() {
            return;
        }
        if !SCOPES.contains(&scope) {
            errors.invalid(&scopes, scopes.value.clone(), UNSUPPORTED);
        }
        let misapplied = *foreign
            .entry(scope)
            .or_insert_with(|| misapplied(scope, &hard));
        for _ in 0..misapplied {
            errors.invalid(&scopes, scopes.value.clone(), MISAPPLIED);
        }
        seen.push(scope);
    }
    conflicts(&seen, &scopes, &scopes, errors);
    let selector = spec.get("scopeSelector");
    let expressions = selector.get("matchExpressions");
    let mut seen = Met::default();
    for expression in expressions.items() {
        if errors.is_full() {
            return;
        }
        let scope = expression.get("scopeName").text();
        let known = expression
            .get("scopeName")
            .reported_at(&expressions.get("scopeName"));
        if !SCOPES.contains(&scope) {
            errors.invalid(&known, scope, UNSUPPORTED);
        }
        let misapplied = *foreign
            .entry(scope)
            .or_insert_with(|| misapplied(scope, &hard));
        for _ in 0..misapplied {
            let shown = diff::compact("*ScopeSelector", selector.value);
            errors.invalid_shown(&expressions, &shown, MISAPPLIED);
        }
        scope_expression(&expression, &expressions, errors);
        seen.push(scope);
    }
    conflicts(&seen, &expressions, &scopes, errors);
}

const UNSUPPORTED: &str = "unsupported scope";
const MISAPPLIED: &str = "unsupported scope applied to resource";

/// Problems of expressions are reported at their list.
fn scope_expression<'v>(expression: &At<'v>, list: &At<'v>, errors: &mut Errors) {
    let [name, operator, values] = ["scopeName", "operator", "values"]
        .map(|field| expression.get(field).reported_at(&list.get(field)));
    let of_classes = ["PriorityClass", "VolumeAttributesClass"].contains(&name.text());
    if SCOPES.contains(&name.text()) && !of_classes && operator.text() != "Exists" {
        errors.invalid(&operator, operator.text(), "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
    }
    match operator.text() {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.required(
                    &values,
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                );
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                errors.invalid(
                    &values,
                    values.value.clone(),
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                );
            }
        }
        other => errors.invalid(&operator, other, "not a valid selector operator"),
    }
}

/// Limited resources that have nothing to do with the scope.
fn misapplied(scope: &str, hard: &At<'_>) -> usize {
    let fits = |name: &str| match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&name),
        scope if SCOPES.contains(&scope) => [
            "pods",
            "cpu",
            "memory",
            "limits.cpu",
            "limits.memory",
            "requests.cpu",
            "requests.memory",
        ]
        .contains(&name),
        _ => true,
    };
    let limited = hard.entries().map(|(name, _)| name);
    limited
        .filter(|name| resources::is_quota_name(name) && !fits(name))
        .count()
}

fn conflicts(seen: &Met<&str>, at: &At<'_>, scopes: &At<'_>, errors: &mut Errors) {
    for pair in [
        ["BestEffort", "NotBestEffort"],
        ["Terminating", "NotTerminating"],
    ] {
        if pair.iter().all(|scope| seen.contains(scope)) {
            errors.invalid(at, scopes.value.clone(), "conflicting scopes");
        }
    }
}

/// What one more object of a resource takes of each thing that quotas may limit. `resource` is qualified:
/// `pods`, `leases.coordination.k8s.io`.
fn usage(resource: &str, object: &Value) -> BTreeMap<String, (Quantity, String)> {
    let mut used = BTreeMap::new();
    let mut take = |name: &str, amount: Quantity, like: &str| {
        used.insert(name.to_owned(), (amount, like.to_owned()));
    };
    let one = Quantity::of("1");
    take(&format!("count/{resource}"), one, "1");
    const COUNTED: &[&str] = &[
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
    ];
    if COUNTED.contains(&resource) {
        take(resource, one, "1");
    }
    match resource {
        "pods" => {
            let spec = field(object, &["spec"]);
            for list in ["requests", "limits"] {
                for (name, (amount, like)) in resources::pod_total(spec, list) {
                    take(&format!("{list}.{name}"), amount, like);
                    if list == "requests" && !name.contains('/') {
                        take(name, amount, like);
                    }
                }
            }
        }
        "persistentvolumeclaims" => {
            let size = text(object, &["spec", "resources", "requests", "storage"]);
            let class = text(object, &["spec", "storageClassName"]);
            take("requests.storage", Quantity::of(size), size);
            if !class.is_empty() {
                let name = format!("{class}.storageclass.storage.k8s.io/requests.storage");
                take(&name, Quantity::of(size), size);
            }
        }
        "services" => {
            let ports = field(object, &["spec", "ports"])
                .as_array()
                .map_or(0, Vec::len);
            match text(object, &["spec", "type"]) {
                "NodePort" => take("services.nodeports", Quantity::of(&ports.to_string()), "1"),
                "LoadBalancer" => {
                    take("services.loadbalancers", one, "1");
                    take("services.nodeports", Quantity::of(&ports.to_string()), "1");
                }
                _ => {}
            }
        }
        _ => {}
    }
    used
}

/// Whether a quota that is limited to scopes looks at this object.
fn in_scope(quota: &Value, object: &Value) -> bool {
    let spec = At::root(quota).get("spec");
    let pod = field(object, &["spec"]);
    let holds = |scope: &str| {
        let terminating = field(pod, &["activeDeadlineSeconds"]).as_i64().is_some();
        let best_effort = resources::quality_of_service(pod) == "BestEffort";
        match scope {
            "Terminating" => terminating,
            "NotTerminating" => !terminating,
            "BestEffort" => best_effort,
            "NotBestEffort" => !best_effort,
            "PriorityClass" => !text(pod, &["priorityClassName"]).is_empty(),
            _ => false,
        }
    };
    let expressions = spec.dig(&["scopeSelector", "matchExpressions"]);
    spec.get("scopes").texts().all(holds)
        && expressions.items().all(|expression| {
            let class = text(pod, &["priorityClassName"]);
            let among = expression.get("values").texts().any(|value| value == class);
            let scope = expression.get("scopeName").text();
            match (scope, expression.get("operator").text()) {
                ("PriorityClass", "In") => among,
                ("PriorityClass", "NotIn") => !among,
                ("PriorityClass", "DoesNotExist") => class.is_empty(),
                _ => holds(scope),
            }
        })
}

/// Whether there is room for a new or changed object. Returns the quotas that it counts against, with their new usage,
/// for the server to store before the object.
pub fn charge(
    resource: &str,
    object: &Value,
    old: Option<&Value>,
    world: &dyn Lookup,
) -> Result<Vec<Value>, StatusError> {
    // Other kinds are counted when they come, and cannot grow.
    if old.is_some() && !["services", "persistentvolumeclaims"].contains(&resource) {
        return Ok(Vec::new());
    }
    let namespace = text(object, &["metadata", "namespace"]);
    let mut charged = Vec::new();
    if namespace.is_empty() {
        return Ok(charged);
    }
    let mut taken = usage(resource, object);
    if let Some(old) = old {
        let before = usage(resource, old);
        for (name, (amount, _)) in &mut taken {
            if let Some((earlier, _)) = before.get(name) {
                *amount = Quantity(amount.0.saturating_sub(earlier.0));
            }
        }
        taken.retain(|_, (amount, _)| *amount > Quantity(0));
    }
    for mut quota in world.list("resourcequotas", namespace) {
        let hard = field(&quota, &["status", "hard"]).clone();
        let limited: Vec<(&String, &Value)> = hard
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| resource == "pods" && is_compute(name) || taken.contains_key(*name))
            .collect();
        if limited.is_empty() || (resource == "pods" && !in_scope(&quota, object)) {
            continue;
        }
        let name = text(&quota, &["metadata", "name"]).to_owned();
        if resource == "pods" {
            stated(object, &name, limited.iter().map(|(name, _)| name.as_str()))?;
        }
        let mut exceeded: Vec<[String; 3]> = Vec::new();
        let before = field(&quota, &["status", "used"]).clone();
        for (what, bound) in limited {
            let Some((amount, like)) = taken.get(what) else {
                continue;
            };
            let bound = bound.as_str().unwrap_or_default();
            let used = match text(&quota, &["status", "used", what]) {
                "" => "0".to_owned(),
                used => used.to_owned(),
            };
            let total = Quantity::of(&used) + *amount;
            if total > Quantity::of(bound) {
                let requested = amount.written_like(like);
                exceeded.push(
                    [(what, requested), (what, used), (what, bound.to_owned())]
                        .map(|(what, amount)| format!("{what}={amount}")),
                );
            } else {
                quota["status"]["used"][what] = json!(total.written_like(bound));
            }
        }
        if !exceeded.is_empty() {
            let joined = |part: usize| -> String {
                let parts: Vec<&str> = exceeded.iter().map(|one| one[part].as_str()).collect();
                parts.join(",")
            };
            let why = format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                joined(0),
                joined(1),
                joined(2)
            );
            return Err(refused(resource, object, &why));
        }
        if *field(&quota, &["status", "used"]) != before {
            charged.push(quota);
        }
    }
    Ok(charged)
}

fn is_compute(name: &str) -> bool {
    let name = name
        .strip_prefix("requests.")
        .or_else(|| name.strip_prefix("limits."))
        .unwrap_or(name);
    ["cpu", "memory"].contains(&name)
}

/// Where cpu or memory is limited, every container says what it needs of it.
fn stated<'n>(
    pod: &Value,
    quota: &str,
    limited: impl Iterator<Item = &'n str>,
) -> Result<(), StatusError> {
    let spec = At::root(pod).get("spec");
    if spec.get("resources").is_set() {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for what in limited.filter(|what| is_compute(what)) {
        let (list, name) = match what.split_once('.') {
            Some((list, name)) => (list, name),
            None => ("requests", what),
        };
        for container in ["containers", "initContainers"]
            .iter()
            .flat_map(|kind| spec.get(kind).items())
        {
            if field(container.value, &["resources", list, name]).is_null() {
                missing
                    .entry(what)
                    .or_default()
                    .insert(container.get("name").text());
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = missing
        .iter()
        .map(|(what, names)| {
            let names: Vec<&str> = names.iter().copied().collect();
            format!("{what} for: {}", names.join(","))
        })
        .collect();
    let why = format!("failed quota: {quota}: must specify {}", words.join("; "));
    Err(refused("pods", pod, &why))
}

fn refused(resource: &str, object: &Value, why: &str) -> StatusError {
    let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
    StatusError::forbidden(
        Subject { group, kind },
        text(object, &["metadata", "name"]),
        why,
    )
}
