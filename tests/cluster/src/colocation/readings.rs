//! What the kernel says by itself, written down beside the agent again and again.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use plimsoll_test_support::cgroup::{Group, Mode};

const EVERY: Duration = Duration::from_millis(100);

/// Whose figures are read.
#[derive(Debug)]
pub enum Subject {
    Machine,
    Cgroup(Group),
}

/// At one moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Seconds since 1970.
    at: f64,
    /// Seconds of CPU time, ever.
    cpu: f64,
    /// Bytes that could not simply be dropped.
    memory: f64,
}

/// Reads all subjects every tenth of a second until it is dropped.
#[derive(Debug)]
pub struct Readings {
    written: Arc<Mutex<Vec<Vec<Reading>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What was used during some time: cores and bytes.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    pub cpu: f64,
    pub memory: f64,
}

impl Readings {
    /// The places of subjects are their numbers.
    pub fn begin(subjects: Vec<Subject>) -> Result<Self> {
        let written = Arc::new(Mutex::new(vec![Vec::new(); subjects.len()]));
        let stop = Arc::new(AtomicBool::new(false));
        let (writes, stops) = (Arc::clone(&written), Arc::clone(&stop));
        for subject in &subjects {
            subject.read()?;
        }
        let thread = std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                for (number, subject) in subjects.iter().enumerate() {
                    // One that has ended has no more figures; whoever asks for them is told.
                    if let Ok(reading) = subject.read() {
                        writes.lock()[number].push(reading);
                    }
                }
                std::thread::sleep(EVERY);
            }
        });
        Ok(Self {
            written,
            stop,
            thread: Some(thread),
        })
    }

    /// Between two moments, in seconds since 1970.
    pub fn used(&self, number: usize, from: f64, to: f64) -> Result<Used> {
        let written = self.written.lock();
        let readings = &written[number];
        let covered = readings.first().is_some_and(|first| first.at <= from)
            && readings.last().is_some_and(|last| last.at >= to);
        if !covered {
            return Err(anyhow!("no readings of all the time"));
        }
        let cpu = cpu_at(readings, to)? - cpu_at(readings, from)?;
        let within = readings
            .iter()
            .filter(|one| (from..=to).contains(&one.at))
            .map(|one| one.memory);
        let (count, sum) = within.fold((0, 0.0), |(count, sum), one| (count + 1, sum + one));
        Ok(Used {
            cpu: cpu / (to - from),
            memory: sum / f64::from(count.max(1)),
        })
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Between two readings CPU time is taken to pass evenly.
fn cpu_at(readings: &[Reading], at: f64) -> Result<f64> {
    let after = readings.partition_point(|one| one.at < at);
    let (Some(before), Some(after)) = (after.checked_sub(1), readings.get(after)) else {
        return readings
            .get(after)
            .filter(|one| one.at == at)
            .map(|one| one.cpu)
            .context("no reading at that time");
    };
    let before = &readings[before];
    let share = (at - before.at) / (after.at - before.at);
    Ok(before.cpu + (after.cpu - before.cpu) * share)
}

impl Subject {
    fn read(&self) -> Result<Reading> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let (cpu, memory) = match self {
            Self::Machine => (machine_cpu()?, machine_memory()?),
            Self::Cgroup(group) => (cgroup_cpu(group)?, cgroup_memory(group)?),
        };
        Ok(Reading { at, cpu, memory })
    }
}

/// Time in user space, in the kernel and in interrupts; neither idle nor stolen.
fn machine_cpu() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map(|field| Ok(field.parse()?))
        .collect::<Result<_>>()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else {
        return Err(anyhow!("{line}"));
    };
    // Every kernel that matters counts in hundredths of a second here.
    Ok((user + nice + system + irq + softirq) as f64 / 100.0)
}

fn machine_memory() -> Result<f64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let field = line.and_then(|rest| rest.split_whitespace().next());
        let field = field.with_context(|| format!("no {name} in /proc/meminfo"))?;
        Ok::<f64, anyhow::Error>(field.parse()?)
    };
    Ok((kib("MemTotal:")? - kib("MemAvailable:")?) * 1024.0)
}

fn cgroup_cpu(group: &Group) -> Result<f64> {
    Ok(match group.mode() {
        Mode::V1 => group.number("cpuacct", "cpuacct.usage")? as f64 / 1e9,
        Mode::V2 => group.keyed("cpu", "cpu.stat", "usage_usec")? as f64 / 1e6,
    })
}

fn cgroup_memory(group: &Group) -> Result<f64> {
    let with_children = match group.mode() {
        Mode::V1 => "total_",
        Mode::V2 => "",
    };
    let text = group.read("memory", "memory.stat")?;
    let mut sum = 0;
    for part in ["inactive_anon", "active_anon", "unevictable"] {
        let key = format!("{with_children}{part} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&key));
        let value = value.with_context(|| format!("no {key}in memory.stat"))?;
        sum += value.trim().parse::<u64>()?;
    }
    Ok(sum as f64)
}
