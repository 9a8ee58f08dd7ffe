//! The files of a v1 cgroup: one directory a controller.

use super::reader::{Files, Version, Wanted};
use super::stats::{Cpu, Io, Memory};
use super::{Cfs, Controller, IoRow, text};
use crate::parse;
use crate::{ReadBuf, Result, Source};

#[derive(Debug)]
pub(super) struct CpuV1 {
    /// The total alone.
    usage: Source,
    /// With per-CPU figures a full reading takes their sum as the total, and leaves `usage` alone.
    per_cpu: Option<Source>,
    stat: Source,
    cfs: Option<Source>,
}

#[derive(Debug)]
pub(super) struct MemoryV1 {
    usage: Source,
    max_usage: Source,
    failcnt: Source,
    kernel: Source,
    stat: Source,
    /// Only kernels before 5.11 can say no.
    hierarchical: bool,
}

/// The families of blkio files, best first. Which one counts depends on the disk's I/O scheduler: the first whose
/// leading file names a device.
#[derive(Debug)]
pub(super) struct BlkioV1 {
    families: Vec<BlkioFamily>,
    /// The family of the last reading.
    chosen: Option<usize>,
}

/// Picks the list of [`Io`] that a file fills.
type IoList = fn(&mut Io) -> &mut Vec<IoRow>;

#[derive(Debug)]
struct BlkioFamily {
    files: Vec<(Source, IoList)>,
}

impl CpuV1 {
    pub(super) fn each_source(&mut self, each: &mut dyn FnMut(&mut Source)) {
        [&mut self.usage, &mut self.stat]
            .into_iter()
            .chain(&mut self.per_cpu)
            .chain(&mut self.cfs)
            .for_each(each);
    }

    pub(super) fn sources(&self) -> Vec<&Source> {
        let total = self.per_cpu.as_ref().unwrap_or(&self.usage);
        [total, &self.stat].into_iter().chain(&self.cfs).collect()
    }

    /// The total alone.
    pub(super) fn read_total(&mut self, buf: &mut ReadBuf, out: &mut Cpu) -> Result<bool> {
        let total = self.usage.parse(buf, parse::single)?;
        out.total_ns = total.unwrap_or(out.total_ns);
        Ok(total.is_some())
    }

    pub(super) fn read_cfs(&mut self, buf: &mut ReadBuf, out: &mut Cpu) -> Result<()> {
        out.cfs = match &mut self.cfs {
            Some(cfs) => cfs.parse(buf, text::cpu_stat_v1)?.unwrap_or_default(),
            None => Cfs::default(),
        };
        Ok(())
    }

    pub(super) fn read(&mut self, buf: &mut ReadBuf, out: &mut Cpu) -> Result<bool> {
        if let Some(per_cpu) = &mut self.per_cpu {
            let found = per_cpu.parse(buf, |t| text::per_cpu(t, &mut out.per_cpu_ns))?;
            if found.is_none() {
                return Ok(false);
            }
            out.total_ns = out.per_cpu_ns.iter().sum();
        } else {
            let Some(total) = self.usage.parse(buf, parse::single)? else {
                return Ok(false);
            };
            out.total_ns = total;
        }
        if let Some((user, system)) = self.stat.parse(buf, text::cpuacct_stat)? {
            out.user_ns = user;
            out.system_ns = system;
        }
        self.read_cfs(buf, out)?;
        Ok(true)
    }
}

impl MemoryV1 {
    pub(super) fn each_source(&mut self, each: &mut dyn FnMut(&mut Source)) {
        [
            &mut self.usage,
            &mut self.max_usage,
            &mut self.failcnt,
            &mut self.kernel,
            &mut self.stat,
        ]
        .into_iter()
        .for_each(each);
    }

    pub(super) fn sources(&self) -> [&Source; 5] {
        [
            &self.usage,
            &self.max_usage,
            &self.failcnt,
            &self.kernel,
            &self.stat,
        ]
    }

    pub(super) fn read(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
        let Some(usage) = self.usage.parse(buf, parse::single)? else {
            return Ok(false);
        };
        out.usage = usage;
        out.max_usage = self.max_usage.parse(buf, parse::single)?.unwrap_or(0);
        out.failcnt = self.failcnt.parse(buf, parse::single)?.unwrap_or(0);
        out.kernel = self.kernel.parse(buf, parse::single)?.unwrap_or(0);
        self.read_stat(buf, out)?;
        Ok(true)
    }

    /// The lists of pages alone.
    pub(super) fn read_stat(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
        let hierarchical = self.hierarchical;
        let found = self
            .stat
            .parse(buf, |t| text::memory_stat_v1(t, hierarchical, out))?;
        Ok(found.is_some())
    }
}

impl BlkioV1 {
    /// The best family that names a device, as of now: a disk's scheduler may change, or another disk be written to.
    pub(super) fn read(&mut self, buf: &mut ReadBuf, out: &mut Io) -> Result<()> {
        self.chosen = None;
        for (index, family) in self.families.iter_mut().enumerate() {
            out.clear();
            if family.read(buf, out)? {
                self.chosen = Some(index);
                return Ok(());
            }
        }
        out.clear();
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// What the next reading will look at: the leading file of each family down to the chosen one, and all of that.
    pub(super) fn sources(&self) -> Vec<&Source> {
        let chosen = self.chosen.unwrap_or(self.families.len());
        let leading = self.families.iter().take(chosen);
        let leading = leading.filter_map(|family| family.files.first());
        let all = self.families.get(chosen).map_or(&[][..], |f| &f.files);
        leading.chain(all).map(|(source, _)| source).collect()
    }

    pub(super) fn each_source(&mut self, each: &mut dyn FnMut(&mut Source)) {
        for family in &mut self.families {
            for (source, _) in &mut family.files {
                each(source);
            }
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

impl Files<'_> {
    pub(super) fn v1(&self, wanted: Wanted, buf: &mut ReadBuf) -> Version {
        Version::V1 {
            cpu: wanted.cpu.then(|| self.cpu_v1(wanted.per_cpu)).flatten(),
            memory: wanted.memory.then(|| self.memory_v1(buf)).flatten(),
            io: wanted.io.then(|| self.blkio_v1()).flatten(),
            pressure: self.pressure(Controller::Cpuacct, wanted),
        }
    }

    fn cpu_v1(&self, per_cpu: bool) -> Option<CpuV1> {
        let file = |name| self.source(Controller::Cpuacct, name);
        Some(CpuV1 {
            usage: file("cpuacct.usage")?,
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
            chosen: None,
        })
    }
}
