//! Families that are listed series by series: the machine's, the agent's own, Koordinator's.
//!
//! Names and values of labels come again in line after line, so each is kept once.

use std::io;
use std::sync::Arc;

use plimsoll_host::Timestamp;
use rustc_hash::FxHashMap;

use super::families::Kind;
use super::gathered::{Family, Labels, Line, Lines};
use super::number::Number;
use super::record::{self, Reader, Stamp};

#[derive(Debug, Default)]
pub struct Text {
    families: Vec<Listed>,
    words: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, u32>,
    records: Vec<u8>,
}

#[derive(Debug)]
struct Listed {
    name: u32,
    kind: Kind,
    help: u32,
    /// Where its series begin; they end where those of the next begin.
    start: usize,
}

impl Text {
    /// Starts a family; its series follow.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> &mut Self {
        let family = Listed {
            name: self.number(name),
            kind,
            help: self.number(help),
            start: self.records.len(),
        };
        self.families.push(family);
        self
    }

    /// Adds a series; labels in alphabetical order.
    pub fn series(
        &mut self,
        labels: &[(&str, &str)],
        value: Number,
        at: Option<Timestamp>,
    ) -> &mut Self {
        let stamp = at.map_or(Stamp::None, Stamp::Own);
        record::head(value, stamp, labels.len(), &mut self.records);
        for (key, text) in labels {
            for word in [key, text] {
                let number = self.number(word);
                record::varint(u64::from(number), &mut self.records);
            }
        }
        record::tail(value, stamp, &mut self.records);
        self
    }

    /// A family of one plain series.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: Number) -> &mut Self {
        self.family(name, kind, help).series(&[], value, None)
    }

    fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let number = self.words.len() as u32;
        let word: Arc<str> = word.into();
        self.words.push(Arc::clone(&word));
        self.numbers.insert(word, number);
        number
    }

    fn word(&self, number: u64) -> &str {
        usize::try_from(number)
            .ok()
            .and_then(|number| self.words.get(number))
            .map_or("", |word| word)
    }

    pub(super) fn each(
        &self,
        mut visit: impl FnMut(&Family<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        for (index, family) in self.families.iter().enumerate() {
            let next = self.families.get(index + 1);
            let end = next.map_or(self.records.len(), |next| next.start);
            visit(&Family {
                name: self.word(family.name.into()),
                kind: family.kind,
                help: self.word(family.help.into()),
                lines: Lines::Listed(self, &self.records[family.start..end]),
            })?;
        }
        Ok(())
    }

    pub(super) fn lines(
        &self,
        records: &[u8],
        mut visit: impl FnMut(&Line<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut reader = Reader(records);
        let mut labels = Vec::new();
        while !reader.is_at_end() {
            let head = reader.head();
            labels.clear();
            for _ in 0..head.labels {
                let (key, value) = (reader.varint(), reader.varint());
                labels.push((self.word(key), self.word(value)));
            }
            let (value, stamp) = reader.tail(head);
            let at = match stamp {
                Stamp::Own(at) => Some(at),
                Stamp::None | Stamp::Sample | Stamp::Now => None,
            };
            visit(&Line {
                labels: Labels::Listed(&labels),
                value,
                at,
            })?;
        }
        Ok(())
    }
}
