//! `tests/flaky.txt`: every flaky test seen, with date and cause, until it is mended.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::workspace;

const FILE: &str = "tests/flaky.txt";
/// A run with more flaky tests than this has failed.
pub const ALLOWED: usize = 2;

/// A line of the file: `2026-11-18 rung::test: cause`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub date: String,
    pub test: String,
    pub cause: String,
}

pub fn load() -> Result<Vec<Entry>> {
    let path = workspace::root()?.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("read {FILE}"))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    let lines = text.lines().enumerate();
    let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    entries
        .map(|(index, line)| {
            let entry = entry(line);
            entry.with_context(|| format!("{FILE}:{}: want `DATE TEST: CAUSE`", index + 1))
        })
        .collect()
}

fn entry(line: &str) -> Result<Entry> {
    let (date, rest) = line.split_once(' ').context("no test")?;
    let (test, cause) = rest.split_once(": ").context("no cause")?;
    let is_date = date.len() == 10
        && date
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-');
    ensure!(is_date, "no date");
    Ok(Entry {
        date: date.to_owned(),
        test: test.to_owned(),
        cause: cause.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_this_checkout_is_sound() {
        load().unwrap();
    }

    #[test]
    fn entries_have_a_date_a_test_and_a_cause() {
        let text = "# why\n\n2026-11-18 unit::a::b: the port was taken\n";
        let entries = parse(text).unwrap();
        assert_eq!(entries[0].test, "unit::a::b");
        assert_eq!(entries[0].cause, "the port was taken");
        assert!(parse("yesterday unit::a: chance\n").is_err());
        assert!(parse("2026-11-18 unit::a\n").is_err());
    }
}
