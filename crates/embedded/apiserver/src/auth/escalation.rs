//! Nobody grants what they do not have: checks on writes of roles and bindings.

use serde_json::Value;

use super::rbac::{self, Policy, RoleError, RoleRef};
use super::rules::{Action, Rule, Target};
use super::{MASTERS, User, coverage};
use crate::request::ResourcePath;
use crate::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;

/// For a create, update or patch of a role or binding, on the object as it would be stored, before its validation.
/// Any other resource passes. `old` is `None` on creation.
pub(super) fn check(
    policy: &Policy,
    user: &User,
    request: &ResourcePath,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    if request.group != rbac::GROUP || user.in_group(MASTERS) {
        return Ok(());
    }
    if old.is_some_and(|old| only_for_collection(object, old)) {
        return Ok(());
    }
    match request.resource.as_str() {
        "roles" | "clusterroles" => check_role(policy, user, request, object, old),
        "rolebindings" | "clusterrolebindings" => check_binding(policy, user, request, object),
        _ => Ok(()),
    }
}

fn check_role(
    policy: &Policy,
    user: &User,
    request: &ResourcePath,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let escalate = Action {
        verb: "escalate",
        on: Target::Resource {
            group: &request.group,
            resource: &request.resource,
            subresource: "",
            namespace: &request.namespace,
            name: &request.name,
        },
    };
    if policy.decide(user, escalate).allowed() {
        return Ok(());
    }
    confirm_held(policy, user, &request.namespace, &Rule::all_of(object))
        .map_err(|why| refused(request, object, &why))?;
    // An aggregated role can come to hold anything.
    if aggregates(object) || old.is_some_and(aggregates) {
        confirm_held(policy, user, &request.namespace, &full_authority()).map_err(|_| {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            refused(request, object, why)
        })?;
    }
    Ok(())
}

fn check_binding(
    policy: &Policy,
    user: &User,
    request: &ResourcePath,
    object: &Value,
) -> Result<(), StatusError> {
    let role = RoleRef::of(object);
    let resource = match role.kind.as_str() {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => "",
    };
    let bind = Action {
        verb: "bind",
        on: Target::Resource {
            group: object["roleRef"]["apiGroup"].as_str().unwrap_or_default(),
            resource,
            subresource: "",
            namespace: &request.namespace,
            name: &role.name,
        },
    };
    if !resource.is_empty() && policy.decide(user, bind).allowed() {
        return Ok(());
    }
    let rules = match policy.rules_of(&role, &request.namespace) {
        Ok(rules) => rules,
        // The answer names the binding's resource, though it is the role that is missing.
        Err(RoleError::NotFound { name, .. }) => {
            return Err(StatusError::not_found(subject(request), &name));
        }
        Err(other) => return Err(StatusError::server_error(other.to_string())),
    };
    confirm_held(policy, user, &request.namespace, rules)
        .map_err(|why| refused(request, object, &why))
}

fn confirm_held(
    policy: &Policy,
    user: &User,
    namespace: &str,
    wanted: &[Rule],
) -> Result<(), String> {
    let (held, unresolved) = policy.rules_for(user, namespace);
    let held = rbac::without_repetitions(held);
    let Some(missing) = coverage::missing(held.into_iter().flatten(), wanted) else {
        return Ok(());
    };
    let mut why = coverage::describe(&missing, &quote(&user.name), &user.groups);
    if !unresolved.is_empty() {
        why += &format!("; resolution errors: [{}]", rbac::joined(&unresolved));
    }
    Err(why)
}

/// `* on *.*`, and every path.
fn full_authority() -> [Rule; 2] {
    let star = || vec!["*".to_owned()];
    let resources = Rule {
        verbs: star(),
        api_groups: star(),
        resources: star(),
        ..Rule::default()
    };
    let paths = Rule {
        verbs: star(),
        non_resource_urls: star(),
        ..Rule::default()
    };
    [resources, paths]
}

fn aggregates(role: &Value) -> bool {
    let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
    selectors.as_array().is_some_and(|list| !list.is_empty())
}

/// Whether a change touches only what garbage collection needs to touch.
fn only_for_collection(new: &Value, old: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        object
    };
    stripped(new) == stripped(old)
}

fn refused(request: &ResourcePath, object: &Value, why: &str) -> StatusError {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    StatusError::forbidden(subject(request), name, why)
}

fn subject(request: &ResourcePath) -> Subject<'_> {
    Subject {
        group: &request.group,
        kind: &request.resource,
    }
}
