//! What a page will say, gathered in one go and kept in a small part of the page's size.
//!
//! Nearly all of a page are label texts, which its lines share. So gathering copies figures only, a few bytes a line,
//! under the containers' locks; writing puts labels and figures together family by family, waits for nobody's lock, and
//! may take as long as the reader does.

use std::sync::Arc;
use std::{fmt, io};

use plimsoll_host::Timestamp;

use super::families::{CONTAINER_FAMILIES, Kind};
use super::labels::{LabelNames, Rendered};
use super::number::Number;
use super::page::{Containers, Places};
use super::text::Text;
use super::written::TextWriter;

/// A page, in order.
#[derive(Debug, Default)]
pub struct Gathered(Vec<Part>);

#[derive(Debug)]
enum Part {
    /// Whole families that somebody else has written as text.
    Written(Vec<u8>),
    Families(Text),
    /// The families of containers whose names sort after the one, and up to the other.
    Containers {
        of: Arc<Containers>,
        after: &'static str,
        to: Option<&'static str>,
    },
}

/// Puts a page down in some format.
pub trait Writer {
    /// Whole families as text.
    fn written(&mut self, text: &[u8]) -> io::Result<()>;

    fn family(&mut self, family: &Family<'_>) -> io::Result<()>;
}

/// One family. Its lines can be gone through as often as wanted, and are always the same.
#[derive(Debug)]
pub struct Family<'a> {
    pub name: &'a str,
    pub kind: Kind,
    pub help: &'a str,
    pub(super) lines: Lines<'a>,
}

#[derive(Debug)]
pub(super) enum Lines<'a> {
    Listed(&'a Text, &'a [u8]),
    Containers {
        of: &'a Containers,
        family: u8,
        /// Where each container's records of this family begin.
        cursors: &'a [u32],
    },
}

/// One series.
#[derive(Debug)]
pub struct Line<'a> {
    pub labels: Labels<'a>,
    pub value: Number,
    pub at: Option<Timestamp>,
}

#[derive(Debug)]
pub enum Labels<'a> {
    /// In order.
    Listed(&'a [(&'a str, &'a str)]),
    /// Those of a container, and between them what the family adds, in order.
    Container {
        /// Which container of the page.
        index: usize,
        own: &'a Rendered,
        names: &'a LabelNames,
        extra: Extras<'a>,
    },
}

/// What a family adds to a container's labels.
#[derive(Debug, Clone, Copy)]
pub struct Extras<'a> {
    pub(super) places: &'a Places,
    pub(super) list: &'a [(u8, &'a [u8])],
}

impl Gathered {
    pub fn written(&mut self, text: Vec<u8>) -> &mut Self {
        if !text.is_empty() {
            self.0.push(Part::Written(text));
        }
        self
    }

    pub fn families(&mut self, text: Text) -> &mut Self {
        self.0.push(Part::Families(text));
        self
    }

    /// All families of containers, with another, of this name, among them where it sorts.
    pub fn containers(&mut self, of: Containers, name: &'static str, between: Text) -> &mut Self {
        let of = Arc::new(of);
        self.0.push(Part::Containers {
            of: Arc::clone(&of),
            after: "",
            to: Some(name),
        });
        self.0.push(Part::Families(between));
        self.0.push(Part::Containers {
            of,
            after: name,
            to: None,
        });
        self
    }

    pub fn write(&self, out: &mut impl Writer) -> io::Result<()> {
        for part in &self.0 {
            match part {
                Part::Written(text) => out.written(text)?,
                Part::Families(text) => text.each(|family| out.family(family))?,
                Part::Containers { of, after, to } => of.each(|family| {
                    let is_here = family.name > *after && to.is_none_or(|to| family.name <= to);
                    match is_here {
                        true => out.family(family),
                        false => Ok(()),
                    }
                })?,
            }
        }
        Ok(())
    }
}

/// As text, in one piece: for those who look at small ones.
impl fmt::Display for Gathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        let mut writer = TextWriter::new(&mut text);
        let written = self.write(&mut writer).and_then(|()| writer.finish());
        written.map_err(|_| fmt::Error)?;
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl From<Text> for Gathered {
    fn from(text: Text) -> Self {
        Self(vec![Part::Families(text)])
    }
}

impl Family<'_> {
    pub fn each(&self, visit: impl FnMut(&Line<'_>) -> io::Result<()>) -> io::Result<()> {
        match &self.lines {
            Lines::Listed(text, records) => text.lines(records, visit),
            Lines::Containers {
                of,
                family,
                cursors,
            } => of.lines(*family, cursors, visit),
        }
    }

    pub(super) fn of_containers<'a>(
        of: &'a Containers,
        index: u8,
        cursors: &'a [u32],
    ) -> Option<Family<'a>> {
        let family = CONTAINER_FAMILIES.get(usize::from(index))?;
        Some(Family {
            name: family.name,
            kind: family.kind,
            help: family.help,
            lines: Lines::Containers {
                of,
                family: index,
                cursors,
            },
        })
    }
}
