//! Random roles, bindings, deletions and identities, and the same questions to a real API server and to ours. Every
//! answer has to be the same.
//!
//! A story is told by its seed. It changes both clusters in the same way, waits until the real one's caches have seen
//! that (ours has none that could lag: it is asked at once), and asks who may do what: by reviews and by requests.

mod sides;
mod story;
mod words;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::report::LeaveOut;

use crate::client::Server;
use crate::embedded::EmbeddedCluster;
use crate::plan::Tests;
use sides::{Managed, Pair};
use story::Story;

pub const RANDOM: &str = "authorization/random";

/// For the whole of the test, unless [`SECONDS`] says otherwise.
const USUALLY: Duration = Duration::from_secs(12);
const SECONDS: &str = "PLIMSOLL_CLASS_SECONDS";
/// Of the first story, unless this says otherwise.
const SEED: &str = "PLIMSOLL_CLASS_SEED";
/// The ladder must not fail by chance.
const FIRST: u64 = 9_029;

pub fn play(program: &Path, kube_bin: Option<&Path>, real: &Server, tests: &Tests<'_>) {
    tests.case(RANDOM, || compare(program, kube_bin, real));
}

fn number_of(variable: &str) -> Result<Option<u64>> {
    let value = std::env::var(variable).ok();
    let number = value.map(|value| value.parse().context(variable.to_owned()));
    number.transpose()
}

fn compare(program: &Path, kube_bin: Option<&Path>, real: &Server) -> Result<String> {
    let manager = kube_bin.map(|folder| folder.join("kube-controller-manager"));
    let Some(manager) = manager.filter(|program| program.is_file()) else {
        return Err(LeaveOut("there is no kube-controller-manager".to_owned()).into());
    };
    let _managed = Managed::start(&manager, real)?;
    let ours = EmbeddedCluster::with_controllers(program)?;
    let pair = Pair::new(real, &ours.server);
    let span = number_of(SECONDS)?.map_or(USUALLY, Duration::from_secs);
    let first = number_of(SEED)?.unwrap_or(FIRST);
    println!("authorization: seeds from {first} on");
    let began = Instant::now();
    let mut stories = 0;
    let (mut asked, mut allowed) = (0, 0);
    while stories == 0 || began.elapsed() < span {
        let seed = first + stories;
        let mut story = Story::new(seed);
        let outcome = story.play(&pair);
        let differences = outcome.with_context(|| format!("seed {seed}"))?;
        ensure!(
            differences.is_empty(),
            "seed {seed}: {} answers differ\n{}",
            differences.len(),
            differences.join("\n")
        );
        asked += story.asked().0;
        allowed += story.asked().1;
        stories += 1;
    }
    Ok(format!(
        "{stories} stories, {asked} answers, {allowed} times somebody was allowed something"
    ))
}
