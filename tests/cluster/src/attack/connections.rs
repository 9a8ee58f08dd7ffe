//! Connections that want something and do not go on: half a handshake, half a head, half a body, an answer that is not read.

use std::io::Write;
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

use super::class::{JSON, Shot, Tenant};
use super::victim::Victim;
use crate::admin;
use crate::client::Request;

/// Descriptors for everything else.
const RESERVE: u64 = 200;

/// Opens as many as asked, of every kind, and holds all of them while the administrator is served.
pub fn hold(victim: &Victim, seed: u64, shots: u64) -> Result<String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let shots = shots.min(limit.unwrap_or(u64::MAX).saturating_sub(RESERVE));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut plain = Vec::new();
    let mut sessions = Vec::new();
    let mut refused = 0;
    for _ in 0..shots {
        let tenant = if random.bool() {
            Tenant::Nobody
        } else {
            Tenant::Editor
        };
        match random.u8(..8) {
            0 => {
                let mut socket = TcpStream::connect(victim.server.address)?;
                // The first bytes of a hello, or none.
                let written = socket.write_all(&[0x16, 0x03, 0x01][..random.usize(..4)]);
                refused += u64::from(written.is_err());
                plain.push(socket);
            }
            kind => {
                let bytes = unfinished(victim, tenant, kind);
                match victim.server.begin(&bytes) {
                    Ok(session) => sessions.push(session),
                    Err(_) => refused += 1,
                }
            }
        }
    }
    // Held until here; the probe goes on asking, and this asks for more than the probe.
    let list = admin::get(&victim.server, "/api/v1/namespaces")?;
    ensure!(list["items"].is_array(), "{list}");
    let mine = Shot::new(
        "GET",
        "/api/v1/namespaces/$ns/configmaps".to_owned(),
        "",
        Vec::new(),
    );
    let status = victim.take(&mine).context("a tenant beside them")?;
    ensure!(
        matches!(status, 200 | 429),
        "a tenant beside them is answered {status}"
    );
    Ok(format!(
        "{} connections held, {refused} refused",
        plain.len() + sessions.len()
    ))
}

/// What is sent of a request that never ends.
fn unfinished(victim: &Victim, tenant: Tenant, kind: u8) -> Vec<u8> {
    let shot = Shot {
        tenant,
        ..Shot::new(
            "POST",
            "/api/v1/namespaces/$ns/configmaps".to_owned(),
            JSON,
            Vec::new(),
        )
    };
    let Request { path, headers, .. } = victim.request(&shot);
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: h\r\n");
    for (name, value) in &headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match kind {
        // Half a head.
        1 | 2 => {}
        // Half a body, of a known length or not.
        3 | 4 => head.push_str("Content-Length: 2900000\r\n\r\n{\"data\": {\"k\": \""),
        5 => head.push_str("Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n"),
        // A watch, and a list, whose answer nobody reads.
        _ => {
            head = head.replacen("POST", "GET", 1);
            let query = if kind == 6 {
                "?watch=true"
            } else {
                "?limit=500"
            };
            head = head.replacen("/configmaps", &format!("/configmaps{query}"), 1);
            head.push_str("\r\n");
        }
    }
    head.into_bytes()
}
