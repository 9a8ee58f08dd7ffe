//! The text format.

use std::io::{self, Write};

use super::families::Kind;
use super::gathered::{Family, Labels, Line, Writer};
use super::labels::{write_escaped, write_label};

/// So much is put together before it is handed on: what is written next to each other in a cache is handed on from there.
const HANDFUL: usize = 16 << 10;

/// Writes pages as text.
#[derive(Debug)]
pub struct TextWriter<W> {
    out: W,
    text: Vec<u8>,
    opening: Vec<u8>,
}

impl<W: Write> TextWriter<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            text: Vec::with_capacity(HANDFUL + HANDFUL / 4),
            opening: Vec::new(),
        }
    }

    /// To be called at the end.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.text)
    }
}

impl<W: Write> Writer for TextWriter<W> {
    fn written(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.write_all(&self.text)?;
        self.text.clear();
        self.out.write_all(text)
    }

    fn family(&mut self, family: &Family<'_>) -> io::Result<()> {
        header(family, &mut self.text);
        self.opening.clear();
        self.opening.extend_from_slice(family.name.as_bytes());
        self.opening.push(b'{');
        let Self { out, text, opening } = self;
        family.each(|line| {
            write_line(opening, line, text);
            if text.len() >= HANDFUL {
                out.write_all(text)?;
                text.clear();
            }
            Ok(())
        })
    }
}

fn header(family: &Family<'_>, out: &mut Vec<u8>) {
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    let (name, help) = (family.name, family.help);
    let parts = [
        "# HELP ",
        name,
        " ",
        help,
        "\n# TYPE ",
        name,
        " ",
        kind,
        "\n",
    ];
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// `opening`: the family's name and a brace.
#[inline]
fn write_line(opening: &[u8], line: &Line<'_>, out: &mut Vec<u8>) {
    match &line.labels {
        Labels::Container { own, extra, .. } if extra.is_empty() => {
            out.extend_from_slice(opening);
            out.extend_from_slice(own.closed());
        }
        Labels::Container { own, extra, .. } => {
            out.extend_from_slice(opening);
            let mut from = 0;
            for (to, key, text) in extra.iter() {
                if to < own.count() {
                    out.extend_from_slice(own.between(from, to));
                } else if from < to {
                    // Past the last label: its closing brace makes way for a comma.
                    let rest = own.closed_from(from);
                    out.extend_from_slice(&rest[..rest.len() - 2]);
                    out.push(b',');
                }
                out.extend_from_slice(key.as_bytes());
                out.extend_from_slice(b"=\"");
                write_escaped(text, out);
                out.extend_from_slice(b"\",");
                from = to;
            }
            if from < own.count() {
                out.extend_from_slice(own.closed_from(from));
            } else {
                close(out);
            }
        }
        Labels::Listed([]) => {
            out.extend_from_slice(&opening[..opening.len() - 1]);
            out.push(b' ');
        }
        Labels::Listed(labels) => {
            out.extend_from_slice(opening);
            for (key, value) in *labels {
                write_label(key, value, out);
            }
            close(out);
        }
    }
    line.value.write(out);
    if let Some(at) = line.at {
        out.push(b' ');
        out.extend_from_slice(itoa::Buffer::new().format(at.millis()).as_bytes());
    }
    out.push(b'\n');
}

/// The last label's comma becomes the brace.
fn close(out: &mut Vec<u8>) {
    if let Some(comma) = out.last_mut() {
        *comma = b'}';
    }
    out.push(b' ');
}
