//! A pod's specification as a whole, alone or in a template.

use std::collections::BTreeSet;

use super::containers::Claims;
use super::containers::{self, Scope};
use super::{resources, scheduling, security, volumes};
use crate::field::{FieldError, Path};
use crate::kinds::at::{At, Errors};
use crate::kinds::metadata;
use crate::kinds::names;
use crate::kinds::shown;
use crate::met::Met;

/// `is_pod`: of a pod itself rather than of a template. `meta` is the pod's, for what depends on its name.
pub fn check(spec: &At<'_>, meta: &At<'_>, is_pod: bool, errors: &mut Errors) {
    let grace = spec.get("terminationGracePeriodSeconds");
    if !grace.is_set() {
        errors.required(&grace, "");
    }
    let host_users = spec.get("hostUsers");
    let pod_name = if is_pod { meta.get("name").text() } else { "" };
    let volumes = volumes::volumes(&spec.get("volumes"), pod_name, is_pod, errors);
    let claims = spec.get("resourceClaims");
    let names = claims.items().map(|claim| claim.get("name").text());
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    let shown: Vec<&str> = names.iter().copied().collect();
    let scope = Scope {
        volumes,
        claims: Claims {
            shown: shown.join(", "),
            names: names.into_iter().collect(),
        },
        grace: grace.int(),
        os: spec
            .get("os")
            .is_set()
            .then(|| spec.dig(&["os", "name"]).text()),
        restart_policy: spec.get("restartPolicy").text(),
        host_users: !host_users.is_set() || host_users.flag(),
    };
    resource_claims(&claims, meta, errors);
    containers::containers(spec, &scope, errors);
    containers::init_containers(spec, &scope, errors);
    containers::ephemeral_containers(spec, &scope, errors);
    resources::pod_level(spec, &scope.claims, errors);
    containers::host_network_ports(spec, is_pod, errors);
    errors.choice(
        &spec.get("restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    errors.choice(
        &spec.get("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    metadata::labels(&spec.get("nodeSelector"), errors);
    security::pod(spec, errors);
    scheduling::affinity(&spec.get("affinity"), errors);
    dns(spec, errors);
    for gate in spec.get("readinessGates").items() {
        errors.format(&gate.get("conditionType"), names::qualified_name);
    }
    scheduling::gates(&spec.get("schedulingGates"), errors);
    scheduling::topology_spread(&spec.get("topologySpreadConstraints"), errors);
    security::host_processes(spec, errors);
    own_users(spec, &scope, errors);
    hostname_override(spec, errors);
    for (field, rule) in FORMATS {
        let at = spec.get(field);
        if !at.is_empty() {
            errors.format(&at, rule);
        }
        if *field == "nodeName" {
            let deadline = spec.get("activeDeadlineSeconds");
            if deadline.is_set() {
                errors.between(&deadline, 1, i32::MAX.into());
            }
        }
    }
    scheduling::tolerations(&spec.get("tolerations"), errors);
    for alias in spec.get("hostAliases").items() {
        errors.format(&alias.get("ip"), names::ip);
        for name in alias.get("hostnames").items() {
            errors.format(&name, names::subdomain);
        }
    }
    let class = spec.get("priorityClassName");
    if !class.is_empty() {
        errors.format(&class, names::subdomain);
    }
    let runtime = spec.get("runtimeClassName");
    if runtime.is_set() {
        errors.format(&runtime, names::subdomain);
    }
    let preemption = spec.get("preemptionPolicy");
    if preemption.is_set() {
        errors.choice(&preemption, &["PreemptLowerPriority", "Never"]);
    }
    overhead(&spec.get("overhead"), errors);
    security::operating_system(spec, errors);
    file_key_volumes(spec, errors);
}

type Format = fn(&str) -> Vec<String>;

const FORMATS: &[(&str, Format)] = &[
    ("serviceAccountName", names::subdomain),
    ("nodeName", names::subdomain),
    ("hostname", names::label),
    ("subdomain", names::label),
];

/// Overhead is checked as if it were a container's limits.
fn overhead(overhead: &At<'_>, errors: &mut Errors) {
    if !overhead.is_set() {
        return;
    }
    let wrapped = serde_json::json!({"limits": overhead.value});
    let at = At::root(&wrapped);
    let mut own = Errors::default();
    resources::requirements(&at, &resources::Of::Container, &Claims::default(), &mut own);
    let prefix = overhead.path().to_string();
    for mut error in own.0 {
        error.field = format!("{prefix}.{}", error.field);
        errors.push(error);
    }
}

fn resource_claims(claims: &At<'_>, meta: &At<'_>, errors: &mut Errors) {
    let mirror = meta
        .dig(&["annotations", "kubernetes.io/config.mirror"])
        .is_set();
    let mut seen = Met::default();
    for claim in claims.items() {
        if mirror {
            errors.push(FieldError::forbidden(
                &Path::new(""),
                "static pods do not support resource claims",
            ));
            continue;
        }
        let name = claim.get("name");
        if name.is_empty() {
            errors.required(&name, "");
        } else if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        } else {
            errors.format(&name, names::label);
            seen.push(name.text());
        }
        let (direct, template) = (
            claim.get("resourceClaimName"),
            claim.get("resourceClaimTemplateName"),
        );
        let shown = shown::fields(&[
            ("Name", &name.text().into()),
            ("ResourceClaimName", direct.value),
            ("ResourceClaimTemplateName", template.value),
        ]);
        match (direct.is_set(), template.is_set()) {
            (true, true) => errors.invalid_shown(
                &claim,
                &shown,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => errors.invalid_shown(
                &claim,
                &shown,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for reference in [direct, template] {
            if reference.is_set() {
                errors.format(&reference, names::subdomain);
            }
        }
    }
}

fn dns(spec: &At<'_>, errors: &mut Errors) {
    let config = spec.get("dnsConfig");
    let servers = config.get("nameservers");
    if spec.get("dnsPolicy").text() == "None" {
        if !config.is_set() {
            errors.required(&config, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            errors.required(
                &servers,
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
            return;
        }
    }
    if servers.len() > 3 {
        errors.invalid(
            &servers,
            servers.value.clone(),
            "must not have more than 3 nameservers",
        );
    }
    for server in servers.items() {
        errors.format(&server, names::ip);
    }
    let searches = config.get("searches");
    if searches.len() > 32 {
        errors.invalid(
            &searches,
            searches.value.clone(),
            "must not have more than 32 search paths",
        );
    }
    let total: usize = searches.texts().map(|search| search.len() + 1).sum();
    if total > 2049 {
        errors.invalid(
            &searches,
            searches.value.clone(),
            "must not have more than 2048 characters (including spaces) in the search list",
        );
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        errors.format_of(&search, name, names::subdomain_with_underscore);
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            errors.required(&option, "must not be empty");
        }
    }
}

/// A pod with its own user namespace cannot share the host's others.
fn own_users(spec: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    if scope.host_users {
        return;
    }
    const DETAIL: &str = "when `hostUsers` is false";
    for (field, reported) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.get(field).flag() {
            errors.forbidden(&spec.get(reported), DETAIL);
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get(list).items() {
            if !container.get("volumeDevices").is_empty() {
                errors.forbidden(&container.get("volumeDevices"), DETAIL);
            }
        }
    }
}

fn hostname_override(spec: &At<'_>, errors: &mut Errors) {
    let name = spec.get("hostnameOverride");
    if !name.is_set() {
        return;
    }
    for (field, words) in [
        ("setHostnameAsFQDN", "setHostnameAsFQDN is true"),
        ("hostNetwork", "hostNetwork is true"),
    ] {
        if spec.get(field).flag() {
            errors.forbidden(&name, format!("may not be specified when {words}"));
        }
    }
    if name.len() > 64 {
        errors.too_long(&name, 64);
    }
    errors.format(&name, names::subdomain);
}

fn file_key_volumes(spec: &At<'_>, errors: &mut Errors) {
    let volumes = spec.get("volumes").by("name");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get(list).items() {
            for var in container.get("env").items() {
                let reference = var.dig(&["valueFrom", "fileKeyRef"]);
                if !reference.is_set() {
                    continue;
                }
                let name = reference.get("volumeName");
                match volumes.get(name.text()) {
                    None => errors.not_found(&name, name.text()),
                    Some(volume) if !volume.get("emptyDir").is_set() => errors.invalid(
                        &name,
                        name.text(),
                        "referenced volume must be of type emptyDir",
                    ),
                    Some(_) => {}
                }
            }
        }
    }
}

/// A template for pods, wherever it appears.
pub fn template(template: &At<'_>, errors: &mut Errors) {
    let meta = template.get("metadata");
    let spec = template.get("spec");
    // Kubernetes leaves `metadata` out of these paths.
    let labels = meta.get("labels").reported_at(&template.get("labels"));
    let annotations = meta
        .get("annotations")
        .reported_at(&template.get("annotations"));
    metadata::labels(&labels, errors);
    metadata::annotations(&annotations, errors);
    super::annotations(&annotations, &spec, errors);
    check(&spec, &meta, false, errors);
    super::profiles_match(&meta.get("annotations"), &spec, errors);
    if !spec.get("ephemeralContainers").is_empty() {
        errors.forbidden(
            &spec.get("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}
