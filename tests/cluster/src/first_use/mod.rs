//! First use: each role in each set-up that cannot work. What it says within seconds, how it ends, and what probes see.
//!
//! The table is data; a row is a process in that set-up, and all rows run beside each other, because they mostly wait.

mod row;
mod table;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::client::Server;
use crate::plan::Tests;
use table::TABLE;

pub const NAME: &str = "first-use/table";
/// Within this it has to be said. The rule is five seconds; a machine that does much else gets more.
const SAID_WITHIN: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(55);
/// Processes at once.
const AT_ONCE: usize = 8;

pub fn play(program: &Path, server: &Server, tests: &Tests<'_>) {
    tests.case(NAME, || all(program, server));
}

fn all(program: &Path, server: &Server) -> Result<String> {
    let next = AtomicUsize::new(0);
    let wrong = std::sync::Mutex::new(Vec::new());
    let work = || {
        while let Some(row) = TABLE.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Err(error) = row::play(row, program, server) else {
                continue;
            };
            if let Ok(mut wrong) = wrong.lock() {
                wrong.push(format!("{:?}, {:?}: {error:#}", row.role, row.fault));
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
    Ok(format!("{} set-ups", TABLE.len()))
}
