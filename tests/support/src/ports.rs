//! Ports for programs that cannot be told to take any free one.
//!
//! Binding port 0 and handing the number on is a race: outgoing connections take their ports from the same range. These
//! ports are below that range, and a lock file keeps every other test program of this machine away from a port until
//! its holder lets go.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;

/// Below `ip_local_port_range` of every distribution (32768 and up), above what well-known daemons take.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port of the loopback address that nobody else gets while this lives.
#[derive(Debug)]
pub struct Reserved {
    address: SocketAddr,
    _lock: File,
}

impl Reserved {
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Reserves a port on which nothing listens now.
pub fn reserve() -> Result<Reserved> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let folder = folder()?;
    // Programs start at different places, so that they rarely try each other's ports.
    let start = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(COUNT))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (start + step) % COUNT;
        let lock = File::create(folder.join(port.to_string())).context("make a port's lock")?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // A program that knows nothing of the locks may listen there.
        if TcpListener::bind(address).is_ok() {
            return Ok(Reserved {
                address,
                _lock: lock,
            });
        }
    }
    bail!("no port from {FIRST} to {} is free", FIRST + (COUNT - 1))
}

/// A port that is reserved until this process ends, for programs that live about as long.
pub fn reserve_for_good() -> Result<SocketAddr> {
    static KEPT: Mutex<Vec<Reserved>> = Mutex::new(Vec::new());
    let reserved = reserve()?;
    let address = reserved.address();
    KEPT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(reserved);
    Ok(address)
}

fn folder() -> Result<PathBuf> {
    // Each user's own: what root has made, others could not lock. A port that is taken shows by itself.
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("plimsoll-test-ports-{user}"));
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_free_and_nobody_elses() {
        let first = reserve().unwrap();
        let second = reserve().unwrap();
        assert_ne!(first.address(), second.address());
        let listener = TcpListener::bind(first.address()).unwrap();
        assert_eq!(listener.local_addr().unwrap(), first.address());
        let again = File::open(folder().unwrap().join(first.address().port().to_string())).unwrap();
        assert!(rustix::fs::flock(&again, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(first);
        rustix::fs::flock(&again, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}
