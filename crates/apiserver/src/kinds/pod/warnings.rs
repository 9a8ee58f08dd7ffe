//! What is allowed in a pod but hardly meant.

use serde_json::Value;

use super::{SECCOMP_CONTAINER, SECCOMP_POD, all_containers, hostname_warning};
use crate::field::{Path, quote};
use crate::kinds::at::At;
use crate::kinds::quantity::Quantity;

const DEPRECATED_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

pub const DEPRECATED_VOLUMES: &[(&str, &str, &str)] = &[
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];

const DEPRECATED_LABELS: &[(&str, &str)] = &[
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
];

pub fn for_pod(pod: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let pod = At::root(pod);
    let mut out: Vec<String> = hostname_warning(&pod).into_iter().collect();
    out.extend(for_template(&pod, &[]));
    out
}

/// Of a template at `path` within its object, or of a pod where that is empty.
pub fn for_template(template: &At<'_>, path: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    let base = path
        .iter()
        .fold(Path::root(), |path, field| path.child(field));
    // Places are named from the template, whose own path is in `base` already.
    let template = At::root(template.value);
    let full = |at: &At<'_>| -> String {
        let own = at.path().to_string();
        if path.is_empty() {
            own
        } else {
            format!("{base}.{own}")
        }
    };
    let (meta, spec) = (template.get("metadata"), template.get("spec"));
    for volume in spec.get("volumes").items() {
        for source in volume.dig(&["projected", "sources"]).items() {
            if source.is_empty() {
                let name = quote(volume.get("name").text());
                out.push(format!("volume {name} (Projected) has no sources provided"));
            }
        }
    }
    let mut warn = |at: &At<'_>, words: String| out.push(format!("{}: {words}", full(at)));
    node_labels(&spec, &mut warn);
    let annotations = meta.get("annotations");
    for (key, words) in DEPRECATED_ANNOTATIONS {
        if annotations.key(key).is_set() {
            warn(&annotations.key(key), (*words).to_owned());
        }
    }
    for volume in spec.get("volumes").items() {
        for (name, reported, words) in DEPRECATED_VOLUMES {
            if volume.get(name).is_set() {
                warn(&volume.get(reported), (*words).to_owned());
            }
        }
    }
    repeated(&spec.get("hostAliases"), "ip", &mut warn);
    let secrets = spec.get("imagePullSecrets");
    repeated(&secrets, "name", &mut warn);
    for secret in secrets
        .items()
        .filter(|secret| secret.get("name").is_empty())
    {
        warn(&secret.get("name"), "invalid empty name \"\"".to_owned());
    }
    fractions(&spec.get("overhead"), &mut warn);
    let functional = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    if annotations.key(SECCOMP_POD).is_set()
        && !spec.dig(&["securityContext", "seccompProfile"]).is_set()
    {
        warn(&annotations.key(SECCOMP_POD), functional.to_owned());
    }
    for container in all_containers(&spec) {
        let name = container.get("name").text();
        let own_profile = container
            .dig(&["securityContext", "seccompProfile"])
            .is_set();
        for (_, value) in annotations
            .entries()
            .filter(|(key, _)| !own_profile && key.strip_prefix(SECCOMP_CONTAINER) == Some(name))
        {
            warn(&value, functional.to_owned());
        }
        for list in ["limits", "requests"] {
            let amounts = container.dig(&["resources", list]);
            fraction(&amounts, "memory", &mut warn);
        }
        for list in ["limits", "requests"] {
            let amounts = container.dig(&["resources", list]);
            fraction(&amounts, "ephemeral-storage", &mut warn);
        }
        hidden_variables(&container.get("env"), &mut warn);
    }
    ports(&spec, &full, &mut out);
    let mut warn = |at: &At<'_>, words: String| out.push(format!("{}: {words}", full(at)));
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.number() < 0 {
        warn(
            &grace,
            "must be >= 0; negative values are invalid and will be treated as 1".to_owned(),
        );
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.dig(&["affinity", kind]);
        let required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution");
        let terms = required
            .items()
            .chain(preferred.items().map(|term| term.get("podAffinityTerm")));
        for term in terms.filter(|term| !term.get("labelSelector").is_set()) {
            warn(&term.get("labelSelector"), NULL_SELECTOR.to_owned());
        }
    }
    out
}

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn deprecated_label(key: &str) -> Option<&'static str> {
    DEPRECATED_LABELS
        .iter()
        .find(|(label, _)| *label == key)
        .map(|(_, words)| *words)
}

fn node_labels(spec: &At<'_>, warn: &mut impl FnMut(&At<'_>, String)) {
    for (key, at) in spec.get("nodeSelector").entries() {
        if let Some(words) = deprecated_label(key) {
            warn(&at, words.to_owned());
        }
    }
    let affinity = spec.dig(&["affinity", "nodeAffinity"]);
    let required = affinity.dig(&[
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    ]);
    let preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution");
    for term in required
        .items()
        .chain(preferred.items().map(|term| term.get("preference")))
    {
        for expression in term.get("matchExpressions").items() {
            let key = expression.get("key");
            if let Some(words) = deprecated_label(key.text()) {
                warn(&key, format!("{} is {words}", key.text()));
            }
        }
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        let key = constraint.get("topologyKey");
        if let Some(words) = deprecated_label(key.text()) {
            warn(&key, format!("{} is {words}", key.text()));
        }
        if !constraint.get("labelSelector").is_set() {
            warn(&constraint.get("labelSelector"), NULL_SELECTOR.to_owned());
        }
    }
}

fn repeated(list: &At<'_>, field: &'static str, warn: &mut impl FnMut(&At<'_>, String)) {
    let mut seen = Vec::new();
    for item in list.items() {
        let value = item.get(field);
        if seen.contains(&value.text()) {
            warn(&value, format!("duplicate {field} {}", quote(value.text())));
        } else {
            seen.push(value.text());
        }
    }
}

fn fractions(amounts: &At<'_>, warn: &mut impl FnMut(&At<'_>, String)) {
    for resource in ["memory", "ephemeral-storage"] {
        fraction(amounts, resource, warn);
    }
}

fn fraction(amounts: &At<'_>, resource: &'static str, warn: &mut impl FnMut(&At<'_>, String)) {
    let amount = amounts.key(resource);
    if amount.is_set() && !Quantity::of(amount.text()).is_countable() {
        let shown = quote(amount.text());
        warn(
            &amount,
            format!("fractional byte value {shown} is invalid, must be an integer"),
        );
    }
}

fn hidden_variables(env: &At<'_>, warn: &mut impl FnMut(&At<'_>, String)) {
    let mut seen = Vec::new();
    for var in env.items() {
        let name = var.get("name").text();
        if !seen.contains(&name) {
            seen.push(name);
            continue;
        }
        let reference = format!("$({name})");
        let value = var.get("value").text();
        let extends = value.contains(&reference) && value != reference;
        if var.get("valueFrom").is_set() || !extends {
            warn(
                &var,
                format!(
                    "hides previous definition of {}, which may be dropped when using apply",
                    quote(name)
                ),
            );
        }
    }
}

fn ports(spec: &At<'_>, full: &dyn Fn(&At<'_>) -> String, out: &mut Vec<String>) {
    let all: Vec<At<'_>> = all_containers(spec)
        .flat_map(|container| container.get("ports").items())
        .collect();
    for (index, port) in all.iter().enumerate() {
        let (host, ip) = (port.get("hostPort").number(), port.get("hostIP").text());
        for other in all.get(..index).unwrap_or_default() {
            let same_port = ["containerPort", "protocol"]
                .iter()
                .all(|field| port.get(field).value == other.get(field).value);
            if !same_port {
                continue;
            }
            let (other_host, other_ip) =
                (other.get("hostPort").number(), other.get("hostIP").text());
            let words = if (host, ip) == (other_host, other_ip) {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            out.push(format!(
                "{}: {words} port definition with {}",
                full(port),
                full(other)
            ));
        }
    }
    let mut named: Vec<&At<'_>> = Vec::new();
    for port in all.iter().filter(|port| !port.get("name").is_empty()) {
        let name = port.get("name").text();
        match named.iter().find(|one| one.get("name").text() == name) {
            Some(other) => out.push(format!(
                "{}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                full(port),
                quote(name),
                other = full(other),
            )),
            None => named.push(port),
        }
    }
}
