//! One cgroup's figures, read again and again through files that stay open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::stats::{Cpu, Hugetlb, Io, Memory, NumaPages, Pids, Psi};
use super::{Controller, Hierarchies, text};
use crate::parse::{self, Limit};
use crate::{Descriptors, HostError, HostRoot, ReadBuf, Result, Source, list_dir};

/// What will be asked of a cgroup. What is not wanted is neither opened nor read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    pub cpu: bool,
    pub per_cpu: bool,
    pub memory: bool,
    pub io: bool,
    pub pressure: bool,
    pub pids: bool,
    pub hugetlb: bool,
    pub numa: bool,
    pub cpuset: bool,
}

#[derive(Debug)]
pub struct CgroupReader {
    version: Version,
    pids: Option<PidsFiles>,
    hugetlb: Vec<HugetlbFiles>,
    numa: Option<Source>,
    memory_migrate: Option<Source>,
}

#[derive(Debug)]
enum Version {
    V1 {
        cpu: Option<CpuV1>,
        memory: Option<MemoryV1>,
        io: Option<BlkioV1>,
    },
    V2 {
        cpu: Option<Source>,
        memory: Option<MemoryV2>,
        io: Option<Source>,
        pressure: Option<PressureV2>,
    },
}

#[derive(Debug)]
struct CpuV1 {
    /// One of the two: with per-CPU figures their sum is the total, and one file is read instead of two.
    usage: Option<Source>,
    per_cpu: Option<Source>,
    stat: Source,
    cfs: Option<Source>,
}

#[derive(Debug)]
struct MemoryV1 {
    usage: Source,
    max_usage: Source,
    failcnt: Source,
    kernel: Source,
    stat: Source,
    /// Only kernels before 5.11 can say no.
    hierarchical: bool,
}

#[derive(Debug)]
struct MemoryV2 {
    current: Source,
    peak: Source,
    swap: Source,
    stat: Source,
    events: Source,
    /// The root cgroup has no `memory.current` and no swap figure: both come from elsewhere.
    root_meminfo: Option<Source>,
}

#[derive(Debug)]
struct PressureV2 {
    cpu: Source,
    memory: Source,
    io: Source,
}

#[derive(Debug)]
struct PidsFiles {
    current: Source,
    max: Source,
    /// Where the controller is not enabled, counting processes is the next best thing (v2 only).
    procs: Option<Source>,
}

#[derive(Debug)]
struct HugetlbFiles {
    page_size: u64,
    usage: Source,
    /// v1 only.
    max_usage: Option<Source>,
    /// v1: a number; v2: the `max` key of the events file.
    failcnt: Source,
}

/// The families of blkio files, best first. Which one counts depends on the disk's I/O scheduler: the first whose
/// leading file names a device.
#[derive(Debug)]
struct BlkioV1 {
    families: Vec<BlkioFamily>,
    active: Option<usize>,
    rounds: u32,
}

/// Picks the list of [`Io`] that a file fills.
type IoList = fn(&mut Io) -> &mut Vec<super::IoRow>;

#[derive(Debug)]
struct BlkioFamily {
    files: Vec<(Source, IoList)>,
}

impl CgroupReader {
    /// Prepares the readers of `cgroup`; the files are opened when first read.
    pub fn new(
        hierarchies: &Hierarchies,
        root: &HostRoot,
        cgroup: &str,
        wanted: Wanted,
        descriptors: &Arc<Descriptors>,
        buf: &mut ReadBuf,
    ) -> Self {
        let files = Files {
            hierarchies,
            cgroup,
            descriptors,
        };
        let version = if hierarchies.is_v2() {
            files.v2(root, wanted)
        } else {
            files.v1(wanted, buf)
        };
        let is_root = cgroup == "/";
        Self {
            version,
            // The v1 root has no pids files; on v2 the count of processes stands in.
            pids: (wanted.pids && (hierarchies.is_v2() || !is_root))
                .then(|| files.pids())
                .flatten(),
            hugetlb: if wanted.hugetlb {
                files.hugetlb()
            } else {
                Vec::new()
            },
            numa: wanted
                .numa
                .then(|| files.source(Controller::Memory, "memory.numa_stat"))
                .flatten(),
            memory_migrate: (wanted.cpuset && !hierarchies.is_v2())
                .then(|| files.source(Controller::Cpuset, "cpuset.memory_migrate"))
                .flatten(),
        }
    }

    /// Adds the task count to what is read, for a group that is switched on later.
    pub fn want_pids(
        &mut self,
        hierarchies: &Hierarchies,
        cgroup: &str,
        descriptors: &Arc<Descriptors>,
    ) {
        let files = Files {
            hierarchies,
            cgroup,
            descriptors,
        };
        if self.pids.is_none() && (hierarchies.is_v2() || cgroup != "/") {
            self.pids = files.pids();
        }
    }

    /// `Ok(false)`: this machine has no such figures for this cgroup, and `out` is untouched.
    pub fn cpu(&mut self, buf: &mut ReadBuf, out: &mut Cpu) -> Result<bool> {
        out.per_cpu_ns.clear();
        match &mut self.version {
            Version::V1 { cpu, .. } => match cpu {
                Some(files) => files.read(buf, out),
                None => Ok(false),
            },
            Version::V2 { cpu, .. } => {
                let Some(stat) = cpu else { return Ok(false) };
                let Some(found) = stat.parse(buf, text::cpu_stat_v2)? else {
                    return Ok(false);
                };
                out.total_ns = found.total_ns;
                out.user_ns = found.user_ns;
                out.system_ns = found.system_ns;
                out.cfs = found.cfs;
                Ok(true)
            }
        }
    }

    pub fn memory(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
        *out = Memory::default();
        let found = match &mut self.version {
            Version::V1 { memory, .. } => match memory {
                Some(files) => files.read(buf, out)?,
                None => false,
            },
            Version::V2 { memory, .. } => match memory {
                Some(files) => files.read(buf, out)?,
                None => false,
            },
        };
        out.working_set = out.usage.saturating_sub(out.inactive_file);
        Ok(found)
    }

    pub fn io(&mut self, buf: &mut ReadBuf, out: &mut Io) -> Result<bool> {
        out.clear();
        match &mut self.version {
            Version::V1 { io, .. } => match io {
                Some(files) => files.read(buf, out).map(|()| true),
                None => Ok(false),
            },
            Version::V2 { io, .. } => {
                let Some(stat) = io else { return Ok(false) };
                Ok(stat.parse(buf, |t| text::io_stat(t, out))?.is_some())
            }
        }
    }

    /// (cpu, memory, io); zeros where this kernel keeps none.
    pub fn pressure(&mut self, buf: &mut ReadBuf) -> Result<(Psi, Psi, Psi)> {
        let Version::V2 {
            pressure: Some(files),
            ..
        } = &mut self.version
        else {
            return Ok(Default::default());
        };
        let mut one = |source: &mut Source| -> Result<Psi> {
            Ok(source.parse(buf, text::psi)?.unwrap_or_default())
        };
        Ok((
            one(&mut files.cpu)?,
            one(&mut files.memory)?,
            one(&mut files.io)?,
        ))
    }

    pub fn pids(&mut self, buf: &mut ReadBuf) -> Result<Option<Pids>> {
        let Some(files) = &mut self.pids else {
            return Ok(None);
        };
        let Some(current) = files.current.parse(buf, parse::single)? else {
            let Some(procs) = &mut files.procs else {
                return Ok(None);
            };
            let lines = procs
                .read(buf)?
                .map(|text| text.iter().filter(|&&b| b == b'\n').count());
            return Ok(lines.map(|n| Pids {
                current: n as u64,
                max: None,
            }));
        };
        let max = files.max.parse(buf, limit)?;
        Ok(Some(Pids {
            current,
            max: match max {
                Some(Limit::At(most)) => Some(most),
                Some(Limit::Max) | None => None,
            },
        }))
    }

    pub fn hugetlb(&mut self, buf: &mut ReadBuf, out: &mut Vec<Hugetlb>) -> Result<()> {
        out.clear();
        for files in &mut self.hugetlb {
            let Some(usage) = files.usage.parse(buf, parse::single)? else {
                continue;
            };
            let max_usage = match &mut files.max_usage {
                Some(source) => source.parse(buf, parse::single)?,
                None => None,
            };
            let failcnt = if files.max_usage.is_some() {
                files.failcnt.parse(buf, parse::single)?
            } else {
                files
                    .failcnt
                    .parse(buf, |t| text::memory_events(t).map(|events| events.max))?
            };
            out.push(Hugetlb {
                page_size: files.page_size,
                usage,
                max_usage: max_usage.unwrap_or(0),
                failcnt: failcnt.unwrap_or(0),
            });
        }
        Ok(())
    }

    pub fn numa(&mut self, buf: &mut ReadBuf, out: &mut NumaPages) -> Result<bool> {
        let v2 = matches!(self.version, Version::V2 { .. });
        let Some(source) = &mut self.numa else {
            return Ok(false);
        };
        let found = source.parse(buf, |t| {
            if v2 {
                text::numa_stat_v2(t, rustix::param::page_size() as u64, out)
            } else {
                text::numa_stat_v1(t, out)
            }
        })?;
        Ok(found.is_some())
    }

    /// v1 `cpuset.memory_migrate`; v2 always migrates and has no such file.
    pub fn memory_migrate(&mut self, buf: &mut ReadBuf) -> Result<u64> {
        let Some(source) = &mut self.memory_migrate else {
            return Ok(0);
        };
        Ok(source.parse(buf, parse::single)?.unwrap_or(0))
    }

    /// Every file that a full reading touches, for the bench's floor and for `/debug/sources`.
    pub fn sources(&self) -> Vec<&Path> {
        let mut out: Vec<&Source> = Vec::new();
        match &self.version {
            Version::V1 { cpu, memory, io } => {
                if let Some(cpu) = cpu {
                    out.extend(cpu.usage.iter().chain(&cpu.per_cpu));
                    out.push(&cpu.stat);
                    out.extend(&cpu.cfs);
                }
                if let Some(m) = memory {
                    out.extend([&m.usage, &m.max_usage, &m.failcnt, &m.kernel, &m.stat]);
                }
                if let Some(io) = io {
                    out.extend(io.read_now());
                }
            }
            Version::V2 {
                cpu,
                memory,
                io,
                pressure,
            } => {
                out.extend(cpu.iter().chain(io));
                if let Some(m) = memory {
                    out.extend([&m.current, &m.peak, &m.swap, &m.stat, &m.events]);
                }
                if let Some(p) = pressure {
                    out.extend([&p.cpu, &p.memory, &p.io]);
                }
            }
        }
        if let Some(pids) = &self.pids {
            out.extend([&pids.current, &pids.max]);
        }
        for huge in &self.hugetlb {
            out.extend([&huge.usage, &huge.failcnt]);
            out.extend(&huge.max_usage);
        }
        out.extend(self.numa.iter().chain(&self.memory_migrate));
        out.into_iter()
            .filter(|s| !s.is_absent())
            .map(Source::path)
            .collect()
    }
}

fn limit(text: &[u8]) -> Result<Limit, parse::Malformed> {
    parse::limit(text).ok_or_else(|| parse::Malformed::at(0, text))
}

impl CpuV1 {
    fn read(&mut self, buf: &mut ReadBuf, out: &mut Cpu) -> Result<bool> {
        if let Some(per_cpu) = &mut self.per_cpu {
            let found = per_cpu.parse(buf, |t| text::per_cpu(t, &mut out.per_cpu_ns))?;
            if found.is_none() {
                return Ok(false);
            }
            out.total_ns = out.per_cpu_ns.iter().sum();
        } else if let Some(usage) = &mut self.usage {
            let Some(total) = usage.parse(buf, parse::single)? else {
                return Ok(false);
            };
            out.total_ns = total;
        }
        if let Some((user, system)) = self.stat.parse(buf, text::cpuacct_stat)? {
            out.user_ns = user;
            out.system_ns = system;
        }
        out.cfs = match &mut self.cfs {
            Some(cfs) => cfs.parse(buf, text::cpu_stat_v1)?.unwrap_or_default(),
            None => super::Cfs::default(),
        };
        Ok(true)
    }
}

impl MemoryV1 {
    fn read(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
        let Some(usage) = self.usage.parse(buf, parse::single)? else {
            return Ok(false);
        };
        out.usage = usage;
        out.max_usage = self.max_usage.parse(buf, parse::single)?.unwrap_or(0);
        out.failcnt = self.failcnt.parse(buf, parse::single)?.unwrap_or(0);
        out.kernel = self.kernel.parse(buf, parse::single)?.unwrap_or(0);
        let hierarchical = self.hierarchical;
        self.stat
            .parse(buf, |t| text::memory_stat_v1(t, hierarchical, out))?;
        Ok(true)
    }
}

impl MemoryV2 {
    fn read(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
        let stat = self.stat.parse(buf, |t| text::memory_stat_v2(t, out))?;
        match self.current.parse(buf, parse::single)? {
            Some(current) => out.usage = current,
            None if self.root_meminfo.is_some() => out.usage = out.rss + out.cache,
            None if stat.is_none() => return Ok(false),
            None => {}
        }
        out.max_usage = self.peak.parse(buf, parse::single)?.unwrap_or(0);
        match &mut self.root_meminfo {
            Some(meminfo) => {
                out.swap = meminfo.read(buf)?.map(swap_used).unwrap_or(0);
            }
            None => out.swap = self.swap.parse(buf, parse::single)?.unwrap_or(0),
        }
        if let Some(events) = self.events.parse(buf, text::memory_events)? {
            out.events = events;
        }
        Ok(true)
    }
}

/// SwapTotal − SwapFree of `/proc/meminfo`, in bytes.
fn swap_used(meminfo: &[u8]) -> u64 {
    let kilobytes = |key: &[u8]| {
        parse::lines(meminfo)
            .find_map(|line| line.strip_prefix(key))
            .and_then(|rest| parse::words(rest).next())
            .and_then(parse::u64)
            .unwrap_or(0)
    };
    kilobytes(b"SwapTotal:").saturating_sub(kilobytes(b"SwapFree:")) * 1024
}

impl BlkioV1 {
    /// How often a lower-ranked family is questioned (a disk's scheduler may change under us).
    const RECONSIDER_EVERY: u32 = 60;

    fn read(&mut self, buf: &mut ReadBuf, out: &mut Io) -> Result<()> {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(Self::RECONSIDER_EVERY) {
            self.active = None;
        }
        if let Some(active) = self.active {
            if self.families[active].read(buf, out)? {
                return Ok(());
            }
            self.active = None;
        }
        for (index, family) in self.families.iter_mut().enumerate() {
            out.clear();
            if family.read(buf, out)? {
                self.active = Some(index);
                return Ok(());
            }
        }
        out.clear();
        Ok(())
    }

    fn read_now(&self) -> Vec<&Source> {
        match self.active {
            Some(active) => self.families[active].files.iter().map(|f| &f.0).collect(),
            None => self
                .families
                .iter()
                .filter_map(|f| f.files.first().map(|f| &f.0))
                .collect(),
        }
    }
}

impl BlkioFamily {
    /// False where the leading file names no device: the rest is not worth reading.
    fn read(&mut self, buf: &mut ReadBuf, out: &mut Io) -> Result<bool> {
        for (index, (source, list)) in self.files.iter_mut().enumerate() {
            let rows = list(out);
            let found = source.parse(buf, |t| text::blkio(t, rows))?;
            if index == 0 && (found.is_none() || rows.is_empty()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Finds the files of one cgroup.
struct Files<'a> {
    hierarchies: &'a Hierarchies,
    cgroup: &'a str,
    descriptors: &'a Arc<Descriptors>,
}

impl Files<'_> {
    fn dir(&self, controller: Controller) -> Option<PathBuf> {
        self.hierarchies.dir(controller, self.cgroup)
    }

    fn source(&self, controller: Controller, file: &str) -> Option<Source> {
        Some(Source::new(
            self.dir(controller)?.join(file),
            self.descriptors,
        ))
    }

    fn v1(&self, wanted: Wanted, buf: &mut ReadBuf) -> Version {
        Version::V1 {
            cpu: wanted.cpu.then(|| self.cpu_v1(wanted.per_cpu)).flatten(),
            memory: wanted.memory.then(|| self.memory_v1(buf)).flatten(),
            io: wanted.io.then(|| self.blkio_v1()).flatten(),
        }
    }

    fn cpu_v1(&self, per_cpu: bool) -> Option<CpuV1> {
        let file = |name| self.source(Controller::Cpuacct, name);
        Some(CpuV1 {
            usage: if per_cpu { None } else { file("cpuacct.usage") },
            per_cpu: if per_cpu {
                file("cpuacct.usage_percpu")
            } else {
                None
            },
            stat: file("cpuacct.stat")?,
            cfs: self.source(Controller::Cpu, "cpu.stat"),
        })
    }

    fn memory_v1(&self, buf: &mut ReadBuf) -> Option<MemoryV1> {
        let file = |name| self.source(Controller::Memory, name);
        let use_hierarchy = self.dir(Controller::Memory)?.join("memory.use_hierarchy");
        let says = crate::read_file(&use_hierarchy, buf).ok().flatten();
        Some(MemoryV1 {
            hierarchical: says.is_none_or(|text| parse::trim(text) != b"0"),
            usage: file("memory.usage_in_bytes")?,
            max_usage: file("memory.max_usage_in_bytes")?,
            failcnt: file("memory.failcnt")?,
            kernel: file("memory.kmem.usage_in_bytes")?,
            stat: file("memory.stat")?,
        })
    }

    fn blkio_v1(&self) -> Option<BlkioV1> {
        const DETAILS: [(&str, IoList); 6] = [
            ("sectors_recursive", |io| &mut io.sectors),
            ("io_service_time_recursive", |io| &mut io.service_time_ns),
            ("io_wait_time_recursive", |io| &mut io.wait_time_ns),
            ("io_merged_recursive", |io| &mut io.merged),
            ("io_queued_recursive", |io| &mut io.queued),
            ("time_recursive", |io| &mut io.time_ms),
        ];
        const TRAFFIC: [(&str, IoList); 2] = [
            ("io_serviced_recursive", |io| &mut io.serviced),
            ("io_service_bytes_recursive", |io| &mut io.service_bytes),
        ];
        const OWN_TRAFFIC: [(&str, IoList); 2] = [
            ("io_serviced", |io| &mut io.serviced),
            ("io_service_bytes", |io| &mut io.service_bytes),
        ];
        let dir = self.dir(Controller::Blkio)?;
        let mut families = Vec::new();
        let mut offer = |prefix: &str, lists: &mut dyn Iterator<Item = &(&str, IoList)>| -> bool {
            let files: Vec<(Source, IoList)> = lists
                .map(|(name, list)| {
                    let path = dir.join(format!("{prefix}{name}"));
                    (Source::new(path, self.descriptors), *list)
                })
                .collect();
            let there = files.first().is_some_and(|(s, _)| s.path().exists());
            if there {
                families.push(BlkioFamily { files });
            }
            there
        };
        if !offer("blkio.bfq.", &mut DETAILS.iter().chain(&TRAFFIC)) {
            offer("blkio.bfq.", &mut TRAFFIC.iter());
        }
        offer("blkio.", &mut DETAILS.iter().chain(&TRAFFIC));
        // Where the recursive files exist, the plain ones can add nothing.
        if !offer("blkio.throttle.", &mut TRAFFIC.iter()) {
            offer("blkio.throttle.", &mut OWN_TRAFFIC.iter());
        }
        Some(BlkioV1 {
            families,
            active: None,
            rounds: 0,
        })
    }

    fn v2(&self, root: &HostRoot, wanted: Wanted) -> Version {
        // On v2 every controller lives in the one directory, whichever is named.
        let file = |name| self.source(Controller::Cpu, name);
        let memory = || {
            Some(MemoryV2 {
                current: file("memory.current")?,
                peak: file("memory.peak")?,
                swap: file("memory.swap.current")?,
                stat: file("memory.stat")?,
                events: file("memory.events")?,
                root_meminfo: (self.cgroup == "/")
                    .then(|| Source::new(root.proc("meminfo"), self.descriptors)),
            })
        };
        let pressure = || {
            Some(PressureV2 {
                cpu: file("cpu.pressure")?,
                memory: file("memory.pressure")?,
                io: file("io.pressure")?,
            })
        };
        Version::V2 {
            cpu: wanted.cpu.then(|| file("cpu.stat")).flatten(),
            memory: wanted.memory.then(memory).flatten(),
            io: wanted.io.then(|| file("io.stat")).flatten(),
            pressure: wanted.pressure.then(pressure).flatten(),
        }
    }

    fn pids(&self) -> Option<PidsFiles> {
        let dir = self.dir(Controller::Pids)?;
        Some(PidsFiles {
            current: Source::new(dir.join("pids.current"), self.descriptors),
            max: Source::new(dir.join("pids.max"), self.descriptors),
            procs: self
                .hierarchies
                .is_v2()
                .then(|| Source::records(dir.join("cgroup.procs"), self.descriptors)),
        })
    }

    fn hugetlb(&self) -> Vec<HugetlbFiles> {
        let Some(dir) = self.dir(Controller::Hugetlb) else {
            return Vec::new();
        };
        let v2 = self.hierarchies.is_v2();
        let usage_suffix = if v2 { ".current" } else { ".usage_in_bytes" };
        let names = list_dir(&dir).unwrap_or_default();
        let sizes = names.iter().filter_map(|name| {
            let size = name.strip_prefix("hugetlb.")?.strip_suffix(usage_suffix)?;
            Some((size, text::hugepage_size(size)?))
        });
        sizes
            .map(|(size, page_size)| {
                let file = |suffix: &str| {
                    Source::new(
                        dir.join(format!("hugetlb.{size}.{suffix}")),
                        self.descriptors,
                    )
                };
                HugetlbFiles {
                    page_size,
                    usage: file(&usage_suffix[1..]),
                    max_usage: (!v2).then(|| file("max_usage_in_bytes")),
                    failcnt: file(if v2 { "events" } else { "failcnt" }),
                }
            })
            .collect()
    }
}

/// The process ids of a cgroup itself (not of its children), from whichever hierarchy has it.
pub fn procs_file(hierarchies: &Hierarchies, cgroup: &str) -> Result<PathBuf> {
    [Controller::Cpu, Controller::Memory, Controller::Pids]
        .into_iter()
        .find_map(|c| hierarchies.dir(c, cgroup))
        .map(|dir| dir.join("cgroup.procs"))
        .ok_or_else(|| HostError::Unsupported("no hierarchy lists processes".into()))
}
