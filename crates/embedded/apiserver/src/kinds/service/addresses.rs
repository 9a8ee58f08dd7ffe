//! The addresses and ports that services get. Runs before a service is prepared and validated.

use serde_json::{Value, json};

use super::{
    CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT, cluster_addresses, needs_health_check,
};
use std::collections::HashMap;

use crate::field::{FieldError, Path};
use crate::kinds::at::{At, Errors, field, text};
use crate::met::Met;
use crate::status::{StatusError, Subject};

/// Who hands out addresses and ports. Refusals are in Kubernetes' words (`provided port is already allocated`).
pub trait Addresses {
    /// A free address, or the wanted one.
    fn address(&self, wanted: Option<&str>) -> Result<String, String>;
    /// A free node port, or the wanted one.
    fn port(&self, wanted: Option<u16>) -> Result<u16, String>;
}

/// Completes a service that is created (`old` absent) or updated. There is one address family, IPv4.
pub fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    addresses: &dyn Addresses,
) -> Result<(), StatusError> {
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    agree_on_addresses(service, old);
    families(service, old)?;
    cluster_address(service, old, addresses)?;
    node_ports(service, old, addresses)?;
    health_check_port(service, old, addresses)
}

fn invalid(service: &Value, errors: &[FieldError]) -> StatusError {
    let subject = Subject {
        group: "",
        kind: "Service",
    };
    StatusError::invalid(subject, text(service, &["metadata", "name"]), errors)
}

fn spec_path(name: &str) -> Path {
    Path::new("spec").child(name)
}

fn kind_of(service: &Value) -> &str {
    text(service, &["spec", "type"])
}

/// Whether it is given ports on nodes.
fn gets_ports(service: &Value) -> bool {
    match kind_of(service) {
        NODE_PORT => true,
        LOAD_BALANCER => field(service, &["spec", "allocateLoadBalancerNodePorts"]) != false,
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

/// What a client left out that it had before is still meant.
fn keep_allocated(service: &mut Value, old: &Value) {
    if kind_of(service) != EXTERNAL_NAME && kind_of(old) != EXTERNAL_NAME {
        let before = field(old, &["spec", "clusterIP"]);
        if text(service, &["spec", "clusterIP"]).is_empty() && !before.is_null() {
            service["spec"]["clusterIP"] = before.clone();
        }
        let before = field(old, &["spec", "clusterIPs"]);
        if is_empty(field(service, &["spec", "clusterIPs"])) && !is_empty(before) {
            service["spec"]["clusterIPs"] = before.clone();
        }
    }
    if gets_ports(service) && gets_ports(old) {
        let number = |port: &Value| field(port, &["nodePort"]).as_i64().unwrap_or_default();
        fn ports_of(of: &Value) -> impl Iterator<Item = &Value> {
            field(of, &["spec", "ports"])
                .as_array()
                .into_iter()
                .flatten()
        }
        let now: Met<i64> = ports_of(service).map(number).collect();
        // Of those with one name, the last.
        let before: HashMap<&str, i64> = ports_of(old)
            .map(|port| (text(port, &["name"]), number(port)))
            .collect();
        let ports = service
            .pointer_mut("/spec/ports")
            .and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            let known = before.get(text(port, &["name"]));
            let known = known.copied().unwrap_or_default();
            if number(port) == 0 && known != 0 && !now.contains(&known) {
                port["nodePort"] = json!(known);
            }
        }
    }
    let health = field(old, &["spec", "healthCheckNodePort"]);
    let needed = needs_health_check(&At::root(service)) && needs_health_check(&At::root(old));
    if needed && field(service, &["spec", "healthCheckNodePort"]).is_null() && !health.is_null() {
        service["spec"]["healthCheckNodePort"] = health.clone();
    }
}

/// `clusterIP` and `clusterIPs` are two views of one thing; older clients know only the first.
fn agree_on_addresses(service: &mut Value, old: Option<&Value>) {
    let one = text(service, &["spec", "clusterIP"]).to_owned();
    let all = field(service, &["spec", "clusterIPs"]).clone();
    let Some(old) = old else {
        if !one.is_empty() && is_empty(&all) {
            service["spec"]["clusterIPs"] = json!([one]);
        }
        return;
    };
    let old_one = text(old, &["spec", "clusterIP"]);
    let old_all = field(old, &["spec", "clusterIPs"]);
    if !is_empty(old_all) && is_empty(&all) && one == old_one {
        service["spec"]["clusterIPs"] = old_all.clone();
    }
    if one != old_one && all == *old_all {
        if one.is_empty() {
            if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("clusterIPs");
            }
        } else {
            service["spec"]["clusterIPs"] = json!([one]);
        }
    }
}

fn families(service: &mut Value, old: Option<&Value>) -> Result<(), StatusError> {
    if kind_of(service) == EXTERNAL_NAME {
        return Ok(());
    }
    let headless = text(service, &["spec", "clusterIP"]) == "None";
    let selects = field(service, &["spec", "selector"])
        .as_object()
        .is_some_and(|selector| !selector.is_empty());
    if field(service, &["spec", "ipFamilyPolicy"]).is_null() {
        let before = old.map(|old| field(old, &["spec", "ipFamilyPolicy"]).clone());
        service["spec"]["ipFamilyPolicy"] = match before {
            Some(policy) if !policy.is_null() => policy,
            _ if headless && !selects => json!("RequireDualStack"),
            _ => json!("SingleStack"),
        };
    }
    let mut errors = Errors::default();
    let before = old.map(At::root);
    cluster_addresses(&At::root(service), before.as_ref(), &mut errors);
    if !errors.is_empty() {
        return Err(invalid(service, &errors.0));
    }
    let policy = text(service, &["spec", "ipFamilyPolicy"]).to_owned();
    let mut families: Vec<Value> = field(service, &["spec", "ipFamilies"])
        .as_array()
        .cloned()
        .unwrap_or_default();
    let all: Vec<Value> = field(service, &["spec", "clusterIPs"])
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut errors = Vec::new();
    let wants = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
    if policy == "SingleStack" {
        let at = spec_path("ipFamilyPolicy");
        if all.len() == 2 {
            let detail = format!("{wants} cluster IPs are specified");
            errors.push(FieldError::invalid(&at, policy.as_str(), detail));
        }
        if families.len() == 2 {
            let detail = format!("{wants} IP families are specified");
            errors.push(FieldError::invalid(&at, policy.as_str(), detail));
        }
    }
    for (index, address) in all.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address == "None" || index < families.len() {
            continue;
        }
        if address.contains(':') {
            errors.push(FieldError::invalid(
                &spec_path("clusterIPs").index(index),
                all.clone(),
                "IPv6 is not configured on this cluster",
            ));
        } else {
            families.push(json!("IPv4"));
        }
    }
    if !errors.is_empty() {
        return Err(invalid(service, &errors));
    }
    if families.is_empty() {
        families.push(json!("IPv4"));
    }
    if headless && !selects {
        // Nobody here hands out its addresses, so any family will do.
        if families.len() < 2 && policy != "SingleStack" {
            families.push(json!(if families[0] == "IPv4" {
                "IPv6"
            } else {
                "IPv4"
            }));
        }
    } else {
        if policy == "RequireDualStack" {
            errors.push(FieldError::invalid(
                &spec_path("ipFamilyPolicy"),
                policy.as_str(),
                "this cluster is not configured for dual-stack services",
            ));
        }
        for (index, family) in families
            .iter()
            .enumerate()
            .filter(|(_, family)| **family != "IPv4")
        {
            errors.push(FieldError::invalid(
                &spec_path("ipFamilies").index(index),
                family.clone(),
                "not configured on this cluster",
            ));
        }
        if !errors.is_empty() {
            return Err(invalid(service, &errors));
        }
    }
    service["spec"]["ipFamilies"] = families.into();
    Ok(())
}

fn cluster_address(
    service: &mut Value,
    old: Option<&Value>,
    addresses: &dyn Addresses,
) -> Result<(), StatusError> {
    let was_external = old.is_none_or(|old| kind_of(old) == EXTERNAL_NAME);
    if kind_of(service) == EXTERNAL_NAME || !was_external {
        return Ok(());
    }
    let all = field(service, &["spec", "clusterIPs"]).clone();
    let first = field(&all, &[])
        .get(0)
        .and_then(Value::as_str)
        .map(str::to_owned);
    if first.as_deref() == Some("None") {
        return Ok(());
    }
    match addresses.address(first.as_deref()) {
        Ok(address) => {
            service["spec"]["clusterIP"] = json!(address);
            service["spec"]["clusterIPs"] = json!([address]);
            Ok(())
        }
        Err(why) => {
            let detail = match first {
                Some(first) => format!("failed to allocate IP {first}: {why}"),
                None => format!("failed to allocate IP: {why}"),
            };
            let error = FieldError::invalid(&spec_path("clusterIPs"), all, detail);
            Err(invalid(service, &[error]))
        }
    }
}

fn node_ports(
    service: &mut Value,
    old: Option<&Value>,
    addresses: &dyn Addresses,
) -> Result<(), StatusError> {
    if ![NODE_PORT, LOAD_BALANCER].contains(&kind_of(service)) {
        return Ok(());
    }
    let wanted_by_type = gets_ports(service);
    let number = |port: &Value| field(port, &["nodePort"]).as_i64().unwrap_or_default();
    let mut held: Met<i64> = old
        .map(|old| field(old, &["spec", "ports"]))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(number)
        .filter(|port| *port != 0)
        .collect();
    let mut ports = field(service, &["spec", "ports"])
        .as_array()
        .cloned()
        .unwrap_or_default();
    // One number serves all protocols of a port.
    let mut by_port: HashMap<i64, i64> = HashMap::new();
    let mut requested: HashMap<i64, i64> = HashMap::new();
    for port in ports.iter().filter(|port| number(port) != 0) {
        if let Some(own) = field(port, &["port"]).as_i64() {
            requested.entry(own).or_insert(number(port));
        }
    }
    for (index, entry) in ports.iter_mut().enumerate() {
        let port = field(entry, &["port"]).as_i64().unwrap_or_default();
        let mut wanted = number(entry);
        if wanted == 0 && !wanted_by_type {
            continue;
        }
        if wanted == 0 && old.is_none() {
            let shared = by_port.get(&port).or_else(|| requested.get(&port));
            wanted = shared.copied().unwrap_or_default();
        }
        let given = if wanted != 0 && held.contains(&wanted) {
            Ok(wanted)
        } else {
            addresses.port(requested_port(wanted)).map(i64::from)
        };
        match given {
            Ok(given) => {
                held.push(given);
                by_port.entry(port).or_insert(given);
                // In a dry run, what is no port at all stays for validation to find.
                let settled = if wanted == 0 { given } else { wanted };
                entry["nodePort"] = json!(settled);
            }
            Err(why) => {
                let path = spec_path("ports").index(index).child("nodePort");
                return Err(invalid(service, &[FieldError::invalid(&path, wanted, why)]));
            }
        }
    }
    if !ports.is_empty() {
        service["spec"]["ports"] = ports.into();
    }
    Ok(())
}

/// Zero asks for any. What is no port at all is asked for as one that nobody gives.
fn requested_port(wanted: i64) -> Option<u16> {
    (wanted != 0).then(|| u16::try_from(wanted).unwrap_or(u16::MAX))
}

fn health_check_port(
    service: &mut Value,
    old: Option<&Value>,
    addresses: &dyn Addresses,
) -> Result<(), StatusError> {
    let had = old.is_some_and(|old| needs_health_check(&At::root(old)));
    if had || !needs_health_check(&At::root(service)) {
        return Ok(());
    }
    let wanted = field(service, &["spec", "healthCheckNodePort"])
        .as_i64()
        .unwrap_or_default();
    match addresses.port(requested_port(wanted)) {
        Ok(port) => {
            if wanted == 0 {
                service["spec"]["healthCheckNodePort"] = json!(port);
            }
            Ok(())
        }
        Err(why) => Err(StatusError::internal(format!(
            "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
        ))),
    }
}

/// The addresses and ports that a deleted or changed service held.
pub fn held(service: &Value) -> (Vec<String>, Vec<u16>) {
    let is_routed = [CLUSTER_IP, NODE_PORT, LOAD_BALANCER].contains(&kind_of(service));
    let addresses = field(service, &["spec", "clusterIPs"])
        .as_array()
        .into_iter()
        .flatten();
    let addresses = addresses
        .filter_map(Value::as_str)
        .filter(|address| is_routed && *address != "None")
        .map(str::to_owned)
        .collect();
    let numbers = field(service, &["spec", "ports"])
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| field(port, &["nodePort"]))
        .chain([field(service, &["spec", "healthCheckNodePort"])]);
    let ports = numbers
        .filter_map(Value::as_u64)
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0)
        .collect();
    (addresses, ports)
}
