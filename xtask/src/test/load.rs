//! `--under-load`: something else keeps every core busy while the tests run.

use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use plimsoll_test_support::janitor;

/// Ends its processes when dropped; they also end with this program.
#[derive(Debug)]
pub struct Load {
    burners: Vec<Child>,
}

impl Load {
    pub fn start() -> Result<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let mut load = Self {
            burners: Vec::new(),
        };
        for _ in 0..cores {
            let burner = janitor::command_in(None, "/bin/sh")
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .context("start something that burns CPU time")?;
            load.burners.push(burner);
        }
        println!("{cores} cores are kept busy meanwhile");
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for burner in &mut self.burners {
            let _ = burner.kill();
            let _ = burner.wait();
        }
    }
}
