//! A pod's status as its kubelet and others report it.

use serde_json::{Value, json};

use super::update::annotation_updates;
use crate::field::FieldError;
use crate::kinds::at::{At, Errors, IMMUTABLE, carry, field};
use crate::kinds::names;
use crate::met::Met;
use std::collections::HashMap;

/// Beyond the status, a status update may change labels and annotations.
pub fn prepare(new: &mut Value, old: &Value) {
    carry(new, old, "spec");
    if let (Some(new), Some(old)) = (new.get_mut("metadata"), old.get("metadata")) {
        carry(new, old, "ownerReferences");
        carry(new, old, "deletionTimestamp");
    }
    let before = field(old, &["status"]);
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    for name in ["qosClass", "observedGeneration"] {
        if let (None, Some(value)) = (status.get(name), before.get(name)) {
            status.insert(name.to_owned(), value.clone());
        }
    }
    let mut by_type: HashMap<Option<&Value>, &Value> = HashMap::new();
    let earlier = field(before, &["conditions"]).as_array();
    for condition in earlier.into_iter().flatten() {
        by_type.entry(condition.get("type")).or_insert(condition);
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition.get("observedGeneration").is_some() {
            continue;
        }
        let of_same_type = by_type.get(&condition.get("type"));
        if let Some(generation) = of_same_type.and_then(|one| one.get("observedGeneration")) {
            condition["observedGeneration"] = generation.clone();
        }
    }
}

pub fn check(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    annotation_updates(
        &new.dig(&["metadata", "annotations"]),
        old.dig(&["metadata", "annotations"]).value,
        &new.get("spec"),
        errors,
    );
    let (status, before) = (new.get("status"), old.get("status"));
    const NOT_NEGATIVE: &str = "must be a non-negative integer";
    for condition in status.get("conditions").items() {
        let generation = condition.get("observedGeneration");
        if generation.number() < 0 {
            errors.invalid(&generation, generation.number(), NOT_NEGATIVE);
        }
        let kind = condition.get("type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind.text()) {
            errors.format(
                &kind.reported_at(&condition.get("Type")),
                names::qualified_name,
            );
        }
    }
    let nominated = status.get("nominatedNodeName");
    let changed = nominated.text() != before.get("nominatedNodeName").text();
    if changed && !nominated.is_empty() {
        errors.format(&nominated, names::subdomain);
        if !old.dig(&["spec", "nodeName"]).is_empty() {
            errors.forbidden(
                &nominated,
                "may not be set on pods that are already bound to a node",
            );
        }
    }
    let generation = status.get("observedGeneration");
    if generation.number() < 0 {
        errors.invalid(&generation, generation.number(), NOT_NEGATIVE);
    }
    let (class, old_class) = (status.get("qosClass"), before.get("qosClass"));
    if class.text() != old_class.text() {
        errors.invalid(&class, class.text(), IMMUTABLE);
    }
    transitions(&status, &before, old, errors);
    claim_statuses(&status, &new.get("spec"), errors);
    extended_claim(
        &status.get("extendedResourceClaimStatus"),
        &new.get("spec"),
        errors,
    );
    addresses(&status.get("podIPs"), &before.get("podIPs"), errors);
    let host = status.get("hostIPs");
    if !host.is_empty() {
        let first = host.item(0).get("ip");
        if first.text() != status.get("hostIP").text() {
            errors.invalid(&first, first.text(), "must be equal to `hostIP`");
        }
        addresses(&host, &before.get("hostIPs"), errors);
    }
    container_users(&status, &new.get("spec"), errors);
    for (list, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
    ] {
        let containers = new.dig(&["spec", containers]).by("name");
        for one in status.get(list).items() {
            device_health(&one, &containers, errors);
        }
    }
    for one in status.get("ephemeralContainerStatuses").items() {
        let health = one.get("allocatedResourcesStatus");
        if !health.is_empty() {
            errors.forbidden(&health, "must not be specified in container status");
        }
    }
}

const STATUSES: [&str; 3] = [
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

/// Who a container runs as.
fn container_users(status: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let os = spec.dig(&["os", "name"]).text();
    for one in STATUSES.iter().flat_map(|list| status.get(list).items()) {
        let user = one.dig(&["user", "linux"]);
        match os {
            "windows" if user.is_set() => {
                errors.forbidden(&user, "cannot be set for a windows pod");
            }
            "linux" | "" => {
                let groups = user.get("supplementalGroups");
                for id in [user.get("uid"), user.get("gid")]
                    .into_iter()
                    .chain(groups.items())
                {
                    errors.between(&id, 0, i32::MAX.into());
                }
            }
            _ => {}
        }
    }
}

/// What is known of the devices that a container has.
fn device_health<'v>(status: &At<'v>, containers: &HashMap<&'v str, At<'v>>, errors: &mut Errors) {
    let container = containers.get(status.get("name").text());
    for allocated in status.get("allocatedResourcesStatus").items() {
        if let Some(container) = container {
            asked_for(&allocated.get("name"), &container.get("resources"), errors);
        }
        let mut seen = Met::default();
        for device in allocated.get("resources").items() {
            let health = device.get("health");
            let known = ["Healthy", "Unhealthy", "Unknown"];
            if !known.contains(&health.text()) {
                errors.not_supported(&health, &known);
            }
            let message = device.get("message");
            if message.is_set() && message.is_empty() {
                errors.required(&message, "must be non-empty if specified");
            }
            let id = device.get("resourceID");
            if seen.contains(&id.text()) {
                errors.duplicate(&id, id.text());
            }
            seen.push(id.text());
        }
    }
}

/// Whether a container's resources have one of this name, or a claim.
fn asked_for(name: &At<'_>, resources: &At<'_>, errors: &mut Errors) {
    let (found, complaint) = match name.text().strip_prefix("claim:") {
        Some(claim) => {
            let is_it = |one: &At<'_>| match one.get("request").text() {
                "" => one.get("name").text() == claim,
                request => format!("{}/{request}", one.get("name").text()) == claim,
            };
            let found = resources.get("claims").items().any(|one| is_it(&one));
            (
                found,
                "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
            )
        }
        None => (
            resources.get("requests").key(name.text()).is_set(),
            "must match one of the container's resource requests",
        ),
    };
    if !found {
        errors.invalid(name, name.text(), complaint);
    }
}

/// The claim that was made for devices which are asked for like any other resource.
fn extended_claim(claim: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    if !claim.is_set() {
        return;
    }
    let mappings = claim.get("requestMappings");
    if mappings.is_empty() {
        errors.required(&mappings, "at least one request mapping is required");
    }
    let by_name = ["initContainers", "containers"].map(|list| spec.get(list).by("name"));
    for mapping in mappings.items() {
        let (container, resource) = (mapping.get("containerName"), mapping.get("resourceName"));
        let found = by_name.iter().find_map(|list| list.get(container.text()));
        match found {
            None => errors.invalid(
                &container,
                container.text(),
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
            Some(one) if !one.dig(&["resources", "requests"]).key(resource.text()).is_set() => {
                errors.invalid(
                    &resource,
                    resource.text(),
                    "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
                );
            }
            Some(_) => {}
        }
        // The original names the wrong place.
        let request = mapping
            .get("requestName")
            .reported_at(&claim.get("requestName"));
        errors.format(&request, names::label);
    }
    let name = claim.get("resourceClaimName");
    if name.is_empty() {
        errors.required(&name, "");
    } else {
        errors.format(&name, names::subdomain);
    }
}

/// What has ended for good may not come back.
fn transitions(new: &At<'_>, old: &At<'_>, pod: &At<'_>, errors: &mut Errors) {
    for (list, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        let now_by_name = new.get(list).by("name");
        let by_name = pod.get("spec").get(containers).by("name");
        for (index, before) in old.get(list).items().enumerate() {
            let ended = before.dig(&["state", "terminated"]);
            if !ended.is_set() {
                continue;
            }
            let name = before.get("name").text();
            let now = now_by_name.get(name);
            if now.is_none_or(|now| now.dig(&["state", "terminated"]).is_set()) {
                continue;
            }
            let spec = pod.get("spec");
            let restarts = !containers.is_empty()
                && by_name
                    .get(name)
                    .is_some_and(|one| may_restart(one, &spec, ended.get("exitCode").number()));
            if !restarts {
                errors.forbidden(
                    &new.get(list).item(index).get("state"),
                    "may not be transitioned to non-terminated state",
                );
            }
        }
    }
}

fn may_restart(container: &At<'_>, spec: &At<'_>, code: i64) -> bool {
    for rule in container.get("restartPolicyRules").items() {
        let codes = rule.get("exitCodes");
        let among = codes.get("values").items().any(|one| one.number() == code);
        let applies = match codes.get("operator").text() {
            "In" => among,
            _ => !among,
        };
        if applies && codes.is_set() {
            return true;
        }
    }
    let own = container.get("restartPolicy");
    let policy = if own.is_set() {
        own.text()
    } else {
        spec.get("restartPolicy").text()
    };
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn claim_statuses(status: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    let known = spec.get("resourceClaims").each("name");
    for claim in status.get("resourceClaimStatuses").items() {
        let name = claim.get("name");
        if !known.contains(&name.text()) {
            errors.invalid(
                &name,
                name.text(),
                "must match the name of an entry in `spec.resourceClaims`",
            );
        }
        if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        } else {
            seen.push(name.text());
        }
        let reference = claim.get("resourceClaimName");
        if reference.is_set() {
            errors.format(&reference, names::subdomain);
        }
    }
}

/// One address, or one of each family.
fn addresses(list: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let known = old.each("ip");
    for address in list.items() {
        let text = address.get("ip").text();
        if !known.contains(&text) {
            errors.format_of(&address, text, names::ip);
        }
    }
    if list.len() > 1 {
        let broken = list
            .items()
            .enumerate()
            .find(|(_, one)| names::parse_ip(one.get("ip").text()).is_none());
        if let Some((index, one)) = broken {
            let detail = format!(
                "failed to check for dual stack with error:invalid IP[{index}]: {}",
                one.get("ip").text()
            );
            errors.push(FieldError::internal(&list.path(), detail));
        }
        let families: Vec<Option<bool>> = list
            .items()
            .map(|one| names::parse_ip(one.get("ip").text()).map(|ip| ip.is_ipv6()))
            .collect();
        let dual = families.contains(&Some(true)) && families.contains(&Some(false));
        if !dual || list.len() > 2 {
            let shown: Vec<Value> = list
                .items()
                .map(|one| json!({"IP": one.get("ip").text()}))
                .collect();
            errors.invalid(
                list,
                shown,
                "may specify no more than one IP for each IP family",
            );
        }
    }
}
