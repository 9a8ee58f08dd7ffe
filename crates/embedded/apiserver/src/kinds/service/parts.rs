//! Addresses, ports and affinity of services.

use super::{CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, ONLY_BALANCED, is_headless, kind_of};
use crate::kinds::at::{At, Errors};
use crate::kinds::names;
use crate::met::Met;

/// Addresses, families and the policy about them, which say the same thing in several ways.
pub(super) fn cluster_addresses(service: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
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
    let mut seen = Met::default();
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
    let old = old.map(|old| old.dig(&["spec", "clusterIPs"]));
    let known: Met<&str> = old.iter().flat_map(At::texts).collect();
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
        if !known.contains(&address.text()) {
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
pub(in crate::kinds) fn endpoint_address(at: &At<'_>, errors: &mut Errors) {
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

pub(super) fn repeated_ports(ports: &At<'_>, kind: &str, errors: &mut Errors) {
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
    let mut seen = Met::default();
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
    let mut seen = Met::default();
    for port in ports.items() {
        let key = (port.get("protocol").text(), port.get("port").number());
        if seen.contains(&key) {
            // As an otherwise empty port in Kubernetes' internal form.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{}\",\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                key.0, key.1
            );
            errors.duplicate_shown(&port, &shown);
        }
        seen.push(key);
    }
}

pub(super) fn source_ranges(service: &At<'_>, known: &Met<&str>, errors: &mut Errors) {
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

pub(super) fn affinity(spec: &At<'_>, errors: &mut Errors) {
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
