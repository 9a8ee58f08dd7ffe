//! The options of version 2 and of metrics pages.

use std::time::Duration;

use crate::http::url::Query;
use crate::rest::{By, Range};
use plimsoll_containers::Namespace;
use plimsoll_golang::GoDuration;
use plimsoll_golang::strconv::quote;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    pub by: By,
    /// Samples wanted; `None`: all.
    pub count: Option<usize>,
    pub recursive: bool,
    pub max_age: Option<Duration>,
}

impl Options {
    /// Looked at in the original's order, so that the same one of two errors is told.
    pub fn parse(query: &Query) -> Result<Self, String> {
        let by = match query.get("type").unwrap_or("") {
            "" | "name" => By::Path,
            "docker" => By::Alias(Namespace::Docker),
            "podman" => By::Alias(Namespace::Podman),
            other => return Err(format!("unknown 'type' {}", quote(other))),
        };
        let count = match query.filled("count") {
            None => Some(64),
            Some(text) => count(text)?,
        };
        let max_age = match query.filled("max_age") {
            None => None,
            Some(text) => {
                let age = GoDuration::parse(text);
                let age =
                    age.map_err(|error| format!("failed to parse 'max_age' option: {error}"))?;
                Some(age.duration())
            }
        };
        Ok(Self {
            by,
            count,
            recursive: query.get("recursive") == Some("true"),
            max_age,
        })
    }

    pub fn range(&self) -> Range {
        Range {
            start: None,
            end: None,
            most: self.count,
        }
    }
}

fn count(text: &str) -> Result<Option<usize>, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let parsed = text.parse::<i64>().ok().filter(|_| is_number);
    match parsed {
        None => Err(format!("failed to parse 'count' option: {text}")),
        Some(-1) => Ok(None),
        Some(n) if n < -1 => Err(format!(
            "invalid 'count' option: only -1 and larger values allowed, not {n}"
        )),
        Some(n) => Ok(Some(usize::try_from(n).unwrap_or(usize::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Result<(Option<usize>, Option<u64>), &str>) {
        let found = Options::parse(&Query::parse(query));
        let found = found.map(|o| (o.count, o.max_age.map(|age| age.as_millis() as u64)));
        assert_eq!(found, expected.map_err(str::to_owned), "{query}");
    }

    #[test]
    fn as_the_original_reads_them() {
        check("", Ok((Some(64), None)));
        check("count=&max_age=&type=", Ok((Some(64), None)));
        check("count=0&type=name", Ok((Some(0), None)));
        check("count=-1&max_age=1.5s", Ok((None, Some(1500))));
        check("count=1&count=2&max_age=-1s", Ok((Some(1), Some(0))));
        check(
            "count=-2",
            Err("invalid 'count' option: only -1 and larger values allowed, not -2"),
        );
        check("count=abc", Err("failed to parse 'count' option: abc"));
        check("count=1.5", Err("failed to parse 'count' option: 1.5"));
        check("count=0x10", Err("failed to parse 'count' option: 0x10"));
        check("count=+1", Err("failed to parse 'count' option:  1"));
        check(
            "count=99999999999999999999",
            Err("failed to parse 'count' option: 99999999999999999999"),
        );
        check("type=Docker", Err(r#"unknown 'type' "Docker""#));
        check("type=bogus&count=abc", Err(r#"unknown 'type' "bogus""#));
        check(
            "count=abc&max_age=bad",
            Err("failed to parse 'count' option: abc"),
        );
        check(
            "max_age=bad",
            Err(r#"failed to parse 'max_age' option: time: invalid duration "bad""#),
        );
        check(
            "max_age=5",
            Err(r#"failed to parse 'max_age' option: time: missing unit in duration "5""#),
        );
    }

    #[test]
    fn recursive_is_spelt_one_way() {
        for (query, expected) in [
            ("recursive=true", true),
            ("recursive=TRUE", false),
            ("recursive=1", false),
        ] {
            assert_eq!(
                Options::parse(&Query::parse(query)).unwrap().recursive,
                expected
            );
        }
    }
}
