//! Programs that are no pods: what a NodeSLO names is looked at like a pod, wherever in the tree its cgroup is.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::memory::{MIB, same_bytes, same_cores};
use super::scene::Look;

pub const NODE: &str = "emulated";
/// The most that a program holds beside what it was told to.
const OVERHEAD: f64 = 4.0 * MIB;
/// Of what all of them use, a program that burns has at least this share, however busy the machine is.
const LEAST_SHARE: f64 = 0.1;

pub struct Application {
    pub name: &'static str,
    /// Of the NodeSLO.
    entry: Value,
    pub cgroup: &'static str,
    /// Whether it uses a CPU; memory they all use, each another amount.
    pub burns: bool,
}

impl Application {
    pub fn series(&self) -> String {
        format!("host_app_name={}", self.name)
    }
}

pub fn applications() -> Vec<Application> {
    let at = |name, base, cgroup, burns| Application {
        name,
        entry: json!({"name": name, "cgroupPath": {"base": base, "parentDir": "apps/", "relativePath": name}}),
        cgroup,
        burns,
    };
    let by_qos = |name, qos: Option<&str>, cgroup| Application {
        name,
        entry: json!({"name": name, "qos": qos}),
        cgroup,
        burns: false,
    };
    vec![
        at("root", "CgroupRoot", "/apps/root", true),
        at("pods", "Kubepods", "/kubepods/apps/pods", false),
        at(
            "burstable",
            "KubepodsBurstable",
            "/kubepods/burstable/apps/burstable",
            false,
        ),
        at(
            "besteffort",
            "KubepodsBesteffort",
            "/kubepods/besteffort/apps/besteffort",
            true,
        ),
        by_qos("ls", Some("LS"), "/host-latency-sensitive/ls"),
        by_qos("be", Some("BE"), "/host-best-effort/be"),
        by_qos("plain", None, "/plain"),
    ]
}

/// What each was told to hold.
pub fn told_bytes(index: usize) -> usize {
    (2 + 2 * index) << 20
}

/// What is remembered of some seconds, against the files' own figures of the same time.
pub fn usage(look: &Look) -> Result<String> {
    let applications = applications();
    let mut all = 0.0;
    for application in &applications {
        all += look.kernel(application.cgroup)?.cores;
    }
    for (index, application) in applications.iter().enumerate() {
        let (name, of) = (application.name, application.series());
        let kernel = look.kernel(application.cgroup)?;
        let cores = look.figure("host_application_cpu_usage", &of, "avg")?;
        same_cores(name, cores, kernel.cores)?;
        ensure!(
            !application.burns || kernel.cores > all * LEAST_SHARE,
            "{name} used {} of {all} cores",
            kernel.cores
        );
        let bytes = look.figure("host_application_memory_usage", &of, "last")?;
        same_bytes(name, bytes, kernel.bytes)?;
        let told = told_bytes(index) as f64;
        ensure!(
            (told..told + OVERHEAD).contains(&kernel.bytes),
            "{name} holds {} bytes instead of {told}",
            kernel.bytes
        );
    }
    Ok(format!("{} applications", applications.len()))
}

/// An API server that knows of this node's policy, and of nothing else.
pub struct Policy {
    address: SocketAddr,
    /// Somebody has it, and waits for news.
    pub known: Arc<AtomicBool>,
}

impl Policy {
    pub fn serve(applications: &[Application]) -> Result<Self> {
        let entries: Vec<&Value> = applications.iter().map(|one| &one.entry).collect();
        let list = json!({
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeSLOList",
            "metadata": {"resourceVersion": "1"},
            "items": [{
                "metadata": {"name": NODE, "resourceVersion": "1"},
                "spec": {"hostApplications": entries},
            }],
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("an API server")?;
        let address = listener.local_addr()?;
        let known = Arc::new(AtomicBool::new(false));
        let (list, told) = (list.to_string(), Arc::clone(&known));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (list, told) = (list.clone(), Arc::clone(&told));
                // Whoever hangs up in the middle is none of our business.
                std::thread::spawn(move || drop(answer(stream, &list, &told)));
            }
        });
        Ok(Self { address, known })
    }

    pub fn kubeconfig(&self) -> Value {
        let server = format!("http://{}", self.address);
        // Nobody's certificate is checked: the guest has no authorities to check any against.
        let cluster = json!({"server": server, "insecure-skip-tls-verify": true});
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {}}],
        })
    }
}

fn answer(stream: TcpStream, list: &str, told: &AtomicBool) -> Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next() {
        let path = first?.split(' ').nth(1).unwrap_or_default().to_owned();
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let (status, body) = match path.contains("/nodeslos") {
            true if path.contains("watch=true") => {
                told.store(true, Ordering::Relaxed);
                out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                // There is no news.
                continue;
            }
            true => ("200 OK", list),
            false => ("404 Not Found", "{}"),
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
        out.write_all(head.as_bytes())?;
        out.write_all(body.as_bytes())?;
    }
    Ok(())
}
