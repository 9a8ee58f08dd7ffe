//! Prometheus' text format, read in place.
//!
//! Nothing is copied and nothing allocated for a sample; labels are lent out of lists that are filled once a page. A
//! kubelet's families tell of the same containers in the same order, so most labels are read once and known again.
//! Every line is checked, also those that nobody asks for: a page that is broken anywhere is not to be trusted.

use memchr::{memchr, memchr2};
use thiserror::Error;

use crate::number;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("line {line}: {fault}")]
pub struct SyntaxError {
    pub line: usize,
    pub fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("not UTF-8")]
    NotText,
    #[error("no metric name where one should be")]
    NoName,
    #[error("unknown metric type")]
    UnknownType,
    #[error("malformed labels")]
    Labels,
    #[error("no value after the name")]
    NoValue,
    #[error("the value is no number")]
    Value,
    #[error("the timestamp is no number of milliseconds")]
    Timestamp,
    #[error("something follows where the line should end")]
    Excess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label<'a> {
    pub name: &'a str,
    /// As written, without the quotes.
    pub raw: &'a str,
    /// There are escapes in it.
    pub escaped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a, 'p> {
    /// Empty where the name is one in quotes among the labels.
    pub name: &'a str,
    pub labels: &'p [Label<'a>],
    pub value: f64,
    /// Milliseconds since the epoch, never negative.
    pub timestamp: Option<i64>,
    pub line: usize,
}

/// Goes through a page.
#[derive(Debug)]
pub struct Parser<'a> {
    rest: &'a str,
    line: usize,
    /// Those of the sample before, where they are none of the known ones.
    labels: Vec<Label<'a>>,
    /// The name of the sample before: the next one mostly has the same.
    name: &'a str,
    known: Known<'a>,
    lent: Lent,
}

/// Where the labels of a sample are.
#[derive(Debug, Clone)]
enum Lent {
    Own,
    Known(std::ops::Range<usize>),
}

/// Labels of earlier samples, as they were written.
#[derive(Debug, Default)]
struct Known<'a> {
    blocks: Vec<Block<'a>>,
    labels: Vec<Label<'a>>,
    /// Where the set begins that the family's are taken from, and the one that should come next.
    begin: usize,
    next: usize,
}

#[derive(Debug)]
struct Block<'a> {
    /// From `{` to `}`.
    text: &'a str,
    labels: std::ops::Range<usize>,
}

impl<'a> Known<'a> {
    /// A kubelet takes some four hundred bytes for each of its containers and pods, which have up to three labels; a
    /// page that is not a kubelet's is not to make us take more for it.
    fn with_room_for(page: &[u8]) -> Self {
        let blocks = (page.len() / 256).min(1024);
        Self {
            blocks: Vec::with_capacity(blocks),
            labels: Vec::with_capacity(3 * blocks),
            ..Self::default()
        }
    }

    /// What comes after labels that are known, and which those are.
    fn find(&mut self, rest: &'a str) -> Option<(&'a str, std::ops::Range<usize>)> {
        // One may be missing.
        for index in [self.next, self.next + 1] {
            let block = self.blocks.get(index)?;
            if let Some(after) = rest.strip_prefix(block.text) {
                self.next = index + 1;
                return Some((after, block.labels.clone()));
            }
        }
        None
    }

    /// Keeps what the first family of a kind tells, in order.
    fn learn(&mut self, text: &'a str, labels: &[Label<'a>]) {
        if self.next == self.begin {
            self.begin = self.blocks.len();
        } else if self.next < self.blocks.len() {
            return;
        }
        let from = self.labels.len();
        self.labels.extend_from_slice(labels);
        self.blocks.push(Block {
            text,
            labels: from..self.labels.len(),
        });
        self.next = self.blocks.len();
    }
}

impl<'a> Parser<'a> {
    pub fn new(page: &'a [u8]) -> Result<Self, SyntaxError> {
        let rest = std::str::from_utf8(page).map_err(|error| {
            let before = &page[..error.valid_up_to()];
            SyntaxError {
                line: 1 + memchr::memchr_iter(b'\n', before).count(),
                fault: Fault::NotText,
            }
        })?;
        Ok(Self {
            rest,
            line: 0,
            labels: Vec::with_capacity(8),
            name: "",
            known: Known::with_room_for(page),
            lent: Lent::Own,
        })
    }

    /// The next sample; `None` at the end. After an error there is nothing more to be had.
    pub fn sample(&mut self) -> Result<Option<Sample<'a, '_>>, SyntaxError> {
        while !self.rest.is_empty() {
            let end = memchr(b'\n', self.rest.as_bytes());
            let line = &self.rest[..end.unwrap_or(self.rest.len())];
            self.rest = end.map_or("", |end| &self.rest[end + 1..]);
            self.line += 1;
            let line = skip_space(line);
            let found = match line.as_bytes().first() {
                None => continue,
                Some(b'#') => comment(&line[1..]).map(|()| None),
                Some(_) => self.read(line).map(Some),
            };
            match found {
                Ok(None) => {}
                Ok(Some((value, timestamp))) => {
                    let labels = match &self.lent {
                        Lent::Own => &self.labels[..],
                        Lent::Known(range) => &self.known.labels[range.clone()],
                    };
                    return Ok(Some(Sample {
                        name: self.name,
                        labels,
                        value,
                        timestamp,
                        line: self.line,
                    }));
                }
                Err(fault) => {
                    self.rest = "";
                    let line = self.line;
                    return Err(SyntaxError { line, fault });
                }
            }
        }
        Ok(None)
    }

    fn read(&mut self, line: &'a str) -> Result<(f64, Option<i64>), Fault> {
        let known = self.name.len();
        let same = known > 0
            && line.starts_with(self.name)
            && matches!(line.as_bytes().get(known), Some(b'{' | b' '));
        if !same {
            self.name = &line[..name_length(line)];
            self.known.next = self.known.begin;
        }
        let rest = skip_space(&line[self.name.len()..]);
        let Some(inside) = rest.strip_prefix('{') else {
            if self.name.is_empty() {
                return Err(Fault::NoName);
            }
            self.labels.clear();
            self.lent = Lent::Own;
            return read_numbers(rest);
        };
        // The name may be among the labels; then nothing is known.
        if !self.name.is_empty()
            && let Some((after, labels)) = self.known.find(rest)
        {
            self.lent = Lent::Known(labels);
            return read_numbers(skip_space(after));
        }
        let alike = match same && matches!(self.lent, Lent::Own) {
            true => self.read_alike(rest),
            false => None,
        };
        self.lent = Lent::Own;
        let after = match alike {
            Some(after) => after,
            None => {
                self.labels.clear();
                read_labels(inside, self.name.is_empty(), &mut self.labels)?
            }
        };
        if !self.name.is_empty() {
            let text = &rest[..rest.len() - after.len()];
            self.known.learn(text, &self.labels);
        }
        read_numbers(skip_space(after))
    }

    /// Labels by the same names as those of the sample before, written without blanks: so it is nearly always, and then
    /// names need not be looked at closely. `None`: they are not like that.
    fn read_alike(&mut self, text: &'a str) -> Option<&'a str> {
        let mut rest = text.strip_prefix('{')?;
        let last = self.labels.len().checked_sub(1)?;
        for (index, label) in self.labels.iter_mut().enumerate() {
            let value = rest.strip_prefix(label.name)?.strip_prefix("=\"")?;
            let end = memchr2(b'"', b'\\', value.as_bytes())?;
            let sign = if index == last { "\"}" } else { "\"," };
            (label.raw, label.escaped) = (&value[..end], false);
            rest = value[end..].strip_prefix(sign)?;
        }
        Some(rest)
    }
}

fn skip_space(text: &str) -> &str {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    &text[text.bytes().take_while(blank).count()..]
}

/// What a name may consist of: 1 anywhere, 2 anywhere but at the beginning.
const NAME: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':' => 1,
            b'0'..=b'9' => 2,
            _ => 0,
        };
        byte += 1;
    }
    table
};

fn name_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.first().is_none_or(|first| NAME[*first as usize] != 1) {
        return 0;
    }
    let end = bytes.iter().position(|byte| NAME[*byte as usize] == 0);
    end.unwrap_or(bytes.len())
}

/// What comes after `#`. Only the two kinds that mean something can be wrong.
fn comment(text: &str) -> Result<(), Fault> {
    let words = skip_space(text);
    if words.len() == text.len() {
        return Ok(());
    }
    let (is_type, rest) = match (words.strip_prefix("TYPE"), words.strip_prefix("HELP")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Ok(()),
    };
    let named = skip_space(rest);
    if named.len() == rest.len() {
        return Ok(());
    }
    let length = match named.strip_prefix('"') {
        Some(quoted) => 2 + quoted_length(quoted).ok_or(Fault::NoName)?.0,
        None => name_length(named),
    };
    if length == 0 {
        return Err(Fault::NoName);
    }
    const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];
    let kind = named[length..].trim_matches([' ', '\t']);
    match !is_type || TYPES.contains(&kind) {
        true => Ok(()),
        false => Err(Fault::UnknownType),
    }
}

/// The length of a text up to its closing quote, and whether there are escapes in it.
fn quoted_length(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let mut end = memchr2(b'"', b'\\', bytes)?;
    let escaped = bytes[end] == b'\\';
    while bytes[end] == b'\\' {
        // The backslash and what it stands before.
        let next = end + 2;
        end = next + memchr2(b'"', b'\\', bytes.get(next..)?)?;
    }
    Some((end, escaped))
}

/// What comes after `{`, up to and including `}`; returns what is left.
fn read_labels<'a>(
    mut rest: &'a str,
    mut name_is_due: bool,
    labels: &mut Vec<Label<'a>>,
) -> Result<&'a str, Fault> {
    loop {
        rest = skip_space(rest);
        let bytes = rest.as_bytes();
        match bytes.first() {
            Some(b'}') if !name_is_due => return Ok(&rest[1..]),
            Some(b'"') => {
                let (length, _) = quoted_length(&rest[1..]).ok_or(Fault::Labels)?;
                let after = skip_space(&rest[1 + length + 1..]);
                if !after.starts_with('=') {
                    // A quoted text alone is the metric's name.
                    if !std::mem::take(&mut name_is_due) {
                        return Err(Fault::Labels);
                    }
                    rest = end_of_label(after)?;
                    continue;
                }
                let name = &rest[1..1 + length];
                rest = read_value(name, &after[1..], labels)?;
            }
            _ => {
                let length = match name_length(rest) {
                    0 => return Err(Fault::Labels),
                    length => length,
                };
                let (name, after) = rest.split_at(length);
                // Colons are for names of metrics.
                let after = match after.starts_with('=') {
                    true => after,
                    false => skip_space(after),
                };
                if !after.starts_with('=') || memchr(b':', name.as_bytes()).is_some() {
                    return Err(Fault::Labels);
                }
                rest = read_value(name, &after[1..], labels)?;
            }
        }
    }
}

fn read_value<'a>(
    name: &'a str,
    rest: &'a str,
    labels: &mut Vec<Label<'a>>,
) -> Result<&'a str, Fault> {
    let quoted = skip_space(rest).strip_prefix('"').ok_or(Fault::Labels)?;
    let (length, escaped) = quoted_length(quoted).ok_or(Fault::Labels)?;
    labels.push(Label {
        name,
        raw: &quoted[..length],
        escaped,
    });
    end_of_label(&quoted[length + 1..])
}

/// After a label comes a comma or the end.
fn end_of_label(rest: &str) -> Result<&str, Fault> {
    let rest = skip_space(rest);
    match rest.as_bytes().first() {
        Some(b',') => Ok(&rest[1..]),
        Some(b'}') => Ok(rest),
        _ => Err(Fault::Labels),
    }
}

fn read_numbers(rest: &str) -> Result<(f64, Option<i64>), Fault> {
    let (value, length) = number::leading_float(rest.as_bytes()).map_err(|empty| match empty {
        true => Fault::NoValue,
        false => Fault::Value,
    })?;
    let rest = &rest.as_bytes()[length..];
    // Nearly all lines end so, or with the value.
    if let Some((b' ', digits)) = rest.split_first()
        && let Some((timestamp, length)) = number::leading_integer(digits)
        && length == digits.len()
    {
        return Ok((value, Some(timestamp)));
    }
    let Some(start) = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t')) else {
        return Ok((value, None));
    };
    let (timestamp, length) = number::leading_integer(&rest[start..]).ok_or(Fault::Timestamp)?;
    match rest[start + length..]
        .iter()
        .all(|byte| matches!(byte, b' ' | b'\t'))
    {
        true => Ok((value, Some(timestamp))),
        false => Err(Fault::Excess),
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
