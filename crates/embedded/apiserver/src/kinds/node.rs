//! Nodes, whose status comes with them when they register.

use serde_json::Value;

use super::addresses;
use super::at::{At, Errors, field};
use super::core::again;
use super::names::{self, NameRule};
use super::pod::{resources, scheduling::TAINT_EFFECTS};
use super::rules::Rules;
use super::shown;
use crate::field::{ErrorType, FieldError};
use crate::met::Met;

pub(super) static NODE: Rules = Rules {
    kind: "Node",
    prepare_update: |new, old| super::at::carry(new, old, "status"),
    validate: create,
    validate_update: Some(|new, old, errors| {
        again(new, false, NameRule::Subdomain, errors);
        create(new, errors);
        update(new, old, errors);
    }),
    validate_status: update,
    warnings: |node, _| {
        let mut out = Vec::new();
        if !field(node, &["spec", "externalID"]).is_null() {
            out.push(
                "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
            );
        }
        for cidr in At::root(node).dig(&["spec", "podCIDRs"]).items() {
            if let Some(words) = addresses::cidr_oddity(cidr.text()) {
                out.push(format!("{}: {words}", cidr.path()));
            }
        }
        out
    },
    ..Rules::cluster("")
};

fn create(node: &At<'_>, errors: &mut Errors) {
    let spec = node.get("spec");
    taints(
        &spec.get("taints"),
        &node.dig(&["metadata", "taints"]),
        errors,
    );
    amounts(node, errors);
    let swap = node.dig(&["status", "nodeInfo", "swap", "capacity"]);
    if swap.is_set() {
        let place = node.dig(&["metadata", "nodeSwapStatus", "capacity"]);
        errors.positive(&swap.reported_at(&place));
    }
    features(&node.dig(&["status", "declaredFeatures"]), errors);
    let cidrs = spec.get("podCIDRs");
    for cidr in cidrs.items() {
        errors.format(&cidr, names::cidr);
    }
    let broken = cidrs
        .texts()
        .enumerate()
        .find(|(_, cidr)| names::parse_cidr(cidr).is_none());
    if let Some((index, cidr)) = broken.filter(|_| cidrs.len() > 1) {
        errors.push(FieldError::internal(
            &cidrs.path(),
            format!("invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {cidr})"),
        ));
    }
    if cidrs.len() > 1 {
        let families: Vec<Option<bool>> = cidrs
            .texts()
            .map(|cidr| names::parse_cidr(cidr).map(|(address, _)| address.is_ipv6()))
            .collect();
        let dual = families.contains(&Some(true)) && families.contains(&Some(false));
        if !dual || cidrs.len() > 2 {
            errors.invalid(
                &cidrs,
                cidrs.value.clone(),
                "may specify no more than one CIDR for each IP family",
            );
        }
    }
}

/// Kubernetes reports taints as if they were metadata.
fn taints<'v>(taints: &At<'v>, reported: &At<'v>, errors: &mut Errors) {
    let mut seen = Met::default();
    for (index, taint) in taints.items().enumerate() {
        let taint = taint.reported_at(&reported.item(index));
        errors.format(&taint.get("key"), names::qualified_name);
        let value = taint.get("value");
        let complaints = names::label_value(value.text());
        if !complaints.is_empty() {
            errors.invalid(&value, value.text(), complaints.join(";"));
        }
        errors.choice(&taint.get("effect"), TAINT_EFFECTS);
        let pair = (taint.get("key").text(), taint.get("effect").text());
        if seen.contains(&pair) {
            let shown = shown::fields(&[
                ("Key", &pair.0.into()),
                ("Value", &value.text().into()),
                ("Effect", &pair.1.into()),
                ("TimeAdded", taint.get("timeAdded").value),
            ]);
            errors.push(FieldError::with_shown(
                ErrorType::Duplicate,
                &taint.path(),
                &shown,
                "taints must be unique by key and effect pair",
            ));
        }
        seen.push(pair);
    }
}

fn amounts(node: &At<'_>, errors: &mut Errors) {
    for list in ["capacity", "allocatable"] {
        let amounts = node.dig(&["status", list]);
        for (name, amount) in amounts.entries() {
            resources::resource_amount(&amount.reported_at(&amounts.get(name)), name, errors);
        }
    }
}

fn features(features: &At<'_>, errors: &mut Errors) {
    let mut previous: Option<&str> = None;
    for feature in features.items() {
        let name = feature.text();
        let shown = plimsoll_golang::strconv::quote(name);
        if name.len() > 253 {
            let detail =
                format!("invalid feature name {shown}: must be no more than 253 characters");
            errors.invalid(&feature, name, detail);
        } else if !is_feature(name) {
            let detail = format!(
                "invalid feature name {shown}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            );
            errors.invalid(&feature, name, detail);
        }
        match previous {
            Some(before) if before == name => errors.duplicate(&feature, name),
            Some(before) if before > name => {
                errors.invalid(&feature, name, "list must be sorted alphabetically");
            }
            _ => {}
        }
        previous = Some(name);
    }
}

fn is_feature(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name
            .split('/')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    amounts(new, errors);
    features(&new.dig(&["status", "declaredFeatures"]), errors);
    let mut seen: Met<&Value> = Met::default();
    for address in new.dig(&["status", "addresses"]).items() {
        if seen.contains(&address.value) {
            let shown = shown::fields(&[
                ("Type", address.get("type").value),
                ("Address", address.get("address").value),
            ]);
            errors.duplicate_shown(&address, &shown);
        }
        seen.push(address.value);
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let (cidrs, old_cidrs) = (spec.get("podCIDRs"), before.get("podCIDRs"));
    if !old_cidrs.is_empty() {
        let changed = if cidrs.len() == old_cidrs.len() {
            cidrs
                .texts()
                .zip(old_cidrs.texts())
                .filter(|(a, b)| a != b)
                .count()
        } else {
            1
        };
        for _ in 0..changed {
            errors.forbidden(
                &cidrs,
                "node updates may not change podCIDR except from \"\" to valid",
            );
        }
    }
    let (id, old_id) = (spec.get("providerID"), before.get("providerID"));
    if !old_id.is_empty() && id.text() != old_id.text() {
        errors.forbidden(
            &id,
            "node updates may not change providerID except from \"\" to valid",
        );
    }
    taints(
        &spec.get("taints"),
        &new.dig(&["metadata", "taints"]),
        errors,
    );
    if spec.get("externalID").text() != before.get("externalID").text() {
        errors.forbidden(&spec.get("externalID"), "may not be updated");
    }
}
