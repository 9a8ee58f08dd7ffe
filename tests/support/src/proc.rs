//! What procfs tells about one process.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};

/// Start time in ticks since boot: together with the pid it names a process for ever, the pid alone does not.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, so fields are counted from the last one.
    let after_name = stat.rsplit_once(") ")?.1;
    let mut fields = after_name.split(' ');
    if fields.next() == Some("Z") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // An error means that it has ended already, which is what the caller wants.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// CPU time used so far, thread by thread: `/proc/PID/schedstat` alone is only the first thread's, and the ticks of
/// `/proc/PID/stat` are too coarse for a program that uses microseconds.
#[derive(Debug, Clone, Default)]
pub struct CpuTime {
    threads: BTreeMap<u32, u64>,
}

impl CpuTime {
    pub fn of(pid: u32) -> Result<Self> {
        let tasks = format!("/proc/{pid}/task");
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(&tasks).with_context(|| format!("list {tasks}"))? {
            let entry = entry?;
            let Some(tid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else {
                continue;
            };
            let run = text.split(' ').next().and_then(|word| word.parse().ok());
            threads.insert(tid, run.with_context(|| format!("schedstat {text:?}"))?);
        }
        Ok(Self { threads })
    }

    /// Time used between `earlier` and this reading. A thread that began since counts whole.
    pub fn since(&self, earlier: &Self) -> Duration {
        let nanos = self
            .threads
            .iter()
            .map(|(tid, now)| now - earlier.threads.get(tid).unwrap_or(&0).min(now))
            .sum();
        Duration::from_nanos(nanos)
    }
}

/// CPU time used so far, by the names of threads.
pub fn cpu_by_thread(pid: u32) -> Result<BTreeMap<String, Duration>> {
    let mut sums: BTreeMap<String, Duration> = BTreeMap::new();
    for (tid, nanos) in CpuTime::of(pid)?.threads {
        // One that has ended meanwhile has no name any more.
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        *sums.entry(name.trim().to_owned()).or_default() += Duration::from_nanos(nanos);
    }
    Ok(sums)
}

/// Resident memory in KiB.
pub fn rss_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmRSS")
}

/// A line of the process's status that is in KiB.
pub fn status_kib(pid: u32, key: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix(key)?
                .strip_prefix(':')?
                .trim()
                .strip_suffix(" kB")?
                .trim()
                .parse()
                .ok()
        })
        .with_context(|| format!("no {key} in {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process() {
        let me = std::process::id();
        assert!(start_time(me).is_some());
        assert!(rss_kib(me).unwrap() > 100);
        let before = CpuTime::of(me).unwrap();
        let after = CpuTime::of(me).unwrap();
        assert!(after.since(&before) < Duration::from_secs(5));
    }

    #[test]
    fn since_counts_new_threads_whole_and_forgets_ended_ones() {
        let earlier = CpuTime {
            threads: BTreeMap::from([(1, 100), (2, 50)]),
        };
        let later = CpuTime {
            threads: BTreeMap::from([(1, 130), (3, 7)]),
        };
        assert_eq!(later.since(&earlier), Duration::from_nanos(37));
    }
}
