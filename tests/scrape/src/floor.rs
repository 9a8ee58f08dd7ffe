//! The floor: the same pages read over TLS into a buffer, and nothing done with them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::time::ClockId;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::asking::client_tls;
use crate::kubelets::{Kubelets, PORT, address};

/// Nodes in turn, so that each finds its connection as cold as a scrape does.
const NODES: usize = 500;
const ROUNDS: usize = 4;
/// At a scrape's pace rather than as fast as it goes.
const PAUSE: Duration = Duration::from_millis(3);

pub fn micros_per_scrape(kubelets: &Kubelets) -> Result<f64> {
    let tls = client_tls()?;
    let nodes = kubelets.nodes.min(NODES);
    let mut streams = Vec::new();
    for node in 0..nodes {
        let tcp = TcpStream::connect((address(node), PORT))?;
        tcp.set_nodelay(true)?;
        let session = ClientConnection::new(Arc::clone(&tls), ServerName::try_from("kubelet")?)?;
        let mut stream = StreamOwned::new(session, tcp);
        exchange(&mut stream, &mut Vec::new())?;
        streams.push(stream);
    }
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut spent = Duration::ZERO;
    for round in 0..ROUNDS * nodes {
        let began = Instant::now();
        let before = thread_time();
        exchange(&mut streams[round % nodes], &mut buffer)?;
        spent += thread_time().saturating_sub(before);
        std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
    }
    Ok(spent.as_secs_f64() * 1e6 / (ROUNDS * nodes) as f64)
}

fn exchange(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    stream.write_all(b"GET /metrics/resource HTTP/1.1\r\nHost: kubelet\r\n\r\n")?;
    buffer.clear();
    buffer.resize(64 * 1024, 0);
    let (mut have, mut wanted) = (0, None);
    while wanted.is_none_or(|wanted| have < wanted) {
        let read = stream.read(&mut buffer[have..])?;
        ensure!(read > 0, "the kubelet closed the connection");
        have += read;
        if wanted.is_none() {
            wanted = whole(&buffer[..have])?;
        }
    }
    Ok(())
}

/// How long the answer is, when its head is there.
fn whole(answer: &[u8]) -> Result<Option<usize>> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..end])?;
    let mut lines = head.lines();
    let length = lines
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .context("no length")?;
    Ok(Some(end + 4 + length.parse::<usize>()?))
}

pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
