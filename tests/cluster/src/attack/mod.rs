//! What hostile tenants do to `plimsoll up`: whole classes of requests, made up at random, against the program as a process.
//!
//! A class makes up one request for a number (`class::Class::shot`), so a seed says again what was sent. After each class the
//! same is asked: does the process live, did anything panic, was the administrator served, is memory bounded, do all roles
//! still work, and is everything that was acknowledged there after a restart?
//!
//! The ladder plays a few hundred requests of each class. `cargo xtask attack` plays them for as long as it is told.

mod class;
mod connections;
mod documents;
mod expressions;
mod extremes;
mod made_up;
mod patches;
mod probe;
mod queries;
mod rights;
mod storm;
mod victim;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::plan::Tests;
use class::{CLASSES, Class, Play};
use probe::Probe;
use victim::Victim;

/// Of the ladder. Another one is one more chance to find something, but only a fixed one fails again.
const SEED: u64 = 20_260_901;
/// Requests of one class at once.
const ATTACKERS: u64 = 4;
/// The longest that the administrator may wait. What this is about stalled for minutes, and machines that run tests are busy.
const SERVED_WITHIN: Duration = Duration::from_secs(12);
/// More than the largest documents need, a few at a time: a tree of one takes a hundred times its bytes. Far less than what
/// piled up before there were bounds.
const MEMORY_KIB: u64 = 512 * 1024;

/// Of all its tests.
pub fn names() -> Vec<String> {
    CLASSES.iter().map(test_name).collect()
}

fn test_name(class: &Class) -> String {
    format!("attack/{}", class.name)
}

/// Plays each class once, on a program of its own that lives through all of them.
pub fn play(program: &Path, tests: &Tests<'_>) {
    let wanted: Vec<&Class> = CLASSES
        .iter()
        .filter(|class| tests.wants(&test_name(class)))
        .collect();
    if wanted.is_empty() {
        return;
    }
    let mut victim = None;
    for class in wanted {
        tests.case(&test_name(class), || {
            let mut stands = match victim.take() {
                Some(victim) => victim,
                None => Victim::start(program)?,
            };
            let said = attack(&mut stands, class, SEED, 0..class.shots)?;
            // One that was brought down is of no use to the next.
            victim = Some(stands);
            Ok(said)
        });
    }
}

/// How the long run is done.
#[derive(Debug, Args)]
pub struct Options {
    /// The plimsoll binary.
    #[arg(long)]
    program: PathBuf,
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Of the first round; the next has the next.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Only this class.
    #[arg(long)]
    class: Option<String>,
    /// Only this request of the class.
    #[arg(long, requires = "class")]
    number: Option<u64>,
}

/// All classes again and again, with other seeds; `false` when something was found.
pub fn run(options: &Options) -> Result<bool> {
    let wanted: Vec<&Class> = CLASSES
        .iter()
        .filter(|class| {
            options
                .class
                .as_deref()
                .is_none_or(|only| only == class.name)
        })
        .collect();
    let known: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
    ensure!(
        !wanted.is_empty(),
        "no such class; there are {}",
        known.join(", ")
    );
    let until = Instant::now() + Duration::from_secs(60) * u32::try_from(options.minutes)?;
    let mut found = 0;
    let mut victim = Victim::start(&options.program)?;
    let mut seed = options.seed;
    loop {
        for class in &wanted {
            let shots = match options.number {
                Some(number) => number..number + 1,
                None => 0..class.shots * class.longer,
            };
            match attack(&mut victim, class, seed, shots) {
                Ok(said) => println!("seed {seed} {}: {said}", class.name),
                Err(error) => {
                    found += 1;
                    println!("FOUND seed {seed} {}: {error:#}", class.name);
                    victim = Victim::start(&options.program)?;
                }
            }
        }
        seed += 1;
        if Instant::now() >= until {
            break;
        }
    }
    println!("{} rounds, {found} findings", seed - options.seed);
    Ok(found == 0)
}

/// One class with one seed. What is wrong afterwards is said with the seed.
fn attack(victim: &mut Victim, class: &Class, seed: u64, shots: Range<u64>) -> Result<String> {
    let count = shots.end - shots.start;
    victim.forget_peak()?;
    let before = victim.rss_kib()?;
    let probe = Probe::start(&victim.server, SERVED_WITHIN);
    let sent = match class.play {
        Play::Requests(shot) => shoot(victim, class, shot, seed, shots),
        Play::Whole(whole) => whole(victim, seed, count),
    };
    let served = probe.stop();
    let peak = victim.peak_kib();
    let judged = sent.and_then(|sent| {
        victim.lives().context("after the attack")?;
        let worst = served?;
        let more = peak?.saturating_sub(before);
        ensure!(
            more <= MEMORY_KIB,
            "it took {more} KiB more at its peak, over {MEMORY_KIB}"
        );
        victim.roles_work()?;
        if class.restarts {
            victim.restart_loses_nothing()?;
        }
        victim.clean()?;
        Ok(format!(
            "{sent}; the administrator waited {:.1} s at most; {} MiB more at the peak",
            worst.as_secs_f64(),
            more / 1024
        ))
    });
    judged.with_context(|| format!("seed {seed}, {count} requests; {}", victim.last_words()))
}

/// Sends the class's requests, a few at once, and looks at each answer.
fn shoot(
    victim: &Victim,
    class: &Class,
    shot: class::MakeUp,
    seed: u64,
    shots: Range<u64>,
) -> Result<String> {
    let count = shots.end - shots.start;
    let next = AtomicU64::new(shots.start);
    let taken = AtomicU64::new(0);
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= shots.end {
                return Ok(());
            }
            // One number, one request, whatever else is sent meanwhile.
            let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003) ^ number);
            let shot = shot(&mut random, number);
            let about = format!("{} {number}: {}", class.name, shot.about());
            let status = victim.take(&shot).context(about)?;
            if (200..300).contains(&status) {
                taken.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let ended = std::thread::scope(|scope| {
        let attackers: Vec<_> = (0..ATTACKERS).map(|_| scope.spawn(work)).collect();
        attackers
            .into_iter()
            .map(|attacker| {
                attacker
                    .join()
                    .unwrap_or_else(|why| std::panic::resume_unwind(why))
            })
            .collect::<Result<Vec<()>>>()
    });
    ended?;
    Ok(format!(
        "{} of {count} requests were taken",
        taken.into_inner()
    ))
}
