//! What stands behind services.

use serde_json::Value;

use crate::kinds::addresses;
use crate::kinds::at::{At, Errors, IMMUTABLE, same};
use crate::kinds::core::again;
use crate::kinds::names::{self, NameRule};
use crate::kinds::pod::containers::PROTOCOLS;
use crate::kinds::rules::Rules;
use crate::kinds::service::endpoint_address;
use crate::met::Met;

/// What these write is known to be in order.
const OWN_CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];

pub(super) static ENDPOINT_SLICE: Rules = Rules {
    kind: "EndpointSlice",
    update_checks_metadata: true,
    prepare_create: |slice| {
        slice["metadata"]["generation"] = 1.into();
        drop_topology(slice);
    },
    prepare_update: |new, old| {
        let changed = ["endpoints", "ports", "addressType"]
            .iter()
            .any(|name| !same(&new[*name], &old[*name]))
            || !same(&new["metadata"]["labels"], &old["metadata"]["labels"]);
        crate::kinds::raise_generation(new, changed);
        drop_topology(new);
    },
    warnings: |slice, old| {
        let mut out = Vec::new();
        if slice["addressType"] == "FQDN" && old.is_none() {
            out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        let manager = &slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
        if !OWN_CONTROLLERS.iter().any(|name| manager == name) {
            let endpoints = At::root(slice).get("endpoints").items();
            let addresses = endpoints.flat_map(|endpoint| endpoint.get("addresses").items());
            out.extend(addresses.filter_map(|address| {
                let words = addresses::oddity(address.text())?;
                Some(format!("{}: {words}", address.path()))
            }));
        }
        out
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

/// What older versions had instead of nodes and zones is taken from nobody any more.
fn drop_topology(slice: &mut Value) {
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        if let Some(fields) = endpoint.as_object_mut() {
            fields.remove("deprecatedTopology");
        }
    }
}

pub(super) fn slice_kind_and_ports(slice: &At<'_>, errors: &mut Errors) {
    let kind = slice.get("addressType");
    errors.choice(&kind, &["FQDN", "IPv4", "IPv6"]);
    let mut seen = Met::default();
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
        errors.given_choice(&port.get("protocol"), PROTOCOLS);
        let protocol = port.get("appProtocol");
        if protocol.is_set() {
            errors.format(&protocol, names::qualified_name);
        }
    }
}

pub(super) fn slice_endpoints(slice: &At<'_>, errors: &mut Errors) {
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
            let mut known = Met::default();
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

pub(super) fn slice_address(address: &At<'_>, all: &At<'_>, kind: &str, errors: &mut Errors) {
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

pub(super) static ENDPOINTS: Rules = Rules {
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

pub(super) fn endpoints(endpoints: &At<'_>, errors: &mut Errors) {
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
