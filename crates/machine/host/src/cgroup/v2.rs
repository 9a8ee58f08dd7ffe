//! The files of a v2 cgroup: one directory for all controllers.

use super::reader::{Files, Version, Wanted};
use super::stats::{Memory, Psi};
use super::{Controller, text};
use crate::parse;
use crate::proc::meminfo::{Meminfo, parse_meminfo};
use crate::{HostRoot, ReadBuf, Result, Source};

#[derive(Debug)]
pub(super) struct MemoryV2 {
    current: Source,
    peak: Source,
    swap: Source,
    stat: Source,
    events: Source,
    /// The root cgroup has no `memory.current` and no swap figure: both come from elsewhere.
    root_meminfo: Option<Source>,
    /// What that file said last, for whoever else needs it.
    meminfo: Option<Meminfo>,
}

#[derive(Debug)]
pub(super) struct PressureFiles {
    cpu: Source,
    memory: Source,
    io: Source,
}

impl MemoryV2 {
    pub(super) fn each_source(&mut self, each: &mut dyn FnMut(&mut Source)) {
        [
            &mut self.current,
            &mut self.peak,
            &mut self.swap,
            &mut self.stat,
            &mut self.events,
        ]
        .into_iter()
        .for_each(each);
    }

    pub(super) fn sources(&self) -> [&Source; 5] {
        [
            &self.current,
            &self.peak,
            &self.swap,
            &self.stat,
            &self.events,
        ]
    }

    /// The lists of pages alone.
    pub(super) fn read_stat(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
        let found = self.stat.parse(buf, |t| text::memory_stat_v2(t, out))?;
        Ok(found.is_some())
    }

    pub(super) fn meminfo(&self) -> Option<Meminfo> {
        self.meminfo
    }

    pub(super) fn read(&mut self, buf: &mut ReadBuf, out: &mut Memory) -> Result<bool> {
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
                self.meminfo = meminfo.parse(buf, parse_meminfo)?;
                out.swap = self.meminfo.map_or(0, |info| info.swap_used());
            }
            None => out.swap = self.swap.parse(buf, parse::single)?.unwrap_or(0),
        }
        if let Some(events) = self.events.parse(buf, text::memory_events)? {
            out.events = events;
        }
        Ok(true)
    }
}

impl PressureFiles {
    pub(super) fn each_source(&mut self, each: &mut dyn FnMut(&mut Source)) {
        [&mut self.cpu, &mut self.memory, &mut self.io]
            .into_iter()
            .for_each(each);
    }

    pub(super) fn sources(&self) -> [&Source; 3] {
        [&self.cpu, &self.memory, &self.io]
    }

    /// (cpu, memory, io).
    pub(super) fn read(&mut self, buf: &mut ReadBuf) -> Result<(Psi, Psi, Psi)> {
        let mut one = |source: &mut Source| -> Result<Psi> {
            Ok(source.parse(buf, text::psi)?.unwrap_or_default())
        };
        Ok((
            one(&mut self.cpu)?,
            one(&mut self.memory)?,
            one(&mut self.io)?,
        ))
    }
}

impl Files<'_> {
    pub(super) fn v2(&self, root: &HostRoot, wanted: Wanted) -> Version {
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
                meminfo: None,
            })
        };
        Version::V2 {
            cpu: wanted.cpu.then(|| file("cpu.stat")).flatten(),
            memory: wanted.memory.then(memory).flatten(),
            io: wanted.io.then(|| file("io.stat")).flatten(),
            pressure: self.pressure(Controller::Cpu, wanted),
        }
    }

    /// v2 has them in the one directory; kernels that were taught them for v1 do beside the CPU figures.
    pub(super) fn pressure(&self, beside: Controller, wanted: Wanted) -> Option<PressureFiles> {
        let file = |name| self.source(beside, name);
        if !wanted.pressure {
            return None;
        }
        // Nearly all v1 kernels have none: looking once costs less than three files that are missed again and again.
        let v1 = beside == Controller::Cpuacct;
        if v1 && !self.dir(beside)?.join("cpu.pressure").exists() {
            return None;
        }
        Some(PressureFiles {
            cpu: file("cpu.pressure")?,
            memory: file("memory.pressure")?,
            io: file("io.pressure")?,
        })
    }
}
