//! What may change in a service, and what goes with its type.

use serde_json::{Value, json};

use super::{
    EXTERNAL_NAME, FIXED, LOAD_BALANCER, NODE_PORT, is_headless, is_reachable, kind_of,
    needs_health_check,
};
use crate::kinds::at::{At, Errors, field, same, text};
use crate::kinds::names;
use crate::met::Met;

pub(super) fn same_addresses(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
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

pub(super) fn same_families(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
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
pub(super) fn load_balancer_status(
    status: &At<'_>,
    old: &At<'_>,
    balanced: bool,
    errors: &mut Errors,
) {
    let entries = status.get("ingress");
    if !balanced && !entries.is_empty() {
        errors.forbidden(
            &entries,
            "may only be used when `spec.type` is 'LoadBalancer'",
        );
        return;
    }
    let known = old.get("ingress").each("ip");
    for entry in entries.items() {
        let (ip, mode, host) = (entry.get("ip"), entry.get("ipMode"), entry.get("hostname"));
        if !ip.is_empty() && !known.contains(&ip.text()) {
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
pub(super) fn drop_what_depends_on_type(new: &mut Value, old: &Value) {
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
        drop_same(&["internalTrafficPolicy"]);
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
        let known: Met<i64> = numbers(field(before, &["ports"])).into_iter().collect();
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
