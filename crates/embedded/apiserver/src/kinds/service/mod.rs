//! Services.

mod addresses;
mod parts;
mod update;

pub use addresses::{Addresses, allocate, held};
pub(super) use parts::endpoint_address;
use parts::{affinity, cluster_addresses, repeated_ports, source_ranges};
use update::{drop_what_depends_on_type, load_balancer_status, same_addresses, same_families};

use serde_json::Value;

use super::at::{At, Errors};
use super::names::{self, NameRule};
use super::pod::probes;
use super::rules::Rules;
use super::{metadata, pod::containers::PROTOCOLS};
use crate::field::{FieldError, Path};
use crate::met::Met;

pub(super) static SERVICE: Rules = Rules {
    kind: "Service",
    names: NameRule::Label,
    status: true,
    prepare_update: drop_what_depends_on_type,
    validate: |service, errors| check(service, None, errors),
    validate_update: Some(|new, old, errors| {
        same_addresses(new, old, errors);
        same_families(new, old, errors);
        load_balancer_class(new, Some(old), errors);
        let port = |service: &At<'_>| service.dig(&["spec", "healthCheckNodePort"]).number();
        if needs_health_check(new) && needs_health_check(old) && port(new) != port(old) {
            errors.forbidden(
                &new.dig(&["spec", "healthCheckNodePort"]),
                "field is immutable",
            );
        }
        check(new, Some(old), errors);
    }),
    validate_status: |new, old, errors| {
        let is_balanced = kind_of(new) == LOAD_BALANCER;
        let place = new.dig(&["status", "loadBalancer"]);
        load_balancer_status(
            &place,
            &old.dig(&["status", "loadBalancer"]),
            is_balanced,
            errors,
        );
    },
    warnings,
    ..Rules::namespaced("")
};

const LOAD_BALANCER: &str = "LoadBalancer";
const NODE_PORT: &str = "NodePort";
const CLUSTER_IP: &str = "ClusterIP";
const EXTERNAL_NAME: &str = "ExternalName";
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const FIXED: &str = "may not change once set";

fn kind_of<'v>(service: &At<'v>) -> &'v str {
    service.dig(&["spec", "type"]).text()
}

fn is_headless(service: &At<'_>) -> bool {
    let addresses = service.dig(&["spec", "clusterIPs"]);
    addresses.len() == 1 && addresses.item(0).text() == "None"
}

fn is_reachable(service: &At<'_>) -> bool {
    match kind_of(service) {
        LOAD_BALANCER | NODE_PORT => true,
        CLUSTER_IP => !service.dig(&["spec", "externalIPs"]).is_empty(),
        _ => false,
    }
}

fn needs_health_check(service: &At<'_>) -> bool {
    kind_of(service) == LOAD_BALANCER
        && service.dig(&["spec", "externalTrafficPolicy"]).text() == "Local"
}

fn check(service: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let spec = service.get("spec");
    let kind = kind_of(service);
    topology_annotations(service, errors);
    let ports = spec.get("ports");
    let headless = is_headless(service);
    if ports.is_empty() && !headless && kind != EXTERNAL_NAME {
        errors.required(&ports, "");
    }
    match kind {
        LOAD_BALANCER | NODE_PORT if headless => errors.invalid(
            &spec.get("clusterIPs").item(0),
            "None",
            format!("may not be set to 'None' for {kind} services"),
        ),
        EXTERNAL_NAME => external_name(&spec, errors),
        _ => {}
    }
    let mut seen = Met::default();
    for port in ports.items() {
        let name = port.get("name");
        if name.is_empty() && ports.len() > 1 {
            errors.required(&name, "");
        } else if !name.is_empty() {
            errors.format(&name, names::label);
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            } else {
                seen.push(name.text());
            }
        }
        errors.between(&port.get("port"), 1, 65535);
        errors.choice(&port.get("protocol"), PROTOCOLS);
        probes::port(&port.get("targetPort"), errors);
        let protocol = port.get("appProtocol");
        if protocol.is_set() {
            errors.format(&protocol, names::qualified_name);
        }
    }
    metadata::labels(&spec.get("selector"), errors);
    affinity(&spec, errors);
    cluster_addresses(service, old, errors);
    let known = |list: &'static str| -> Met<&str> {
        let old = old.map(|old| old.dig(&["spec", list]));
        old.iter().flat_map(At::texts).collect()
    };
    let known_external = known("externalIPs");
    for address in spec.get("externalIPs").items() {
        let complaints = names::ip(address.text());
        if !complaints.is_empty() && !known_external.contains(&address.text()) {
            errors.format(&address, names::ip);
        } else {
            endpoint_address(&address, errors);
        }
    }
    errors.choice(
        &spec.get("type"),
        &[CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT],
    );
    repeated_ports(&ports, kind, errors);
    source_ranges(service, &known("loadBalancerSourceRanges"), errors);
    let allocate = spec.get("allocateLoadBalancerNodePorts");
    if allocate.is_set() && kind != LOAD_BALANCER {
        errors.forbidden(&allocate, ONLY_BALANCED);
    }
    if !allocate.is_set() && kind == LOAD_BALANCER {
        let place = Path::new("allocateLoadBalancerNodePorts");
        errors.push(FieldError::required(&place, ""));
    }
    load_balancer_class(service, None, errors);
    traffic(service, errors);
}

fn topology_annotations(service: &At<'_>, errors: &mut Errors) {
    let annotations = service.dig(&["metadata", "annotations"]);
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let hints = annotations.get(HINTS);
    let mode = annotations.key("service.kubernetes.io/topology-mode");
    if hints.is_set() && mode.is_set() && hints.text() != mode.text() {
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        errors.invalid(&mode, mode.text(), detail);
    }
}

fn external_name(spec: &At<'_>, errors: &mut Errors) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let at = spec.get(field);
        if at.is_set() {
            errors.forbidden(&at, "may not be set for ExternalName services");
        }
    }
    let name = spec.get("externalName");
    let host = name.text().strip_suffix('.').unwrap_or(name.text());
    if host.is_empty() {
        errors.required(&name, "");
    } else {
        errors.format_of(&name, host, names::subdomain);
    }
}

fn load_balancer_class(service: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let class = service.dig(&["spec", "loadBalancerClass"]);
    let balanced = kind_of(service) == LOAD_BALANCER;
    if let Some(old) = old
        && balanced
        && kind_of(old) == LOAD_BALANCER
        && class.value != old.dig(&["spec", "loadBalancerClass"]).value
    {
        errors.invalid(&class, class.value.clone(), FIXED);
    }
    if class.is_set() {
        if balanced {
            errors.format(&class, names::qualified_name);
        } else {
            errors.forbidden(&class, ONLY_BALANCED);
        }
    }
}

fn traffic(service: &At<'_>, errors: &mut Errors) {
    let spec = service.get("spec");
    let external = spec.get("externalTrafficPolicy");
    if is_reachable(service) {
        errors.choice(&external, &["Cluster", "Local"]);
    } else if !external.is_empty() {
        errors.invalid(
            &external,
            external.text(),
            "may only be set for externally-accessible services",
        );
    }
    let health = spec.get("healthCheckNodePort");
    if needs_health_check(service) {
        if health.number() == 0 {
            errors.required(&health, "");
        } else {
            errors.between(&health, 1, 65535);
        }
    } else if health.number() != 0 {
        errors.invalid(
            &health,
            health.number(),
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        );
    }
    let internal = spec.get("internalTrafficPolicy");
    if !internal.is_set() && [CLUSTER_IP, NODE_PORT, LOAD_BALANCER].contains(&kind_of(service)) {
        errors.required(&internal, "");
    }
    errors.optional_choice(&internal, &["Cluster", "Local"]);
    errors.optional_choice(
        &spec.get("trafficDistribution"),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

fn warnings(service: &Value, _old: Option<&Value>) -> Vec<String> {
    let service = At::root(service);
    let spec = service.get("spec");
    let mut out = Vec::new();
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    if service.dig(&["metadata", "annotations", HINTS]).is_set() {
        out.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let kind = kind_of(&service);
    let headless = kind == CLUSTER_IP && spec.get("clusterIP").text() == "None";
    let external = !spec.get("externalIPs").is_empty();
    let mut warn = |wanted: bool, words: &str| {
        if wanted {
            out.push(words.to_owned());
        }
    };
    let ignored = "is ignored for headless services";
    warn(
        headless && !spec.get("loadBalancerIP").is_empty(),
        &format!("spec.loadBalancerIP {ignored}"),
    );
    warn(headless && external, &format!("spec.externalIPs {ignored}"));
    warn(
        headless && spec.get("sessionAffinity").text() != "None",
        &format!("spec.SessionAffinity {ignored}"),
    );
    warn(
        external && !headless && kind != EXTERNAL_NAME,
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    );
    warn(
        external && kind == EXTERNAL_NAME,
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
    );
    warn(
        kind != EXTERNAL_NAME && !spec.get("externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    warn(
        spec.get("trafficDistribution").text() == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
    out
}
