//! The limits set on a cgroup, and when it was made.

use std::path::PathBuf;
use std::sync::Arc;

use super::stats::Spec;
use super::{Controller, Hierarchies, Wanted};
use crate::parse::{self, Limit, Malformed};
use crate::{Descriptors, HostError, ReadBuf, Source, Timestamp};

/// Reads a cgroup's limits every few seconds. An open handle makes that an eighth of the price.
#[derive(Debug)]
pub struct SpecReader {
    v2: bool,
    is_root: bool,
    cpu: Option<CpuFiles>,
    cpuset: Option<Source>,
    memory: Option<MemoryFiles>,
    pids: Option<Source>,
    hugetlb: Presence,
    blkio: Presence,
    /// Every directory of the cgroup: the oldest tells when it was made.
    dirs: Vec<PathBuf>,
}

#[derive(Debug)]
struct CpuFiles {
    weight: Source,
    /// On v2 with the period in one file.
    quota: Source,
    period: Option<Source>,
}

#[derive(Debug)]
struct MemoryFiles {
    limit: Source,
    reservation: Source,
    swap: Source,
}

/// Whether a controller has a directory for the cgroup. Once there, it stays as long as the cgroup does.
#[derive(Debug)]
struct Presence {
    dir: Option<PathBuf>,
    seen: bool,
}

impl Presence {
    fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, seen: false }
    }

    fn look(&mut self) -> bool {
        self.seen = self.seen || self.dir.as_ref().is_some_and(|dir| dir.exists());
        self.seen
    }
}

impl SpecReader {
    /// On v1 a controller whose figures are not wanted is not looked at, as in the original; v2 has the one directory.
    pub fn new(
        hierarchies: &Hierarchies,
        cgroup: &str,
        wanted: Wanted,
        descriptors: &Arc<Descriptors>,
    ) -> Self {
        let v2 = hierarchies.is_v2();
        let dir = |controller| hierarchies.dir(controller, cgroup);
        let file = |controller, name: [&str; 2]| {
            let name = name[usize::from(v2)];
            dir(controller).map(|dir| Source::seldom(dir.join(name), descriptors))
        };
        let cpu = |v1, v2| file(Controller::Cpu, [v1, v2]);
        let memory = |v1, v2| file(Controller::Memory, [v1, v2]);
        let cpuset = file(Controller::Cpuset, ["cpuset.cpus", "cpuset.cpus.effective"]);
        let pids = file(Controller::Pids, ["pids.max", "pids.max"]);
        Self {
            v2,
            is_root: cgroup == "/",
            cpu: cpu("cpu.shares", "cpu.weight")
                .filter(|_| wanted.cpu || v2)
                .zip(cpu("cpu.cfs_quota_us", "cpu.max"))
                .map(|(weight, quota)| CpuFiles {
                    weight,
                    quota,
                    period: cpu("cpu.cfs_period_us", "").filter(|_| !v2),
                }),
            cpuset: cpuset.filter(|_| wanted.cpuset || v2),
            memory: memory("memory.limit_in_bytes", "memory.max")
                .filter(|_| wanted.memory || v2)
                .zip(memory("memory.soft_limit_in_bytes", "memory.min"))
                .zip(memory("memory.memsw.limit_in_bytes", "memory.swap.max"))
                .map(|((limit, reservation), swap)| MemoryFiles {
                    limit,
                    reservation,
                    swap,
                }),
            pids: pids.filter(|_| wanted.pids || v2),
            // The original never says so on v2, and clients take the flag for "there are such figures".
            hugetlb: Presence::new(dir(Controller::Hugetlb).filter(|_| wanted.hugetlb && !v2)),
            blkio: Presence::new(dir(Controller::Blkio).filter(|_| wanted.io || v2)),
            dirs: hierarchies.watched_dirs(cgroup),
        }
    }

    /// A file that cannot be read counts as not set: the cgroup may be ending. One that cannot be understood does, too,
    /// and is added to `errors`.
    /// `all_cpus` stands in for an empty CPU mask, which means "as the parent".
    pub fn read(&mut self, buf: &mut ReadBuf, all_cpus: &str, errors: &mut Vec<HostError>) -> Spec {
        let mut spec = Spec::default();
        let buf = &mut Reading { buf, errors };
        self.cpu(buf, &mut spec);
        if let Some(cpus) = &mut self.cpuset {
            // v2 has the one directory; a file missing there is an empty mask.
            let mask = text(cpus, buf).or_else(|| self.v2.then(String::new));
            if let Some(mask) = mask {
                spec.has_cpu = true;
                spec.cpu_mask = Some(if mask.is_empty() {
                    all_cpus.to_owned()
                } else {
                    mask
                });
            }
        }
        self.memory(buf, &mut spec);
        if let Some(max) = &mut self.pids {
            // On v2 every cgroup counts its processes, with or without the controller.
            let limit = number(max, buf);
            spec.has_processes = limit.is_some() || self.v2;
            spec.pids_limit = limit.unwrap_or(0);
        }
        spec.has_hugetlb = self.hugetlb.look();
        spec.has_diskio = self.blkio.look();
        spec
    }

    /// Asks again for files that were missing: a controller may have been enabled since. A failing open each.
    pub fn retry_absent(&mut self) {
        let cpu = self.cpu.iter_mut().flat_map(|files| {
            [&mut files.weight, &mut files.quota]
                .into_iter()
                .chain(&mut files.period)
        });
        let memory = self
            .memory
            .iter_mut()
            .flat_map(|files| [&mut files.limit, &mut files.reservation, &mut files.swap]);
        cpu.chain(memory)
            .chain(&mut self.cpuset)
            .chain(&mut self.pids)
            .for_each(Source::retry_absent);
    }

    fn cpu(&mut self, buf: &mut Reading<'_>, spec: &mut Spec) {
        let Some(files) = &mut self.cpu else {
            return;
        };
        let weight = number(&mut files.weight, buf);
        let Some(period) = &mut files.period else {
            spec.has_cpu = true;
            if let Some(weight @ 1..=10_000) = weight {
                spec.cpu_shares = 2 + (weight - 1) * 262_142 / 9_999;
            }
            if let Some((quota, period)) = read(&mut files.quota, buf, bandwidth) {
                spec.cpu_quota_us = quota;
                spec.cpu_period_us = period;
            }
            return;
        };
        // Not in this hierarchy: nothing more to look for.
        let Some(shares) = weight.or_else(|| self.is_root.then_some(0)) else {
            return;
        };
        spec.has_cpu = true;
        spec.cpu_shares = shares;
        spec.cpu_period_us = number(period, buf).unwrap_or(0);
        let quota = read(&mut files.quota, buf, |text| parse::i64(parse::trim(text)));
        // -1 means no quota; so does zero.
        spec.cpu_quota_us = quota.map_or(0, |quota| u64::try_from(quota).unwrap_or(0));
    }

    fn memory(&mut self, buf: &mut Reading<'_>, spec: &mut Spec) {
        let Some(files) = &mut self.memory else {
            return;
        };
        let Some(limit) = number(&mut files.limit, buf) else {
            return;
        };
        spec.has_memory = true;
        spec.memory_limit = limit;
        spec.memory_reservation = number(&mut files.reservation, buf).unwrap_or(0);
        spec.memory_swap_limit = number(&mut files.swap, buf).unwrap_or(0);
    }

    /// When the cgroup was made: the oldest of its directories' times, and not before the machine was.
    ///
    /// A directory's own time moves when a child is made in it; a file that nobody writes keeps the first one.
    pub fn created(&self, now: Timestamp, boot: Timestamp) -> Timestamp {
        let witness = if self.v2 {
            "cgroup.events"
        } else {
            "cgroup.clone_children"
        };
        let mut oldest = now;
        for dir in &self.dirs {
            for path in [dir.clone(), dir.join(witness)] {
                let modified = std::fs::metadata(path).and_then(|m| m.modified());
                if let Ok(modified) = modified {
                    oldest = oldest.min(modified.into());
                }
            }
        }
        oldest.max(boot)
    }
}

/// What one reading of all limits needs and finds wrong.
struct Reading<'a> {
    buf: &'a mut ReadBuf,
    errors: &'a mut Vec<HostError>,
}

/// v2 `cpu.max`: quota and period; `max` is no quota, and so is zero.
fn bandwidth(text: &[u8]) -> Option<(u64, u64)> {
    let mut words = parse::words(text);
    let quota = match parse::limit(words.next()?)? {
        Limit::At(quota) => quota,
        Limit::Max => 0,
    };
    Some((quota, parse::u64(words.next()?)?))
}

fn text(source: &mut Source, buf: &mut Reading<'_>) -> Option<String> {
    let owned = |text: &[u8]| String::from_utf8_lossy(parse::trim(text)).into_owned();
    read(source, buf, |text| Some(owned(text)))
}

/// `max` is the largest number there is; absent or unreadable is `None`.
fn number(source: &mut Source, buf: &mut Reading<'_>) -> Option<u64> {
    match read(source, buf, parse::limit)? {
        Limit::At(value) => Some(value),
        Limit::Max => Some(u64::MAX),
    }
}

fn read<T>(
    source: &mut Source,
    reading: &mut Reading<'_>,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    let understand = |text: &[u8]| parse(text).ok_or_else(|| Malformed::at(0, text));
    let mut found = source.parse(reading.buf, understand);
    if found.as_ref().is_err_and(HostError::is_gone) {
        // A controller was switched off and on: the file we hold is dead, its successor may not be.
        source.reopen();
        found = source.parse(reading.buf, understand);
    }
    match found {
        Ok(found) => found,
        Err(error) => {
            if matches!(error, HostError::Malformed { .. }) {
                reading.errors.push(error);
            }
            None
        }
    }
}
