//! Recordings: a file a family, a line a step. And the list of scenarios that are known to differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::seen::Seen;

/// The steps of each scenario of a family.
pub type Family = BTreeMap<String, Vec<Seen>>;

fn file(folder: &Path, family: &str) -> PathBuf {
    folder.join(format!("{family}.json"))
}

/// A family that was never recorded is empty.
pub fn load(folder: &Path, family: &str) -> Result<Family> {
    let path = file(folder, family);
    if !path.exists() {
        return Ok(Family::new());
    }
    let text = fs::read_to_string(&path)?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

pub fn write(folder: &Path, family: &str, recorded: &Family) -> Result<()> {
    let mut text = String::from("{\n");
    for (index, (name, steps)) in recorded.iter().enumerate() {
        writeln!(text, "{}: [", serde_json::to_string(name)?)?;
        for (step, seen) in steps.iter().enumerate() {
            let comma = if step + 1 < steps.len() { "," } else { "" };
            writeln!(text, "  {}{comma}", serde_json::to_string(seen)?)?;
        }
        let comma = if index + 1 < recorded.len() { "," } else { "" };
        writeln!(text, "]{comma}")?;
    }
    text.push_str("}\n");
    fs::create_dir_all(folder)?;
    let path = file(folder, family);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Names of scenarios, one a line; what follows a name says why.
pub fn open(path: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}
