//! Addresses and ports that services are given.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::field::{FieldError, Path};
use crate::kinds::Lookup;
use crate::server::Server;
use crate::status::{Failure, Subject};

/// As a real server's default is; the first address is the API server's own.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 254);
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// What is in use by other services.
#[derive(Debug, Default)]
struct Used {
    addresses: HashSet<Ipv4Addr>,
    ports: HashSet<u64>,
}

impl Used {
    fn by_others(server: &Server, service: &Value) -> Self {
        let mut used = Self::default();
        let uid = &service["metadata"]["uid"];
        for other in server.list("services", "") {
            if other["metadata"]["uid"] == *uid {
                continue;
            }
            let addresses = other["spec"]["clusterIPs"].as_array().into_iter().flatten();
            used.addresses
                .extend(addresses.filter_map(|one| one.as_str()?.parse::<Ipv4Addr>().ok()));
            used.ports.extend(node_ports(&other));
        }
        used
    }
}

fn node_ports(service: &Value) -> impl Iterator<Item = u64> {
    service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|port| port["nodePort"].as_u64())
        .filter(|port| *port != 0)
}

/// Gives a service the addresses and ports that its type needs and that it does not have, and refuses taken ones.
pub fn allocate(server: &Server, service: &mut Value) -> Result<(), Failure> {
    let used = Used::by_others(server, service);
    address(service, &used)?;
    ports(service, &used)
}

fn refuse(service: &Value, errors: &[FieldError]) -> Failure {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let subject = Subject {
        group: "",
        kind: "Service",
    };
    Failure::invalid(subject, name, errors)
}

fn address(service: &mut Value, used: &Used) -> Result<(), Failure> {
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok(());
    }
    let given = spec["clusterIP"].as_str().unwrap_or_default().to_owned();
    let path = Path::new("spec").child("clusterIPs");
    let chosen = match given.as_str() {
        "None" => given,
        "" => free(used)
            .ok_or_else(|| Failure::internal("failed to allocate a serviceIP: range is full"))?
            .to_string(),
        text => {
            if let Ok(address) = text.parse::<Ipv4Addr>() {
                let complaint = if !(FIRST..=LAST).contains(&address) {
                    Some(
                        "failed to allocate IP X: the provided network does not match the current range",
                    )
                } else if used.addresses.contains(&address) {
                    Some("failed to allocate IP X: provided IP is already allocated")
                } else {
                    None
                };
                if let Some(complaint) = complaint {
                    let detail = complaint.replace('X', text);
                    let error = FieldError::invalid(&path, json!([text]), detail);
                    return Err(refuse(service, &[error]));
                }
            }
            given
        }
    };
    let spec = &mut service["spec"];
    spec["clusterIP"] = chosen.as_str().into();
    if !spec["clusterIPs"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        spec["clusterIPs"] = json!([chosen]);
    }
    let selectorless = spec["selector"].is_null() && spec["clusterIP"] == "None";
    if !spec["ipFamilies"].is_array() {
        spec["ipFamilies"] = if selectorless {
            json!(["IPv4", "IPv6"])
        } else {
            json!(["IPv4"])
        };
    }
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = if selectorless {
            "RequireDualStack".into()
        } else {
            "SingleStack".into()
        };
    }
    Ok(())
}

fn free(used: &Used) -> Option<Ipv4Addr> {
    let (first, last) = (u32::from(FIRST) + 1, u32::from(LAST));
    let start = fastrand::u32(first..=last);
    (start..=last)
        .chain(first..start)
        .map(Ipv4Addr::from)
        .find(|address| !used.addresses.contains(address))
}

fn ports(service: &mut Value, used: &Used) -> Result<(), Failure> {
    let spec = &service["spec"];
    let wanted = match spec["type"].as_str() {
        Some("NodePort") => true,
        Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    };
    let path = Path::new("spec").child("ports");
    let mut taken: HashSet<u64> = used.ports.clone();
    let mut errors = Vec::new();
    for (index, port) in node_ports(service).enumerate() {
        let at = path.index(index).child("nodePort");
        if !NODE_PORTS.contains(&u16::try_from(port).unwrap_or(0)) {
            let detail =
                "provided port is not in the valid range. The range of valid ports is 30000-32767";
            errors.push(FieldError::invalid(&at, port, detail));
        } else if used.ports.contains(&port) {
            errors.push(FieldError::invalid(
                &at,
                port,
                "provided port is already allocated",
            ));
        }
        taken.insert(port);
    }
    if !errors.is_empty() {
        return Err(refuse(service, &errors));
    }
    if !wanted {
        return Ok(());
    }
    for port in service["spec"]["ports"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if port["nodePort"].as_u64().unwrap_or(0) != 0 {
            continue;
        }
        let start = fastrand::u16(NODE_PORTS);
        let found = (start..=*NODE_PORTS.end())
            .chain(*NODE_PORTS.start()..start)
            .map(u64::from)
            .find(|one| !taken.contains(one))
            .ok_or_else(|| Failure::internal("failed to allocate a nodePort: range is full"))?;
        taken.insert(found);
        port["nodePort"] = found.into();
    }
    Ok(())
}
