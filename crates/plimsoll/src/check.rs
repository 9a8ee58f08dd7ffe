//! `plimsoll check`: what this machine can and cannot do for protection, in words a person can act on.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use plimsoll_host::capabilities::{Facts, Finding, Severity, findings};
use plimsoll_host::{HostRoot, ReadBuf};
use serde_json::json;

/// Show what this machine can do to protect services, what is missing, and what to do about it
///
/// It reads a few files of the kernel and changes nothing. The exit code is 0 when protection can work, 1 when it cannot,
/// and with --strict also 1 when a part of it is off.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Folder that stands for / of the machine [default: /rootfs where it is mounted, else /]
    #[arg(long, value_name = "DIR")]
    host_root: Option<PathBuf>,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Prints the report. `false`: something is wrong.
pub fn run(args: &CheckArgs) -> bool {
    let root = args
        .host_root
        .as_ref()
        .map_or_else(HostRoot::detect, HostRoot::new);
    let facts = Facts::read(&root, &mut ReadBuf::default());
    let findings = findings(&facts);
    let text = match args.output {
        Format::Table => table(&facts, &findings),
        Format::Json => json(&facts, &findings),
    };
    print!("{text}");
    let worst = findings.iter().map(|finding| finding.severity).max();
    let bearable = match args.strict {
        true => Severity::Note,
        false => Severity::Warning,
    };
    worst.is_none_or(|worst| worst <= bearable)
}

fn table(facts: &Facts, findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.about.len())
        .max()
        .unwrap_or(0);
    let mut text = format!("kernel {}\n\n", facts.release);
    for finding in findings {
        let severity = finding.severity.as_str();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{severity:8} {:width$}  {}",
            finding.about, finding.found
        );
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "{:8} {:width$}  → {}", "", "", finding.advice);
        }
    }
    let count = |severity| {
        findings
            .iter()
            .filter(|one| one.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let verdict = match (errors, warnings) {
        (0, 0) => "every protection works on this machine",
        (0, _) => "protection works; what the warnings name is off",
        _ => "protection cannot work until the errors are resolved",
    };
    let _ = writeln!(text, "\n{errors} errors, {warnings} warnings: {verdict}");
    text
}

fn json(facts: &Facts, findings: &[Finding]) -> String {
    let rows: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "about": finding.about,
                "severity": finding.severity.as_str(),
                "found": finding.found,
                "advice": finding.advice,
            })
        })
        .collect();
    format!("{:#}\n", json!({"kernel": facts.release, "findings": rows}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_to_do() {
        let facts = Facts::default();
        let findings = findings(&facts);
        let text = table(&facts, &findings);
        assert!(text.contains("error    cgroups "), "{text}");
        assert!(text.contains("→ Mount cgroup2"), "{text}");
        assert!(text.contains("protection cannot work"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&json(&facts, &findings)).unwrap();
        assert_eq!(value["findings"].as_array().unwrap().len(), findings.len());
    }
}
