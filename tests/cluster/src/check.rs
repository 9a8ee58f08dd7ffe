//! Runs cases on a server against their recordings and counts.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::case::Case;
use crate::compare::{self, Difference};
use crate::record;
use crate::run::{self, Stage};

/// How many differences of one step are shown.
const SHOWN: usize = 12;
/// A difference can be a whole object.
const WIDTH: usize = 400;

/// The steps of a case that differ, and how many there are in all.
#[derive(Debug)]
pub struct Checked {
    pub steps: usize,
    /// Number and title of the step, and its differences.
    pub failed: Vec<(usize, String, Vec<Difference>)>,
}

pub fn check(case: &Case, recordings: &Path, stage: &Stage) -> Result<Checked> {
    let recorded = record::load(recordings, case)?;
    let outcome = run::run(case, stage)?;
    let failed = compare::compare(&recorded, &outcome)
        .into_iter()
        .zip(&case.steps)
        .enumerate()
        .filter(|(_, (differences, _))| !differences.is_empty())
        .map(|(index, (differences, step))| {
            let each = step.each.as_ref();
            let each = each.map_or(String::new(), |each| format!(" ({each})"));
            (index + 1, format!("{}{each}", step.title), differences)
        })
        .collect();
    Ok(Checked {
        steps: case.steps.len(),
        failed,
    })
}

impl Checked {
    /// The differences as a person reads them.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (number, title, differences) in &self.failed {
            text.push_str(&format!("  step {number}: {title}\n"));
            for difference in differences.iter().take(SHOWN) {
                let line: String = difference.to_string().chars().take(WIDTH).collect();
                text.push_str(&format!("    {line}\n"));
            }
            if differences.len() > SHOWN {
                text.push_str(&format!("    and {} more\n", differences.len() - SHOWN));
            }
        }
        text
    }
}

/// Counts an area's cases and steps.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    cases: usize,
    passed_cases: usize,
    steps: usize,
    passed_steps: usize,
}

#[derive(Debug, Default)]
pub struct Summary {
    areas: BTreeMap<String, Counts>,
}

impl Summary {
    pub fn add(&mut self, case: &Case, checked: Option<&Checked>) {
        let counts = self.areas.entry(case.area().to_owned()).or_default();
        counts.cases += 1;
        counts.steps += case.steps.len();
        if let Some(checked) = checked {
            counts.passed_steps += checked.steps - checked.failed.len();
            counts.passed_cases += usize::from(checked.failed.is_empty());
        }
    }

    pub fn all_passed(&self) -> bool {
        self.areas
            .values()
            .all(|counts| counts.cases == counts.passed_cases)
    }

    pub fn print(&self) {
        println!("\n{:<16} {:>13} {:>13}", "area", "cases", "steps");
        let mut all = Counts::default();
        for (area, counts) in &self.areas {
            print_line(area, counts);
            all.cases += counts.cases;
            all.passed_cases += counts.passed_cases;
            all.steps += counts.steps;
            all.passed_steps += counts.passed_steps;
        }
        print_line("all", &all);
    }
}

fn print_line(area: &str, counts: &Counts) {
    let cases = format!("{}/{}", counts.passed_cases, counts.cases);
    let steps = format!("{}/{}", counts.passed_steps, counts.steps);
    println!("{area:<16} {cases:>13} {steps:>13}");
}
