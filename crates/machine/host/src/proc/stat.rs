//! `/proc/stat`, `/proc/uptime`, and what this program itself uses.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::parse::{self, Malformed};
use crate::{HostError, HostRoot, ReadBuf, Result, Timestamp, read_file};

/// Clock ticks a second of every figure that procfs counts in ticks.
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// One `cpu` line, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    pub user: u64,
    pub nice: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    /// Time that the hypervisor gave to others.
    pub steal: u64,
}

impl CpuTicks {
    /// Time spent on work. Guests' time is already in `user` and `nice`.
    pub fn busy(&self) -> u64 {
        [self.nice, self.system, self.irq, self.softirq]
            .into_iter()
            .fold(self.user, u64::saturating_add)
    }

    pub fn total(&self) -> u64 {
        [self.idle, self.iowait, self.steal]
            .into_iter()
            .fold(self.busy(), u64::saturating_add)
    }
}

/// `/proc/stat`. Refilled in place: the vector keeps its room.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcStat {
    pub total: CpuTicks,
    /// CPU number and its ticks; offline CPUs have no line.
    pub per_cpu: Vec<(u32, CpuTicks)>,
    /// Seconds since the epoch.
    pub boot_time: u64,
    pub context_switches: u64,
    pub forks: u64,
    pub procs_running: u64,
    pub procs_blocked: u64,
}

impl ProcStat {
    pub fn parse(&mut self, text: &[u8]) -> Result<(), Malformed> {
        let whole = parse::whole_lines(text);
        let mut per_cpu = std::mem::take(&mut self.per_cpu);
        per_cpu.clear();
        *self = Self {
            per_cpu,
            ..Self::default()
        };
        let mut has_total = false;
        for (index, line) in parse::numbered(whole?) {
            let bad = || Malformed::at(index, line);
            let mut words = parse::words(line);
            let key = words.next().unwrap_or(b"");
            if let Some(number) = key.strip_prefix(b"cpu") {
                let ticks = cpu_ticks(words).ok_or_else(bad)?;
                if number.is_empty() {
                    has_total = true;
                    self.total = ticks;
                } else {
                    let cpu = parse::u64(number).and_then(|n| u32::try_from(n).ok());
                    self.per_cpu.push((cpu.ok_or_else(bad)?, ticks));
                }
                continue;
            }
            let field = match key {
                b"btime" => &mut self.boot_time,
                b"ctxt" => &mut self.context_switches,
                b"processes" => &mut self.forks,
                b"procs_running" => &mut self.procs_running,
                b"procs_blocked" => &mut self.procs_blocked,
                _ => continue,
            };
            *field = words.next().and_then(parse::u64).ok_or_else(bad)?;
        }
        match has_total {
            true => Ok(()),
            false => Err(Malformed::cut_short(text)),
        }
    }

    /// `false`: there is no `/proc/stat`, and all figures are zero.
    pub fn read(&mut self, root: &HostRoot, buf: &mut ReadBuf) -> Result<bool> {
        let path = root.proc("stat");
        match read_file(&path, buf)? {
            Some(text) => {
                self.parse(text)
                    .map_err(|at| HostError::malformed(&path, at))?;
                Ok(true)
            }
            None => {
                *self = Self::default();
                Ok(false)
            }
        }
    }

    pub fn boot(&self) -> Timestamp {
        Timestamp(
            i64::try_from(self.boot_time)
                .unwrap_or(0)
                .saturating_mul(1_000_000_000),
        )
    }
}

/// The first four columns are as old as Linux; each of the others may be missing.
fn cpu_ticks<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<CpuTicks> {
    let mut values = [0; 8];
    for (at, value) in values.iter_mut().enumerate() {
        *value = match words.next() {
            Some(word) => parse::u64(word)?,
            None if at >= 4 => break,
            None => return None,
        };
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = values;
    Some(CpuTicks {
        user,
        nice,
        system,
        idle,
        iowait,
        irq,
        softirq,
        steal,
    })
}

/// `/proc/uptime`: time since boot, sleep included, in hundredths of a second.
pub fn parse_uptime(text: &[u8]) -> Result<Duration, Malformed> {
    let text = parse::whole_lines(text)?;
    let bad = || Malformed::at(0, text);
    let word = parse::words(text).next().ok_or_else(bad)?;
    let dot = memchr::memchr(b'.', word).ok_or_else(bad)?;
    let whole = parse::u64(&word[..dot]).ok_or_else(bad)?;
    let fraction = &word[dot + 1..];
    let centis = parse::u64(fraction).filter(|_| fraction.len() == 2);
    Ok(Duration::from_secs(whole) + Duration::from_millis(centis.ok_or_else(bad)? * 10))
}

pub fn read_uptime(root: &HostRoot, buf: &mut ReadBuf) -> Result<Option<Duration>> {
    let path = root.proc("uptime");
    let parsed = match read_file(&path, buf)? {
        Some(text) => parse_uptime(text),
        None => return Ok(None),
    };
    parsed
        .map(Some)
        .map_err(|at| HostError::malformed(&path, at))
}

/// What this process uses, for keeping it within its own budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfUsage {
    /// All threads, since the start.
    pub cpu: Duration,
    pub rss_bytes: u64,
    pub virtual_bytes: u64,
}

fn since_start(time: rustix::time::Timespec) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The CPU time of the thread that asks.
pub fn thread_cpu() -> Duration {
    since_start(clock_gettime(ClockId::ThreadCPUTime))
}

impl SelfUsage {
    /// Always of this very process, whatever machine is being observed.
    pub fn now(buf: &mut ReadBuf) -> Result<Self> {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let path = std::path::Path::new("/proc/self/statm");
        let text = read_file(path, buf)?.unwrap_or(b"");
        let mut pages = parse::words(text).map(parse::u64);
        let (virtual_pages, resident_pages) = pages
            .next()
            .flatten()
            .zip(pages.next().flatten())
            .ok_or_else(|| HostError::malformed(path, Malformed::at(0, text)))?;
        let page_size = rustix::param::page_size() as u64;
        Ok(Self {
            cpu: since_start(time),
            rss_bytes: resident_pages.saturating_mul(page_size),
            virtual_bytes: virtual_pages.saturating_mul(page_size),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "cpu  10 20 30 40 50 60 70 80 5 6\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu2 1 1 1 1\n\
        intr 99 0 0 1\nctxt 1234\nbtime 1700000000\nprocesses 77\nprocs_running 3\nprocs_blocked 1\nsoftirq 5 1\n";

    #[test]
    fn cpus_and_counters() {
        let mut stat = ProcStat::default();
        stat.parse(STAT.as_bytes()).unwrap();
        assert_eq!(stat.total.busy(), 10 + 20 + 30 + 60 + 70);
        assert_eq!(stat.total.total(), 360);
        assert_eq!(stat.per_cpu.len(), 2);
        assert_eq!((stat.per_cpu[1].0, stat.per_cpu[1].1.steal), (2, 0));
        assert_eq!(stat.boot(), Timestamp::from_secs(1_700_000_000));
        assert_eq!((stat.context_switches, stat.forks), (1234, 77));

        stat.parse(b"cpu 1 2 3 4\n").unwrap();
        assert!(stat.per_cpu.is_empty());
        assert_eq!(stat.boot_time, 0);
    }

    #[test]
    fn bad_lines_are_named() {
        let mut stat = ProcStat::default();
        assert_eq!(stat.parse(b"cpu 1 2 3 4\ncpu0 1 2\n").unwrap_err().line, 2);
        assert_eq!(stat.parse(b"cpux 1 2 3 4\n").unwrap_err().line, 1);
        assert_eq!(stat.parse(b"\nbtime\n").unwrap_err().line, 2);
        for cut in ["cpu  10 20 30 40 50 6", "intr 1\n", ""] {
            assert!(stat.parse(cut.as_bytes()).unwrap_err().cut_short, "{cut}");
        }
    }

    #[test]
    fn uptime() {
        let parsed = parse_uptime(b"350735.47 234388.90\n").unwrap();
        assert_eq!(parsed, Duration::from_millis(350_735_470));
        assert!(parse_uptime(b"12\n").is_err());
        assert!(parse_uptime(b"12.345 1\n").is_err());
    }

    #[test]
    fn this_machine_and_this_process() {
        let mut buf = ReadBuf::default();
        let root = HostRoot::new("/");
        let mut stat = ProcStat::default();
        assert!(stat.read(&root, &mut buf).unwrap());
        assert!(stat.boot_time > 0 && !stat.per_cpu.is_empty());
        assert!(read_uptime(&root, &mut buf).unwrap().is_some());
        let usage = SelfUsage::now(&mut buf).unwrap();
        assert!(usage.rss_bytes > 0);
        assert!(ticks_per_second() >= 1);
    }

    proptest! {
        #[test]
        fn any_cpu_survives(cpu in 0_u32..4096, v: [u32; 8]) {
            let text = format!(
                "cpu 1 1 1 1\ncpu{cpu} {} {} {} {} {} {} {} {}\n", v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
            );
            let mut stat = ProcStat::default();
            stat.parse(text.as_bytes()).unwrap();
            prop_assert_eq!(stat.per_cpu[0].0, cpu);
            prop_assert_eq!(stat.per_cpu[0].1.total(), v.iter().map(|t| u64::from(*t)).sum::<u64>());
        }

        #[test]
        fn any_uptime_survives(secs in 0_u64..1 << 40, centis in 0_u64..100) {
            let parsed = parse_uptime(format!("{secs}.{centis:02} 1.00\n").as_bytes()).unwrap();
            prop_assert_eq!(parsed, Duration::from_millis(secs * 1000 + centis * 10));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = ProcStat::default().parse(&text);
            let _ = parse_uptime(&text);
        }
    }
}
