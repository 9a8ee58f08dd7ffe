//! Roles, and who has them.

use super::at::{At, Errors};
use super::core::again;
use super::metadata;
use super::names::{self, NameRule};
use super::rules::Rules;
use super::shown;
use crate::field::FieldError;

pub(super) static KINDS: &[&Rules] = &[&ROLE, &CLUSTER_ROLE, &ROLE_BINDING, &CLUSTER_ROLE_BINDING];

const GROUP: &str = "rbac.authorization.k8s.io";

static ROLE: Rules = Rules {
    kind: "Role",
    names: NameRule::PathSegment,
    validate: |role, errors| rules(role, true, errors),
    validate_update: Some(|new, _, errors| {
        again(new, true, NameRule::PathSegment, errors);
        rules(new, true, errors);
    }),
    ..Rules::namespaced(GROUP)
};

static CLUSTER_ROLE: Rules = Rules {
    kind: "ClusterRole",
    names: NameRule::PathSegment,
    validate: cluster_role,
    validate_update: Some(|new, _, errors| {
        again(new, false, NameRule::PathSegment, errors);
        cluster_role(new, errors);
    }),
    ..Rules::cluster(GROUP)
};

static ROLE_BINDING: Rules = Rules {
    kind: "RoleBinding",
    names: NameRule::PathSegment,
    validate: |binding, errors| self::binding(binding, true, errors),
    validate_update: Some(|new, old, errors| {
        again(new, true, NameRule::PathSegment, errors);
        binding(new, true, errors);
        same_role(new, old, errors);
    }),
    ..Rules::namespaced(GROUP)
};

static CLUSTER_ROLE_BINDING: Rules = Rules {
    kind: "ClusterRoleBinding",
    names: NameRule::PathSegment,
    validate: |binding, errors| self::binding(binding, false, errors),
    validate_update: Some(|new, old, errors| {
        again(new, false, NameRule::PathSegment, errors);
        binding(new, false, errors);
        same_role(new, old, errors);
    }),
    ..Rules::cluster(GROUP)
};

fn rules(role: &At<'_>, namespaced: bool, errors: &mut Errors) {
    for rule in role.get("rules").items() {
        if rule.get("verbs").is_empty() {
            errors.required(&rule.get("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.get("nonResourceURLs");
        if urls.is_empty() {
            for (name, words) in [("apiGroups", "api group"), ("resources", "resource")] {
                if rule.get(name).is_empty() {
                    let detail = format!("resource rules must supply at least one {words}");
                    errors.required(&rule.get(name), &detail);
                }
            }
            continue;
        }
        if namespaced {
            errors.invalid(
                &urls,
                urls.value.clone(),
                "namespaced rules cannot apply to non-resource URLs",
            );
        }
        if ["apiGroups", "resources", "resourceNames"]
            .iter()
            .any(|name| !rule.get(name).is_empty())
        {
            errors.invalid(
                &urls,
                urls.value.clone(),
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
    }
}

fn cluster_role(role: &At<'_>, errors: &mut Errors) {
    rules(role, false, errors);
    let aggregation = role.get("aggregationRule");
    if !aggregation.is_set() {
        return;
    }
    let selectors = aggregation.get("clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(
            &selectors,
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        );
    }
    for selector in selectors.items() {
        let before = errors.0.len();
        metadata::selector(&selector, errors);
        if errors.0.len() > before {
            errors.invalid(
                &selector,
                serde_json::Value::Null,
                "invalid label selector.",
            );
        }
    }
}

fn binding(binding: &At<'_>, namespaced: bool, errors: &mut Errors) {
    let role = binding.get("roleRef");
    let group = role.get("apiGroup");
    if group.text() != GROUP {
        errors.not_supported(&group, &[GROUP]);
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&role.get("kind").text()) {
        errors.not_supported(&role.get("kind"), kinds);
    }
    let name = role.get("name");
    if name.is_empty() {
        errors.required(&name, "");
    } else {
        errors.format(&name, names::path_segment);
    }
    for subject in binding.get("subjects").items() {
        self::subject(&subject, namespaced, errors);
    }
}

fn subject(subject: &At<'_>, namespaced: bool, errors: &mut Errors) {
    let [kind, name, group, namespace] =
        ["kind", "name", "apiGroup", "namespace"].map(|field| subject.get(field));
    errors.non_empty(&name);
    match kind.text() {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.format(&name, names::subdomain);
            }
            if !group.is_empty() {
                errors.not_supported(&group, &[""]);
            }
            if !namespaced && namespace.is_empty() {
                errors.required(&namespace, "");
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                errors.not_supported(&group, &[GROUP]);
            }
        }
        other => errors.push(FieldError::not_supported(
            &kind.path(),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}

fn same_role(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let role = new.get("roleRef");
    if role.value != old.get("roleRef").value {
        let fields: Vec<(&str, &serde_json::Value)> =
            [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")]
                .into_iter()
                .map(|(shown, name)| (shown, role.get(name).value))
                .collect();
        errors.invalid_shown(&role, &shown::fields(&fields), "cannot change roleRef");
    }
}
