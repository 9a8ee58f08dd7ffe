//! What extends the server: webhooks, aggregated services; and kinds of which little more than the shape is checked.

use crate::met::Met;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::admission_policy::conditions;
use super::at::{At, Errors, IMMUTABLE, field, same};
use super::core::again;
use super::names::{self, NameRule};
use super::pod::check_metadata_update;
use super::rules::Rules;
use super::{diff, metadata, raise_generation, shown};

pub(super) static KINDS: &[&Rules] = &[
    &VALIDATING_WEBHOOKS,
    &MUTATING_WEBHOOKS,
    &API_SERVICE,
    &SERVICE_CIDR,
    &IP_ADDRESS,
];

pub(super) const ADMISSION: &str = "admissionregistration.k8s.io";
const fn webhooks(kind: &'static str) -> Rules {
    Rules {
        kind,
        known_finalizers: false,
        prepare_create: |hooks| hooks["metadata"]["generation"] = json!(1),
        prepare_update: |new, old| {
            let changed = !same(field(new, &["webhooks"]), field(old, &["webhooks"]));
            raise_generation(new, changed);
        },
        validate: check_webhooks,
        ..Rules::cluster(ADMISSION)
    }
}

/// Kinds whose specification is counted, and that may have a status.
pub(super) const fn counted(group: &'static str, kind: &'static str, status: bool) -> Rules {
    Rules {
        kind,
        status,
        generation: true,
        ..Rules::cluster(group)
    }
}

static VALIDATING_WEBHOOKS: Rules = webhooks("ValidatingWebhookConfiguration");
static MUTATING_WEBHOOKS: Rules = webhooks("MutatingWebhookConfiguration");
static SERVICE_CIDR: Rules = Rules {
    kind: "ServiceCIDR",
    status: true,
    validate: service_ranges,
    validate_update: Some(|new, old, errors| {
        let (now, then) = (new.dig(&["spec", "cidrs"]), old.dig(&["spec", "cidrs"]));
        match (then.len(), now.len()) {
            (before, after) if before == after => {
                for (now, then) in now.items().zip(then.items()) {
                    errors.immutable_text(&now, &then);
                }
            }
            // A second family may come later.
            (1, 2) => {
                errors.immutable_text(&now.item(0), &then.item(0));
                service_ranges(new, errors);
            }
            _ => errors.immutable(&now, &then),
        }
    }),
    ..Rules::cluster("networking.k8s.io")
};

fn service_ranges(range: &At<'_>, errors: &mut Errors) {
    let spec = range.get("spec");
    let cidrs = spec.get("cidrs");
    if cidrs.is_empty() {
        errors.required(&cidrs, "at least one CIDR required");
    } else if cidrs.len() > 2 {
        let shown = diff::compact("ServiceCIDRSpec", spec.value);
        errors.invalid_shown(&cidrs, &shown, "may only hold up to 2 values");
    } else {
        let before = errors.0.len();
        for cidr in cidrs.items() {
            errors.format(&cidr, names::cidr);
        }
        let sixes = cidrs.texts().filter(|cidr| cidr.contains(':')).count();
        if errors.0.len() == before && cidrs.len() == 2 && sixes != 1 {
            errors.invalid(
                &cidrs,
                cidrs.value.clone(),
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            );
        }
    }
}

static IP_ADDRESS: Rules = Rules {
    kind: "IPAddress",
    names: NameRule::Address,
    update_checks_metadata: true,
    validate: address_owner,
    validate_update: Some(|new, old, errors| {
        again(new, false, NameRule::Address, errors);
        address_owner(new, errors);
        check_metadata_update(new, old, errors);
        let (now, then) = (
            new.dig(&["spec", "parentRef"]),
            old.dig(&["spec", "parentRef"]),
        );
        if !same(now.value, then.value) {
            errors.invalid_shown(&now, &shown_owner(&now), IMMUTABLE);
        }
    }),
    ..Rules::cluster("networking.k8s.io")
};

fn shown_owner(owner: &At<'_>) -> String {
    if !owner.is_set() {
        return "null".to_owned();
    }
    let part = |name| Value::from(owner.get(name).text());
    shown::fields(&[
        ("Group", &part("group")),
        ("Resource", &part("resource")),
        ("Namespace", &part("namespace")),
        ("Name", &part("name")),
    ])
}

fn address_owner(address: &At<'_>, errors: &mut Errors) {
    let parent = address.dig(&["spec", "parentRef"]);
    if !parent.is_set() {
        errors.required(&parent, "");
        return;
    }
    let group = parent.get("group");
    if !group.is_empty() {
        errors.format(&group, names::subdomain);
    }
    for name in ["resource", "name"] {
        errors.non_empty(&parent.get(name));
        errors.format(&parent.get(name), names::path_segment);
    }
    errors.format(&parent.get("namespace"), names::path_segment);
}

fn check_webhooks(configuration: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for hook in configuration.get("webhooks").items() {
        let name = hook.get("name");
        qualified(&name, errors);
        for rule in hook.get("rules").items() {
            self::rule(&rule, errors);
        }
        errors.optional_choice(&hook.get("failurePolicy"), &["Fail", "Ignore"]);
        errors.optional_choice(&hook.get("matchPolicy"), &["Equivalent", "Exact"]);
        let effects = hook.get("sideEffects");
        if effects.is_set() {
            errors.optional_choice(&effects, &["None", "NoneOnDryRun"]);
        } else {
            errors.required(&effects, "must specify one of None, NoneOnDryRun");
        }
        let timeout = hook.get("timeoutSeconds");
        if timeout.is_set() && !(1..=30).contains(&timeout.number()) {
            errors.invalid(
                &timeout,
                timeout.number(),
                "the timeout value must be between 1 and 30 seconds",
            );
        }
        metadata::selector(&hook.get("namespaceSelector"), errors);
        metadata::selector(&hook.get("objectSelector"), errors);
        errors.optional_choice(&hook.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
        client(&hook.get("clientConfig"), errors);
        conditions(&hook.get("matchConditions"), &hook, errors);
        review_versions(&hook.get("admissionReviewVersions"), errors);
        if seen.contains(&name.text()) && !name.is_empty() {
            errors.duplicate(&name, name.text());
        }
        seen.push(name.text());
    }
}

fn qualified(name: &At<'_>, errors: &mut Errors) {
    let complaints = names::subdomain(name.text());
    if name.is_empty() {
        errors.required(name, "");
    } else if !complaints.is_empty() {
        errors.invalid(name, name.text(), complaints.join(","));
    } else if name.text().split('.').count() < 3 {
        errors.invalid(
            name,
            name.text(),
            "should be a domain with at least three segments separated by dots",
        );
    }
}

fn client(client: &At<'_>, errors: &mut Errors) {
    let (url, service) = (client.get("url"), client.get("service"));
    if url.is_set() == service.is_set() {
        errors.required(client, "exactly one of url or service is required");
        return;
    }
    if service.is_set() {
        // The original takes one for the other.
        for (part, reported) in [("namespace", "name"), ("name", "namespace")] {
            if service.get(part).is_empty() {
                errors.required(&service.get(reported), "");
            }
        }
        service_path(&service.get("path"), errors);
        let port = service.get("port");
        if let Some(complaint) = names::port_number(port.number()) {
            errors.invalid(
                &port,
                port.number(),
                format!("port is not valid: {complaint}"),
            );
        }
        return;
    }
    const FORM: &str = "; desired format: https://host[/path]";
    // What has no scheme has no host either.
    let (scheme, rest) = url.text().split_once("://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid(&url, scheme, detail);
    }
    if host.is_empty() {
        errors.invalid(&url, host, format!("host must be specified{FORM}"));
    }
    for (mark, words) in [
        ('@', "user information is not permitted in the URL"),
        ('#', "fragments are not permitted in the URL"),
        ('?', "query parameters are not permitted in the URL"),
    ] {
        if let Some((before, after)) = rest.split_once(mark) {
            let after = after.split('#').next().unwrap_or_default();
            let shown = if mark == '@' { before } else { after };
            errors.invalid(&url, shown, words);
        }
    }
}

/// A path below the service, without empty parts.
fn service_path(path: &At<'_>, errors: &mut Errors) {
    let text = path.text();
    if text.is_empty() || text == "/" {
        return;
    }
    let mut refuse = |detail: &str| errors.invalid(path, text, detail);
    if !text.starts_with('/') {
        refuse("must start with a '/'");
    }
    // The first letter counts as the slash, whatever it is.
    let mut letters = text.chars();
    letters.next();
    let below = letters.as_str();
    let below = below.strip_suffix('/').unwrap_or(below);
    for (index, step) in below.split('/').enumerate() {
        if step.is_empty() {
            refuse(&format!("segment[{index}] may not be empty"));
            continue;
        }
        for complaint in names::subdomain(step) {
            refuse(&format!("segment[{index}]: {complaint}"));
        }
    }
}

fn review_versions(versions: &At<'_>, errors: &mut Errors) {
    if versions.is_empty() {
        errors.required(versions, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = Met::default();
    for version in versions.items() {
        if seen.contains(&version.text()) {
            errors.invalid(&version, version.text(), "duplicate version");
            continue;
        }
        seen.push(version.text());
        errors.format(&version, names::label_1035);
    }
    if !["v1", "v1beta1"]
        .iter()
        .any(|version| seen.contains(version))
    {
        errors.invalid(
            versions,
            versions.value.clone(),
            "must include at least one of v1, v1beta1",
        );
    }
}

pub(super) fn rule(rule: &At<'_>, errors: &mut Errors) {
    let alone = |at: &At<'_>, words: &str, errors: &mut Errors| {
        if at.is_empty() {
            errors.required(at, "");
        }
        if at.len() > 1 && at.texts().any(|one| one == "*") {
            let detail = format!("if '*' is present, must not specify other {words}");
            errors.invalid(at, at.value.clone(), detail);
        }
    };
    let operations = rule.get("operations");
    alone(&operations, "operations", errors);
    for operation in operations.items() {
        errors.optional_choice(&operation, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    }
    alone(&rule.get("apiGroups"), "API groups", errors);
    alone(&rule.get("apiVersions"), "API versions", errors);
    for version in rule.get("apiVersions").items().filter(At::is_empty) {
        errors.required(&version, "");
    }
    let resources = rule.get("resources");
    if resources.is_empty() {
        errors.required(&resources, "");
    }
    for resource in resources.items().filter(At::is_empty) {
        errors.required(&resource, "");
    }
    let has = |wanted: &str| resources.texts().any(|one| one == wanted);
    let plain = resources
        .texts()
        .any(|one| one != "*" && !one.contains('/'));
    if has("*/*") {
        for resource in resources.items() {
            let (_, part) = resource.text().split_once('/').unwrap_or_default();
            if resource.text() != "*/*" && part == "*" {
                let detail = format!("if '*/*' is present, must not specify {}", resource.text());
                errors.invalid(&resource, resource.text(), detail);
            }
        }
    }
    if resources.len() > 1 && has("*/*") {
        errors.invalid(
            &resources,
            resources.value.clone(),
            "if '*/*' is present, must not specify other resources",
        );
    } else if has("*") && plain {
        errors.invalid(
            &resources,
            resources.value.clone(),
            "if '*' is present, must not specify other resources without subresources",
        );
    }
    errors.optional_choice(&rule.get("scope"), &["*", "Cluster", "Namespaced"]);
}

static API_SERVICE: Rules = Rules {
    kind: "APIService",
    names: NameRule::PathSegment,
    known_finalizers: false,
    status: true,
    prepare_create: |service| {
        if field(service, &["spec", "service"]).is_null() {
            service["status"] = json!({"conditions": [{
                "type": "Available",
                "status": "True",
                "lastTransitionTime": field(service, &["metadata", "creationTimestamp"]),
                "reason": "Local",
                "message": "Local APIServices are always available",
            }]});
        }
    },
    validate: api_service,
    validate_status: |new, _, errors| {
        for condition in new.dig(&["status", "conditions"]).items() {
            let status = condition.get("status");
            if !["True", "False", "Unknown"].contains(&status.text()) {
                errors.not_supported(&status, &["True", "False", "Unknown"]);
            }
        }
    },
    ..Rules::cluster("apiregistration.k8s.io")
};

fn api_service(service: &At<'_>, errors: &mut Errors) {
    let spec = service.get("spec");
    let (name, group, version) = (
        service.dig(&["metadata", "name"]),
        spec.get("group"),
        spec.get("version"),
    );
    let wanted = format!("{}.{}", version.text(), group.text());
    for name in [service.dig(&["metadata", "generateName"]), name] {
        let is_named = !name.is_empty() && names::path_segment(name.text()).is_empty();
        if is_named && name.text() != wanted {
            let detail = format!("must be `spec.version+\".\"+spec.group`: \"{wanted}\"");
            errors.invalid(&name, name.text(), detail);
        }
    }
    if group.is_empty() && version.text() != "v1" {
        errors.required(
            &group,
            "only v1 may have an empty group and it better be legacy kube",
        );
    }
    if !group.is_empty() {
        errors.format(&group, names::subdomain);
    }
    errors.format(&version, names::label_1035);
    for (field, max) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let at = spec.get(field);
        if !(1..=max).contains(&at.number()) {
            let detail = format!("must be positive and less than {max}");
            errors.invalid(&at, at.number(), detail);
        }
    }
    let (reference, bundle, insecure) = (
        spec.get("service"),
        spec.get("caBundle"),
        spec.get("insecureSkipTLSVerify"),
    );
    if !reference.is_set() {
        if !bundle.is_empty() {
            let size = STANDARD
                .decode(bundle.text())
                .map_or(0, |bytes| bytes.len());
            errors.invalid(
                &bundle,
                format!("{size} bytes"),
                "local APIServices may not have a caBundle",
            );
        }
        if insecure.flag() {
            errors.invalid(
                &insecure,
                true,
                "local APIServices may not have insecureSkipTLSVerify",
            );
        }
        return;
    }
    errors.non_empty(&reference.get("namespace"));
    errors.non_empty(&reference.get("name"));
    let port = reference.get("port");
    if let Some(complaint) = names::port_number(port.number()) {
        errors.invalid(
            &port,
            port.number(),
            format!("port is not valid: {complaint}"),
        );
    }
    if insecure.flag() && !bundle.is_empty() {
        errors.invalid(&insecure, true, "may not be true if caBundle is present");
    }
}
