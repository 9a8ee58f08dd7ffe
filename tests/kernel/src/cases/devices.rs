//! The machine's disk, file system, network card, cpus and memory.

use std::io::Write;
use std::net::UdpSocket;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::cgroup::Group;
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;

use super::{PATIENCE, Rig, read};
use crate::init::{DATA, DISK};
use crate::workload::Workload;

pub fn cases(runner: &mut Runner<impl Write>, rig: &Rig) {
    runner.case("block_io", || block_io(rig));
    runner.case("network", || network(rig));
    runner.case("filesystem", || filesystem(rig));
    runner.case("machine", || machine(rig));
}

/// Bytes read and written by the kernel's count.
fn io_bytes(rig: &Rig, group: &Group) -> Result<[f64; 2]> {
    if rig.is_v1() {
        let text = group.read("blkio", "blkio.throttle.io_service_bytes_recursive")?;
        let find = |operation: &str| -> Result<f64> {
            let line = text.lines().find(|line| line.contains(operation));
            let value = line.and_then(|line| line.rsplit(' ').next());
            Ok(value
                .with_context(|| format!("no {operation} in {text:?}"))?
                .parse()?)
        };
        return Ok([find(" Read ")?, find(" Write ")?]);
    }
    let text = group.read("io", "io.stat")?;
    let find = |key: &str| -> Result<f64> {
        let value = text
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix(key));
        Ok(value
            .with_context(|| format!("no {key} in {text:?}"))?
            .parse()?)
    };
    Ok([find("rbytes=")?, find("wbytes=")?])
}

fn block_io(rig: &Rig) -> Result<String> {
    const BYTES: f64 = (8 << 20) as f64;
    let group = rig.group("io")?;
    if rig.is_v1() {
        // Kernels 5.18 to 6.4 count on v1 only where a rule is set: one that never bites.
        let device = read("/sys/class/block/vda/dev")?;
        for file in [
            "blkio.throttle.read_bps_device",
            "blkio.throttle.write_bps_device",
        ] {
            group.write("blkio", file, &format!("{} 17179869184", device.trim()))?;
        }
    }
    let _io = Workload::start(&group, &["io", &format!("{DATA}/direct"), "8388608"])?;
    let done = io_bytes(rig, &group)?;
    ensure!(
        done[0] >= BYTES && done[1] >= BYTES,
        "the workload itself did too little: {done:?}"
    );
    let labels = [("id", group.path()), ("device", DISK)];
    rig.between(
        group.path(),
        0.0,
        || io_bytes(rig, &group),
        |page| {
            Ok([
                (
                    "read",
                    page.value("container_fs_reads_bytes_total", &labels)?,
                ),
                (
                    "written",
                    page.value("container_fs_writes_bytes_total", &labels)?,
                ),
            ])
        },
    )
}

fn network(rig: &Rig) -> Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    for _ in 0..50 {
        // Nobody listens at the emulator's address; leaving the card is all that counts.
        socket.send_to(&[0; 1000], "10.0.2.2:9")?;
    }
    let kernel = || {
        let table = read("/proc/net/dev")?;
        let line = table
            .lines()
            .find_map(|line| line.trim().strip_prefix("eth0:"))
            .context("no eth0")?;
        let fields: Vec<f64> = line.split_ascii_whitespace().flat_map(str::parse).collect();
        ensure!(fields.len() == 16, "eth0 has {} fields", fields.len());
        Ok([fields[0], fields[8], fields[9]])
    };
    let labels = [("id", "/"), ("interface", "eth0")];
    let note = rig.between("/", 0.0, kernel, |page| {
        Ok([
            (
                "received",
                page.value("container_network_receive_bytes_total", &labels)?,
            ),
            (
                "sent",
                page.value("container_network_transmit_bytes_total", &labels)?,
            ),
            (
                "packets sent",
                page.value("container_network_transmit_packets_total", &labels)?,
            ),
        ])
    })?;
    let page = rig.agent.metrics()?;
    for sample in page.all("container_network_receive_bytes_total", &[]) {
        ensure!(
            sample.label("interface") != "lo",
            "the loopback device is shown"
        );
        ensure!(
            sample.label("id") == "/",
            "a raw cgroup has network figures: {}",
            sample.label("id")
        );
    }
    Ok(note)
}

fn filesystem(rig: &Rig) -> Result<String> {
    // They are asked at an interval of their own.
    poll::until("the file system's figures are new", PATIENCE, || {
        one_filesystem(rig).map(Some)
    })
}

fn one_filesystem(rig: &Rig) -> Result<String> {
    let labels = [("id", "/"), ("device", DISK)];
    rig.between(
        "/",
        // The file system writes in the background.
        (1 << 20) as f64,
        || {
            let stat = rustix::fs::statvfs(DATA)?;
            let bytes = |blocks: u64| (blocks * stat.f_frsize) as f64;
            Ok([
                bytes(stat.f_blocks),
                bytes(stat.f_blocks - stat.f_bfree),
                stat.f_files as f64,
            ])
        },
        |page| {
            Ok([
                ("limit", page.value("container_fs_limit_bytes", &labels)?),
                ("usage", page.value("container_fs_usage_bytes", &labels)?),
                ("inodes", page.value("container_fs_inodes_total", &labels)?),
            ])
        },
    )
}

fn machine(rig: &Rig) -> Result<String> {
    let page = rig.agent.metrics()?;
    let cores = page.value("machine_cpu_cores", &[])?;
    ensure!(cores == 2.0, "{cores} cpus");
    let meminfo = read("/proc/meminfo")?;
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))
        .context("no MemTotal")?;
    let total = total.trim().parse::<f64>()? * 1024.0;
    let found = page.value("machine_memory_bytes", &[])?;
    ensure!(found == total, "memory is {found}, the kernel says {total}");
    let info = rig.agent.json("/api/v1.3/machine")?;
    ensure!(info["num_cores"] == 2, "num_cores is {}", info["num_cores"]);
    Ok(String::new())
}
