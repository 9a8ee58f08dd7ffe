//! Programs that are no pods: what a NodeSLO names is looked at like a pod, wherever in the tree its cgroup is.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;
use serde_json::{Value, json};

use super::memory::{CORES, LOOK, MIB, SLACK, cpu_seconds, figure, memory_bytes, wait_noted};
use super::{NO_BUDGET, Rig, SAMPLED};
use crate::init::DATA;
use crate::workload::Workload;

const NODE: &str = "emulated";
/// The most that a program holds beside what it was told to.
const OVERHEAD: f64 = 4.0 * MIB;
/// An emulator that stands still for a moment spoils one comparison, not all.
const LOOKS: usize = 3;

struct Application {
    name: &'static str,
    /// Of the NodeSLO.
    entry: Value,
    cgroup: &'static str,
    /// Whether it uses a CPU; memory they all use, each another amount.
    burns: bool,
}

impl Application {
    fn series(&self) -> String {
        format!("host_app_name={}", self.name)
    }
}

fn applications() -> Vec<Application> {
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

pub fn cases(runner: &mut Runner<impl Write>, mounts: &Mounts) {
    runner.case("memory_host_applications", || usage(mounts));
}

fn usage(mounts: &Mounts) -> Result<String> {
    let applications = applications();
    let server = Policy::serve(&applications)?;
    let kubeconfig = format!("{DATA}/kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig().to_string())?;
    let arguments = [
        NO_BUDGET,
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        NODE,
        "--pods-from",
        "apiserver",
    ];
    let rig = Rig::start(mounts, &arguments)?;
    poll::until("the policy is known", SAMPLED, || {
        let known = server.known.load(Ordering::Relaxed);
        Ok(known.then_some(()))
    })
    .map_err(|error| anyhow!("{error:#}; agent's log: {}", rig.agent.log_tail()))?;
    // Only now: by whose names the kubelet's cgroups go is not known before they are there.
    let mut workloads = Vec::new();
    let mut groups = Vec::new();
    for (index, application) in applications.iter().enumerate() {
        let group = Group::create(mounts, application.cgroup)?;
        let bytes = (4 + 4 * index) << 20;
        workloads.push(Workload::start(&group, &["alloc", &bytes.to_string()])?);
        if application.burns {
            workloads.push(Workload::start(&group, &["burn"])?);
        }
        groups.push((group, bytes as f64));
    }
    for application in &applications {
        wait_noted(&rig, "host_application_cpu_usage", &application.series(), 3)?;
    }
    let mut outcome = Ok(());
    for _ in 0..LOOKS {
        outcome = compare(&rig, &applications, &groups);
        if outcome.is_ok() {
            break;
        }
    }
    outcome?;
    Ok(format!("{} applications", applications.len()))
}

/// What is remembered of some seconds, against the files' own figures of the same time. Each group has with it how many
/// bytes its program was told to hold.
fn compare(rig: &Rig, applications: &[Application], groups: &[(Group, f64)]) -> Result<()> {
    let cpus = || -> Result<Vec<f64>> {
        let seconds = groups.iter().map(|(group, _)| cpu_seconds(rig, group));
        seconds.collect()
    };
    let (begin, before) = (Instant::now(), cpus()?);
    std::thread::sleep(LOOK);
    let (elapsed, after) = (begin.elapsed(), cpus()?);
    for (index, application) in applications.iter().enumerate() {
        let (name, of) = (application.name, application.series());
        let used = (after[index] - before[index]) / elapsed.as_secs_f64();
        let noted = |metric, what| figure(&rig.agent, metric, &of, LOOK.as_secs(), what);
        let cores = noted("host_application_cpu_usage", "avg")?;
        ensure!(
            (cores - used).abs() <= used * SLACK + CORES,
            "{name} used {used} cores, {cores} are remembered"
        );
        ensure!(!application.burns || used > 0.2, "{name} used {used} cores");
        let (group, told) = &groups[index];
        let held = memory_bytes(rig, group)?;
        let bytes = noted("host_application_memory_usage", "last")?;
        ensure!(
            (bytes - held).abs() <= held * SLACK + MIB,
            "{name} holds {held} bytes, {bytes} are remembered"
        );
        ensure!(
            (*told..*told + OVERHEAD).contains(&held),
            "{name} holds {held} bytes instead of {told}"
        );
    }
    Ok(())
}

/// An API server that knows of this node's policy, and of nothing else.
struct Policy {
    address: SocketAddr,
    /// Somebody has it, and waits for news.
    known: Arc<AtomicBool>,
}

impl Policy {
    fn serve(applications: &[Application]) -> Result<Self> {
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

    fn kubeconfig(&self) -> Value {
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
