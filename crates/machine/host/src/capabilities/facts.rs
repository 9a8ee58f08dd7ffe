//! Facts about the kernel, read once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cgroup::{Controller, Hierarchies, Mode};
use crate::proc::meminfo::read_meminfo;
use crate::{HostRoot, ReadBuf, read_text};

/// Files of cgroups on which protection depends. Their absence is a fact, not an error.
const FILES: &[&str] = &[
    "cpu.shares",
    "cpu.weight",
    "cpu.cfs_quota_us",
    "cpu.max",
    "cpu.cfs_burst_us",
    "cpu.max.burst",
    "cpu.idle",
    "cpu.bvt_warp_ns",
    "cpu.pressure",
    "cpuset.cpus",
    "memory.limit_in_bytes",
    "memory.max",
    "memory.high",
    "memory.low",
    "memory.min",
    "memory.reclaim",
    "memory.oom.group",
    "memory.wmark_ratio",
    "io.max",
    "io.weight",
    "io.pressure",
    "blkio.throttle.read_bps_device",
    "blkio.cost.weight",
    "cgroup.freeze",
    "cgroup.kill",
    "freezer.state",
];
/// So many folders are looked at for these files; the first ones have nearly all of them.
const MOST_FOLDERS: usize = 32;

/// How the kernel interrupts tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preemption {
    None,
    Voluntary,
    Full,
    /// A waking task of a better class waits for the next tick.
    Lazy,
    RealTime,
}

impl Preemption {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Voluntary => "voluntary",
            Self::Full => "full",
            Self::Lazy => "lazy",
            Self::RealTime => "real-time",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resctrl {
    /// The processor can divide its last-level cache.
    pub cache: bool,
    /// It can limit memory bandwidth.
    pub bandwidth: bool,
    pub mounted: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// `None`: no cgroup file system is mounted.
    pub mode: Option<Mode>,
    /// A cgroup2 tree is mounted, even without controllers.
    pub unified: bool,
    /// The kubelet's folder in the cgroup tree, `kubepods.slice` or `kubepods`; `None`: no kubelet runs pods here.
    pub kubepods: Option<&'static str>,
    /// Files of [`FILES`] that a cgroup here has.
    pub files: BTreeSet<&'static str>,
    /// Pressure of the whole machine can be read.
    pub pressure: bool,
    pub preemption: Option<Preemption>,
    pub resctrl: Resctrl,
    pub swap_bytes: u64,
    /// Effective capabilities of this process, as bits; `None`: unknown.
    pub capabilities: Option<u64>,
    /// The cgroup file system can be written.
    pub writable: bool,
    /// CPU limit of our own cgroup, in thousandths of a core.
    pub own_cpu_limit_milli: Option<u64>,
    /// `tsc`, `kvm-clock`, `hpet` and the like.
    pub clock_source: String,
    /// An external scheduler (sched_ext) has replaced the fair class.
    pub sched_ext: bool,
    /// Sockets of container runtimes that exist.
    pub runtimes: Vec<&'static str>,
}

/// Sockets that runtimes listen on by default.
const RUNTIMES: &[&str] = &[
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
];

impl Facts {
    /// Reads everything. Whatever cannot be read is left out.
    pub fn read(root: &HostRoot, buf: &mut ReadBuf) -> Self {
        let hierarchies = Hierarchies::detect(root, buf).ok();
        let mut text = |path: PathBuf| read_text(&path, buf).ok().flatten().unwrap_or_default();
        let version = text(root.proc("sys/kernel/version"));
        let preempt = text(root.sys("kernel/debug/sched/preempt"));
        let flags = text(root.proc("cpuinfo"));
        let state = text(root.sys("kernel/sched_ext/state"));
        let mut facts = Self {
            release: text(root.proc("sys/kernel/osrelease")).trim().to_owned(),
            clock_source: text(
                root.sys("devices/system/clocksource/clocksource0/current_clocksource"),
            )
            .trim()
            .to_owned(),
            preemption: preemption(&preempt, &version),
            resctrl: Resctrl {
                cache: has_flag(&flags, "cat_l3"),
                bandwidth: has_flag(&flags, "mba"),
                mounted: root.sys("fs/resctrl/schemata").exists(),
            },
            sched_ext: state.trim() == "enabled",
            pressure: root.proc("pressure/cpu").exists(),
            capabilities: effective(&text(root.proc("self/status"))),
            runtimes: RUNTIMES
                .iter()
                .copied()
                .filter(|socket| root.path(socket).exists())
                .collect(),
            ..Self::default()
        };
        let own = text(root.proc("self/cgroup"));
        facts.swap_bytes = read_meminfo(root, buf)
            .ok()
            .flatten()
            .map_or(0, |memory| memory.swap_total);
        if let Some(hierarchies) = hierarchies {
            facts.look_at(&hierarchies);
            facts.own_cpu_limit_milli = own_limit(&hierarchies, &own, buf);
        }
        facts
    }

    fn look_at(&mut self, hierarchies: &Hierarchies) {
        self.mode = Some(hierarchies.mode());
        self.unified = hierarchies.unified().is_some();
        let trees = hierarchies.trees();
        self.kubepods = ["kubepods.slice", "kubepods"]
            .into_iter()
            .find(|name| trees.iter().any(|tree| tree.join(name).is_dir()));
        self.writable = trees
            .first()
            .is_some_and(|tree| rustix::fs::access(*tree, rustix::fs::Access::WRITE_OK).is_ok());
        // On hybrid machines, cgroups of the v2 tree can still be frozen and killed.
        let unified = hierarchies.unified().filter(|tree| !trees.contains(tree));
        for tree in trees.iter().copied().chain(unified) {
            // The root lacks most files, so cgroups below it are looked at.
            let below = self.kubepods.map(|name| tree.join(name));
            let folders = below.into_iter().chain(folders(tree));
            for folder in folders.take(MOST_FOLDERS) {
                let found = FILES.iter().filter(|file| folder.join(file).exists());
                self.files.extend(found);
            }
            let found = FILES.iter().filter(|file| tree.join(file).exists());
            self.files.extend(found);
        }
    }

    pub fn has(&self, file: &str) -> bool {
        self.files.contains(file)
    }

    /// Whether this process has a capability, by its number; what is unknown counts as there.
    pub fn can(&self, capability: u32) -> bool {
        self.capabilities
            .is_none_or(|bits| bits & (1 << capability) != 0)
    }

    /// Major and minor number of the kernel.
    pub fn kernel(&self) -> (u32, u32) {
        let mut numbers = self.release.split(|c: char| !c.is_ascii_digit());
        let mut next = || {
            numbers
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        (next(), next())
    }
}

fn folders(tree: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(tree).ok();
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_folder.then(|| entry.path())
    })
}

/// `none voluntary (full) lazy`, where it can be read; else what the kernel was built with.
fn preemption(chosen: &str, version: &str) -> Option<Preemption> {
    if version.contains("PREEMPT_RT") {
        return Some(Preemption::RealTime);
    }
    let chosen = chosen
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    match chosen.map(|(name, _)| name) {
        Some("none") => return Some(Preemption::None),
        Some("voluntary") => return Some(Preemption::Voluntary),
        Some("full") => return Some(Preemption::Full),
        Some("lazy") => return Some(Preemption::Lazy),
        _ => {}
    }
    if version.contains("PREEMPT_DYNAMIC") {
        // The choice is not to be seen.
        return None;
    }
    match version.contains("PREEMPT") {
        true => Some(Preemption::Full),
        false if version.is_empty() => None,
        false => Some(Preemption::Voluntary),
    }
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let line = cpuinfo.lines().find(|line| line.starts_with("flags"));
    line.is_some_and(|line| line.split_ascii_whitespace().any(|word| word == flag))
}

/// The line `CapEff:` of a process's status.
fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The smallest limit on the way from our cgroup to the root.
fn own_limit(hierarchies: &Hierarchies, own: &str, buf: &mut ReadBuf) -> Option<u64> {
    let path = own.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        let is_cpu = names.split(',').any(|name| name == "cpu");
        (is_cpu || (names.is_empty() && hierarchies.is_v2())).then_some(path)
    })?;
    let mut smallest = None;
    for cgroup in Path::new(path).ancestors() {
        let Some(dir) = hierarchies.dir(Controller::Cpu, &cgroup.to_string_lossy()) else {
            continue;
        };
        let mut text = |name: &str| read_text(&dir.join(name), buf).ok().flatten();
        let found = match hierarchies.is_v2() {
            true => text("cpu.max").and_then(|text| max_milli(&text)),
            false => {
                let quota = text("cpu.cfs_quota_us").unwrap_or_default();
                let period = text("cpu.cfs_period_us").unwrap_or_default();
                max_milli(&format!("{} {}", quota.trim(), period.trim()))
            }
        };
        smallest = smallest.into_iter().chain(found).min();
    }
    smallest
}

/// Thousandths of a core of `QUOTA PERIOD`; `None`: no limit.
fn max_milli(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.saturating_mul(1000).checked_div(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_models() {
        for (chosen, version, expected) in [
            (
                "none voluntary (full) lazy\n",
                "#1 SMP PREEMPT_DYNAMIC",
                Some(Preemption::Full),
            ),
            (
                "none voluntary full (lazy)\n",
                "#1 SMP PREEMPT_DYNAMIC",
                Some(Preemption::Lazy),
            ),
            (
                "(none) voluntary full\n",
                "#1 SMP PREEMPT_DYNAMIC",
                Some(Preemption::None),
            ),
            ("", "#1 SMP PREEMPT_DYNAMIC Debian", None),
            ("", "#1 SMP PREEMPT_RT Debian", Some(Preemption::RealTime)),
            ("", "#1 SMP PREEMPT Debian", Some(Preemption::Full)),
            ("", "#1 SMP Debian", Some(Preemption::Voluntary)),
            ("", "", None),
        ] {
            assert_eq!(preemption(chosen, version), expected, "{chosen} {version}");
        }
    }

    #[test]
    fn limits_of_our_own() {
        assert_eq!(max_milli("50000 100000\n"), Some(500));
        assert_eq!(max_milli("max 100000"), None);
        assert_eq!(max_milli("-1 100000"), None);
        assert_eq!(max_milli("1 0"), None);
    }

    #[test]
    fn a_machine_with_cgroup_v2() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/1/mountinfo",
            "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        );
        write("proc/sys/kernel/osrelease", "6.12.9-amd64\n");
        write("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC\n");
        write("proc/pressure/cpu", "");
        write("proc/cpuinfo", "processor : 0\nflags\t\t: fpu cat_l3 mba\n");
        write("proc/self/status", "Name:\tx\nCapEff:\t0000000000000002\n");
        write("proc/self/cgroup", "0::/kubepods.slice/a\n");
        write(
            "proc/meminfo",
            "MemTotal: 8 kB\nMemFree: 1 kB\nSwapTotal: 4 kB\nSwapFree: 4 kB\n",
        );
        write("sys/fs/cgroup/kubepods.slice/cpu.max", "max 100000\n");
        write("sys/fs/cgroup/kubepods.slice/cgroup.freeze", "0\n");
        write("sys/fs/cgroup/kubepods.slice/a/cpu.max", "20000 100000\n");
        let facts = Facts::read(&HostRoot::new(dir.path()), &mut ReadBuf::default());
        assert_eq!(facts.mode, Some(Mode::V2));
        assert_eq!(facts.kubepods, Some("kubepods.slice"));
        assert!(facts.has("cpu.max") && facts.has("cgroup.freeze") && !facts.has("cpu.idle"));
        assert_eq!(facts.kernel(), (6, 12));
        assert!(facts.resctrl.cache && facts.resctrl.bandwidth && !facts.resctrl.mounted);
        assert!(facts.can(1) && !facts.can(24));
        assert_eq!(facts.own_cpu_limit_milli, Some(200));
        assert_eq!((facts.swap_bytes, facts.pressure), (4096, true));
    }

    #[test]
    fn nothing_at_all_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let facts = Facts::read(&HostRoot::new(dir.path()), &mut ReadBuf::default());
        assert_eq!(facts, Facts::default());
        assert_eq!(facts.kernel(), (0, 0));
    }
}
