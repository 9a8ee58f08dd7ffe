//! Addresses and ports that services are given.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::Value;

use crate::kinds::Lookup;
use crate::kinds::service::{Addresses, allocate, held};
use crate::server::Server;
use crate::status::Failure;

/// As a real server's default is; the first address is the API server's own.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 254);
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// Gives a service the addresses and ports that its type needs and that it does not have, and refuses taken ones.
pub fn complete(server: &Server, service: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
    let pool = Pool::without(server, old);
    allocate(service, old, &pool)
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
        for other in server.list("services", "") {
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
                let inside = wanted
                    .parse::<Ipv4Addr>()
                    .is_ok_and(|address| (FIRST..=LAST).contains(&address));
                if !inside {
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
