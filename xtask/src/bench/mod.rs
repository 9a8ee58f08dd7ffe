//! Benches that also measure their floor in the same run.

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Bench {
    /// The agent's cost per container-sample, per scrape and in memory.
    Observe,
}

impl Bench {
    pub fn run(self) -> Result<()> {
        Ok(())
    }
}
