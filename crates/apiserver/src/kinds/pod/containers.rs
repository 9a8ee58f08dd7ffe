//! Containers of every sort: names, images, ports, environment, lifecycle.

use serde_json::json;

use super::probes;
use super::resources::{self, Of};
use super::security;
use super::volumes;
use crate::kinds::at::{At, Errors};
use crate::kinds::names;
use crate::kinds::quantity::Quantity;

/// What containers are checked against.
#[derive(Debug)]
pub struct Scope<'v> {
    /// Volumes that are themselves in order, with their sources.
    pub volumes: Vec<At<'v>>,
    pub claims: Vec<&'v str>,
    pub grace: Option<i64>,
    pub os: Option<&'v str>,
    pub restart_policy: &'v str,
    /// Shares the host's user namespace.
    pub host_users: bool,
}

pub const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const ONLY_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

pub fn containers(spec: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let list = spec.get("containers");
    if list.is_empty() {
        errors.required(&list, "");
        return;
    }
    let mut seen = Vec::new();
    for container in list.items() {
        common(&container, scope, errors);
        unique_name(&container, &mut seen, true, errors);
        probes::lifecycle(&container.get("lifecycle"), scope, errors);
        probes::probes(&container, scope, errors);
        restart_policy(&container, errors);
    }
    host_ports(&list, list.items(), errors);
}

pub fn init_containers(spec: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let mut seen = names_of(&spec.get("containers"));
    let list = spec.get("initContainers");
    for container in list.items() {
        common(&container, scope, errors);
        restart_policy(&container, errors);
        unique_name(&container, &mut seen, false, errors);
        host_ports(&list, std::iter::once(container.clone()), errors);
        let sidecar = container.get("restartPolicy").text() == "Always";
        if sidecar {
            probes::lifecycle(&container.get("lifecycle"), scope, errors);
            probes::probes(&container, scope, errors);
        } else {
            for field in [
                "lifecycle",
                "livenessProbe",
                "readinessProbe",
                "startupProbe",
            ] {
                if container.get(field).is_set() {
                    errors.forbidden(&container.get(field), ONLY_SIDECARS);
                }
            }
            for policy in container.get("resizePolicy").items() {
                let restart = policy.get("restartPolicy");
                if restart.text() == "RestartContainer" {
                    errors.invalid(
                        &restart,
                        restart.text(),
                        "must not be set to 'RestartContainer' for non-sidecar initContainers",
                    );
                }
            }
        }
    }
}

pub fn ephemeral_containers(spec: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let mut others = names_of(&spec.get("containers"));
    others.extend(names_of(&spec.get("initContainers")));
    let mut seen = others.clone();
    for container in spec.get("ephemeralContainers").items() {
        common(&container, scope, errors);
        image_padding(&container, errors);
        unique_name(&container, &mut seen, true, errors);
        let target = container.get("targetContainerName");
        if !target.is_empty() && !others.contains(&target.text()) {
            errors.not_found(&target, target.text());
        }
        for field in [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ] {
            let place = container.get(field);
            if place.is_set() && *place.value != json!({}) && *place.value != json!([]) {
                errors.forbidden(&place, NOT_EPHEMERAL);
            }
        }
        for mount in container.get("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.get(field).is_empty() {
                    errors.forbidden(&mount.get(field), NOT_EPHEMERAL);
                }
            }
        }
    }
}

fn names_of<'v>(containers: &At<'v>) -> Vec<&'v str> {
    containers
        .items()
        .map(|one| one.get("name").text())
        .collect()
}

fn unique_name<'v>(
    container: &At<'v>,
    seen: &mut Vec<&'v str>,
    even_empty: bool,
    errors: &mut Errors,
) {
    let name = container.get("name");
    if seen.contains(&name.text()) {
        errors.duplicate(&name, name.text());
    } else if even_empty || !name.is_empty() {
        seen.push(name.text());
    }
}

/// Images of pods (not of templates) may not be padded.
pub fn image_padding(container: &At<'_>, errors: &mut Errors) {
    let image = container.get("image");
    if image.text().trim() != image.text() {
        errors.invalid(
            &image,
            image.text(),
            "must not have leading or trailing whitespace",
        );
    }
}

fn common(container: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let name = container.get("name");
    if name.is_empty() {
        errors.required(&name, "");
    } else {
        errors.format(&name, names::label);
    }
    errors.non_empty(&container.get("image"));
    errors.choice(
        &container.get("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(&container.get("ports"), errors);
    env(&container.get("env"), errors);
    env_from(&container.get("envFrom"), errors);
    volumes::mounts(container, scope, errors);
    volumes::devices(container, scope, errors);
    errors.choice(&container.get("imagePullPolicy"), PULL_POLICIES);
    let resources = container.get("resources");
    resources::requirements(&resources, &Of::Container, &scope.claims, errors);
    resize_policy(&container.get("resizePolicy"), scope, errors);
    security::container(&container.get("securityContext"), scope, errors);
}

fn ports(ports: &At<'_>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.is_empty() {
            let complaints = names::port_name(name.text());
            if !complaints.is_empty() {
                errors.format(&name, names::port_name);
            } else if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            } else {
                seen.push(name.text());
            }
        }
        let number = port.get("containerPort");
        if number.number() == 0 {
            errors.required(&number, "");
        } else {
            errors.between(&number, 1, 65535);
        }
        let host = port.get("hostPort");
        if host.number() != 0 {
            errors.between(&host, 1, 65535);
        }
        errors.choice(&port.get("protocol"), PROTOCOLS);
    }
}

fn host_ports<'v>(list: &At<'v>, containers: impl Iterator<Item = At<'v>>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for (index, container) in containers.enumerate() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            if host.number() == 0 {
                continue;
            }
            let taken = format!(
                "{}/{}/{}",
                port.get("protocol").text(),
                port.get("hostIP").text(),
                host.number()
            );
            if seen.contains(&taken) {
                let position = container
                    .get("ports")
                    .items()
                    .position(|one| std::ptr::eq(one.value, port.value));
                let place = list
                    .item(index)
                    .get("ports")
                    .item(position.unwrap_or_default())
                    .get("hostPort");
                errors.duplicate(&place, taken);
            } else {
                seen.push(taken);
            }
        }
    }
}

/// With the host's network, ports are the host's.
pub fn host_network_ports(spec: &At<'_>, is_pod: bool, errors: &mut Errors) {
    if !spec.get("hostNetwork").flag() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            let differs = host.number() != port.get("containerPort").number();
            if differs && (is_pod || host.number() != 0) {
                errors.invalid(
                    &host,
                    host.number(),
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn env(vars: &At<'_>, errors: &mut Errors) {
    for var in vars.items() {
        let name = var.get("name");
        if name.is_empty() {
            errors.required(&name, "");
        } else {
            errors.format(&name, names::env_name);
        }
        let from = var.get("valueFrom");
        if from.is_set() {
            value_from(&from, !var.get("value").is_empty(), errors);
        }
    }
}

fn value_from(from: &At<'_>, has_value: bool, errors: &mut Errors) {
    let mut sources = 0;
    let mut source = |name: &'static str| {
        let at = from.get(name);
        let set = at.is_set();
        sources += usize::from(set);
        set.then_some(at)
    };
    if let Some(at) = source("fieldRef") {
        field_ref(&at, ENV_FIELDS, errors);
    }
    if let Some(at) = source("resourceFieldRef") {
        resource_field_ref(&at, false, errors);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(at) = source(name) {
            errors.format(&at.get("name"), names::subdomain);
            required_format(&at.get("key"), names::config_key, errors);
        }
    }
    if let Some(at) = source("fileKeyRef") {
        required_format(&at.get("key"), names::env_name, errors);
        required_format(&at.get("volumeName"), names::label, errors);
        if at.get("path").is_empty() {
            errors.required(&at.get("path"), "");
        } else {
            volumes::no_backsteps(&at.get("path"), errors);
        }
    }
    if sources == 0 {
        errors.invalid(
            from,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if has_value {
        errors.invalid(from, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(
            from,
            "",
            "may not have more than one field specified at a time",
        );
    }
}

fn required_format(at: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    if at.is_empty() {
        errors.required(at, "");
    } else {
        errors.format(at, rule);
    }
}

/// A field of the pod, for a variable or a file.
pub fn field_ref(at: &At<'_>, allowed: &[&str], errors: &mut Errors) {
    for name in ["apiVersion", "fieldPath"] {
        if at.get(name).is_empty() {
            errors.required(&at.get(name), "");
            return;
        }
    }
    let path = at.get("fieldPath");
    let version = at.get("apiVersion").text();
    if version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        errors.invalid(&path, path.text(), detail);
        return;
    }
    let subscripted = path
        .text()
        .strip_suffix("']")
        .and_then(|head| head.split_once("['"));
    match subscripted {
        Some((map @ ("metadata.annotations" | "metadata.labels"), key)) => {
            let key = if map == "metadata.annotations" {
                key.to_lowercase()
            } else {
                key.to_owned()
            };
            errors.format_of(at, &key, names::qualified_name);
        }
        Some((other, _)) => errors.invalid(
            &path,
            path.text(),
            format!("error converting fieldPath: field label does not support subscript: {other}"),
        ),
        None if !allowed.contains(&path.text()) => {
            if KNOWN_FIELDS.contains(&path.text()) {
                let mut sorted = allowed.to_vec();
                sorted.sort_unstable();
                errors.not_supported(&path, &sorted);
            } else {
                let detail = format!(
                    "error converting fieldPath: field label not supported: {}",
                    path.text()
                );
                errors.invalid(&path, path.text(), detail);
            }
        }
        None => {}
    }
}

/// Fields that exist for this purpose, though not every use allows each.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const SIZE_DIVISORS: &[&str] = &[
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// A request or limit of a container, for a variable or a file.
pub fn resource_field_ref(at: &At<'_>, in_volume: bool, errors: &mut Errors) {
    let resource = at.get("resource");
    let name = resource.text();
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if in_volume && at.get("containerName").is_empty() {
        errors.required(&at.get("containerName"), "");
    } else if name.is_empty() {
        errors.required(&resource, "");
    } else if !RESOURCE_FIELDS.contains(&name) && !huge {
        errors.not_supported(&resource, RESOURCE_FIELDS);
    }
    let divisor = at.get("divisor");
    let text = divisor.text();
    if Quantity::of(text) == Quantity(0) {
        return;
    }
    let (allowed, words): (&[&str], &str) = match name.rsplit('.').next().unwrap_or_default() {
        "cpu" => (&["1m", "1"], "1m and 1 are supported with the cpu resource"),
        "memory" => (
            SIZE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource",
        ),
        "ephemeral-storage" => (
            SIZE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource",
        ),
        _ if huge => (
            SIZE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource",
        ),
        _ => return,
    };
    if !allowed.contains(&text) {
        errors.invalid(&divisor, name, format!("only divisor's values {words}"));
    }
}

fn env_from(sources: &At<'_>, errors: &mut Errors) {
    for source in sources.items() {
        let prefix = source.get("prefix");
        if !prefix.is_empty() {
            errors.format(&prefix, names::env_name);
        }
        let mut count = 0;
        for name in ["configMapRef", "secretRef"] {
            let reference = source.get(name);
            if reference.is_set() {
                count += 1;
                let name = reference.get("name");
                if name.is_empty() {
                    errors.required(&name, "");
                } else {
                    errors.format(&name, |text| {
                        names::NameRule::Subdomain.complaints(text, true)
                    });
                }
            }
        }
        if count == 0 {
            errors.invalid(
                sources,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            );
        } else if count > 1 {
            errors.invalid(
                sources,
                "",
                "may not have more than one field specified at a time",
            );
        }
    }
}

fn resize_policy(policies: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for policy in policies.items() {
        let [resource, restart] =
            ["resourceName", "restartPolicy"].map(|field| policy.get(field).text());
        if seen.contains(&resource) {
            errors.duplicate(&policy, resource);
        }
        seen.push(resource);
        for (value, allowed) in [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ] {
            if value.is_empty() {
                errors.required(policies, "");
            } else if !allowed.contains(&value) {
                errors.push(crate::field::FieldError::not_supported(
                    &policies.path(),
                    value,
                    &allowed,
                ));
            }
        }
        if scope.restart_policy == "Never" && restart != "NotRequired" {
            errors.invalid(
                policies,
                restart,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

fn restart_policy(container: &At<'_>, errors: &mut Errors) {
    let policy = container.get("restartPolicy");
    let rules = container.get("restartPolicyRules");
    if !policy.is_set() {
        if rules.is_empty() {
            return;
        }
        errors.required(
            &policy,
            "must specify restartPolicy when restart rules are used",
        );
    } else {
        errors.optional_choice(&policy, &["Always", "Never", "OnFailure"]);
    }
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    for rule in rules.items() {
        let action = rule.get("action");
        if !["Restart", "RestartAllContainers"].contains(&action.text()) {
            errors.not_supported(&action, &["Restart", "RestartAllContainers"]);
        }
        let codes = rule.get("exitCodes");
        if codes.is_set() {
            let operator = codes.get("operator");
            if !["In", "NotIn"].contains(&operator.text()) {
                errors.not_supported(&operator, &["In", "NotIn"]);
            }
            if codes.get("values").len() > 255 {
                errors.too_many(&codes.get("values"), 255);
            }
        } else {
            errors.required(&codes, "must be specified");
        }
    }
}
