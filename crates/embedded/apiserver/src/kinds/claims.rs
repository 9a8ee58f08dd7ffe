//! What becomes of claims to devices.

use crate::kinds::at::canonical;
use std::collections::HashSet;

use serde_json::Value;

use super::at::{At, Errors, IMMUTABLE, same};
use super::devices::{
    Requests, binding_conditions, configuration, pool_name, reference, references, requests_of,
    unique,
};
use super::pod::scheduling;
use super::storage::volumes::csi_driver_name;
use super::{diff, metadata, names, shown};

/// Who uses a claim, what it was given, and how that is.
pub(super) fn status(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let known = requests_of(&new.dig(&["spec", "devices"]));
    let reserved = status.get("reservedFor");
    for user in reserved.items() {
        for name in ["resource", "name", "uid"] {
            errors.non_empty(&user.get(name));
        }
    }
    unique(&reserved, |user| user.get("uid").text(), errors);
    let allocation = status.get("allocation");
    if !reserved.is_empty() && !allocation.is_set() {
        errors.forbidden(
            &reserved,
            "may not be specified when `allocated` is not set",
        );
    }
    let was_deleted = new.dig(&["metadata", "deletionTimestamp"]).is_set();
    let earlier = before.get("reservedFor").items();
    let earlier: HashSet<Value> = earlier.map(|user| canonical(user.value)).collect();
    let added = reserved
        .items()
        .any(|user| !earlier.contains(&canonical(user.value)));
    if allocation.is_set() && was_deleted && added {
        errors.forbidden(&reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set");
    }
    let results = allocation.dig(&["devices", "results"]);
    let allocated: HashSet<[String; 4]> = results.items().map(|one| device_parts(&one)).collect();
    for device in status.get("devices").items() {
        device_status(&device, &allocated, errors);
    }
    let earlier = before.get("allocation");
    if earlier.is_set() && allocation.is_set() {
        if !same(allocation.value, earlier.value) {
            let shown = diff::compact("AllocationResult", allocation.value);
            errors.invalid_shown(&allocation, &shown, IMMUTABLE);
        }
    } else if allocation.is_set() {
        self::allocated(&allocation, &known, errors);
    }
}

fn allocated(allocation: &At<'_>, known: &Requests<'_>, errors: &mut Errors) {
    let devices = allocation.get("devices");
    for result in devices.get("results").items() {
        reference(&result.get("request"), known, errors);
        csi_driver_name(&result.get("driver"), errors);
        pool_name(&result.get("pool"), errors);
        errors.format(&result.get("device"), names::label);
        binding_conditions(&result, errors);
    }
    for config in devices.get("config").items() {
        errors.choice(&config.get("source"), &["FromClaim", "FromClass"]);
        references(&config.get("requests"), known, errors);
        configuration(&config, errors);
    }
    let nodes = allocation.get("nodeSelector");
    if nodes.is_set() {
        scheduling::node_selector(&nodes, errors);
    }
}

/// What tells an allocated device from others.
fn device_parts(device: &At<'_>) -> [String; 4] {
    let part = |name: &str| device.value.get(name).and_then(Value::as_str);
    ["driver", "pool", "device", "shareID"].map(|name| part(name).unwrap_or_default().to_owned())
}

fn device_status(device: &At<'_>, allocated: &HashSet<[String; 4]>, errors: &mut Errors) {
    csi_driver_name(&device.get("driver"), errors);
    pool_name(&device.get("pool"), errors);
    errors.format(&device.get("device"), names::label);
    let identity = device_parts(device);
    if !allocated.contains(&identity) {
        let [driver, pool, name, share] = identity.map(Value::from);
        let shown = shown::fields(&[
            ("Driver", &driver),
            ("Pool", &pool),
            ("Device", &name),
            ("ShareID", &share),
        ]);
        errors.invalid_shown(device, &shown, "must be an allocated device in the claim");
    }
    metadata::conditions(&device.get("conditions"), errors);
    for address in device.dig(&["networkData", "ips"]).items() {
        if names::parse_cidr(address.text()).is_none() {
            errors.invalid(
                &address,
                address.text(),
                "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
            );
        }
    }
}
