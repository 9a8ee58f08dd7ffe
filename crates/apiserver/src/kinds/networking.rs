//! Ingresses, network policies, and what stands behind services.

use serde_json::Value;

use super::at::{At, Errors, IMMUTABLE, same};
use super::core::again;
use super::names::{self, NameRule};
use super::pod::containers::PROTOCOLS;
use super::pod::probes;
use super::rules::Rules;
use super::service::endpoint_address;
use super::{Lookup, metadata};
use crate::status::Failure;

pub(super) static KINDS: &[&Rules] = &[
    &INGRESS,
    &INGRESS_CLASS,
    &NETWORK_POLICY,
    &ENDPOINT_SLICE,
    &ENDPOINTS,
];

const GROUP: &str = "networking.k8s.io";
const NOT_AN_IP: &str = "must be a DNS name, not an IP address";

static INGRESS: Rules = Rules {
    kind: "Ingress",
    status: true,
    generation: true,
    validate: |ingress, errors| {
        ingress_spec(&ingress.get("spec"), errors);
        const CLASS: &str = "kubernetes.io/ingress.class";
        let annotation = ingress.dig(&["metadata", "annotations", CLASS]);
        let class = ingress.dig(&["spec", "ingressClassName"]);
        if annotation.is_set() && class.is_set() && annotation.text() != class.text() {
            errors.invalid(
                &ingress.dig(&["annotations", CLASS]),
                annotation.text(),
                "must match `ingressClassName` when both are specified",
            );
        }
    },
    validate_update: Some(|new, _, errors| {
        again(new, true, NameRule::Subdomain, errors);
        ingress_spec(&new.get("spec"), errors);
    }),
    validate_status: |new, old, errors| {
        let known = old.dig(&["status", "loadBalancer", "ingress"]);
        for entry in new.dig(&["status", "loadBalancer", "ingress"]).items() {
            let (ip, host) = (entry.get("ip"), entry.get("hostname"));
            if !ip.is_empty() && !known.items().any(|one| one.get("ip").text() == ip.text()) {
                errors.format(&ip, names::ip);
            }
            if !host.is_empty() {
                errors.format(&host, names::subdomain);
                if names::parse_ip(host.text()).is_some() {
                    errors.invalid(&host, host.text(), NOT_AN_IP);
                }
            }
        }
    },
    warnings: |ingress, old| {
        let annotation = At::root(ingress).dig(&["metadata", "annotations"]);
        const CLASS: &str = "kubernetes.io/ingress.class";
        if old.is_none() && annotation.get(CLASS).is_set() {
            return vec![format!(
                "annotation {} is deprecated, please use 'spec.ingressClassName' instead",
                crate::field::quote(CLASS)
            )];
        }
        Vec::new()
    },
    admit: default_class,
    ..Rules::namespaced(GROUP)
};

/// An ingress without a class gets the one that calls itself default.
fn default_class(
    ingress: &mut Value,
    old: Option<&Value>,
    world: &dyn Lookup,
) -> Result<(), Failure> {
    use super::at::{field, text};
    let annotated = !field(
        ingress,
        &["metadata", "annotations", "kubernetes.io/ingress.class"],
    )
    .is_null();
    if old.is_some() || annotated || !field(ingress, &["spec", "ingressClassName"]).is_null() {
        return Ok(());
    }
    const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
    let mut classes = world.list("ingressclasses.networking.k8s.io", "");
    classes.retain(|class| text(class, &["metadata", "annotations", DEFAULT]) == "true");
    classes.sort_by_key(|class| {
        let created = text(class, &["metadata", "creationTimestamp"]).to_owned();
        (
            std::cmp::Reverse(created),
            text(class, &["metadata", "name"]).to_owned(),
        )
    });
    if let Some(class) = classes.first() {
        ingress["spec"]["ingressClassName"] = field(class, &["metadata", "name"]).clone();
    }
    Ok(())
}

fn ingress_spec(spec: &At<'_>, errors: &mut Errors) {
    let (rules, backend) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !backend.is_set() {
        errors.invalid(
            spec,
            rules.value.clone(),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if backend.is_set() {
        ingress_backend(&backend, errors);
    }
    for rule in rules.items() {
        let host = rule.get("host");
        if !host.is_empty() {
            if names::parse_ip(host.text()).is_some() {
                errors.invalid(&host, host.text(), NOT_AN_IP);
            }
            host_name(&host, errors);
        }
        let http = rule.get("http");
        if !http.is_set() {
            continue;
        }
        errors.non_empty(&http.get("paths"));
        for path in http.get("paths").items() {
            ingress_path(&path, errors);
        }
    }
    for tls in spec.get("tls").items() {
        for host in tls.get("hosts").items() {
            host_name(&host, errors);
        }
        let secret = tls.get("secretName");
        if !secret.is_empty() {
            errors.format(&secret, names::subdomain);
        }
    }
    let class = spec.get("ingressClassName");
    if class.is_set() {
        errors.format(&class, names::subdomain);
    }
}

fn host_name(host: &At<'_>, errors: &mut Errors) {
    if host.text().contains('*') {
        errors.format(host, names::wildcard_subdomain);
    } else {
        errors.format(host, names::subdomain);
    }
}

fn ingress_path(rule: &At<'_>, errors: &mut Errors) {
    let (kind, path) = (rule.get("pathType"), rule.get("path"));
    if !kind.is_set() {
        errors.required(&kind, "pathType must be specified");
        return;
    }
    let mut absolute = || {
        if !path.text().starts_with('/') {
            errors.invalid(&path, path.text(), "must be an absolute path");
        }
    };
    match kind.text() {
        "Exact" | "Prefix" => {
            absolute();
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(sequence) {
                    errors.invalid(&path, path.text(), format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if path.text().ends_with(suffix) {
                    errors.invalid(&path, path.text(), format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" if path.is_empty() => {}
        "ImplementationSpecific" => absolute(),
        _ => errors.not_supported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    ingress_backend(&rule.get("backend"), errors);
}

fn ingress_backend(backend: &At<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            errors.invalid(backend, "", "cannot set both resource and service backends");
        }
        (true, false) => reference(&resource, errors),
        (false, true) => {
            let name = service.get("name");
            if name.is_empty() {
                errors.required(&name, "");
            } else {
                errors.format(&name, names::label);
            }
            let (named, number) = (
                service.dig(&["port", "name"]),
                service.dig(&["port", "number"]),
            );
            match (named.is_empty(), number.number() == 0) {
                (false, false) => {
                    errors.invalid(backend, "", "cannot set both port name & port number");
                }
                (false, true) => errors.format(&named, names::port_name),
                (true, false) => errors.between(&number, 1, 65535),
                (true, true) => errors.required(backend, "port name or number is required"),
            }
        }
        (false, false) => {
            errors.invalid(backend, "", "resource or service backend is required");
        }
    }
}

fn reference(at: &At<'_>, errors: &mut Errors) {
    let group = at.get("apiGroup");
    if group.is_set() {
        errors.format(&group, names::subdomain);
    }
    for name in ["kind", "name"] {
        let part = at.get(name);
        if part.is_empty() {
            errors.required(&part, "");
        } else {
            errors.format(&part, names::path_segment);
        }
    }
}

static INGRESS_CLASS: Rules = Rules {
    kind: "IngressClass",
    generation: true,
    validate: ingress_class,
    validate_update: Some(|new, old, errors| {
        let controller = new.dig(&["spec", "controller"]);
        errors.immutable_text(&controller, &old.dig(&["spec", "controller"]));
        again(new, false, NameRule::Subdomain, errors);
        ingress_class(new, errors);
    }),
    ..Rules::cluster(GROUP)
};

fn ingress_class(class: &At<'_>, errors: &mut Errors) {
    let spec = class.get("spec");
    let controller = spec.get("controller");
    if controller.len() > 250 {
        errors.too_long(&controller, 250);
    }
    super::batch::domain_path(&controller, errors);
    let parameters = spec.get("parameters");
    if !parameters.is_set() {
        return;
    }
    reference(&parameters, errors);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.text() {
        "" => errors.required(&scope, ""),
        "Namespace" if !namespace.is_set() => {
            errors.required(&namespace, "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => errors.format(&namespace, names::label),
        "Cluster" => {
            if namespace.is_set() {
                errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
            }
        }
        _ => errors.not_supported(&scope, &["Cluster", "Namespace"]),
    }
}

static NETWORK_POLICY: Rules = Rules {
    kind: "NetworkPolicy",
    generation: true,
    validate: network_policy,
    ..Rules::namespaced(GROUP)
};

fn network_policy(policy: &At<'_>, errors: &mut Errors) {
    let spec = policy.get("spec");
    metadata::selector(&spec.get("podSelector"), errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(rules).items() {
            for port in rule.get("ports").items() {
                policy_port(&port, errors);
            }
            for peer in rule.get(peers).items() {
                policy_peer(&peer, errors);
            }
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        errors.invalid(
            &types,
            types.value.clone(),
            "may not specify more than two policyTypes",
        );
        return;
    }
    for kind in types.items() {
        errors.optional_choice(&kind, &["Ingress", "Egress"]);
    }
}

fn policy_port(at: &At<'_>, errors: &mut Errors) {
    errors.optional_choice(&at.get("protocol"), &["TCP", "UDP", "SCTP"]);
    let (port, end) = (at.get("port"), at.get("endPort"));
    if !port.is_set() {
        if end.is_set() {
            errors.invalid(
                &end,
                end.number(),
                "may not be specified when `port` is not specified",
            );
        }
    } else if port.value.is_string() {
        if end.is_set() {
            errors.invalid(
                &end,
                end.number(),
                "may not be specified when `port` is non-numeric",
            );
        }
        probes::port(&port, errors);
    } else {
        probes::port(&port, errors);
        if end.is_set() {
            if end.number() < port.number() {
                errors.invalid(
                    &end,
                    port.number(),
                    "must be greater than or equal to `port`",
                );
            }
            errors.between(&end, 1, 65535);
        }
    }
}

fn policy_peer(peer: &At<'_>, errors: &mut Errors) {
    let block = peer.get("ipBlock");
    let mut kinds = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        if peer.get(selector).is_set() {
            kinds += 1;
            metadata::selector(&peer.get(selector), errors);
        }
    }
    if block.is_set() {
        kinds += 1;
        ip_block(&block, errors);
    }
    if kinds == 0 {
        errors.required(peer, "must specify a peer");
    } else if kinds > 1 && block.is_set() {
        errors.forbidden(peer, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &At<'_>, errors: &mut Errors) {
    let cidr = block.get("cidr");
    if cidr.is_empty() {
        errors.required(&cidr, "");
        return;
    }
    errors.format(&cidr, names::cidr);
    let Some((network, bits)) = names::parse_cidr(cidr.text()) else {
        return;
    };
    for except in block.get("except").items() {
        errors.format(&except, names::cidr);
        let Some((inner, inner_bits)) = names::parse_cidr(except.text()) else {
            continue;
        };
        if bits >= inner_bits || !names::shares_prefix(network, inner, bits) {
            errors.invalid(&except, except.text(), "must be a strict subset of `cidr`");
        }
    }
}

static ENDPOINT_SLICE: Rules = Rules {
    kind: "EndpointSlice",
    prepare_create: |slice| slice["metadata"]["generation"] = 1.into(),
    prepare_update: |new, old| {
        let changed = ["endpoints", "ports", "addressType"]
            .iter()
            .any(|name| !same(&new[*name], &old[*name]))
            || !same(&new["metadata"]["labels"], &old["metadata"]["labels"]);
        super::raise_generation(new, changed);
    },
    validate: |slice, errors| {
        slice_kind_and_ports(slice, errors);
        slice_endpoints(slice, errors);
    },
    validate_update: Some(|new, old, errors| {
        again(new, true, NameRule::Subdomain, errors);
        slice_kind_and_ports(new, errors);
        if !same(new.get("endpoints").value, old.get("endpoints").value) {
            slice_endpoints(new, errors);
        }
        let (kind, before) = (new.get("addressType"), old.get("addressType"));
        if kind.text() != before.text() {
            errors.invalid(&kind, kind.text(), IMMUTABLE);
        }
    }),
    ..Rules::namespaced("discovery.k8s.io")
};

fn slice_kind_and_ports(slice: &At<'_>, errors: &mut Errors) {
    let kind = slice.get("addressType");
    errors.choice(&kind, &["FQDN", "IPv4", "IPv6"]);
    let mut seen = Vec::new();
    for port in slice.get("ports").items() {
        let name = port.get("name");
        if !name.is_empty() {
            errors.format(&name, names::label);
        }
        if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        } else {
            seen.push(name.text());
        }
        errors.choice(&port.get("protocol"), PROTOCOLS);
        let protocol = port.get("appProtocol");
        if protocol.is_set() {
            errors.format(&protocol, names::qualified_name);
        }
    }
}

fn slice_endpoints(slice: &At<'_>, errors: &mut Errors) {
    let kind = slice.get("addressType");
    let endpoints = slice.get("endpoints");
    if endpoints.len() > 1000 {
        errors.too_many(&endpoints, 1000);
        return;
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.get("addresses");
        if addresses.is_empty() {
            errors.required(&addresses, "must contain at least 1 address");
        } else if addresses.len() > 100 {
            errors.too_many(&addresses, 100);
        }
        for address in addresses.items() {
            slice_address(&address, &addresses, kind.text(), errors);
        }
        for (name, rule) in [
            ("nodeName", names::subdomain as fn(&str) -> Vec<String>),
            ("hostname", names::label),
        ] {
            if endpoint.get(name).is_set() {
                errors.format(&endpoint.get(name), rule);
            }
        }
        for (list, rule) in [
            ("forZones", names::label_value as fn(&str) -> Vec<String>),
            ("forNodes", names::subdomain),
        ] {
            let hints = endpoint.dig(&["hints", list]);
            if hints.len() > 8 {
                errors.too_many(&hints, 8);
                continue;
            }
            let mut known = Vec::new();
            for hint in hints.items() {
                let name = hint.get("name");
                if known.contains(&name.text()) {
                    errors.duplicate(&name, name.text());
                } else {
                    known.push(name.text());
                }
                errors.format(&name, rule);
            }
        }
    }
}

fn slice_address(address: &At<'_>, all: &At<'_>, kind: &str, errors: &mut Errors) {
    let rule = match kind {
        "IPv4" => names::ip,
        "IPv6" => names::canonical_ip,
        "FQDN" => {
            let name = address.text().strip_suffix('.').unwrap_or(address.text());
            let complaints = names::subdomain(name);
            if !complaints.is_empty() {
                errors.invalid(address, name, complaints.join(","));
            } else if !name.contains('.') {
                errors.invalid(
                    address,
                    name,
                    "should be a domain with at least two segments separated by dots",
                );
            }
            return;
        }
        _ => return,
    };
    if !rule(address.text()).is_empty() {
        errors.format(address, rule);
        return;
    }
    let is_ipv6 = names::parse_ip(address.text()).is_some_and(|ip| ip.is_ipv6());
    if is_ipv6 != (kind == "IPv6") {
        errors.invalid(all, address.text(), format!("must be an {kind} address"));
    }
    endpoint_address(address, errors);
}

static ENDPOINTS: Rules = Rules {
    kind: "Endpoints",
    warnings: |_, _| {
        vec![
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
                .to_owned(),
        ]
    },
    validate: endpoints,
    validate_update: Some(|new, old, errors| {
        again(new, true, NameRule::Subdomain, errors);
        if !same(new.get("subsets").value, old.get("subsets").value) {
            endpoints(new, errors);
        }
    }),
    ..Rules::namespaced("")
};

fn endpoints(endpoints: &At<'_>, errors: &mut Errors) {
    for subset in endpoints.get("subsets").items() {
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| subset.get(list).is_empty()) {
            errors.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in lists.iter().flat_map(|list| subset.get(list).items()) {
            let ip = address.get("ip");
            errors.format(&ip, names::ip);
            let (host, node) = (address.get("hostname"), address.get("nodeName"));
            if !host.is_empty() {
                errors.format(&host, names::label);
            }
            if node.is_set() {
                errors.format(&node, names::subdomain);
            }
            if names::parse_ip(ip.text()).is_none() {
                errors.invalid(&ip, ip.text(), "must be a valid IP address");
            }
            endpoint_address(&ip, errors);
        }
        let ports = subset.get("ports");
        for port in ports.items() {
            let name = port.get("name");
            if name.is_empty() && ports.len() > 1 {
                errors.required(&name, "");
            } else if !name.is_empty() {
                errors.format(&name, names::label);
            }
            errors.between(&port.get("port"), 1, 65535);
            errors.choice(&port.get("protocol"), PROTOCOLS);
            let protocol = port.get("appProtocol");
            if protocol.is_set() {
                errors.format(&protocol, names::qualified_name);
            }
        }
    }
}
