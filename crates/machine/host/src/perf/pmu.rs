//! PMUs and their named events.

use std::path::{Path, PathBuf};

use super::events::EventCode;
use crate::parse::{self, Malformed};
use crate::{HostError, HostRoot, ReadBuf, Result, list_dir, read_file};

/// One unit below `/sys/bus/event_source/devices`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmu {
    pub name: String,
    pub kind: u32,
    /// The CPUs that count for the whole unit; empty for units of the cores themselves.
    pub cpus: Vec<u32>,
    dir: PathBuf,
}

/// All units of the machine, by name. Empty on a machine (or a virtual one) without any.
pub fn pmus(root: &HostRoot, buf: &mut ReadBuf) -> Result<Vec<Pmu>> {
    let devices = root.sys("bus/event_source/devices");
    let mut found = Vec::new();
    for name in list_dir(&devices)? {
        let dir = devices.join(&name);
        let kind = match read_file(&dir.join("type"), buf)? {
            Some(text) => {
                parse::single(text).map_err(|at| HostError::malformed(&dir.join("type"), at))?
            }
            None => continue,
        };
        let cpus = match read_file(&dir.join("cpumask"), buf)? {
            Some(text) => parse::index_list(text)
                .map_err(|at| HostError::malformed(&dir.join("cpumask"), at))?,
            None => Vec::new(),
        };
        found.push(Pmu {
            name,
            // The kernel numbers units from zero; none comes near the limit.
            kind: u32::try_from(kind).unwrap_or(u32::MAX),
            cpus,
            dir,
        });
    }
    Ok(found)
}

impl Pmu {
    pub fn is_uncore(&self) -> bool {
        self.name.starts_with("uncore")
    }

    /// The code of one of the unit's own events. `Ok(None)`: it has none of that name.
    pub fn event(&self, name: &str, buf: &mut ReadBuf) -> Result<Option<EventCode>> {
        // Names come from a configuration; they must not lead out of the directory.
        if name.contains('/') || name.starts_with('.') {
            return Ok(None);
        }
        let path = self.dir.join("events").join(name);
        let Some(text) = read_file(&path, buf)? else {
            return Ok(None);
        };
        let terms = parse_event_terms(text).map_err(|at| HostError::malformed(&path, at))?;
        let mut config = [0; 3];
        for (term, value) in terms {
            self.apply(&term, value, &mut config, buf)?;
        }
        Ok(Some(EventCode {
            kind: self.kind,
            config,
        }))
    }

    fn apply(
        &self,
        term: &str,
        value: u64,
        config: &mut [u64; 3],
        buf: &mut ReadBuf,
    ) -> Result<()> {
        if let Some(word) = config_word(term) {
            config[word] |= value;
            return Ok(());
        }
        let path: &Path = &self.dir.join("format").join(term);
        let Some(text) = read_file(path, buf)? else {
            let problem = format!("{} has no term {term:?}", self.dir.display());
            return Err(HostError::Unsupported(problem.into()));
        };
        let format = parse_format(text).map_err(|at| HostError::malformed(path, at))?;
        let mut rest = value;
        for (low, high) in format.ranges {
            let width = high - low + 1;
            let mask = u64::MAX >> (64 - width);
            config[format.word] |= (rest & mask) << low;
            rest = rest.checked_shr(width).unwrap_or(0);
        }
        Ok(())
    }
}

fn config_word(term: &str) -> Option<usize> {
    ["config", "config1", "config2"]
        .iter()
        .position(|word| *word == term)
}

/// `event=0x04,umask=0x03`; a term without a value stands for 1.
pub fn parse_event_terms(text: &[u8]) -> Result<Vec<(String, u64)>, Malformed> {
    let line = parse::trim(text);
    let bad = || Malformed::at(0, line);
    let mut terms = Vec::new();
    for part in line.split(|&b| b == b',') {
        let mut sides = part.splitn(2, |&b| b == b'=');
        let term = sides.next().map(parse::trim).unwrap_or(b"");
        let value = match sides.next().map(parse::trim) {
            None => 1,
            Some(text) => match text.strip_prefix(b"0x") {
                Some(digits) => parse::hex(digits).ok_or_else(bad)?,
                None => parse::u64(text).ok_or_else(bad)?,
            },
        };
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        if term.is_empty() || !term.iter().all(is_word) {
            return Err(bad());
        }
        terms.push((String::from_utf8_lossy(term).into_owned(), value));
    }
    Ok(terms)
}

/// Where the bits of a term go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    pub word: usize,
    /// Lowest and highest bit of each piece, the value's low bits first.
    pub ranges: Vec<(u32, u32)>,
}

/// `config1:0-7,32`
pub fn parse_format(text: &[u8]) -> Result<Format, Malformed> {
    let line = parse::trim(text);
    let parsed = || {
        let line = std::str::from_utf8(line).ok()?;
        let (word, bits) = line.split_once(':')?;
        let mut ranges = Vec::new();
        for part in bits.split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
            if low > high || high > 63 {
                return None;
            }
            ranges.push((low, high));
        }
        Some(Format {
            word: config_word(word)?,
            ranges,
        })
    };
    parsed().ok_or_else(|| Malformed::at(0, line))
}
