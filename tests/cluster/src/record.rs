//! The recordings: one file a case, one line a step.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use crate::case::Case;
use crate::run::Outcome;
use crate::{answer, mask};

/// Where the recording of a case is.
pub fn file(folder: &Path, case: &Case) -> PathBuf {
    folder.join(format!("{}.json", case.name))
}

/// The recorded answers of a case, each with the title of its step.
pub fn load(folder: &Path, case: &Case) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file(folder, case)).context("there is no recording")?;
    let answers: Vec<Value> = serde_json::from_str(&text).context("read the recording")?;
    let recorded: Vec<&str> = answers
        .iter()
        .map(|answer| answer["do"].as_str().unwrap_or_default())
        .collect();
    let planned: Vec<&str> = case.steps.iter().map(|step| step.title.as_str()).collect();
    ensure!(
        recorded == planned,
        "the recording is of other steps: record the case again"
    );
    Ok(answers)
}

/// Writes one line a step: a change of one answer is then a change of one line.
pub fn write(folder: &Path, case: &Case, outcome: &Outcome) -> Result<()> {
    let masked = mask::mask(case, outcome);
    let mut text = String::from("[\n");
    for (index, (planned, answer)) in case.steps.iter().zip(masked).enumerate() {
        if let Some(failure) = answer.get("failure") {
            anyhow::bail!("step {} ({}): {failure}", index + 1, planned.title);
        }
        ensure!(
            !(planned.step.quiet && answer::is_refusal(&answer)),
            "step {} ({}) prepares others, but was refused: {}",
            index + 1,
            planned.title,
            answer
        );
        let mut line = Map::new();
        line.insert("do".to_owned(), Value::String(planned.title.clone()));
        if let Value::Object(fields) = answer {
            line.extend(fields);
        }
        let comma = if index + 1 < case.steps.len() {
            ","
        } else {
            ""
        };
        writeln!(text, "{}{comma}", Value::Object(line))?;
    }
    text.push_str("]\n");
    let path = file(folder, case);
    let parent = path.parent().context("a recording's folder")?;
    fs::create_dir_all(parent)?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}
