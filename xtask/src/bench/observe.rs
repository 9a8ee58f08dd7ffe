//! `cargo xtask bench observe`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use plimsoll_test_support::{http, janitor, proc};
use rustix::process::Signal;

use super::crowd::Crowd;
use super::floor::Floor;
use super::subject::{Scrape, Subject, Window};
use crate::workspace;

/// The history that cAdvisor keeps, and we by default: memory is measured when it is full.
const HISTORY: Duration = Duration::from_secs(125);
/// Files are opened with the first sample, and limits read with each of the first few: the steady state comes after.
const WARM_UP: Duration = Duration::from_secs(8);
/// The agent and its floor take turns: whatever else the machine does meanwhile slows down both alike.
const TURN_SECONDS: u32 = 4;
const PEER: &str = "PLIMSOLL_PEER_CADVISOR";

#[derive(Args, Debug)]
pub struct Options {
    /// How many cgroups with a process each.
    #[arg(long, default_value_t = 500)]
    containers: usize,
    /// How long each program, and the floor, is measured.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Print nothing but the JSON line.
    #[arg(long)]
    json_only: bool,
    /// Measure memory at once instead of after two minutes of history.
    #[arg(long)]
    quick: bool,
    /// Also measure the cost per sample at these counts, with a fresh agent each.
    #[arg(long, value_delimiter = ',', value_name = "COUNTS")]
    growth: Vec<usize>,
}

impl Options {
    fn window(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }

    fn say(&self, text: &str) {
        if !self.json_only {
            println!("{text}");
        }
    }
}

/// What one program was found to need.
#[derive(Debug)]
struct Figures {
    window: Window,
    rss_mib: f64,
    scrape: Scrape,
    first_sample_ms: f64,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "making cgroups needs root"
    );
    ensure!(
        options.containers > 0 && options.seconds > 0,
        "nothing to measure"
    );
    let program = build(options)?;
    janitor::raise_file_limit();
    let line = with_crowd(|crowd| measure(options, &program, crowd))?;
    if !options.growth.is_empty() {
        with_crowd(|crowd| growth(options, &program, crowd))?;
    }
    println!("{line}");
    Ok(())
}

/// Cgroups that are gone afterwards, whatever happened.
fn with_crowd<T>(body: impl FnOnce(&mut Crowd) -> Result<T>) -> Result<T> {
    let mut crowd = Crowd::new()?;
    let outcome = body(&mut crowd);
    crowd.end()?;
    outcome
}

fn build(options: &Options) -> Result<PathBuf> {
    options.say("building plimsoll in release mode");
    let mut cargo = workspace::cargo()?;
    let target = workspace::target()?;
    cargo
        .args([
            "build",
            "--release",
            "--package",
            "plimsoll",
            "--target-dir",
        ])
        .arg(&target);
    if options.json_only {
        cargo.arg("--quiet");
    }
    workspace::run(&mut cargo)?;
    Ok(target.join("release/plimsoll"))
}

fn measure(options: &Options, program: &Path, crowd: &mut Crowd) -> Result<String> {
    let log = workspace::target()?.join("bench-agent.log");
    options.say(&format!(
        "making {} cgroups with a process each",
        options.containers
    ));
    crowd.grow(options.containers)?;

    let subject = Subject::ours(program, &log)?;
    let others = subject.wait_listed(crowd)?;
    if others * 20 > options.containers {
        // Not filtered out: the agent is measured as people run it.
        eprintln!(
            "!!! {others} other cgroups on this machine: memory and scrape figures include them"
        );
    }
    let sources = sources(&subject, crowd)?;
    let floor = Floor::open(&sources)?;
    options.say(&format!(
        "floor: {:.1} files a container",
        floor.files_per_container()
    ));
    let mut floor_micros = 0.0;
    let ours = figures(options, crowd, subject, |subject| {
        let (window, micros) = take_turns(options, crowd, subject, &floor)?;
        floor_micros = micros;
        Ok(window)
    })?;
    drop(floor);

    let per_sample = ours.window.micros_per_sample();
    let mut line = vec![
        ("containers", options.containers.to_string()),
        ("cpu_us_per_sample", format!("{per_sample:.2}")),
        ("floor_us_per_sample", format!("{floor_micros:.2}")),
        ("ratio", format!("{:.3}", per_sample / floor_micros)),
        ("rss_mib", format!("{:.1}", ours.rss_mib)),
        ("scrape_mb_per_s", format!("{:.1}", ours.scrape.mb_per_s())),
        ("scrape_cpu_ms", format!("{:.3}", ours.scrape.cpu_ms)),
        ("scrape_bytes", ours.scrape.bytes.to_string()),
        ("first_sample_ms", format!("{:.1}", ours.first_sample_ms)),
    ];

    let mut table = vec![("plimsoll", ours)];
    if let Some(peer) = std::env::var_os(PEER).filter(|path| !path.is_empty()) {
        options.say("the same with the peer");
        let log = workspace::target()?.join("bench-peer.log");
        let subject = Subject::peer(Path::new(&peer), &log)?;
        subject.wait_listed(crowd)?;
        let found = figures(options, crowd, subject, |subject| {
            subject.window(crowd, options.window())
        })?;
        line.extend([
            (
                "peer_cpu_us_per_sample",
                format!("{:.2}", found.window.micros_per_sample()),
            ),
            ("peer_rss_mib", format!("{:.1}", found.rss_mib)),
            ("peer_scrape_cpu_ms", format!("{:.3}", found.scrape.cpu_ms)),
            ("peer_scrape_bytes", found.scrape.bytes.to_string()),
            (
                "peer_first_sample_ms",
                format!("{:.1}", found.first_sample_ms),
            ),
        ]);
        table.push(("cAdvisor", found));
    }
    show(options, floor_micros, &table);
    Ok(json_line(&line))
}

/// One object in the given order; the values are numbers already.
fn json_line(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(key, value)| format!("\"{key}\":{value}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// The files that the agent keeps open for each container, by its own word.
fn sources(subject: &Subject, crowd: &Crowd) -> Result<Vec<Vec<PathBuf>>> {
    crowd
        .paths()
        .map(|path| {
            let answer = http::get_ok(subject.address, &format!("/debug/sources?container={path}"))
                .context("ask the agent what it reads")?;
            Ok(answer.text()?.lines().map(PathBuf::from).collect())
        })
        .collect()
}

/// The agent samples for some seconds, then the floor is measured for as long, and so on.
fn take_turns(
    options: &Options,
    crowd: &Crowd,
    subject: &Subject,
    floor: &Floor,
) -> Result<(Window, f64)> {
    let mut window: Option<Window> = None;
    let (mut spent, mut samples) = (Duration::ZERO, 0);
    let mut left = options.seconds;
    while left > 0 {
        let seconds = left.min(TURN_SECONDS);
        left -= seconds;
        let turn = subject.window(crowd, Duration::from_secs(u64::from(seconds)))?;
        window = Some(window.map_or(turn, |sum| sum.and(turn)));
        // The agent holds still meanwhile: two readers of one file would pay for each other's flushes.
        proc::signal(subject.pid(), Signal::STOP);
        let (took, of) = floor.measure(seconds);
        proc::signal(subject.pid(), Signal::CONT);
        spent += took;
        samples += of;
    }
    let window = window.context("nothing was measured")?;
    Ok((window, spent.as_secs_f64() * 1e6 / f64::from(samples)))
}

/// Measures and stops the program. `sampling` measures what it needs while nobody asks it anything.
fn figures(
    options: &Options,
    crowd: &Crowd,
    subject: Subject,
    sampling: impl FnOnce(&Subject) -> Result<Window>,
) -> Result<Figures> {
    std::thread::sleep(WARM_UP);
    options.say(&format!("sampling alone for {} s", options.seconds));
    let window = sampling(&subject)?;
    if !options.quick {
        let full = subject.started + HISTORY;
        let left = full.saturating_duration_since(Instant::now());
        options.say(&format!(
            "waiting {} s for two minutes of history",
            left.as_secs()
        ));
        std::thread::sleep(left);
    }
    let quiet_rss = subject.rss_mib()?;
    options.say("scraping");
    let scrape = subject.scrapes(window.share())?;
    let first_sample_ms = subject.first_sample_ms(crowd)?;
    // Serving may have needed buffers: the larger figure is what a machine has to have.
    let rss_mib = subject.rss_mib()?.max(quiet_rss);
    subject.stop()?;
    Ok(Figures {
        window,
        rss_mib,
        scrape,
        first_sample_ms,
    })
}

fn show(options: &Options, floor_micros: f64, table: &[(&str, Figures)]) {
    options.say(&format!(
        "\n{:<28}{}",
        format!("{} containers", options.containers),
        table
            .iter()
            .map(|(name, _)| format!("{name:>14}"))
            .collect::<String>()
    ));
    let row = |name: &str, value: &dyn Fn(&Figures) -> String| {
        let cells: String = table
            .iter()
            .map(|(_, figures)| format!("{:>14}", value(figures)))
            .collect();
        options.say(&format!("{name:<28}{cells}"));
    };
    row("CPU per sample, us", &|f| {
        format!("{:.1}", f.window.micros_per_sample())
    });
    row("floor, us", &|_| format!("{floor_micros:.1}"));
    row("times the floor", &|f| {
        format!("{:.2}", f.window.micros_per_sample() / floor_micros)
    });
    row("share of a core", &|f| {
        format!("{:.1} %", f.window.share() * 100.0)
    });
    row("samples a second", &|f| {
        format!("{:.0}", f.window.samples / f.window.wall.as_secs_f64())
    });
    row("resident memory, MiB", &|f| format!("{:.1}", f.rss_mib));
    row("scrape, CPU ms", &|f| format!("{:.2}", f.scrape.cpu_ms));
    row("scrape, wall ms", &|f| format!("{:.2}", f.scrape.wall_ms));
    row("scrape, bytes", &|f| f.scrape.bytes.to_string());
    row("scrape, MB/s of CPU", &|f| {
        format!("{:.1}", f.scrape.mb_per_s())
    });
    row("first sample, ms", &|f| format!("{:.0}", f.first_sample_ms));
    options.say("");
}

/// Cost per sample at several sizes: linear growth is a constant cost.
fn growth(options: &Options, program: &Path, crowd: &mut Crowd) -> Result<()> {
    let log = workspace::target()?.join("bench-agent.log");
    let mut counts = options.growth.clone();
    counts.sort_unstable();
    options.say(&format!(
        "{:>12}{:>16}{:>16}",
        "containers", "us per sample", "share of a core"
    ));
    for count in counts {
        crowd.grow(count)?;
        let subject = Subject::ours(program, &log)?;
        subject.wait_listed(crowd)?;
        std::thread::sleep(WARM_UP);
        let window = subject.window(crowd, options.window())?;
        subject.stop()?;
        options.say(&format!(
            "{count:>12}{:>16.1}{:>14.1} %",
            window.micros_per_sample(),
            window.share() * 100.0
        ));
    }
    options.say("");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_json() {
        let line = json_line(&[
            ("containers", "500".to_owned()),
            ("ratio", "1.25".to_owned()),
        ]);
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["containers"], 500);
        assert_eq!(parsed["ratio"], 1.25);
    }
}
