//! First use: each role in each set-up that cannot work. What it says within seconds, how it ends, and what probes see.
//!
//! The table is data; a row is a process in that set-up, and all rows run beside each other, because they mostly wait.

mod load;
mod rights;
mod row;
mod table;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::Server;
use crate::plan::Tests;
use table::TABLE;

pub const NAMES: [&str; 2] = [TABLE_NAME, RIGHTS_NAME];
const TABLE_NAME: &str = "first-use/table";
const RIGHTS_NAME: &str = "first-use/rights";
/// Within this it has to be said where the machine has nothing else to do. Anywhere, it has to be said at all.
const SAID_WITHIN: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(55);
/// Processes at once.
const AT_ONCE: usize = 8;

pub fn play(program: &Path, server: &Server, tests: &Tests<'_>) {
    tests.case(TABLE_NAME, || {
        all(TABLE, |row| {
            row::play(row, program, server)
                .with_context(|| format!("{:?}, {:?}", row.role, row.fault))
        })
    });
    let rights: Vec<_> = rights::FOLLOWED
        .iter()
        .flat_map(|(role, followed)| rights::VERBS.map(|verb| (*role, *followed, verb)))
        .collect();
    tests.case(RIGHTS_NAME, || {
        all(&rights, |(role, followed, verb)| {
            rights::play(*role, followed, verb, program, server)
                .with_context(|| format!("{role:?} without {verb}"))
        })
    });
}

/// Plays all of them, a few beside each other, and tells what is wrong with any.
fn all<T: Sync>(of: &[T], play: impl Fn(&T) -> Result<()> + Sync) -> Result<String> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let work = || {
        while let Some(one) = of.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = play(one)
                && let Ok(mut wrong) = wrong.lock()
            {
                wrong.push(format!("{error:#}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().unwrap_or_default();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("{} set-ups", of.len()))
}
