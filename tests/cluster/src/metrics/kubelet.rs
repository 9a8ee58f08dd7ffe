//! A kubelet whose figures are always the same: a first page, then a second one fifteen seconds of its own time later,
//! for ever. What a metrics server makes of them does not depend on when it asks.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

/// When the first page was made: the beginning of 2026.
const FIRST: i64 = 1_767_225_600;
/// Milliseconds until the second.
const LATER: i64 = 15_052;

/// Pods of the namespace `many`.
pub const MANY: usize = 160;

/// Ends with this value.
#[derive(Debug)]
pub struct Kubelet {
    pub address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a fake kubelet")?;
        let address = listener.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let asked = Arc::new(Mutex::new(HashMap::new()));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), asked) = (stream, Arc::clone(&asked)) else {
                    continue;
                };
                // Whoever hangs up in the middle is none of our business.
                std::thread::spawn(move || drop(serve(stream, &asked)));
            }
        });
        Ok(Self {
            address,
            stopped,
            thread: Some(thread),
        })
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // The listener waits for a connection: here is the last.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, asked: &Mutex<HashMap<String, usize>>) -> Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next() {
        let path = first?.split(' ').nth(1).unwrap_or_default().to_owned();
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let seen = {
            let mut asked = asked
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            let seen = asked.entry(path.clone()).or_insert(0);
            *seen += 1;
            *seen
        };
        let page = page(path.starts_with("/c/"), seen > 1);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
        out.write_all(head.as_bytes())?;
        out.write_all(page.as_bytes())?;
    }
    Ok(())
}

/// Of one of the two nodes that answer.
fn page(of_node_c: bool, second: bool) -> String {
    let at = FIRST * 1000 + if second { LATER } else { 0 };
    let mut page = Page {
        text: String::new(),
        second,
        at,
    };
    if of_node_c {
        page.node(7.0, 37.104, 1_500_001);
        page.container("other/one/c", 5.0, 5.150_52, 512);
        page.container("kube-system/bare/c", 5.0, 20.052, 1 << 30);
        // Began ten and a half seconds before the second page: a rate at once, were it not for one resolution.
        let start = if second { 4.552 } else { -1.0 };
        page.started("other/young/c", 2.0, 2.0, 4096, FIRST as f64 + start);
        page.container("other/zero/c", 2.0, 2.0, 4096);
        page.container("other/zero/d", 0.0, 0.0, 4096);
    } else {
        page.node(100.0, 112.345_678_901, 3_360_292 << 10);
        page.container("default/one/c", 10.0, 10.516_320_778_4, 83_615_744);
        page.container("default/trio/alpha", 1.0, 1.0, 217_088);
        page.container("default/trio/mid", 1.0, 1.001_505_2, 1 << 20);
        page.container("default/trio/zeta", 1.0, 31.104, 1_500_001);
        page.container("default/load/c", 1.0, 4.763, 4 << 20);
        for index in 0..MANY {
            let used = 1.0 + index as f64 * 0.001_505_2;
            let name = format!("many/pod-{index:03}/c");
            page.container(&name, 1.0, used, (index as u64 + 1) * 4096);
        }
    }
    page.text
}

struct Page {
    text: String,
    second: bool,
    at: i64,
}

impl Page {
    fn line(&mut self, series: &str, value: f64) {
        let _ = writeln!(self.text, "{series} {value} {}", self.at);
    }

    fn node(&mut self, cpu: f64, later: f64, memory: u64) {
        let cpu = if self.second { later } else { cpu };
        self.line("node_cpu_usage_seconds_total", cpu);
        self.line("node_memory_working_set_bytes", memory as f64);
    }

    fn container(&mut self, whose: &str, cpu: f64, later: f64, memory: u64) {
        self.started(whose, cpu, later, memory, (FIRST - 86_400) as f64);
    }

    /// `whose` is `NAMESPACE/POD/CONTAINER`.
    fn started(&mut self, whose: &str, cpu: f64, later: f64, memory: u64, start: f64) {
        let mut parts = whose.split('/');
        let mut part = || parts.next().unwrap_or_default();
        let (namespace, pod, container) = (part(), part(), part());
        let labels =
            format!("{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod}\"}}");
        let cpu = if self.second { later } else { cpu };
        self.line(&format!("container_cpu_usage_seconds_total{labels}"), cpu);
        let memory_series = format!("container_memory_working_set_bytes{labels}");
        self.line(&memory_series, memory as f64);
        self.line(&format!("container_start_time_seconds{labels}"), start);
    }
}
