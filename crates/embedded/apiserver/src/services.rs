//! Addresses and ports that services are given.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use crate::kinds::service::{Addresses, allocate, held};
use crate::server::Server;
use crate::status::StatusError;
use crate::store::Expect;
use plimsoll_golang::time::show_seconds;

/// As a real server's default is; the first address is the API server's own.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 254);
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// Gives a service the addresses and ports that its type needs and that it does not have, and refuses taken ones.
pub fn complete(
    server: &Server,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<(), StatusError> {
    if dry_run {
        return allocate(service, old, &Pretence);
    }
    let pool = Pool::without(server, old);
    allocate(service, old, &pool)
}

impl Server {
    /// Where the service `kubernetes` leads: to this server.
    pub(crate) async fn publish_address(&self, address: SocketAddr) {
        let (ip, port) = (address.ip().to_string(), address.port());
        let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let endpoints = json!({
            "metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": ip}], "ports": ports}],
        });
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}, "generation": 1},
            "addressType": family,
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
            "ports": ports,
        });
        self.publish("endpoints", endpoints).await;
        self.publish("endpointslices.discovery.k8s.io", slice).await;
    }

    /// Writes an object `default/kubernetes`, whose earlier life may have been on another port.
    async fn publish(&self, shelf: &str, mut object: Value) {
        let key = "default/kubernetes";
        let current = self.store().get(shelf, key);
        let old = current.as_ref().map(|current| current.value());
        object["metadata"]["name"] = "kubernetes".into();
        object["metadata"]["namespace"] = "default".into();
        let (uid, since) = match &old {
            Some(old) => {
                let meta = &old["metadata"];
                (meta["uid"].clone(), meta["creationTimestamp"].clone())
            }
            None => (
                uuid::Uuid::new_v4().to_string().into(),
                show_seconds(jiff::Timestamp::now()).into(),
            ),
        };
        object["metadata"]["uid"] = uid;
        object["metadata"]["creationTimestamp"] = since;
        let expect = current
            .as_ref()
            .map_or(Expect::Absent, |current| Expect::Revision(current.revision));
        let attributes = crate::served::attributes(shelf, &object);
        // Nobody else writes yet.
        let _ = self
            .store()
            .put(shelf, key, expect, &mut object, attributes)
            .await;
    }
}

/// Nothing is taken in a dry run, hence any wish is granted; who has none is shown the range itself.
#[derive(Debug)]
struct Pretence;

impl Addresses for Pretence {
    fn address(&self, wanted: Option<&str>) -> Result<String, String> {
        match wanted {
            Some(wanted) if !in_range(wanted) => Err(format!(
                "the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {NETWORK}/16"
            )),
            Some(wanted) => Ok(wanted.to_owned()),
            None => Ok(NETWORK.to_string()),
        }
    }

    fn port(&self, wanted: Option<u16>) -> Result<u16, String> {
        Ok(wanted.unwrap_or_else(|| fastrand::u16(NODE_PORTS)))
    }
}

fn in_range(address: &str) -> bool {
    address
        .parse::<Ipv4Addr>()
        .is_ok_and(|address| (FIRST..=LAST).contains(&address))
}

/// What is free.
#[derive(Debug, Default)]
struct Pool {
    addresses: RefCell<HashSet<String>>,
    ports: RefCell<HashSet<u16>>,
}

impl Pool {
    /// Everything but what other services hold.
    fn without(server: &Server, own: Option<&Value>) -> Self {
        let uid = own.map(|own| own["metadata"]["uid"].clone());
        let pool = Self::default();
        // What others are being given at the moment counts, too.
        for other in server.store().latest("services", "") {
            let other = other.value();
            if uid.as_ref() == Some(&other["metadata"]["uid"]) {
                continue;
            }
            let (addresses, ports) = held(&other);
            pool.addresses.borrow_mut().extend(addresses);
            pool.ports.borrow_mut().extend(ports);
        }
        pool
    }
}

impl Addresses for Pool {
    fn address(&self, wanted: Option<&str>) -> Result<String, String> {
        let mut taken = self.addresses.borrow_mut();
        let chosen = match wanted {
            Some(wanted) => {
                if !in_range(wanted) {
                    return Err("the provided network does not match the current range".to_owned());
                }
                if taken.contains(wanted) {
                    return Err("provided IP is already allocated".to_owned());
                }
                wanted.to_owned()
            }
            None => {
                let (first, last) = (u32::from(FIRST) + 1, u32::from(LAST));
                let start = fastrand::u32(first..=last);
                (start..=last)
                    .chain(first..start)
                    .map(|address| Ipv4Addr::from(address).to_string())
                    .find(|address| !taken.contains(address))
                    .ok_or("range is full")?
            }
        };
        taken.insert(chosen.clone());
        Ok(chosen)
    }

    fn port(&self, wanted: Option<u16>) -> Result<u16, String> {
        let mut taken = self.ports.borrow_mut();
        let chosen = match wanted {
            Some(port) if !NODE_PORTS.contains(&port) => {
                return Err(
                    "provided port is not in the valid range. The range of valid ports is 30000-32767"
                        .to_owned(),
                );
            }
            Some(port) if taken.contains(&port) => {
                return Err("provided port is already allocated".to_owned());
            }
            Some(port) => port,
            None => {
                let start = fastrand::u16(NODE_PORTS);
                (start..=*NODE_PORTS.end())
                    .chain(*NODE_PORTS.start()..start)
                    .find(|port| !taken.contains(port))
                    .ok_or("range is full")?
            }
        };
        taken.insert(chosen);
        Ok(chosen)
    }
}
