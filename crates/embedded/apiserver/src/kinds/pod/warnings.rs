//! What is allowed in a pod but hardly meant.

use serde_json::Value;

use super::{
    SECCOMP_CONTAINER, SECCOMP_POD, all_containers, app_armor, hostname_warning, volume_warnings,
};
use std::collections::HashMap;

use crate::kinds::at::At;
use crate::kinds::quantity::Quantity;
use crate::kinds::{addresses, names};
use crate::met::Met;
use plimsoll_golang::strconv::quote;

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

/// Warnings as they are found, with the places that they are about.
struct Warnings {
    /// The way to the template, which places are named from.
    base: String,
    said: Vec<String>,
}

impl Warnings {
    fn place(&self, at: &At<'_>) -> String {
        let own = at.path();
        if self.base.is_empty() {
            own.to_string()
        } else {
            format!("{}.{own}", self.base)
        }
    }

    /// Nobody reads more of them.
    fn is_full(&self) -> bool {
        self.said.len() >= 1000
    }

    fn push(&mut self, at: &At<'_>, words: impl std::fmt::Display) {
        if self.is_full() {
            return;
        }
        let place = self.place(at);
        self.said.push(format!("{place}: {words}"));
    }
}

/// Of a template at `path` within its object, or of a pod where that is empty.
pub fn for_template(template: &At<'_>, path: &[&str]) -> Vec<String> {
    let mut warnings = Warnings {
        base: path.join("."),
        said: Vec::new(),
    };
    let template = At::root(template.value);
    let (annotations, spec) = (
        template.dig(&["metadata", "annotations"]),
        template.get("spec"),
    );
    node_labels(&spec, &mut warnings);
    for (key, words) in DEPRECATED_ANNOTATIONS {
        if annotations.key(key).is_set() {
            warnings.push(&annotations.key(key), words);
        }
    }
    volumes(&spec.get("volumes"), &mut warnings);
    repeated(&spec.get("hostAliases"), "ip", &mut warnings);
    let secrets = spec.get("imagePullSecrets");
    repeated(&secrets, "name", &mut warnings);
    for secret in secrets
        .items()
        .filter(|secret| secret.get("name").is_empty())
    {
        warnings.push(&secret.get("name"), "invalid empty name \"\"");
    }
    for resource in ["memory", "ephemeral-storage"] {
        fraction(&spec.get("overhead"), resource, &mut warnings);
    }
    if !spec.dig(&["securityContext", "seccompProfile"]).is_set() {
        seccomp(&annotations.key(SECCOMP_POD), &mut warnings);
    }
    if !path.is_empty() {
        for words in app_armor::template_warnings(&template) {
            warnings.said.push(format!("{}.{words}", warnings.base));
        }
    }
    for container in all_containers(&spec) {
        container_oddities(&container, &annotations, &mut warnings);
    }
    ports(&spec, &mut warnings);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.number() < 0 {
        warnings.push(
            &grace,
            "must be >= 0; negative values are invalid and will be treated as 1",
        );
    }
    pod_affinity(&spec.get("affinity"), &mut warnings);
    for server in spec.dig(&["dnsConfig", "nameservers"]).items() {
        address(&server, &mut warnings);
    }
    for alias in spec.get("hostAliases").items() {
        address(&alias.get("ip"), &mut warnings);
    }
    warnings.said
}

fn volumes(volumes: &At<'_>, warnings: &mut Warnings) {
    for volume in volumes.items() {
        for (name, reported, words) in DEPRECATED_VOLUMES {
            if volume.get(name).is_set() {
                warnings.push(&volume.get(reported), words);
            }
        }
        let claim = volume.dig(&["ephemeral", "volumeClaimTemplate", "spec"]);
        for list in ["requests", "limits"] {
            fraction(&claim.dig(&["resources", list]), "storage", warnings);
        }
    }
    for volume in volumes.items() {
        warnings.said.extend(volume_warnings::for_volume(&volume));
    }
}

fn seccomp(annotation: &At<'_>, warnings: &mut Warnings) {
    if annotation.is_set() {
        warnings.push(
            annotation,
            "non-functional in v1.27+; use the \"seccompProfile\" field instead",
        );
    }
}

fn container_oddities(container: &At<'_>, annotations: &At<'_>, warnings: &mut Warnings) {
    let name = container.get("name").text();
    let own_profile = container
        .dig(&["securityContext", "seccompProfile"])
        .is_set();
    for (_, value) in annotations
        .entries()
        .filter(|(key, _)| !own_profile && key.strip_prefix(SECCOMP_CONTAINER) == Some(name))
    {
        seccomp(&value, warnings);
    }
    for resource in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            fraction(&container.dig(&["resources", list]), resource, warnings);
        }
    }
    hidden_variables(&container.get("env"), warnings);
}

fn pod_affinity(affinity: &At<'_>, warnings: &mut Warnings) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = affinity.get(kind);
        let required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution");
        let terms = required
            .items()
            .chain(preferred.items().map(|term| term.get("podAffinityTerm")));
        for term in terms.filter(|term| !term.get("labelSelector").is_set()) {
            warnings.push(&term.get("labelSelector"), NULL_SELECTOR);
        }
    }
}

fn address(at: &At<'_>, warnings: &mut Warnings) {
    if let Some(words) = addresses::oddity(at.text()) {
        warnings.push(at, words);
    }
}

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Words about a label of nodes that has a newer name.
pub fn deprecated_label(key: &str) -> Option<&'static str> {
    DEPRECATED_LABELS
        .iter()
        .find(|(label, _)| *label == key)
        .map(|(_, words)| *words)
}

fn deprecated_key(key: &At<'_>, warnings: &mut Warnings) {
    if let Some(words) = deprecated_label(key.text()) {
        warnings.push(key, format!("{} is {words}", key.text()));
    }
}

/// About the keys of expressions that select nodes.
pub fn for_expressions(expressions: &At<'_>) -> Vec<String> {
    let mut warnings = Warnings {
        base: String::new(),
        said: Vec::new(),
    };
    for expression in expressions.items() {
        deprecated_key(&expression.get("key"), &mut warnings);
    }
    warnings.said
}

fn node_labels(spec: &At<'_>, warnings: &mut Warnings) {
    for (key, at) in spec.get("nodeSelector").entries() {
        if let Some(words) = deprecated_label(key) {
            warnings.push(&at, words);
        }
    }
    let affinity = spec.dig(&["affinity", "nodeAffinity"]);
    let required = affinity.dig(&[
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    ]);
    let preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution");
    for term in required.items() {
        for expression in term.get("matchExpressions").items() {
            deprecated_key(&expression.get("key"), warnings);
        }
    }
    for term in preferred.items().map(|term| term.get("preference")) {
        for expression in term.get("matchExpressions").items() {
            deprecated_key(&expression.get("key"), warnings);
            for value in expression.get("values").items() {
                for complaint in names::label_value(value.text()) {
                    warnings.push(&value, format!("{} is invalid, {complaint}", value.text()));
                }
            }
        }
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        deprecated_key(&constraint.get("topologyKey"), warnings);
        if !constraint.get("labelSelector").is_set() {
            warnings.push(&constraint.get("labelSelector"), NULL_SELECTOR);
        }
    }
}

fn repeated(list: &At<'_>, field: &'static str, warnings: &mut Warnings) {
    let mut seen = Met::default();
    for item in list.items() {
        let value = item.get(field);
        if seen.contains(&value.text()) {
            warnings.push(&value, format!("duplicate {field} {}", quote(value.text())));
        } else {
            seen.push(value.text());
        }
    }
}

fn fraction(amounts: &At<'_>, resource: &'static str, warnings: &mut Warnings) {
    let amount = amounts.key(resource);
    if amount.is_set() && !Quantity::of(amount.text()).is_countable() {
        let shown = quote(amount.text());
        warnings.push(
            &amount,
            format!("fractional byte value {shown} is invalid, must be an integer"),
        );
    }
}

fn hidden_variables(env: &At<'_>, warnings: &mut Warnings) {
    let mut seen = Met::default();
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
            warnings.push(
                &var,
                format!(
                    "hides previous definition of {}, which may be dropped when using apply",
                    quote(name)
                ),
            );
        }
    }
}

fn ports(spec: &At<'_>, warnings: &mut Warnings) {
    let all: Vec<At<'_>> = all_containers(spec)
        .flat_map(|container| container.get("ports").items())
        .collect();
    let mut earlier = Earlier::default();
    for (index, port) in all.iter().enumerate() {
        if !port.get("hostIP").is_empty() && port.get("hostPort").number() == 0 {
            warnings.push(
                port,
                format!("hostIP set without hostPort: {}", go_port(port)),
            );
        }
        for other in earlier.clashing(port) {
            if let Some(words) = clash(port, &all[other])
                && !warnings.is_full()
            {
                let other = warnings.place(&all[other]);
                warnings.push(port, format!("{words} port definition with {other}"));
            }
        }
        earlier.note(index, port);
        if warnings.is_full() {
            return;
        }
    }
    let mut named: HashMap<&str, &At<'_>> = HashMap::new();
    for port in all.iter().filter(|port| !port.get("name").is_empty()) {
        let name = port.get("name").text();
        match named.get(name) {
            Some(other) => {
                let other = warnings.place(other);
                let name = quote(name);
                warnings.push(port, format!("duplicate port name {name} with {other}, services and probes that select ports by name will use {other}"));
            }
            None => {
                named.insert(name, port);
            }
        }
    }
}

/// Which port, and at which address of the host's.
type OnHost<'v> = (usize, &'v str);

/// Ports by what they may clash in.
#[derive(Default)]
struct Earlier<'v> {
    /// Of one number and protocol, by the host's.
    by_host: HashMap<(&'v Value, &'v Value, i64), Vec<OnHost<'v>>>,
    all: HashMap<(&'v Value, &'v Value), Vec<usize>>,
}

impl<'v> Earlier<'v> {
    fn note(&mut self, index: usize, port: &At<'v>) {
        let [number, protocol] = ["containerPort", "protocol"].map(|field| port.get(field).value);
        let host = port.get("hostPort").number();
        let same_host = self.by_host.entry((number, protocol, host)).or_default();
        same_host.push((index, port.get("hostIP").text()));
        self.all.entry((number, protocol)).or_default().push(index);
    }

    /// In order. Whoever has no port of the host's clashes with all.
    fn clashing(&self, port: &At<'v>) -> Vec<usize> {
        let [number, protocol] = ["containerPort", "protocol"].map(|field| port.get(field).value);
        let host = port.get("hostPort").number();
        if host == 0 {
            let all = self.all.get(&(number, protocol));
            return all.cloned().unwrap_or_default();
        }
        let ip = port.get("hostIP").text();
        let of = |host: i64| {
            self.by_host
                .get(&(number, protocol, host))
                .into_iter()
                .flatten()
        };
        let clashes = |other: &str| other == ip || other.is_empty() != ip.is_empty();
        let same = of(host).filter(|(_, other)| clashes(other));
        let mut found: Vec<usize> = of(0).chain(same).map(|(index, _)| *index).collect();
        found.sort_unstable();
        found
    }
}

/// As Go shows its struct.
fn go_port(port: &At<'_>) -> String {
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        port.get("name").text(),
        port.get("hostPort").number(),
        port.get("containerPort").number(),
        port.get("protocol").text(),
        port.get("hostIP").text(),
    )
}

fn clash(port: &At<'_>, other: &At<'_>) -> Option<&'static str> {
    let same_port = ["containerPort", "protocol"]
        .iter()
        .all(|field| port.get(field).value == other.get(field).value);
    if !same_port {
        return None;
    }
    let [host, other_host] = [port, other].map(|one| one.get("hostPort").number());
    let [ip, other_ip] = [port, other].map(|one| one.get("hostIP").text());
    if (host, ip) == (other_host, other_ip) {
        Some("duplicate")
    } else if host == 0 || other_host == 0 {
        Some("overlapping")
    } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}
