//! What the real cAdvisor answered, taken apart into samples and put together again by us: the text must be the same
//! to the letter, key order and number formats included.

use std::sync::Arc;

use plimsoll_containers::Namespace;
use plimsoll_host::Timestamp;
use plimsoll_host::cgroup::{Cfs, Cpu, Memory, NumaNode, Spec};
use plimsoll_host::fs::DiskCounters;
use plimsoll_host::proc::net::ADVANCED_TCP_NAMES;
use serde_json::Value;

use super::fixture::identity;
use super::json::to_vec;
use super::snapshot::{RenderContext, Snapshot};
use super::{MachineInfo, Versions, attributes, v1, v2, write_spec};
use plimsoll_observe::sample::{Filesystem, Interface, Schedstat, Udp};
use plimsoll_observe::{Group, GroupSet, Sample, Symbol};

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("../../testdata/rest/", $name)).trim_end()
    };
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn flag(value: &Value, key: &str) -> bool {
    value[key].as_bool().unwrap_or(false)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn time(value: &Value, key: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = word(value, key).parse().unwrap();
    i64::try_from(at.as_nanosecond()).ok().map(Timestamp)
}

fn sample(stats: &Value) -> Sample {
    let mut groups = GroupSet::of(&[Group::Cpu, Group::Memory, Group::Disk]);
    for (key, group) in [("diskio", Group::DiskIo), ("processes", Group::Process)] {
        let said_absent = stats[format!("has_{key}")] == false;
        if stats.get(key).is_some() && !said_absent {
            groups = groups.with(group);
        }
    }
    let network = &stats["network"];
    let mut sample = Sample {
        at: time(stats, "timestamp").unwrap(),
        groups,
        cpu: cpu(&stats["cpu"]),
        schedstat: Schedstat {
            run_ns: number(&stats["cpu"]["schedstat"], "run_time"),
            wait_ns: number(&stats["cpu"]["schedstat"], "runqueue_time"),
            slices: number(&stats["cpu"]["schedstat"], "run_periods"),
        },
        memory: memory(&stats["memory"]),
        has_network: network.is_object(),
        filesystems: list(stats, "filesystem").iter().map(filesystem).collect(),
        referenced_bytes: number(stats, "referenced_memory"),
        ..Sample::default()
    };
    sample.numa.own = numa(&stats["memory"]["container_data"]["numa_stats"]);
    sample.numa.hierarchical = numa(&stats["memory"]["hierarchical_data"]["numa_stats"]);
    sample.network.interfaces = list(network, "interfaces").iter().map(interface).collect();
    sample.network.tcp = tcp(&network["tcp"]);
    sample.network.tcp6 = tcp(&network["tcp6"]);
    sample.network.udp = udp(&network["udp"]);
    sample.network.udp6 = udp(&network["udp6"]);
    sample.network.advanced_tcp = ADVANCED_TCP_NAMES
        .iter()
        .map(|name| network["tcp_advanced"][name].as_i64().unwrap_or(0) as u64)
        .collect();
    let processes = &stats["processes"];
    sample.processes.count = number(processes, "process_count");
    sample.processes.fds = number(processes, "fd_count");
    sample.processes.sockets = number(processes, "socket_count");
    sample.processes.threads = number(processes, "threads_current");
    sample.processes.threads_max = number(processes, "threads_max");
    sample.processes.max_open_files = list(processes, "ulimits")
        .first()
        .map(|limit| (number(limit, "soft_limit"), number(limit, "hard_limit")));
    sample
}

fn cpu(cpu: &Value) -> Cpu {
    let usage = &cpu["usage"];
    Cpu {
        total_ns: number(usage, "total"),
        user_ns: number(usage, "user"),
        system_ns: number(usage, "system"),
        per_cpu_ns: list(usage, "per_cpu_usage")
            .iter()
            .filter_map(Value::as_u64)
            .collect(),
        cfs: Cfs {
            periods: number(&cpu["cfs"], "periods"),
            throttled_periods: number(&cpu["cfs"], "throttled_periods"),
            throttled_ns: number(&cpu["cfs"], "throttled_time"),
            burst_periods: number(&cpu["cfs"], "bursts_periods"),
            burst_ns: number(&cpu["cfs"], "burst_time"),
        },
    }
}

fn memory(memory: &Value) -> Memory {
    Memory {
        usage: number(memory, "usage"),
        max_usage: number(memory, "max_usage"),
        cache: number(memory, "cache"),
        rss: number(memory, "rss"),
        swap: number(memory, "swap"),
        mapped_file: number(memory, "mapped_file"),
        working_set: number(memory, "working_set"),
        active_file: number(memory, "total_active_file"),
        inactive_file: number(memory, "total_inactive_file"),
        refault_file: number(memory, "workingset_refault_file"),
        refault_anon: number(memory, "workingset_refault_anon"),
        failcnt: number(memory, "failcnt"),
        kernel: number(memory, "kernel"),
        pgfault: number(&memory["container_data"], "pgfault"),
        pgmajfault: number(&memory["container_data"], "pgmajfault"),
        ..Memory::default()
    }
}

fn numa(stats: &Value) -> Vec<NumaNode> {
    let nodes = stats["file"]
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys());
    nodes
        .map(|node| NumaNode {
            node: node.parse().unwrap(),
            file: number(&stats["file"], node),
            anon: number(&stats["anon"], node),
            unevictable: number(&stats["unevictable"], node),
        })
        .collect()
}

fn interface(i: &Value) -> Interface {
    Interface {
        name: Symbol::new(word(i, "name")),
        rx_bytes: number(i, "rx_bytes"),
        rx_packets: number(i, "rx_packets"),
        rx_errors: number(i, "rx_errors"),
        rx_dropped: number(i, "rx_dropped"),
        tx_bytes: number(i, "tx_bytes"),
        tx_packets: number(i, "tx_packets"),
        tx_errors: number(i, "tx_errors"),
        tx_dropped: number(i, "tx_dropped"),
    }
}

fn tcp(states: &Value) -> [u64; 11] {
    let names = [
        "Established",
        "SynSent",
        "SynRecv",
        "FinWait1",
        "FinWait2",
        "TimeWait",
        "Close",
        "CloseWait",
        "LastAck",
        "Listen",
        "Closing",
    ];
    names.map(|name| number(states, name))
}

fn udp(udp: &Value) -> Udp {
    Udp {
        listen: number(udp, "Listen"),
        dropped: number(udp, "Dropped"),
        rx_queued: number(udp, "RxQueued"),
        tx_queued: number(udp, "TxQueued"),
    }
}

fn filesystem(fs: &Value) -> Filesystem {
    // The machine's figures have the disk's under a key of their own, in nanoseconds.
    let inline = &fs["inline"];
    let disk = if inline.is_object() { inline } else { fs };
    let ms = |v1: &str, v2: &str| number(disk, v1).max(number(disk, v2) / 1_000_000);
    Filesystem {
        device: Symbol::new(word(fs, "device")),
        kind: Symbol::new(word(fs, "type")),
        capacity: number(fs, "capacity"),
        usage: number(fs, "usage"),
        base_usage: number(fs, "base_usage"),
        available: number(fs, "available"),
        has_inodes: u64::from(flag(fs, "has_inodes") || inline.is_object()),
        inodes: number(fs, "inodes"),
        inodes_free: number(fs, "inodes_free"),
        disk: DiskCounters {
            reads_completed: number(disk, "reads_completed"),
            reads_merged: number(disk, "reads_merged"),
            sectors_read: number(disk, "sectors_read"),
            read_ms: ms("read_time", "read_duration"),
            writes_completed: number(disk, "writes_completed"),
            writes_merged: number(disk, "writes_merged"),
            sectors_written: number(disk, "sectors_written"),
            write_ms: ms("write_time", "write_duration"),
            io_in_progress: number(disk, "io_in_progress"),
            io_ms: ms("io_time", "io_duration"),
            weighted_io_ms: ms("weighted_io_time", "weighted_io_duration"),
        },
    }
}

fn spec(spec: &Value) -> Spec {
    let cpu = &spec["cpu"];
    Spec {
        has_cpu: flag(spec, "has_cpu"),
        cpu_shares: number(cpu, "limit"),
        cpu_quota_us: number(cpu, "quota"),
        cpu_period_us: number(cpu, "period"),
        cpu_mask: cpu["mask"].as_str().map(str::to_owned),
        has_memory: flag(spec, "has_memory"),
        memory_limit: number(&spec["memory"], "limit"),
        memory_reservation: number(&spec["memory"], "reservation"),
        memory_swap_limit: number(&spec["memory"], "swap_limit"),
        has_hugetlb: flag(spec, "has_hugetlb"),
        has_processes: flag(spec, "has_processes"),
        pids_limit: number(&spec["processes"], "limit"),
        has_diskio: flag(spec, "has_diskio"),
    }
}

fn snapshot(info: &Value) -> Snapshot {
    let described = &info["spec"];
    let aliases: Vec<&str> = list(info, "aliases")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let started = time(described, "start_time").filter(|_| !aliases.is_empty());
    let identity = (!aliases.is_empty()).then(|| {
        let mut identity = identity(Namespace::Containerd, &aliases);
        identity.id = word(info, "id").to_owned();
        identity.image = word(described, "image").to_owned();
        for (key, value) in described["labels"].as_object().into_iter().flatten() {
            identity
                .labels
                .insert(key.clone(), value.as_str().unwrap().to_owned());
        }
        Arc::new(identity)
    });
    Snapshot {
        path: word(info, "name").into(),
        identity,
        spec: spec(described),
        created: time(described, "creation_time").unwrap(),
        started,
        owns_network: flag(described, "has_network"),
        has_filesystem: flag(described, "has_filesystem"),
        oom_events: 0,
        samples: list(info, "stats").iter().map(sample).collect(),
    }
}

/// The machine's capacity is what the root's description says.
fn context() -> RenderContext {
    RenderContext {
        memory_capacity: 25_274_793_984,
        ..RenderContext::default()
    }
}

#[track_caller]
fn same(ours: Vec<u8>, original: &str) {
    let ours = String::from_utf8(ours).unwrap();
    if ours == original {
        return;
    }
    let at = ours
        .bytes()
        .zip(original.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let near = |text: &str| {
        text.get(at.saturating_sub(60)..(at + 80).min(text.len()))
            .map(str::to_owned)
    };
    panic!(
        "differs at {at}:\nours     {:?}\noriginal {:?}",
        near(&ours),
        near(original)
    );
}

fn container() -> Snapshot {
    snapshot(&serde_json::from_str(golden!("v1.3-container.json")).unwrap())
}

#[test]
fn v1_container() {
    let mut out = Vec::new();
    v1::write(&container(), &[""; 0], &context(), &mut out).unwrap();
    same(out, golden!("v1.3-container.json"));
}

#[test]
fn v1_kills_stand_between_cpuset_and_health() {
    let mut killed = container();
    killed.oom_events = 3;
    let mut out = Vec::new();
    v1::write(&killed, &[""; 0], &context(), &mut out).unwrap();
    let before = r#""cpuset":{"memory_migrate":0},"#;
    let expected =
        golden!("v1.3-container.json").replace(before, &format!(r#"{before}"oom_events":3,"#));
    assert!(expected.contains("oom_events"));
    same(out, &expected);
}

#[test]
fn what_could_not_be_read_is_left_out() {
    let mut unread = container();
    for sample in &mut unread.samples {
        sample.groups = GroupSet::of(&[Group::Memory]);
    }
    let context = RenderContext {
        groups: GroupSet::of(&[Group::Cpu, Group::Memory]),
        ..context()
    };
    let answer = |write: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>| -> Value {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    };
    let known = |stats: &Value| (stats.get("cpu").is_some(), stats.get("memory").is_some());
    let v1 = answer(&|out| v1::write(&unread, &[""; 0], &context, out));
    assert_eq!(known(&v1["stats"][0]), (false, true));
    let v21 = answer(&|out| v2::write_stats_21(&unread, &context, out));
    assert_eq!(known(&v21["stats"][0]), (false, true));
    let v20 = answer(&|out| v2::write_stats_20(&unread, &context, out));
    assert_eq!(v20[0]["has_cpu"], false);
    assert_eq!(v20[0]["has_memory"], true);
}

#[test]
fn v1_root_pod_sandbox_and_container_with_every_group() {
    let original = golden!("v1.3-all-groups.json");
    let infos: Value = serde_json::from_str(original).unwrap();
    let mut out = b"[".to_vec();
    for info in infos.as_array().unwrap() {
        let children: Vec<&str> = list(info, "subcontainers")
            .iter()
            .map(|c| word(c, "name"))
            .collect();
        if out.len() > 1 {
            out.push(b',');
        }
        v1::write(&snapshot(info), &children, &context(), &mut out).unwrap();
    }
    out.push(b']');
    same(out, original);
}

#[test]
fn v2_spec() {
    let mut out = Vec::new();
    write_spec(&container(), &context(), &mut out).unwrap();
    // The original forgets quota and period in version 2, although it has keys for them.
    let cpu = r#""cpu":{"limit":20,"max_limit":0"#;
    let mended =
        golden!("v2.0-spec.json").replace(cpu, &format!(r#"{cpu},"quota":50000,"period":100000"#));
    let inner = mended
        .split_once("6e\":")
        .unwrap()
        .1
        .strip_suffix('}')
        .unwrap();
    same(out, inner);
}

#[test]
fn v2_1_stats_with_rates() {
    let mut out = Vec::new();
    v2::write_stats_21(&container(), &context(), &mut out).unwrap();
    let cpu = r#""cpu":{"limit":20,"max_limit":0"#;
    let mended =
        golden!("v2.1-stats.json").replace(cpu, &format!(r#"{cpu},"quota":50000,"period":100000"#));
    let inner = mended
        .split_once("6e\":")
        .unwrap()
        .1
        .strip_suffix('}')
        .unwrap();
    same(out, inner);
}

/// A root whose samples are those of a list.
fn root(stats: &Value) -> Snapshot {
    let samples = stats.as_array().unwrap().iter().map(sample).collect();
    Snapshot {
        path: "/".into(),
        identity: None,
        spec: Spec {
            has_cpu: true,
            has_diskio: true,
            ..Spec::default()
        },
        created: Timestamp::ZERO,
        started: None,
        owns_network: true,
        has_filesystem: true,
        oom_events: 0,
        samples,
    }
}

/// The original reckons rates by its monotonic clock, which runs a few parts in a billion beside the times it prints:
/// the last digits of its rates cannot be had from its samples.
fn without_rates(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\"cpu_inst\":{") {
        out.push_str(before);
        rest = after.split_once("}},").unwrap().1;
    }
    out + rest
}

#[test]
fn v2_0_stats_of_the_root() {
    let original = golden!("v2.0-stats-root.json");
    let answer: Value = serde_json::from_str(original).unwrap();
    let mut out = br#"{"/":"#.to_vec();
    v2::write_stats_20(&root(&answer["/"]), &context(), &mut out).unwrap();
    out.push(b'}');
    let ours = String::from_utf8(out).unwrap();
    assert_eq!(ours.len(), original.len());
    same(without_rates(&ours).into_bytes(), &without_rates(original));
}

#[test]
fn machine_stats() {
    for original in [
        golden!("v2.1-machinestats.json"),
        golden!("v2.1-machinestats-two.json"),
    ] {
        let mut out = Vec::new();
        let snapshot = root(&serde_json::from_str(original).unwrap());
        v2::write_machine_stats(&snapshot, &context(), &mut out).unwrap();
        let ours = String::from_utf8(out).unwrap();
        same(without_rates(&ours).into_bytes(), &without_rates(original));
    }
    let mut out = Vec::new();
    v2::write_machine_stats(&root(&Value::Array(Vec::new())), &context(), &mut out).unwrap();
    same(out, "null");
}

#[test]
fn machine_and_attributes() {
    let original = golden!("machine.json");
    let machine: MachineInfo = serde_json::from_str(original).unwrap();
    same(to_vec(&machine).unwrap(), original);

    let original = golden!("v2.0-attributes.json");
    let said: Value = serde_json::from_str(original).unwrap();
    let machine: MachineInfo = serde_json::from_str(original).unwrap();
    let versions = Versions {
        kernel: word(&said, "kernel_version").to_owned(),
        container_os: word(&said, "container_os_version").to_owned(),
        cadvisor: word(&said, "cadvisor_version").to_owned(),
        ..Versions::default()
    };
    same(to_vec(&attributes(&machine, &versions)).unwrap(), original);
}

/// The shape only: the figures come from a day of samples that nobody kept.
#[test]
fn derived_figures() {
    let derived = plimsoll_observe::derived::Derived::default();
    let ours = String::from_utf8(to_vec(&super::summary(&derived)).unwrap()).unwrap();
    let keys = |text: &str| -> Vec<String> {
        let keys = text.split('"').skip(1).step_by(2);
        keys.filter(|key| !key.starts_with(['/', '0', '2']))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(keys(&ours), keys(golden!("v2.0-summary.json")));
}
