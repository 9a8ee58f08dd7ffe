//! What pods ask for: requests and limits, their sums over containers, and the quality of service that follows.

use super::containers::Claims;
pub use super::totals::{Amounts, aggregate, default_pod_level, pod_total, quality_of_service};
use crate::kinds::at::{At, Errors, NOT_NEGATIVE};
use crate::kinds::names;
use crate::kinds::quantity::Quantity;
use crate::met::Met;

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

const NOT_INTEGER: &str = "must be an integer";

pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Not qualified by a foreign domain.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

pub fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// The name of something that can be asked for or counted.
pub fn resource_name(at: &At<'_>, name: &str, errors: &mut Errors) -> bool {
    let before = errors.0.len();
    errors.format_of(at, name, names::qualified_name);
    if errors.0.len() > before {
        return false;
    }
    let standard =
        STANDARD.contains(&name) || is_huge_page(name) || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !standard {
        errors.invalid(
            at,
            name,
            "must be a standard resource type or fully qualified",
        );
        return false;
    }
    true
}

pub fn container_resource_name(at: &At<'_>, name: &str, errors: &mut Errors) {
    resource_name(at, name, errors);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_page(name) {
            errors.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

/// A name in a limit range.
pub fn limited_name(at: &At<'_>, name: &str, of_containers: bool, errors: &mut Errors) {
    if of_containers {
        container_resource_name(at, name, errors);
    } else {
        resource_name(at, name, errors);
    }
}

/// Everything standard can be limited by a quota, but storage only as a request.
pub fn is_quota_name(name: &str) -> bool {
    (STANDARD.contains(&name) && name != "storage")
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}

fn pod_resource_name(at: &At<'_>, name: &str, errors: &mut Errors) {
    if resource_name(at, name, errors) && !is_pod_level(name) {
        errors.push(crate::field::FieldError::not_supported(
            &at.path(),
            name,
            &["cpu", "hugepages-", "memory"],
        ));
    }
}

pub(super) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// An amount at its resource: not negative, and whole where things are counted.
pub fn resource_amount(at: &At<'_>, name: &str, errors: &mut Errors) {
    let amount = Quantity::of(at.text());
    if amount < Quantity(0) {
        errors.invalid(at, at.text(), NOT_NEGATIVE);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !amount.is_whole() {
        errors.invalid(at, at.text(), NOT_INTEGER);
    }
}

#[derive(Debug)]
pub enum Of {
    Container,
    Pod,
}

/// Requests and limits. `claims` are the names of the pod's resource claims.
pub fn requirements(at: &At<'_>, of: &Of, claims: &Claims<'_>, errors: &mut Errors) {
    let (limits, requests) = (at.get("limits"), at.get("requests"));
    check_name_amount(&limits, of, errors);
    for (name, request) in requests.entries() {
        check_one(&request, name, of, errors);
        let limit = limits.get(name);
        let amount = Quantity::of(request.text());
        if limit.is_set() {
            let bound = Quantity::of(limit.text());
            let complaint = if amount != bound && !may_overcommit(name) {
                Some("equal to")
            } else if amount > bound {
                Some("less than or equal to")
            } else {
                None
            };
            if let Some(complaint) = complaint {
                errors.invalid(
                    &requests,
                    request.text(),
                    format!("must be {complaint} {name} limit of {}", limit.text()),
                );
            }
        } else if !may_overcommit(name) {
            errors.required(
                &limits,
                "Limit must be set for non overcommitable resources",
            );
        }
        huge_page_amount(&request, name, errors);
    }
    let any = |wanted: fn(&str) -> bool| {
        [&limits, &requests]
            .into_iter()
            .any(|list| list.entries().any(|(name, _)| wanted(name)))
    };
    if any(is_huge_page) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
    claim_names(&at.get("claims"), claims, errors);
}

fn check_name_amount(list: &At<'_>, of: &Of, errors: &mut Errors) {
    for (name, amount) in list.entries() {
        check_one(&amount, name, of, errors);
        huge_page_amount(&amount, name, errors);
    }
}

fn check_one(amount: &At<'_>, name: &str, of: &Of, errors: &mut Errors) {
    match of {
        Of::Container => container_resource_name(amount, name, errors),
        Of::Pod => pod_resource_name(amount, name, errors),
    }
    resource_amount(amount, name, errors);
}

fn huge_page_amount(amount: &At<'_>, name: &str, errors: &mut Errors) {
    let Some(size) = name.strip_prefix("hugepages-") else {
        return;
    };
    let divisible = Quantity::parse(size)
        .is_some_and(|size| size.0 > 0 && Quantity::of(amount.text()).0 % size.0 == 0);
    if !divisible {
        let detail = format!(
            "{} is not positive integer multiple of {name}",
            amount.text()
        );
        errors.invalid(amount, amount.text(), detail);
    }
}

fn claim_names(claims: &At<'_>, known: &Claims<'_>, errors: &mut Errors) {
    let mut seen: Met<String> = Met::default();
    // Those of which a part was asked for.
    let mut parts: Met<&str> = Met::default();
    for claim in claims.items() {
        let name = claim.get("name").text();
        if name.is_empty() {
            errors.required(&claim, "");
            continue;
        }
        if seen.contains(&name.to_owned()) {
            errors.duplicate(&claim, name);
        } else {
            let request = claim.get("request");
            let mut key = name.to_owned();
            if !request.is_empty() {
                errors.format(&request, names::label);
                key = format!("{name}/{}", request.text());
            }
            if seen.contains(&key) {
                errors.duplicate(&claim, key.as_str());
            } else if request.is_empty() {
                for _ in 0..parts.times(&name) {
                    errors.duplicate(&claim, name);
                }
            }
            if !request.is_empty() {
                parts.push(name);
            }
            seen.push(key);
        }
        if !known.names.contains(&name) && !errors.is_full() {
            let detail = if known.shown.is_empty() {
                "must be one of the names in pod.spec.resourceClaims which is empty".to_owned()
            } else {
                format!(
                    "must be one of the names in pod.spec.resourceClaims: {}",
                    known.shown
                )
            };
            errors.push(crate::field::FieldError::not_found_because(
                &claim.path(),
                name,
                &detail,
            ));
        }
    }
}

/// The pod's own requests and limits against those of its containers.
pub fn pod_level(spec: &At<'_>, claims: &Claims<'_>, errors: &mut Errors) {
    let own = spec.get("resources");
    if !own.is_set() {
        return;
    }
    if spec.dig(&["os", "name"]).text() == "windows" {
        errors.forbidden(&own, "may not be set for a windows pod");
        return;
    }
    if own.get("claims").is_set() {
        errors.forbidden(
            &own.get("claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    requirements(&own, &Of::Pod, claims, errors);
    for list in ["requests", "limits"] {
        for (name, (amount, like)) in aggregate(spec.value, list) {
            let stated = own.get(list).key(name);
            let checked = list == "requests" || is_huge_page(name);
            if checked && stated.is_set() && amount > Quantity::of(stated.text()) {
                errors.invalid(
                    &stated,
                    stated.text(),
                    format!(
                        "must be greater than or equal to aggregate container {list} of {}",
                        amount.written_like(like)
                    ),
                );
            }
        }
    }
    for (index, container) in spec.get("containers").items().enumerate() {
        for (name, limit) in container.dig(&["resources", "limits"]).entries() {
            let stated = own.get("limits").get(name);
            if stated.is_set() && Quantity::of(limit.text()) > Quantity::of(stated.text()) {
                let place = own.get("containers").item(index).key(name).get("limits");
                errors.invalid(
                    &place,
                    limit.text(),
                    format!(
                        "must be less than or equal to pod limits of {}",
                        stated.text()
                    ),
                );
            }
        }
    }
}
