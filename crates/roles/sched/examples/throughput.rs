//! One workload of `cargo xtask bench sched`, in memory: a line of JSON with what it took.

use std::process::ExitCode;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use plimsoll_sched::action::{ActionKind, ActionResult};
use plimsoll_sched::framework::Profile;
use plimsoll_sched::model::{Names, Pod, Symbol, decode};
use plimsoll_sched::queue::QueueConfig;
use plimsoll_sched::{Config, Observation, Outcome, Scheduler, Time};

const WORKLOADS: &[&str] = &[
    "basic",
    "node-affinity",
    "zone-spread",
    "default-spread",
    "hostname-anti-affinity",
    "zone-affinity",
    "preferred-affinity",
    "preemption",
    "preemption-budgets",
    "preemption-spread",
    "first-of-class",
    "first-of-class-none-fits",
    "devices",
    "unschedulable-backlog",
    "daemonset",
];
const ZONES: usize = 3;

fn node(index: usize) -> String {
    let zone = index % ZONES;
    format!(
        r#"{{"metadata":{{"name":"node-{index}","labels":{{"kubernetes.io/hostname":"node-{index}",
            "topology.kubernetes.io/zone":"zone-{zone}"}}}},
            "status":{{"allocatable":{{"cpu":"4","memory":"32Gi","pods":"110"}}}}}}"#
    )
}

fn pod(name: &str, labels: &str, cpu: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"bench","uid":"{name}","labels":{labels}}},
            "spec":{{"containers":[{{"name":"c","image":"pause","resources":{{"requests":{{"cpu":"{cpu}","memory":"500Mi"}}}}}}]{more}}}}}"#
    )
}

fn affinity(kind: &str, rule: &str, key: &str) -> String {
    let term =
        format!(r#"{{"topologyKey":"{key}","labelSelector":{{"matchLabels":{{"app":"x"}}}}}}"#);
    let body = match rule {
        "required" => format!(r#""requiredDuringSchedulingIgnoredDuringExecution":[{term}]"#),
        _ => format!(
            r#""preferredDuringSchedulingIgnoredDuringExecution":[{{"weight":1,"podAffinityTerm":{term}}}]"#
        ),
    };
    format!(r#","affinity":{{"{kind}":{{{body}}}}}"#)
}

/// The pods to be scheduled.
fn wanted(workload: &str, index: usize, nodes: usize) -> String {
    let name = format!("pod-{index}");
    let x = r#"{"app":"x"}"#;
    match workload {
        "node-affinity" => {
            let more = r#","affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
                {"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["zone-0","zone-1"]}]}]}}}"#;
            pod(&name, x, "100m", more)
        }
        "zone-spread" => {
            let more = r#","topologySpreadConstraints":[{"maxSkew":5,"topologyKey":"topology.kubernetes.io/zone",
                "whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"x"}}}]"#;
            pod(&name, x, "100m", more)
        }
        "hostname-anti-affinity" => pod(
            &name,
            x,
            "100m",
            &affinity("podAntiAffinity", "required", "kubernetes.io/hostname"),
        ),
        "zone-affinity" => pod(
            &name,
            x,
            "100m",
            &affinity("podAffinity", "required", "topology.kubernetes.io/zone"),
        ),
        "preferred-affinity" => pod(
            &name,
            x,
            "100m",
            &affinity("podAffinity", "preferred", "kubernetes.io/hostname"),
        ),
        "preemption" | "preemption-budgets" => pod(&name, x, "3", r#","priority":100"#),
        "preemption-spread" => {
            let more = r#","priority":100,"topologySpreadConstraints":[{"maxSkew":5,"topologyKey":"topology.kubernetes.io/zone",
                "whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"x"}}}]"#;
            pod(&name, x, "3", more)
        }
        // No two of them are alike, so nothing that was found before is of use.
        "first-of-class" => pod(&name, x, &format!("{}m", 100 + index), ""),
        "first-of-class-none-fits" => pod(&name, x, &format!("{}m", 4001 + index), ""),
        "devices" => {
            let more = format!(
                r#","resourceClaims":[{{"name":"r","resourceClaimName":"claim-{index}"}}]"#
            );
            pod(&name, x, "100m", &more)
        }
        "unschedulable-backlog" => pod(&name, x, "9", ""),
        "daemonset" => {
            let more = format!(
                r#","affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[
                    {{"matchFields":[{{"key":"metadata.name","operator":"In","values":["node-{}"]}}]}}]}}}}}}"#,
                index % nodes
            );
            pod(&name, x, "100m", &more)
        }
        _ => pod(&name, x, "100m", ""),
    }
}

struct Options {
    workload: String,
    nodes: usize,
    pods: usize,
    /// Placed before, as scheduler_perf does.
    placed: usize,
    parallelism: usize,
}

/// Four devices on each node, of which a claim takes two that are alike.
fn add_devices(scheduler: &mut Scheduler, options: &Options, now: Time) {
    let bad = "the bench's own objects are well-formed";
    let json = br#"{"metadata":{"name":"gpu"},"spec":{"selectors":[{"cel":{"expression":"device.driver == 'd.io'"}}]}}"#;
    let class = decode::device_class(json).expect(bad);
    scheduler.observe(Observation::DeviceClass(class), now);
    for index in 0..options.nodes {
        let device = |number: usize| {
            let kind = number / 2;
            format!(r#"{{"name":"gpu-{number}","attributes":{{"kind":{{"int":{kind}}}}}}}"#)
        };
        let devices: Vec<String> = (0..4).map(device).collect();
        let json = format!(
            r#"{{"metadata":{{"name":"slice-{index}"}},"spec":{{"driver":"d.io","nodeName":"node-{index}",
                "pool":{{"name":"node-{index}","generation":1,"resourceSliceCount":1}},"devices":[{}]}}}}"#,
            devices.join(",")
        );
        let slice = decode::resource_slice(json.as_bytes(), scheduler.names_mut()).expect(bad);
        scheduler.observe(Observation::ResourceSlice(Box::new(slice)), now);
    }
    for index in 0..options.pods {
        let json = format!(
            r#"{{"metadata":{{"name":"claim-{index}","namespace":"bench","uid":"claim-{index}"}},"spec":{{"devices":{{
                "requests":[{{"name":"q","exactly":{{"deviceClassName":"gpu","count":2,
                    "selectors":[{{"cel":{{"expression":"device.attributes['d.io'].kind >= 0"}}}}]}}}}],
                "constraints":[{{"requests":["q"],"matchAttribute":"d.io/kind"}}]}}}}}}"#
        );
        let claim = decode::resource_claim(json.as_bytes(), scheduler.names_mut()).expect(bad);
        scheduler.observe(Observation::ResourceClaim(Box::new(claim)), now);
    }
}

fn build(options: &Options) -> (Scheduler, Vec<Pod>) {
    let mut names = Names::default();
    let scheduler_name = names.intern("default-scheduler");
    let config = Config {
        profiles: vec![Profile::standard(scheduler_name)],
        queue: QueueConfig::default(),
        seed: 1,
    };
    let mut scheduler = Scheduler::new(config, names).with_parallelism(options.parallelism.into());
    let now = Time::from_secs(1_000_000);
    let bad = "the bench's own objects are well-formed";
    for index in 0..options.nodes {
        let node = decode::node(node(index).as_bytes(), scheduler.names_mut()).expect(bad);
        scheduler.observe(Observation::Node(Box::new(node)), now);
    }
    if options.workload == "default-spread" {
        let json =
            br#"{"metadata":{"name":"s","namespace":"bench"},"spec":{"selector":{"app":"x"}}}"#;
        let service = decode::service(json, scheduler.names_mut()).expect(bad);
        scheduler.observe(Observation::Service(service), now);
    }
    if options.workload == "devices" {
        add_devices(&mut scheduler, options, now);
    }
    if options.workload == "preemption-budgets" {
        let json = br#"{"metadata":{"name":"b","namespace":"bench"},"spec":{"selector":{"matchLabels":{"app":"other"}}}}"#;
        let budget = decode::disruption_budget(json, scheduler.names_mut()).expect(bad);
        scheduler.observe(Observation::Budget(budget), now);
    }
    for index in 0..options.placed {
        let name = format!("placed-{index}");
        let json = match options.workload.as_str() {
            workload if workload.starts_with("preemption") => pod(&name, "{}", "900m", ""),
            "zone-affinity" | "preferred-affinity" => pod(&name, r#"{"app":"x"}"#, "100m", ""),
            _ => pod(&name, "{}", "100m", ""),
        };
        let mut pod = decode::pod(json.as_bytes(), scheduler.names_mut()).expect(bad);
        let node = scheduler
            .names_mut()
            .intern(&format!("node-{}", index % options.nodes));
        pod.node = Some(node);
        scheduler.observe(Observation::Pod(Box::new(pod)), now);
    }
    let pods = (0..options.pods)
        .map(|index| {
            let json = wanted(&options.workload, index, options.nodes);
            decode::pod(json.as_bytes(), scheduler.names_mut()).expect(bad)
        })
        .collect();
    (scheduler, pods)
}

/// What this process has computed so far. Not wall-clock time: other programs may be running.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Plays the API server: every action succeeds at once, and is told back.
fn run(scheduler: &mut Scheduler, pods: Vec<Pod>) -> (usize, usize, Duration, Duration) {
    let (mut scheduled, mut refused) = (0, 0);
    let total = pods.len();
    let mut now = Time::from_secs(1_000_001);
    let by_name: std::collections::HashMap<Box<str>, Pod> = pods
        .iter()
        .map(|pod| (pod.name.clone(), pod.clone()))
        .collect();
    let (begin, wall) = (computed(), clock_gettime(ClockId::Monotonic));
    for pod in pods {
        scheduler.observe(Observation::Pod(Box::new(pod)), now);
    }
    while scheduled + refused < total {
        let Some(cycle) = scheduler.step(now) else {
            match scheduler.next_wakeup() {
                Some(later) => now = later.max(now),
                None => break,
            }
            continue;
        };
        match cycle.outcome {
            Outcome::Scheduled { .. } => scheduled += 1,
            // A preemptor comes back when its victims have gone.
            Outcome::Unschedulable { .. }
                if !cycle
                    .actions
                    .iter()
                    .any(|action| matches!(action.kind, ActionKind::Evict { .. })) =>
            {
                refused += 1;
            }
            _ => {}
        }
        let mut todo = cycle.actions;
        while let Some(action) = todo.pop() {
            todo.extend(scheduler.finished(action.id, ActionResult::Done, now));
            match action.kind {
                ActionKind::Bind { pod, node } => {
                    let node: Symbol = scheduler.names_mut().intern(&node);
                    if let Some(pod) = by_name.get(&pod.name) {
                        let mut pod = pod.clone();
                        pod.node = Some(node);
                        scheduler.observe(Observation::Pod(Box::new(pod)), now);
                    }
                }
                ActionKind::Evict { victim, .. } => {
                    scheduler.observe(Observation::PodGone((&*victim.uid).into()), now);
                }
                _ => {}
            }
        }
    }
    let now = clock_gettime(ClockId::Monotonic);
    let passed = (now.tv_sec - wall.tv_sec) * 1_000_000_000 + (now.tv_nsec - wall.tv_nsec);
    let passed = Duration::from_nanos(passed.unsigned_abs());
    (scheduled, refused, computed() - begin, passed)
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0);
    kib / 1024.0
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| {
        arguments
            .get(index)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let Some(workload) = arguments
        .first()
        .filter(|name| WORKLOADS.contains(&name.as_str()))
    else {
        eprintln!(
            "usage: bench WORKLOAD [NODES [PODS [PLACED|- [PARALLELISM]]]]; workloads: {}",
            WORKLOADS.join(" ")
        );
        return ExitCode::from(64);
    };
    let nodes = number(
        1,
        if workload == "daemonset" {
            15_000
        } else {
            5_000
        },
    );
    let options = Options {
        workload: workload.clone(),
        nodes,
        pods: number(2, 2_000),
        placed: number(
            3,
            if workload.starts_with("preemption") {
                4 * nodes
            } else {
                1_000
            },
        ),
        parallelism: number(4, 1),
    };
    let (mut scheduler, pods) = build(&options);
    let (scheduled, refused, elapsed, passed) = run(&mut scheduler, pods);
    let seconds = elapsed.as_secs_f64();
    let attempts = (scheduled + refused) as f64;
    let line = serde_json::json!({
        "workload": options.workload,
        "nodes": options.nodes,
        "pods": options.pods,
        "scheduled": scheduled,
        "unschedulable": refused,
        "parallelism": options.parallelism,
        "wall_us_per_pod": (passed.as_secs_f64() * 1e6 / attempts * 100.0).round() / 100.0,
        "pods_per_s": (attempts / seconds).round(),
        "us_per_pod": (seconds * 1e6 / attempts * 100.0).round() / 100.0,
        "rss_mib": (resident_mib() * 10.0).round() / 10.0,
    });
    println!("{line}");
    ExitCode::SUCCESS
}
