//! The limits set on a cgroup, and when it was made.

use std::path::{Path, PathBuf};

use super::stats::Spec;
use super::{Controller, Hierarchies, Wanted};
use crate::parse::{self, Limit};
use crate::{ReadBuf, Timestamp, read_file};

/// Reads a cgroup's limits now and then; holds no files open, since they change seldom.
#[derive(Debug)]
pub struct SpecReader {
    v2: bool,
    is_root: bool,
    cpu: Option<PathBuf>,
    cpuset: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    hugetlb: Option<PathBuf>,
    blkio: Option<PathBuf>,
    /// Every directory of the cgroup: the oldest tells when it was made.
    dirs: Vec<PathBuf>,
}

impl SpecReader {
    /// Figures of the cpuset, pids and hugetlb groups are only read where those are wanted.
    pub fn new(hierarchies: &Hierarchies, cgroup: &str, wanted: Wanted) -> Self {
        let v2 = hierarchies.is_v2();
        let dir = |controller| hierarchies.dir(controller, cgroup);
        Self {
            v2,
            is_root: cgroup == "/",
            cpu: dir(Controller::Cpu),
            cpuset: dir(Controller::Cpuset).filter(|_| wanted.cpuset || v2),
            memory: dir(Controller::Memory),
            pids: dir(Controller::Pids).filter(|_| wanted.pids || v2),
            // The original never says so on v2, and clients take the flag for "there are such figures".
            hugetlb: dir(Controller::Hugetlb).filter(|_| wanted.hugetlb && !v2),
            blkio: dir(Controller::Blkio),
            dirs: hierarchies.watched_dirs(cgroup),
        }
    }

    /// A file that cannot be read counts as not set: the cgroup may be ending.
    /// `all_cpus` stands in for an empty CPU mask, which means "as the parent".
    pub fn read(&self, buf: &mut ReadBuf, all_cpus: &str) -> Spec {
        let mut spec = Spec::default();
        self.cpu(buf, &mut spec);
        if let Some(dir) = &self.cpuset {
            let file = if self.v2 {
                "cpuset.cpus.effective"
            } else {
                "cpuset.cpus"
            };
            // v2 has the one directory; a file missing there is an empty mask.
            let mask = text(dir, file, buf).or_else(|| self.v2.then(String::new));
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
        if let Some(dir) = &self.pids {
            // On v2 every cgroup counts its processes, with or without the controller.
            let limit = number(dir, "pids.max", buf);
            spec.has_processes = limit.is_some() || self.v2;
            spec.pids_limit = limit.unwrap_or(0);
        }
        spec.has_hugetlb = self.hugetlb.as_deref().is_some_and(Path::exists);
        spec.has_diskio = self.blkio.as_deref().is_some_and(Path::exists);
        spec
    }

    fn cpu(&self, buf: &mut ReadBuf, spec: &mut Spec) {
        let Some(dir) = self.cpu.as_deref() else {
            return;
        };
        if self.v2 {
            spec.has_cpu = true;
            let weight = number(dir, "cpu.weight", buf).unwrap_or(0);
            if (1..=10_000).contains(&weight) {
                spec.cpu_shares = 2 + (weight - 1) * 262_142 / 9_999;
            }
            if let Some(max) = text(dir, "cpu.max", buf)
                && let Some((quota, period)) = max.split_once(' ')
            {
                spec.cpu_quota_us = quota.parse().unwrap_or(0);
                spec.cpu_period_us = period.parse().unwrap_or(0);
            }
            return;
        }
        let shares = number(dir, "cpu.shares", buf);
        // Not in this hierarchy: nothing more to look for.
        let Some(shares) = shares.or_else(|| self.is_root.then_some(0)) else {
            return;
        };
        spec.has_cpu = true;
        spec.cpu_shares = shares;
        spec.cpu_period_us = number(dir, "cpu.cfs_period_us", buf).unwrap_or(0);
        // -1 means no quota, and does not parse as a number here: zero, which means the same.
        spec.cpu_quota_us = text(dir, "cpu.cfs_quota_us", buf)
            .and_then(|quota| quota.parse().ok())
            .unwrap_or(0);
    }

    fn memory(&self, buf: &mut ReadBuf, spec: &mut Spec) {
        let Some(dir) = self.memory.as_deref() else {
            return;
        };
        let [limit, reservation, swap] = if self.v2 {
            ["memory.max", "memory.min", "memory.swap.max"]
        } else {
            [
                "memory.limit_in_bytes",
                "memory.soft_limit_in_bytes",
                "memory.memsw.limit_in_bytes",
            ]
        };
        let Some(limit) = number(dir, limit, buf) else {
            return;
        };
        spec.has_memory = true;
        spec.memory_limit = limit;
        spec.memory_reservation = number(dir, reservation, buf).unwrap_or(0);
        spec.memory_swap_limit = number(dir, swap, buf).unwrap_or(0);
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

fn text(dir: &Path, file: &str, buf: &mut ReadBuf) -> Option<String> {
    let text = read_file(&dir.join(file), buf).ok().flatten()?;
    Some(String::from_utf8_lossy(parse::trim(text)).into_owned())
}

/// `max` is the largest number there is; absent or unreadable is `None`.
fn number(dir: &Path, file: &str, buf: &mut ReadBuf) -> Option<u64> {
    let text = read_file(&dir.join(file), buf).ok().flatten()?;
    match parse::limit(text)? {
        Limit::At(value) => Some(value),
        Limit::Max => Some(u64::MAX),
    }
}
