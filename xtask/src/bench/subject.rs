//! A program being measured: ours or a peer, seen from outside only.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::exposition::Exposition;
use plimsoll_test_support::http::{self, Connection};
use plimsoll_test_support::ports;
use plimsoll_test_support::proc::{self, CpuTime};
use plimsoll_test_support::{janitor, log, poll};

use super::crowd::Crowd;
use super::median;

const LISTED: Duration = Duration::from_secs(60);

/// How the samples of a window are counted.
#[derive(Debug)]
enum Counting {
    /// The program counts itself.
    Metric,
    /// From the history of some containers, as cAdvisor keeps it for its REST interface.
    History,
}

#[derive(Debug)]
enum Process {
    Ours(Agent),
    Peer(Child),
}

#[derive(Debug)]
pub struct Subject {
    process: Process,
    pub address: SocketAddr,
    counting: Counting,
    pub started: Instant,
}

/// CPU used and samples taken in a window without requests.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub cpu: Duration,
    pub wall: Duration,
    pub samples: f64,
}

#[derive(Debug)]
struct Reading {
    cpu: CpuTime,
    /// `None` where the program does not count.
    samples: Option<f64>,
}

impl Window {
    /// Both windows as one.
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            wall: self.wall + other.wall,
            samples: self.samples + other.samples,
        }
    }

    pub fn micros_per_sample(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.samples
    }

    /// Cores in use by sampling alone.
    pub fn share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Scrape {
    pub cpu_ms: f64,
    pub wall_ms: f64,
    pub bytes: usize,
}

impl Scrape {
    /// By CPU time: what a core could deliver.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e3 / self.cpu_ms
    }
}

impl Subject {
    pub fn ours(program: &Path, log: &Path) -> Result<Self> {
        let started = Instant::now();
        let agent = Agent::start(program, &[], None, log)?;
        let address = agent.address;
        let own = http::get_ok(address, "/metrics/self")?;
        let counts = Exposition::parse(own.text()?)?
            .first(SAMPLES, &[])
            .is_some();
        Ok(Self {
            process: Process::Ours(agent),
            address,
            counting: if counts {
                Counting::Metric
            } else {
                Counting::History
            },
            started,
        })
    }

    /// cAdvisor with its defaults, but at a steady pace: while it backs off, a window has hardly a sample.
    pub fn peer(program: &Path, log: &Path) -> Result<Self> {
        let address = ports::reserve_for_good()?;
        let output = File::create(log)?;
        let started = Instant::now();
        let mut child = janitor::command_in(None, program)
            .arg(format!("--listen_ip={}", address.ip()))
            .arg(format!("--port={}", address.port()))
            .arg("--allow_dynamic_housekeeping=false")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        poll::until("the peer answers", LISTED, || {
            if let Some(status) = child.try_wait()? {
                bail!("it ended with {status}: {}", log::tail(log, 5));
            }
            Ok((http::get(address, "/healthz")?.status == 200).then_some(()))
        })?;
        Ok(Self {
            process: Process::Peer(child),
            address,
            counting: Counting::History,
            started,
        })
    }

    pub fn pid(&self) -> u32 {
        match &self.process {
            Process::Ours(agent) => agent.pid(),
            Process::Peer(child) => child.id(),
        }
    }

    /// Waits until every container of the crowd is in a scrape; gives how many others there are.
    pub fn wait_listed(&self, crowd: &Crowd) -> Result<usize> {
        poll::until("every cgroup is listed", LISTED, || {
            let page = Exposition::parse(http::get_ok(self.address, "/metrics")?.text()?)?;
            let seen: BTreeSet<&str> = page
                .all("container_memory_usage_bytes", &[])
                .map(|sample| sample.label("id"))
                .collect();
            let missing = crowd.paths().filter(|path| !seen.contains(path)).count();
            ensure!(missing == 0, "{missing} are missing");
            Ok(Some(seen.len() - crowd.paths().count()))
        })
    }

    /// Lets it sample undisturbed.
    pub fn window(&self, crowd: &Crowd, length: Duration) -> Result<Window> {
        let before = self.reading()?;
        let (begin, clock_before) = (Instant::now(), unix_ms()?);
        std::thread::sleep(length);
        let (wall, clock_after) = (begin.elapsed(), unix_ms()?);
        let after = self.reading()?;
        let samples = match (before.samples, after.samples) {
            (Some(first), Some(last)) => last - first,
            _ => self.samples_by_history(crowd, clock_before, clock_after)?,
        };
        ensure!(samples > 0.0, "no sample was taken in {wall:?}");
        Ok(Window {
            cpu: after.cpu.since(&before.cpu),
            wall,
            samples,
        })
    }

    /// CPU time and samples of the same moment: a round that falls between the two questions would be paid for and not
    /// counted, or the other way round.
    fn reading(&self) -> Result<Reading> {
        poll::until("a moment between two rounds", LISTED, || {
            let samples = self.samples_total()?;
            let cpu = CpuTime::of(self.pid())?;
            let same = samples.is_none() || self.samples_total()? == samples;
            Ok(same.then_some(Reading { cpu, samples }))
        })
    }

    fn samples_total(&self) -> Result<Option<f64>> {
        if !matches!(self.counting, Counting::Metric) {
            return Ok(None);
        }
        let own = http::get_ok(self.address, "/metrics/self")?;
        Ok(Some(Exposition::parse(own.text()?)?.sum(SAMPLES, &[])?))
    }

    /// Some containers' histories say how many samples a container had; a scrape says how many containers there are.
    fn samples_by_history(&self, crowd: &Crowd, from: i64, to: i64) -> Result<f64> {
        const ASKED: usize = 20;
        let mut samples = 0;
        for path in crowd.paths().take(ASKED) {
            let page =
                http::get_ok(self.address, &format!("/api/v2.0/stats{path}?count=-1"))?.json()?;
            let history = page[path]
                .as_array()
                .with_context(|| format!("no history of {path}"))?;
            for sample in history {
                let stamp = sample["timestamp"].as_str().context("no timestamp")?;
                let taken = rfc3339_ms(stamp).with_context(|| format!("timestamp {stamp:?}"))?;
                samples += usize::from((from..to).contains(&taken));
            }
        }
        let page = Exposition::parse(http::get_ok(self.address, "/metrics")?.text()?)?;
        let containers = page.all("container_last_seen", &[]).count();
        let asked = crowd.paths().take(ASKED).count();
        Ok(samples as f64 / asked as f64 * containers as f64)
    }

    /// Scrapes over one connection, uncompressed. `sampling` is what it uses meanwhile anyway, in cores.
    pub fn scrapes(&self, sampling: f64) -> Result<Scrape> {
        // So many that the sampling meanwhile, which is subtracted, is the smaller part; a slow program gets away with
        // fewer.
        const TIMES: usize = 300;
        const AT_LEAST: usize = 20;
        // Long enough that sampling rounds fall into it as often as they should.
        const SHORTEST: Duration = Duration::from_secs(5);
        const LONGEST: Duration = Duration::from_secs(30);
        let mut connection = Connection::open(self.address)?;
        let mut page = Vec::new();
        // The first one fills buffers on both sides.
        connection.get_into("/metrics", &mut page)?;
        let mut walls = Vec::new();
        let (begin, before) = (Instant::now(), CpuTime::of(self.pid())?);
        let enough = |times: usize, elapsed: Duration| {
            times >= TIMES && elapsed >= SHORTEST || times >= AT_LEAST && elapsed >= LONGEST
        };
        while !enough(walls.len(), begin.elapsed()) {
            let started = Instant::now();
            let (status, headers) = connection.get_into("/metrics", &mut page)?;
            walls.push(started.elapsed().as_secs_f64() * 1e3);
            ensure!(status == 200, "a scrape answered {status}");
            ensure!(
                !headers.contains_key("content-encoding"),
                "compressed without being asked"
            );
        }
        let cpu = CpuTime::of(self.pid())?.since(&before).as_secs_f64();
        let own = cpu - sampling * begin.elapsed().as_secs_f64();
        Ok(Scrape {
            cpu_ms: own.max(0.0) * 1e3 / walls.len() as f64,
            wall_ms: median(walls),
            bytes: page.len(),
        })
    }

    /// From mkdir to the first figure in a scrape, in milliseconds: the median of some tries.
    pub fn first_sample_ms(&self, crowd: &Crowd) -> Result<f64> {
        const TRIES: usize = 11;
        let mut connection = Connection::open(self.address)?;
        let mut page = Vec::new();
        let mut took = Vec::new();
        for index in 0..TRIES {
            // Tries begin at different moments of the sampling second.
            std::thread::sleep(Duration::from_millis(137));
            let path = format!("{}/new-{index}", crowd.top());
            let started = Instant::now();
            let group = crowd.group(&format!("new-{index}"))?;
            poll::until(
                "a new cgroup's first sample",
                Duration::from_secs(30),
                || {
                    connection.get_into("/metrics", &mut page)?;
                    Ok(has_row(&page, &path).then_some(()))
                },
            )?;
            took.push(started.elapsed().as_secs_f64() * 1e3);
            group.remove()?;
        }
        Ok(median(took))
    }

    pub fn rss_mib(&self) -> Result<f64> {
        Ok(proc::rss_kib(self.pid())? as f64 / 1024.0)
    }

    pub fn stop(self) -> Result<()> {
        match self.process {
            Process::Ours(agent) => agent.stop(),
            Process::Peer(mut child) => {
                child.kill()?;
                child.wait()?;
                Ok(())
            }
        }
    }
}

const SAMPLES: &str = "plimsoll_samples_total";

/// A search instead of a parse: parsing megabytes would take longer than what is measured.
fn has_row(page: &[u8], path: &str) -> bool {
    let text = String::from_utf8_lossy(page);
    let id = format!("id=\"{path}\"");
    text.lines()
        .filter(|line| line.starts_with("container_memory_usage_bytes{"))
        .any(|line| line.contains(&id))
}

fn unix_ms() -> Result<i64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_millis())?)
}

/// Milliseconds since the epoch of a time like `2026-01-02T03:04:05.678901Z` (any offset).
fn rfc3339_ms(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let rest = text.get(19..)?;
    let zone_at = rest.find(['Z', '+', '-'])?;
    let fraction = rest[..zone_at].trim_start_matches('.');
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let offset = match rest[zone_at..].split_at(1) {
        ("Z", _) => 0,
        (sign, clock) => {
            let (hours, minutes) = clock.split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if sign == "-" { -minutes } else { minutes }
        }
    };
    // Days since the epoch: years counted from March, so that the leap day comes last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second;
    Some(seconds * 1000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(rfc3339_ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(
            rfc3339_ms("2014-03-17T14:26:03.5Z"),
            Some(1_395_066_363_500)
        );
        assert_eq!(
            rfc3339_ms("2024-02-29T12:00:00.123456789+02:00"),
            Some(1_709_200_800_123)
        );
        assert_eq!(
            rfc3339_ms("2024-03-01T00:00:00-00:30"),
            Some(1_709_253_000_000)
        );
        assert_eq!(rfc3339_ms("yesterday"), None);
    }

    #[test]
    fn arithmetic() {
        let window = Window {
            cpu: Duration::from_millis(200),
            wall: Duration::from_secs(10),
            samples: 5000.0,
        };
        assert_eq!(window.micros_per_sample(), 40.0);
        assert_eq!(window.share(), 0.02);
        let scrape = Scrape {
            cpu_ms: 4.0,
            wall_ms: 5.0,
            bytes: 2_000_000,
        };
        assert_eq!(scrape.mb_per_s(), 500.0);
    }

    #[test]
    fn rows() {
        let page = b"container_last_seen{id=\"/a\"} 1\ncontainer_memory_usage_bytes{id=\"/b\",name=\"\"} 2\n";
        assert!(has_row(page, "/b"));
        assert!(!has_row(page, "/a"));
    }
}
