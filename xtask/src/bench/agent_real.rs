//! `cargo xtask bench agent --real`: the whole agent beside a stock kubelet with pods that really run.
//!
//! Cgroups alone hide what nodes are made of: mounts, network namespaces, long labels, large pages.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::http::Connection;
use plimsoll_test_support::proc::{self, CpuTime, cpu_by_thread, status_kib};
use plimsoll_test_support::{janitor, ports};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::agent::Options;
use super::floor::Floor;
use crate::{kube, packages, workspace};

/// Everything is known, and young containers are read as often as others.
const WARM_UP: Duration = Duration::from_secs(30);
/// The floor is measured in turns of so many rounds.
const TURN: u32 = 10;
const SCRAPE_EVERY: Duration = Duration::from_secs(15);
/// What is asked for in turn: path, and further lines of the request.
const PAGES: [(&str, &str); 6] = [
    ("/metrics", ""),
    ("/metrics", "accept-encoding: gzip\r\n"),
    (
        "/metrics",
        "accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n",
    ),
    ("/metrics/cadvisor", ""),
    ("/metrics/resource", ""),
    ("/stats/summary", ""),
];
/// koordlet, to be measured beside it.
const PEER: &str = "PLIMSOLL_PEER_KOORDLET";
const NETWORK_PLUGINS: packages::Need = ("/usr/lib/cni/ptp", "containernetworking-plugins");

/// A line of JSON for each program.
pub fn run(options: &Options) -> Result<()> {
    packages::ensure(crate::cluster::NODE)?;
    packages::ensure(&[NETWORK_PLUGINS])?;
    let mut build = workspace::cargo()?;
    build.args(["build", "--quiet", "--release"]);
    build.args([
        "--package",
        "plimsoll",
        "--package",
        "plimsoll-cluster-tests",
    ]);
    workspace::run(&mut build).context("build in release")?;
    janitor::raise_file_limit();
    let release = workspace::target()?.join("release");
    let node = HeldNode::start(options, &release)?;
    let outcome = measure_all(options, &release, &node);
    node.end()?;
    outcome
}

fn measure_all(options: &Options, release: &Path, node: &HeldNode) -> Result<()> {
    println!("{}", ours(options, release, node)?);
    if let Some(peer) = std::env::var_os(PEER).filter(|peer| !peer.is_empty()) {
        println!("{}", koordlet(options, Path::new(&peer), node)?);
    }
    Ok(())
}

/// The cluster, the node and its pods, in a process of their own.
struct HeldNode {
    child: Child,
    input: ChildStdin,
    told: Value,
}

impl HeldNode {
    fn start(options: &Options, release: &Path) -> Result<Self> {
        let mut hold = janitor::command_in(None, release.join("plimsoll-cluster-tests"));
        hold.arg("--folder")
            .arg(workspace::root()?.join("tests/cluster"))
            .arg("--kube-bin")
            .arg(kube::programs()?)
            .arg("hold-node")
            .arg("--program")
            .arg(release.join("plimsoll"))
            .args(["--pods", &options.pods().to_string()])
            .args(["--containers", &options.of_each_pod().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = hold.spawn().context("start the node")?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let told = serde_json::from_str(&line).context("the node did not start")?;
        Ok(Self { child, input, told })
    }

    fn path(&self, key: &str) -> Result<&str> {
        let found = self.told[key].as_str();
        found.with_context(|| format!("the node does not tell {key}"))
    }

    fn end(mut self) -> Result<()> {
        drop(self.input);
        ensure!(self.child.wait()?.success(), "the node did not end well");
        Ok(())
    }
}

fn ours(options: &Options, release: &Path, node: &HeldNode) -> Result<Value> {
    let target = workspace::target()?;
    let data = target.join("bench-agent-real-data");
    let arguments = [
        "--cpu-budget=0".to_owned(),
        "--open-to-all=everything".to_owned(),
        format!("--node-name={}", node.path("node")?),
        format!("--kubeconfig={}", node.path("kubeconfig")?),
        format!("--containerd={}", node.path("containerd")?),
        format!("--kubelet-root-dir={}", node.path("kubelet_dir")?),
        format!("--data-dir={}", data.display()),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let log = target.join("bench-agent-real.log");
    let agent = Agent::start(&release.join("plimsoll"), &arguments, None, &log)?;
    std::thread::sleep(WARM_UP);
    let at_rest = memory(agent.pid())?;
    let quiet = share(agent.pid(), options.seconds, |_| Ok(()))?;
    let files = files(&agent)?;
    let floor = floor(agent.pid(), &files, options.seconds)?;
    let mut connection = Connection::open(agent.address)?;
    let mut sizes = BTreeMap::new();
    let mut turn = 0;
    let scraped = share(agent.pid(), options.seconds, |since| {
        if since >= SCRAPE_EVERY * turn {
            let (path, headers) = PAGES[turn as usize % PAGES.len()];
            sizes.insert(
                name_of(path, headers),
                scrape(&mut connection, path, headers)?,
            );
            turn += 1;
        }
        Ok(())
    })?;
    // Each page once more, so that every one of them was asked for.
    let mut costs = BTreeMap::new();
    for (path, headers) in PAGES {
        let before = CpuTime::of(agent.pid())?;
        let bytes = scrape(&mut connection, path, headers)?;
        let spent = CpuTime::of(agent.pid())?.since(&before);
        let name = name_of(path, headers);
        costs.insert(name.clone(), round(spent.as_secs_f64() * 1e3));
        sizes.insert(name, bytes);
    }
    let after = memory(agent.pid())?;
    agent.stop()?;
    std::fs::remove_dir_all(&data)?;
    let containers = files.len();
    Ok(json!({
        "program": "plimsoll",
        "pods": options.pods(),
        "cgroups": containers,
        "files": files.iter().map(Vec::len).sum::<usize>(),
        "floor_share": round(floor),
        "share_quiet": round(quiet.share),
        "share_scraped": round(scraped.share),
        "of_floor": round(scraped.share / floor),
        "us_per_cgroup_s": round(scraped.share * 1e6 / containers as f64),
        "threads_quiet": quiet.threads,
        "threads_scraped": scraped.threads,
        "memory_at_rest": at_rest,
        "memory_after": after,
        "page_bytes": sizes,
        "page_cpu_ms": costs,
    }))
}

/// By its flags, with the same account.
fn koordlet(options: &Options, program: &Path, node: &HeldNode) -> Result<Value> {
    let data = workspace::target()?.join("bench-koordlet-data");
    let port = ports::reserve()?;
    let log = workspace::target()?.join("bench-koordlet.log");
    let output = std::fs::File::create(&log)?;
    let address = port.address();
    let mut command = janitor::command_in(None, program);
    command
        .arg(format!("--kubeconfig={}", node.path("kubeconfig")?))
        .arg(format!("--addr={address}"))
        .arg(format!("--tsdb-path={}", data.join("tsdb").display()))
        .arg("--feature-gates=AllAlpha=false,AllBeta=false")
        .arg("--runtime-hooks-network=unix")
        .env("NODE_NAME", node.path("node")?)
        .env("agent_mode", "hostMode")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut child = command.spawn().context("start koordlet")?;
    std::thread::sleep(WARM_UP);
    let measured = (|| -> Result<Value> {
        let quiet = share(child.id(), options.seconds, |_| Ok(()))?;
        let mut turn = 0;
        let scraped = share(child.id(), options.seconds, |since| {
            if since >= SCRAPE_EVERY * turn {
                let mut connection = Connection::open(address)?;
                scrape(&mut connection, "/all-metrics", "")?;
                turn += 1;
            }
            Ok(())
        })?;
        Ok(json!({
            "program": "koordlet",
            "pods": options.pods(),
            "share_quiet": round(quiet.share),
            "share_scraped": round(scraped.share),
            "memory_after": memory(child.id())?,
        }))
    })();
    proc::signal(child.id(), Signal::TERM);
    child.wait()?;
    measured.with_context(|| format!("see {}", log.display()))
}

struct Share {
    /// Of one core.
    share: f64,
    threads: BTreeMap<String, f64>,
}

/// What a process takes during some time, in which something is done once a second.
fn share(
    pid: u32,
    seconds: u64,
    mut meanwhile: impl FnMut(Duration) -> Result<()>,
) -> Result<Share> {
    let (begin, before, names) = (Instant::now(), CpuTime::of(pid)?, cpu_by_thread(pid)?);
    while begin.elapsed() < Duration::from_secs(seconds) {
        meanwhile(begin.elapsed())?;
        std::thread::sleep(Duration::from_secs(1));
    }
    let spent = CpuTime::of(pid)?.since(&before);
    let wall = begin.elapsed().as_secs_f64();
    let mut threads = cpu_by_thread(pid)?;
    for (name, time) in &mut threads {
        *time = time.saturating_sub(names.get(name).copied().unwrap_or_default());
    }
    let threads = threads.into_iter();
    Ok(Share {
        share: spent.as_secs_f64() / wall,
        threads: threads
            .map(|(name, time)| (name, round(time.as_secs_f64() / wall)))
            .collect(),
    })
}

/// Bare reads of all files, once a second, while the agent holds still.
fn floor(pid: u32, files: &[Vec<PathBuf>], seconds: u64) -> Result<f64> {
    let floor = Floor::open(files)?;
    let rounds = u32::try_from(seconds).unwrap_or(u32::MAX).max(TURN);
    let mut spent = Duration::ZERO;
    for _ in 0..rounds / TURN {
        proc::signal(pid, Signal::STOP);
        let (took, _) = floor.measure(TURN);
        proc::signal(pid, Signal::CONT);
        spent += took;
        // It catches up.
        std::thread::sleep(Duration::from_secs(2));
    }
    Ok(spent.as_secs_f64() / f64::from(rounds / TURN * TURN))
}

/// What the agent reads of each cgroup when it reads everything, by its own word.
fn files(agent: &Agent) -> Result<Vec<Vec<PathBuf>>> {
    let page = agent.metrics()?;
    let seen = page.all("container_last_seen", &[]);
    let ids: Vec<String> = seen.map(|sample| sample.label("id").to_owned()).collect();
    ensure!(!ids.is_empty(), "the agent shows no containers");
    ids.iter()
        .map(|id| {
            let answer = agent.get(&format!("/debug/sources?container={id}"))?;
            let files = answer.text()?.lines().map(PathBuf::from);
            // Not every hierarchy has every cgroup, and some come and go.
            Ok(files.filter(|file| file.exists()).collect())
        })
        .collect()
}

fn scrape(connection: &mut Connection, path: &str, headers: &str) -> Result<usize> {
    let mut body = Vec::new();
    let (status, _) = connection.ask_into(path, headers, &mut body)?;
    ensure!(status == 200, "GET {path} answered {status}");
    Ok(body.len())
}

fn name_of(path: &str, headers: &str) -> String {
    match headers {
        "" => path.to_owned(),
        gzip if gzip.contains("gzip") => format!("{path} gzip"),
        _ => format!("{path} protobuf"),
    }
}

/// In MiB: resident, of that anonymous, and the most there ever was.
fn memory(pid: u32) -> Result<Value> {
    let mib = |key| Ok::<_, anyhow::Error>(round(status_kib(pid, key)? as f64 / 1024.0));
    Ok(json!({"resident": mib("VmRSS")?, "anonymous": mib("RssAnon")?, "peak": mib("VmHWM")?}))
}

fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
