//! cAdvisor's perf events file: `{"core": {"events": ["cycles", ["a", "b"]], "custom_events": […]}, "uncore": {…}}`.

use std::path::Path;

use anyhow::{Context, Result};
use plimsoll_host::perf::{CustomEvent, EventGroup, EventSet, PerfConfig};
use serde::Deserialize;

#[derive(Deserialize, Default)]
#[serde(default)]
struct File {
    core: Set,
    uncore: Set,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Set {
    events: Vec<Events>,
    custom_events: Vec<Custom>,
}

/// One event, or several that are counted together.
#[derive(Deserialize)]
#[serde(untagged)]
enum Events {
    One(String),
    Together(Vec<String>),
}

#[derive(Deserialize)]
struct Custom {
    #[serde(rename = "type", default)]
    kind: u32,
    config: Vec<Word>,
    name: String,
}

/// A configuration word, as a number or as text (`"0x5300c0"`).
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Number(u64),
    Text(String),
}

pub fn read(file: &Path) -> Result<PerfConfig> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| file.display().to_string())
}

fn parse(text: &[u8]) -> Result<PerfConfig> {
    let file: File = serde_json::from_slice(text)?;
    Ok(PerfConfig {
        core: set(file.core)?,
        uncore: set(file.uncore)?,
    })
}

fn set(set: Set) -> Result<EventSet> {
    let groups = set.events.into_iter().map(|events| EventGroup {
        events: match events {
            Events::One(event) => vec![event],
            Events::Together(events) => events,
        },
    });
    let custom = set.custom_events.into_iter().map(|custom| {
        let words = custom.config.into_iter().map(word);
        Ok(CustomEvent {
            kind: custom.kind,
            config: words
                .collect::<Result<_>>()
                .with_context(|| format!("event {:?}", custom.name))?,
            name: custom.name,
        })
    });
    Ok(EventSet {
        groups: groups.collect(),
        custom: custom.collect::<Result<_>>()?,
    })
}

fn word(word: Word) -> Result<u64> {
    match word {
        Word::Number(number) => Ok(number),
        Word::Text(text) => match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        }
        .with_context(|| format!("{text:?} is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_as_cadvisor_documents_it() {
        let config = parse(
            br#"{"core": {"events": ["instructions", ["cycles", "own"]],
                 "custom_events": [{"type": 4, "config": ["0x5300c0"], "name": "own"}]},
                 "uncore": {"events": ["uncore_imc/cas"]}}"#,
        )
        .unwrap();
        assert_eq!(config.core.groups[1].events, ["cycles", "own"]);
        assert_eq!(config.core.custom[0].config, [0x5300c0]);
        assert_eq!(config.uncore.groups.len(), 1);
        assert!(
            parse(br#"{"core": {"custom_events": [{"config": ["x"], "name": "a"}]}}"#).is_err()
        );
        assert!(parse(b"nonsense").is_err());
    }
}
