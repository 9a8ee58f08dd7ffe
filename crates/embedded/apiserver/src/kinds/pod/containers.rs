//! Containers of every sort: names, images, ports, environment, lifecycle.

use serde_json::json;

use super::probes;
use super::resources::{self, Of};
use super::security;
use super::{env, mounts};
use std::collections::HashMap;

use crate::kinds::at::{At, Errors};
use crate::kinds::names;
use crate::met::Met;

/// The names of a pod's resource claims.
#[derive(Debug, Default)]
pub struct Claims<'v> {
    pub names: Met<&'v str>,
    /// As complaints name all of them.
    pub shown: String,
}

/// What containers are checked against.
#[derive(Debug)]
pub struct Scope<'v> {
    /// Volumes that are themselves in order, with their sources.
    pub volumes: HashMap<&'v str, At<'v>>,
    pub claims: Claims<'v>,
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
    let mut seen = Met::default();
    for container in list.items() {
        common(&container, scope, errors);
        unique_name(&container, &mut seen, true, errors);
        probes::lifecycle(&container.get("lifecycle"), scope, errors);
        probes::probes(&container, scope, errors);
        restart_policy(&container, false, errors);
    }
    host_ports(&list, list.items(), errors);
}

pub fn init_containers(spec: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let mut seen = spec.get("containers").each("name");
    let list = spec.get("initContainers");
    for container in list.items() {
        common(&container, scope, errors);
        restart_policy(&container, true, errors);
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
    let lists = ["containers", "initContainers"].map(|list| spec.get(list));
    let names = || {
        lists
            .iter()
            .flat_map(|list| list.items().map(|one| one.get("name").text()))
    };
    let (others, mut seen): (Met<&str>, Met<&str>) = (names().collect(), names().collect());
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
            // Resources are always there.
            let is_said = field != "resources" || *place.value != json!({});
            if place.is_set() && is_said {
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

fn unique_name<'v>(
    container: &At<'v>,
    seen: &mut Met<&'v str>,
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
    env::env(&container.get("env"), errors);
    env::env_from(&container.get("envFrom"), errors);
    mounts::mounts(container, scope, errors);
    mounts::devices(container, scope, errors);
    errors.choice(&container.get("imagePullPolicy"), PULL_POLICIES);
    let resources = container.get("resources");
    resources::requirements(&resources, &Of::Container, &scope.claims, errors);
    resize_policy(&container.get("resizePolicy"), scope, errors);
    security::container(&container.get("securityContext"), scope, errors);
}

fn ports(ports: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
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
    let mut seen = Met::default();
    for (index, container) in containers.enumerate() {
        for (position, port) in container.get("ports").items().enumerate() {
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
                let place = list.item(index).get("ports").item(position).get("hostPort");
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

fn resize_policy(policies: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
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

fn restart_policy(container: &At<'_>, is_init: bool, errors: &mut Errors) {
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
        // Of an init container, the original then looks no further.
        if is_init {
            return;
        }
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
