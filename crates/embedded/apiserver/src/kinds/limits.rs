//! Limit ranges and quotas, and what limit ranges do to pods and claims.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Lookup;
use super::at::{At, Errors, field, text};
use super::core::again;
use super::names::{self, NameRule};
use super::pod::resources::{self, Amounts};
use super::quantity::Quantity;
use super::rules::Rules;
use crate::met::Met;
use crate::status::{StatusError, Subject};

pub(super) static LIMIT_RANGE: Rules = Rules {
    kind: "LimitRange",
    prepare_create: |range| {
        // One that is not named gets a name of its own.
        if text(range, &["metadata", "name"]).is_empty() {
            range["metadata"]["name"] = uuid::Uuid::new_v4().to_string().into();
        }
    },
    update_checks_metadata: true,
    validate: limit_range,
    validate_update: Some(|new, _, errors| {
        again(new, true, NameRule::Subdomain, errors);
        limit_range(new, errors);
    }),
    ..Rules::namespaced("")
};

fn limit_range(range: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for limit in range.dig(&["spec", "limits"]).items() {
        let kind = limit.get("type");
        let complaints = names::qualified_name(kind.text());
        if !complaints.is_empty() {
            errors.format(&kind, names::qualified_name);
        } else if !kind.text().contains('/')
            && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text())
        {
            errors.invalid(
                &kind,
                kind.text(),
                "must be a standard limit type or fully qualified",
            );
        }
        if seen.contains(&kind.text()) {
            errors.duplicate(&kind, kind.text());
        }
        seen.push(kind.text());
        let mut limited: BTreeSet<&str> = BTreeSet::new();
        for list in [
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ] {
            let amounts = limit.get(list);
            if kind.text() == "Pod" && list.starts_with("default") {
                if !amounts.is_empty() {
                    errors.forbidden(&amounts, "may not be specified when `type` is 'Pod'");
                }
                continue;
            }
            if list == "maxLimitRequestRatio" && kind.text() == "PersistentVolumeClaim" {
                let stated = ["min", "max"]
                    .iter()
                    .any(|list| limit.get(list).get("storage").is_set());
                if !stated {
                    errors.required(
                        &limit.get("limits"),
                        "either minimum or maximum storage value is required, but neither was provided",
                    );
                }
            }
            for (name, amount) in amounts.entries() {
                let of_containers = ["Pod", "Container"].contains(&kind.text());
                resources::limited_name(&amount, name, of_containers, errors);
                limited.insert(name);
            }
        }
        for name in limited {
            bounds(&limit, name, errors);
        }
    }
}

/// What the lists of a limit say about one resource must make sense together.
fn bounds<'v>(limit: &At<'v>, name: &'v str, errors: &mut Errors) {
    let stated = |list: &'static str| {
        let amount = limit.get(list).key(name);
        let counts = limit.get("type").text() != "Pod" || !list.starts_with("default");
        (counts && amount.is_set()).then_some(amount)
    };
    let above = |a: &At<'_>, b: &At<'_>| Quantity::of(a.text()) > Quantity::of(b.text());
    let [min, max, default, request, ratio] = [
        "min",
        "max",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ]
    .map(stated);
    // Lower, its words, higher, its words, where and with what it is reported.
    let pairs = [
        (&min, "min value", &max, "max value", &min, &min),
        (
            &min,
            "min value",
            &request,
            "default request value",
            &request,
            &request,
        ),
        (
            &request,
            "default request value",
            &max,
            "max value",
            &request,
            &request,
        ),
        (
            &request,
            "default request value",
            &default,
            "default limit value",
            &request,
            &request,
        ),
        (&min, "min value", &default, "default value", &default, &min),
        (&default, "default value", &max, "max value", &default, &max),
    ];
    for (low, low_words, high, high_words, place, shown) in pairs {
        if let (Some(low), Some(high), Some(place), Some(shown)) = (low, high, place, shown)
            && above(low, high)
        {
            let detail = format!(
                "{low_words} {} is greater than {high_words} {}",
                low.text(),
                high.text()
            );
            errors.invalid(place, shown.text(), detail);
        }
    }
    if let Some(ratio) = &ratio {
        let value = Quantity::of(ratio.text());
        if value < Quantity::of("1") {
            let detail = format!("ratio {} is less than 1", ratio.text());
            errors.invalid(ratio, ratio.text(), detail);
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            let (low, high) = (Quantity::of(min.text()).0, Quantity::of(max.text()).0);
            let bound = high as f64 / low as f64;
            if value.0 as f64 / 1e9 > bound {
                let detail = format!(
                    "ratio {} is greater than max/min = {bound:.6}",
                    ratio.text()
                );
                errors.invalid(ratio, ratio.text(), detail);
            }
        }
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && !resources::may_overcommit(name)
        && Quantity::of(default.text()) != Quantity::of(request.text())
    {
        let detail = format!(
            "default value {} must equal to defaultRequest value {} in {name}",
            default.text(),
            request.text()
        );
        errors.invalid(request, request.text(), detail);
    }
}

/// Fills in requests and limits of containers by the namespace's limit ranges.
pub fn admit_pod(pod: &mut Value, world: &dyn Lookup) {
    let namespace = text(pod, &["metadata", "namespace"]).to_owned();
    for range in &world.list("limitranges", &namespace) {
        default_resources(pod, range);
    }
}

/// Holds a pod to the namespace's limit ranges.
pub fn approve_pod(pod: &Value, world: &dyn Lookup) -> Result<(), StatusError> {
    let ranges = world.list("limitranges", text(pod, &["metadata", "namespace"]));
    let mut complaints = Vec::new();
    let spec = field(pod, &["spec"]);
    for limit in ranges.iter().flat_map(limits) {
        match text(limit, &["type"]) {
            "Container" => {
                for kind in ["containers", "initContainers"] {
                    for container in field(spec, &[kind]).as_array().into_iter().flatten() {
                        let [requests, limits] = ["requests", "limits"]
                            .map(|list| listed(field(container, &["resources", list])));
                        hold(limit, "Container", &requests, &limits, &mut complaints);
                    }
                }
            }
            "Pod" => {
                let requests = resources::pod_total(spec, "requests");
                let limits = resources::pod_total(spec, "limits");
                hold(limit, "Pod", &requests, &limits, &mut complaints);
            }
            _ => {}
        }
    }
    refuse("pods", pod, complaints)
}

/// Holds a claim to the namespace's limit ranges.
pub fn approve_claim(claim: &Value, world: &dyn Lookup) -> Result<(), StatusError> {
    let ranges = world.list("limitranges", text(claim, &["metadata", "namespace"]));
    let requests = listed(field(claim, &["spec", "resources", "requests"]));
    let mut complaints = Vec::new();
    const KIND: &str = "PersistentVolumeClaim";
    for limit in ranges
        .iter()
        .flat_map(limits)
        .filter(|limit| text(limit, &["type"]) == KIND)
    {
        for (name, bound) in stated(limit, "min") {
            at_least(
                KIND,
                name,
                bound,
                &requests,
                &Amounts::new(),
                &mut complaints,
            );
        }
        for (name, bound) in stated(limit, "max") {
            let words = format!("maximum {name} usage per {KIND} is {bound}");
            match requests.get(name) {
                None => complaints.push(format!("{words}.  No request is specified")),
                Some((amount, shown)) if *amount > Quantity::of(bound) => {
                    complaints.push(format!("{words}, but request is {shown}"));
                }
                Some(_) => {}
            }
        }
    }
    refuse("persistentvolumeclaims", claim, complaints)
}

fn limits(range: &Value) -> impl Iterator<Item = &Value> {
    field(range, &["spec", "limits"])
        .as_array()
        .into_iter()
        .flatten()
}

fn refuse(plural: &str, object: &Value, complaints: Vec<String>) -> Result<(), StatusError> {
    let why = match complaints.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let subject = Subject {
        group: "",
        kind: plural,
    };
    Err(StatusError::forbidden(
        subject,
        text(object, &["metadata", "name"]),
        &why,
    ))
}

fn listed(list: &Value) -> Amounts<'_> {
    let amounts = list.as_object().into_iter().flatten();
    amounts
        .map(|(name, amount)| {
            let shown = amount.as_str().unwrap_or_default();
            (name.as_str(), (Quantity::of(shown), shown))
        })
        .collect()
}

fn stated<'v>(limit: &'v Value, list: &str) -> impl Iterator<Item = (&'v str, &'v str)> {
    let amounts = field(limit, &[list]).as_object().into_iter().flatten();
    amounts.map(|(name, amount)| (name.as_str(), amount.as_str().unwrap_or_default()))
}

fn hold(
    limit: &Value,
    kind: &str,
    requests: &Amounts<'_>,
    limits: &Amounts<'_>,
    out: &mut Vec<String>,
) {
    for (name, bound) in stated(limit, "min") {
        at_least(kind, name, bound, requests, limits, out);
    }
    for (name, bound) in stated(limit, "max") {
        let words = format!("maximum {name} usage per {kind} is {bound}");
        let enforced = Quantity::of(bound);
        match (limits.get(name), requests.get(name)) {
            (None, _) => out.push(format!("{words}.  No limit is specified")),
            (Some(limit), _) if limit.0 > enforced => {
                out.push(format!("{words}, but limit is {}", shown(limit)));
            }
            (_, Some(request)) if request.0 > enforced => {
                out.push(format!("{words}, but request is {}", shown(request)));
            }
            _ => {}
        }
    }
    for (name, bound) in stated(limit, "maxLimitRequestRatio") {
        let words = format!("{name} max limit to request ratio per {kind} is {bound}");
        let amount = |list: &Amounts<'_>| {
            list.get(name)
                .map(|(amount, _)| amount.0)
                .filter(|a| *a != 0)
        };
        match (amount(requests), amount(limits)) {
            (None, _) => out.push(format!(
                "{words}, but no request is specified or request is 0"
            )),
            (_, None) => out.push(format!("{words}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit as f64 / request as f64;
                if ratio * 1e9 > Quantity::of(bound).0 as f64 {
                    out.push(format!("{words}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

fn at_least(
    kind: &str,
    name: &str,
    bound: &str,
    requests: &Amounts<'_>,
    limits: &Amounts<'_>,
    out: &mut Vec<String>,
) {
    let words = format!("minimum {name} usage per {kind} is {bound}");
    let enforced = Quantity::of(bound);
    match (requests.get(name), limits.get(name)) {
        (None, _) => out.push(format!("{words}.  No request is specified")),
        (Some(request), _) if request.0 < enforced => {
            out.push(format!("{words}, but request is {}", shown(request)));
        }
        (_, Some(limit)) if limit.0 < enforced => {
            out.push(format!("{words}, but limit is {}", shown(limit)));
        }
        _ => {}
    }
}

fn shown((amount, like): &(Quantity, &str)) -> String {
    amount.written_like(like)
}

fn default_resources(pod: &mut Value, range: &Value) {
    let mut set = Vec::new();
    for (list, words) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let containers = pod
            .pointer_mut(&format!("/spec/{list}"))
            .and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = text(container, &["name"]).to_owned();
            for (kind, from, noun) in [
                ("requests", "defaultRequest", "request"),
                ("limits", "default", "limit"),
            ] {
                let mut added = Vec::new();
                for limit in limits(range).filter(|limit| text(limit, &["type"]) == "Container") {
                    for (resource, amount) in stated(limit, from) {
                        if field(container, &["resources", kind, resource]).is_null() {
                            let Some(fields) = container.as_object_mut() else {
                                continue;
                            };
                            let own = fields
                                .entry("resources")
                                .or_insert_with(|| Map::new().into());
                            own[kind][resource] = amount.into();
                            added.push(resource.to_owned());
                        }
                    }
                }
                if !added.is_empty() {
                    added.sort();
                    set.push(format!("{} {noun} for {words} {name}", added.join(", ")));
                }
            }
        }
    }
    if !set.is_empty() {
        let note = format!("LimitRanger plugin set: {}", set.join("; "));
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = note.into();
    }
}
