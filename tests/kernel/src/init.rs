//! The guest's first process: makes a bare kernel into a small Linux machine, runs the tests, powers off.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::mount::MountFlags;
use rustix::process::WaitOptions;
use rustix::system::RebootCommand;

/// The tests' lines leave the guest here; the first serial line is the kernel's console.
pub const REPORT: &str = "/dev/ttyS1";
pub const DISK: &str = "/dev/vda";
/// Where the disk's file system is mounted.
pub const DATA: &str = "/data";

/// v1 controllers that nothing here looks at: each is one more directory for each of a thousand cgroups.
const UNUSED_V1: &[&str] = &["net_cls", "net_prio", "rdma", "misc"];

pub fn run() -> Result<()> {
    if let Err(error) = tests() {
        eprintln!("guest: {error:#}");
    }
    rustix::system::reboot(RebootCommand::PowerOff).context("power off")
}

fn tests() -> Result<()> {
    mount("proc", "/proc", "proc", "")?;
    mount("sysfs", "/sys", "sysfs", "")?;
    mount("devtmpfs", "/dev", "devtmpfs", "")?;
    mount("tmpfs", "/tmp", "tmpfs", "")?;
    mount("tmpfs", "/run", "tmpfs", "")?;
    load_modules()?;
    match parameter("plimsoll.cgroups")?.as_deref() {
        Some("v1") => mount_cgroups_v1()?,
        _ => mount("cgroup2", "/sys/fs/cgroup", "cgroup2", "")?,
    }
    mount(DISK, DATA, "ext4", "")?;
    busybox(&["ip", "link", "set", "lo", "up"])?;
    busybox(&["ip", "link", "set", "eth0", "up"])?;
    busybox(&["ip", "addr", "add", "10.0.2.15/24", "dev", "eth0"])?;

    let report = OpenOptions::new()
        .write(true)
        .open(REPORT)
        .with_context(|| format!("open {REPORT}"))?;
    let tests = Command::new("/proc/self/exe")
        .arg("tests")
        .stdout(report.try_clone()?)
        .stderr(report)
        .spawn()
        .context("start the tests")?;
    reap_until(tests.id())
}

/// Orphans become init's children, and someone has to collect them.
fn reap_until(wanted: u32) -> Result<()> {
    loop {
        let ended = rustix::process::wait(WaitOptions::empty())?;
        if ended.is_some_and(|(pid, _)| pid.as_raw_nonzero().get().unsigned_abs() == wanted) {
            return Ok(());
        }
    }
}

/// A word `name=value` of the kernel's command line.
pub fn parameter(name: &str) -> Result<Option<String>> {
    let line = fs::read_to_string("/proc/cmdline").context("read the kernel's command line")?;
    let value = line
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(value.map(str::to_owned))
}

fn mount(source: &str, target: &str, kind: &str, options: &str) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("make {target}"))?;
    let options = std::ffi::CString::new(options)?;
    let options = (!options.is_empty()).then_some(options.as_c_str());
    rustix::mount::mount(source, target, kind, MountFlags::empty(), options)
        .with_context(|| format!("mount {kind} on {target}"))
}

/// Each controller on a hierarchy of its own.
fn mount_cgroups_v1() -> Result<()> {
    mount("tmpfs", "/sys/fs/cgroup", "tmpfs", "")?;
    let table = fs::read_to_string("/proc/cgroups").context("read /proc/cgroups")?;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split_ascii_whitespace();
        let (Some(name), Some(enabled)) = (fields.next(), fields.nth(2)) else {
            continue;
        };
        if enabled == "1" && !UNUSED_V1.contains(&name) {
            mount("cgroup", &format!("/sys/fs/cgroup/{name}"), "cgroup", name)?;
        }
    }
    Ok(())
}

fn load_modules() -> Result<()> {
    let mut modules: Vec<_> = fs::read_dir("/modules")?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    modules.sort();
    for module in modules {
        load_module(&module).with_context(|| format!("load {}", module.display()))?;
    }
    Ok(())
}

fn load_module(path: &Path) -> Result<()> {
    rustix::system::finit_module(File::open(path)?, c"", 0)?;
    Ok(())
}

fn busybox(arguments: &[&str]) -> Result<()> {
    let output = Command::new("/bin/busybox").args(arguments).output()?;
    anyhow::ensure!(
        output.status.success(),
        "busybox {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
