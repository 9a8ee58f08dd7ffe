//! Services.

mod addresses;

pub use addresses::{Addresses, allocate, held};

use serde_json::{Value, json};

use super::at::{At, Errors, field, same, text};
use super::names::{self, NameRule};
use super::pod::probes;
use super::rules::Rules;
use super::{metadata, pod::containers::PROTOCOLS};
use crate::field::{FieldError, Path, Problem};

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
    let mut seen = Vec::new();
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
    let known = |list: &'static str| -> Vec<&str> {
        old.map_or_else(Vec::new, |old| old.dig(&["spec", list]).texts().collect())
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
        if !at.is_empty() {
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

fn affinity(spec: &At<'_>, errors: &mut Errors) {
    let affinity = spec.get("sessionAffinity");
    errors.choice(&affinity, &["ClientIP", "None"]);
    let config = spec.get("sessionAffinityConfig");
    match affinity.text() {
        "ClientIP" => {
            let timeout = config.dig(&["clientIP", "timeoutSeconds"]);
            for at in [&config, &config.get("clientIP"), &timeout] {
                if !at.is_set() {
                    errors.required(at, "when session affinity type is ClientIP");
                    return;
                }
            }
            if !(1..=86400).contains(&timeout.number()) {
                errors.invalid(
                    &timeout,
                    timeout.number(),
                    "must be greater than 0 and less than 86400",
                );
            }
        }
        "None" if config.is_set() => {
            errors.forbidden(&config, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// Addresses, families and the policy about them, which say the same thing in several ways.
fn cluster_addresses(service: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    if kind_of(service) == EXTERNAL_NAME {
        return;
    }
    let spec = service.get("spec");
    let (one, all) = (spec.get("clusterIP"), spec.get("clusterIPs"));
    if one.is_empty() {
        if !all.is_empty() {
            errors.invalid(
                &all,
                all.value.clone(),
                "must be empty when `clusterIP` is not specified",
            );
        }
    } else if all.is_empty() {
        errors.required(&all, "");
    } else if all.item(0).text() != one.text() {
        errors.invalid(
            &all,
            all.value.clone(),
            "first value must match `clusterIP`",
        );
    }
    let families = spec.get("ipFamilies");
    let mut seen = Vec::new();
    for family in families.items() {
        errors.optional_choice(&family, &["IPv4", "IPv6"]);
        if seen.contains(&family.text()) {
            errors.duplicate(&family, family.text());
        }
        seen.push(family.text());
    }
    errors.optional_choice(
        &spec.get("ipFamilyPolicy"),
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    let mut broken = false;
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.len() > 1 {
                broken = true;
                errors.invalid(
                    &all,
                    all.value.clone(),
                    "'None' must be the first and only value",
                );
            }
            continue;
        }
        let known = old.is_some_and(|old| {
            old.dig(&["spec", "clusterIPs"])
                .texts()
                .any(|one| one == address.text())
        });
        if !known {
            let before = errors.0.len();
            errors.format(&address, names::ip);
            broken |= errors.0.len() > before;
        }
    }
    if all.len() > 2 {
        errors.invalid(&all, all.value.clone(), "may only hold up to 2 values");
    }
    if broken {
        return;
    }
    let is_ipv6 = |text: &str| names::parse_ip(text).is_some_and(|ip| ip.is_ipv6());
    if all.len() > 1 && all.texts().all(is_ipv6) == all.texts().any(is_ipv6) {
        errors.invalid(
            &all,
            all.value.clone(),
            "may specify no more than one IP for each IP family",
        );
    }
    if is_headless(service) {
        return;
    }
    for (index, (address, family)) in all.items().zip(families.texts()).enumerate() {
        if (family == "IPv6") != is_ipv6(address.text()) {
            errors.invalid(
                &address,
                address.text(),
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`"),
            );
        }
    }
}

/// Addresses that cannot be reached through a service.
pub(super) fn endpoint_address(at: &At<'_>, errors: &mut Errors) {
    let Some(ip) = names::parse_ip(at.text()) else {
        return;
    };
    let link_local = match ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local(),
        std::net::IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0) == 0xfe80,
    };
    let local_multicast = match ip {
        std::net::IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        std::net::IpAddr::V6(ip) => (ip.segments()[0] & 0xff0f) == 0xff02,
    };
    let mut refuse = |bad: bool, words: &str| {
        if bad {
            errors.invalid(at, at.text(), words);
        }
    };
    refuse(
        ip.is_unspecified(),
        &format!("may not be unspecified ({ip})"),
    );
    refuse(
        ip.is_loopback(),
        "may not be in the loopback range (127.0.0.0/8, ::1/128)",
    );
    refuse(
        link_local,
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
    );
    refuse(
        local_multicast,
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
    );
}

fn repeated_ports(ports: &At<'_>, kind: &str, errors: &mut Errors) {
    if kind == CLUSTER_IP {
        for port in ports
            .items()
            .filter(|port| port.get("nodePort").number() != 0)
        {
            errors.forbidden(
                &port.get("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    let mut seen = Vec::new();
    for port in ports.items() {
        let number = port.get("nodePort");
        let key = (port.get("protocol").text(), number.number());
        if number.number() != 0 {
            if seen.contains(&key) {
                errors.duplicate(&number, number.number());
            }
            seen.push(key);
        }
    }
    let mut seen = Vec::new();
    for port in ports.items() {
        let key = (port.get("protocol").text(), port.get("port").number());
        if seen.contains(&key) {
            // As an otherwise empty port in Kubernetes' internal form.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{}\",\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                key.0, key.1
            );
            let path = port.path();
            errors.push(FieldError::with_shown(
                Problem::Duplicate,
                &path,
                &shown,
                "",
            ));
        }
        seen.push(key);
    }
}

fn source_ranges(service: &At<'_>, known: &[&str], errors: &mut Errors) {
    let ranges = service.dig(&["spec", "loadBalancerSourceRanges"]);
    let place = service.dig(&["spec", "LoadBalancerSourceRanges"]);
    let balanced = kind_of(service) == LOAD_BALANCER;
    if !ranges.is_empty() {
        if !balanced {
            errors.forbidden(&place, ONLY_BALANCED);
        }
        for (index, range) in ranges.texts().map(str::trim).enumerate() {
            if !known.contains(&range) {
                errors.format_of(&place.item(index), range, names::cidr);
            }
        }
        return;
    }
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let annotation = service.dig(&["metadata", "annotations"]).key(ANNOTATION);
    if annotation.is_set() {
        if !balanced {
            errors.forbidden(&annotation, ONLY_BALANCED);
        }
        for range in annotation
            .text()
            .split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty())
        {
            errors.format_of(&annotation, range, names::cidr);
        }
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

fn same_addresses(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    if [new, old].iter().any(|one| kind_of(one) == EXTERNAL_NAME)
        || (is_headless(new) && is_headless(old))
    {
        return;
    }
    let (all, before) = (
        new.dig(&["spec", "clusterIPs"]),
        old.dig(&["spec", "clusterIPs"]),
    );
    if all.len() == before.len() {
        for (index, (now, then)) in all.texts().zip(before.texts()).enumerate() {
            if now != then {
                errors.invalid(&all.item(index), all.value.clone(), FIXED);
            }
        }
        return;
    }
    if all.is_empty() {
        errors.invalid(
            &all.item(0),
            all.value.clone(),
            "primary clusterIP can not be unset",
        );
    } else if !before.is_empty() && all.item(0).text() != before.item(0).text() {
        errors.invalid(&all.item(0), all.value.clone(), FIXED);
    }
    let policy = new.dig(&["spec", "ipFamilyPolicy"]);
    if all.len() < before.len() && all.len() == 1 && policy.text() != "SingleStack" {
        errors.invalid(
            &policy,
            policy.value.clone(),
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        );
    }
}

fn same_families(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    if [new, old].iter().any(|one| kind_of(one) == EXTERNAL_NAME)
        || is_headless(new)
        || is_headless(old)
    {
        return;
    }
    let (all, before) = (
        new.dig(&["spec", "ipFamilies"]),
        old.dig(&["spec", "ipFamilies"]),
    );
    if all.len() == before.len() {
        for (now, then) in all.texts().zip(before.texts()) {
            if now != then {
                errors.invalid(&all.item(0), all.value.clone(), FIXED);
            }
        }
    } else if !all.is_empty() && !before.is_empty() && all.item(0).text() != before.item(0).text() {
        let addresses = new.dig(&["spec", "clusterIPs"]);
        errors.invalid(&all.item(0), addresses.value.clone(), FIXED);
    }
    let policy = new.dig(&["spec", "ipFamilyPolicy"]);
    if all.len() < before.len() && all.len() == 1 && policy.text() != "SingleStack" {
        errors.invalid(
            &policy,
            policy.value.clone(),
            "must be set to 'SingleStack' when releasing the secondary ipFamily",
        );
    }
}

/// Where a load balancer can be reached; also of ingresses.
fn load_balancer_status(status: &At<'_>, old: &At<'_>, balanced: bool, errors: &mut Errors) {
    let entries = status.get("ingress");
    if !balanced && !entries.is_empty() {
        errors.forbidden(
            &entries,
            "may only be used when `spec.type` is 'LoadBalancer'",
        );
        return;
    }
    let old_entries = old.get("ingress");
    for entry in entries.items() {
        let (ip, mode, host) = (entry.get("ip"), entry.get("ipMode"), entry.get("hostname"));
        let known = old_entries
            .items()
            .any(|one| one.get("ip").text() == ip.text());
        if !ip.is_empty() && !known {
            errors.format(&ip, names::ip);
        }
        match (mode.is_set(), ip.is_empty()) {
            (false, false) => errors.required(&mode, "must be specified when `ip` is set"),
            (true, true) => {
                errors.forbidden(&mode, "may not be specified when `ip` is not set");
            }
            _ => errors.optional_choice(&mode, &["Proxy", "VIP"]),
        }
        if !host.is_empty() {
            errors.format(&host, names::subdomain);
            if names::parse_ip(host.text()).is_some() {
                errors.invalid(&host, host.text(), "must be a DNS name, not an IP address");
            }
        }
    }
}

/// A change of type takes along what only the old type had, unless the client changed that too.
fn drop_what_depends_on_type(new: &mut Value, old: &Value) {
    let before = field(old, &["spec"]);
    let (kind, old_kind) = (
        text(new, &["spec", "type"]).to_owned(),
        text(old, &["spec", "type"]),
    );
    let reachable = is_reachable(&At::root(new));
    let was_reachable = is_reachable(&At::root(old));
    let has_ports = |kind: &str| kind == NODE_PORT || kind == LOAD_BALANCER;
    let checked = needs_health_check(&At::root(new));
    let was_checked = needs_health_check(&At::root(old));
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let mut drop_same = |names: &[&str]| {
        let unchanged = names.iter().all(|name| {
            same(
                spec.get(*name).unwrap_or(&Value::Null),
                field(before, &[name]),
            )
        });
        if unchanged {
            for name in names {
                spec.remove(*name);
            }
        }
    };
    if old_kind != EXTERNAL_NAME && kind == EXTERNAL_NAME {
        drop_same(&["clusterIP", "clusterIPs"]);
        drop_same(&["ipFamilies"]);
        drop_same(&["ipFamilyPolicy"]);
    }
    if was_checked && !checked {
        drop_same(&["healthCheckNodePort"]);
    }
    if old_kind == LOAD_BALANCER && kind != LOAD_BALANCER {
        drop_same(&["allocateLoadBalancerNodePorts"]);
        drop_same(&["loadBalancerClass"]);
    }
    if was_reachable && !reachable {
        drop_same(&["externalTrafficPolicy"]);
    }
    if has_ports(old_kind) && !has_ports(&kind) {
        let numbers = |ports: &Value| -> Vec<i64> {
            let ports = ports.as_array().into_iter().flatten();
            ports
                .filter_map(|port| field(port, &["nodePort"]).as_i64())
                .collect()
        };
        let known = numbers(field(before, &["ports"]));
        if let Some(ports) = spec.get_mut("ports")
            && numbers(ports).iter().all(|number| known.contains(number))
        {
            for port in ports.as_array_mut().into_iter().flatten() {
                if let Some(port) = port.as_object_mut() {
                    port.remove("nodePort");
                }
            }
        }
    }
    if kind != LOAD_BALANCER {
        new["status"]["loadBalancer"] = json!({});
    }
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
