//! `cargo xtask bench predict`: how often forecasts are exceeded, and how much they let be lent.

use anyhow::{Context, Result};

use crate::workspace;

pub fn run() -> Result<()> {
    let mut cargo = workspace::cargo()?;
    cargo
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "plimsoll-predict",
        ])
        .args(["--example", "accuracy"]);
    workspace::run(&mut cargo).context("judge the forecasts")
}
