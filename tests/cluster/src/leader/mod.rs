//! Elections with three candidates, each a process of its own that loses its leadership in a different way.
//!
//! What counts is told by three witnesses: the candidates' diaries (who led when, by a clock they share), the Lease's
//! history (a watch of the test's own), and the events. Chance decides who leads first, and nothing else about the
//! outcome: every server has to give the same.

mod candidate;
mod election;
mod lease;
mod proxy;
mod scenarios;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::client::Server;
use crate::plan::Tests;
use election::Election;

/// Of the Lease.
const NAME: &str = "captain";
/// Short, for the tests to be; long enough for a leader on a busy machine to renew it in time.
const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_millis(500);
/// Between two tries to acquire: `RETRY`, and up to 1.2 times as much again.
const LONGEST_WAIT: Duration = Duration::from_millis(1100);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(20);
/// For anything that has no deadline of its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// One way to lose.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// Says what was measured.
    play: fn(&mut Election) -> Result<String>,
}

/// Of all its tests.
pub fn names() -> Vec<String> {
    let names = scenarios::ALL.iter().map(|scenario| scenario.name);
    names.map(str::to_owned).collect()
}

/// Holds all of them at the same time, each with its own Lease: most of it is waiting.
pub fn hold(server: &Server, tests: &Tests<'_>) {
    let program = program();
    let program = program.as_deref();
    std::thread::scope(|scope| {
        for scenario in scenarios::ALL {
            scope.spawn(move || tests.case(scenario.name, || play(scenario, server, program)));
        }
    });
}

fn play(scenario: &Scenario, server: &Server, program: Option<&Path>) -> Result<String> {
    let program = program.context("this program does not know where it is")?;
    let mut election = Election::begin(server, program)?;
    (scenario.play)(&mut election).map_err(|error| anyhow!("{error:#}\n{}", election.last_words()))
}

/// The candidates' program; built together with this one, and beside it.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name("plimsoll-candidate"))
}
