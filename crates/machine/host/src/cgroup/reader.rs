//! Reads the statistics of one cgroup through files that stay open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::stats::{Cpu, Hugetlb, Io, Memory, NumaPages, Pids, Psi};
use super::v1::{BlkioV1, CpuV1, MemoryV1};
use super::v2::{MemoryV2, PressureFiles};
use super::{Controller, Hierarchies, text};
use crate::parse::{self, Limit};
use crate::proc::meminfo::Meminfo;
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
pub(super) enum Version {
    V1 {
        cpu: Option<CpuV1>,
        memory: Option<MemoryV1>,
        io: Option<BlkioV1>,
        pressure: Option<PressureFiles>,
    },
    V2 {
        cpu: Option<Source>,
        memory: Option<MemoryV2>,
        io: Option<Source>,
        pressure: Option<PressureFiles>,
    },
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

    /// CPU time alone, from one file. On v2 the same file has the throttling, which is read with it; on v1
    /// [`Self::throttling`] reads it.
    pub fn cpu_time(&mut self, buf: &mut ReadBuf, out: &mut Cpu) -> Result<bool> {
        match &mut self.version {
            Version::V1 { cpu, .. } => match cpu {
                Some(files) => files.read_total(buf, out),
                None => Ok(false),
            },
            Version::V2 { .. } => self.cpu(buf, out),
        }
    }

    /// How often the quota held it back, where that is in a file of its own.
    pub fn throttling(&mut self, buf: &mut ReadBuf, out: &mut Cpu) -> Result<()> {
        match &mut self.version {
            Version::V1 {
                cpu: Some(files), ..
            } => files.read_cfs(buf, out),
            _ => Ok(()),
        }
    }

    /// The lists of pages alone, from one file: what a usage history needs.
    pub fn memory_usage(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
        *out = Memory::default();
        match &mut self.version {
            Version::V1 { memory, .. } => match memory {
                Some(files) => files.read_stat(buf, out),
                None => Ok(false),
            },
            Version::V2 { memory, .. } => match memory {
                Some(files) => files.read_stat(buf, out),
                None => Ok(false),
            },
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
        let (Version::V1 { pressure, .. } | Version::V2 { pressure, .. }) = &mut self.version;
        match pressure {
            Some(files) => files.read(buf),
            None => Ok(Default::default()),
        }
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

    /// Whether memory by NUMA node is among what was wanted.
    pub fn has_numa(&self) -> bool {
        self.numa.is_some()
    }

    /// `/proc/meminfo` as the last reading of the root's memory saw it; `None` where that did not look (v1).
    pub fn meminfo(&self) -> Option<Meminfo> {
        match &self.version {
            Version::V2 { memory, .. } => memory.as_ref()?.meminfo(),
            Version::V1 { .. } => None,
        }
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

    /// Whether a file was missing when it was looked for. On v1 a cgroup's directories are made one after the other,
    /// so a young one may be incomplete; a reader made anew will find what has come since.
    pub fn is_incomplete(&self) -> bool {
        self.all_sources().iter().any(|source| source.is_absent())
            || matches!(&self.version, Version::V1 { io: Some(io), .. } if io.is_empty())
    }

    /// Asks again for files that were missing: a controller may have been enabled since. A failing open each.
    pub fn retry_absent(&mut self) {
        let each: &mut dyn FnMut(&mut Source) = &mut Source::retry_absent;
        match &mut self.version {
            Version::V1 {
                cpu,
                memory,
                io,
                pressure,
            } => {
                cpu.iter_mut().for_each(|files| files.each_source(each));
                memory.iter_mut().for_each(|files| files.each_source(each));
                io.iter_mut().for_each(|files| files.each_source(each));
                pressure
                    .iter_mut()
                    .for_each(|files| files.each_source(each));
            }
            Version::V2 {
                cpu,
                memory,
                io,
                pressure,
            } => {
                cpu.iter_mut().chain(io).for_each(&mut *each);
                memory.iter_mut().for_each(|files| files.each_source(each));
                pressure
                    .iter_mut()
                    .for_each(|files| files.each_source(each));
            }
        }
        if let Some(pids) = &mut self.pids {
            each(&mut pids.current);
            each(&mut pids.max);
        }
    }

    /// Every file that a full reading touches, for the bench's floor and for `/debug/sources`.
    pub fn sources(&self) -> Vec<&Path> {
        let sources = self.all_sources().into_iter();
        sources
            .filter(|s| !s.is_absent())
            .map(Source::path)
            .collect()
    }

    fn all_sources(&self) -> Vec<&Source> {
        let mut out: Vec<&Source> = Vec::new();
        match &self.version {
            Version::V1 {
                cpu,
                memory,
                io,
                pressure,
            } => {
                out.extend(cpu.iter().flat_map(CpuV1::sources));
                out.extend(memory.iter().flat_map(MemoryV1::sources));
                out.extend(io.iter().flat_map(BlkioV1::sources));
                out.extend(pressure.iter().flat_map(PressureFiles::sources));
            }
            Version::V2 {
                cpu,
                memory,
                io,
                pressure,
            } => {
                out.extend(cpu.iter().chain(io));
                out.extend(memory.iter().flat_map(MemoryV2::sources));
                out.extend(pressure.iter().flat_map(PressureFiles::sources));
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
        out
    }
}

fn limit(text: &[u8]) -> Result<Limit, parse::Malformed> {
    parse::limit(text).ok_or_else(|| parse::Malformed::at(0, text))
}

/// Finds the files of one cgroup.
pub(super) struct Files<'a> {
    pub(super) hierarchies: &'a Hierarchies,
    pub(super) cgroup: &'a str,
    pub(super) descriptors: &'a Arc<Descriptors>,
}

impl Files<'_> {
    pub(super) fn dir(&self, controller: Controller) -> Option<PathBuf> {
        self.hierarchies.dir(controller, self.cgroup)
    }

    pub(super) fn source(&self, controller: Controller, file: &str) -> Option<Source> {
        Some(Source::new(
            self.dir(controller)?.join(file),
            self.descriptors,
        ))
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
        let usage_file = if v2 { "current" } else { "usage_in_bytes" };
        let names = list_dir(&dir).unwrap_or_default();
        let sizes = names.iter().filter_map(|name| {
            let rest = name.strip_prefix("hugetlb.")?;
            let size = rest.strip_suffix(usage_file)?.strip_suffix('.')?;
            Some((size, text::hugepage_size(size)?))
        });
        sizes
            .map(|(size, page_size)| {
                // Since 5.7 the kernel tells what is reserved, touched or not: that is what a limit is hit by.
                let reserved = format!("hugetlb.{size}.rsvd.{usage_file}");
                let infix = if names.contains(&reserved) {
                    ".rsvd"
                } else {
                    ""
                };
                let file = |infix: &str, suffix: &str| {
                    let name = format!("hugetlb.{size}{infix}.{suffix}");
                    Source::new(dir.join(name), self.descriptors)
                };
                HugetlbFiles {
                    page_size,
                    usage: file(infix, usage_file),
                    max_usage: (!v2).then(|| file(infix, "max_usage_in_bytes")),
                    failcnt: if v2 {
                        file("", "events")
                    } else {
                        file(infix, "failcnt")
                    },
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
