//! The same in Kubernetes' protobuf. Like the original it writes empty texts out, too.

use plimsoll_golang::protowire::{LENGTH_DELIMITED, VARINT, bytes_size, varint, varint_size};

use super::figures;
use super::objects::Common;
use super::row::Row;
use crate::points::Usage;

/// Field numbers of ObjectMeta's texts: name, generateName, namespace, selfLink, uid, resourceVersion.
const NAME: u8 = 1;
const NAMESPACE: u8 = 3;
const LAST_TEXT: u8 = 6;

fn tag(out: &mut Vec<u8>, field: u8, wire: u8) {
    out.push(field << 3 | wire);
}

fn text(out: &mut Vec<u8>, field: u8, text: &str) {
    message(out, field, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// The head of a nested message.
fn message(out: &mut Vec<u8>, field: u8, size: usize) {
    tag(out, field, LENGTH_DELIMITED);
    varint(out, size as u64);
}

/// A field of this many bytes with its head; all field numbers here are below 16.
fn framed(size: usize) -> usize {
    1 + bytes_size(size)
}

fn integer(out: &mut Vec<u8>, field: u8, value: i64) {
    tag(out, field, VARINT);
    varint(out, value as u64);
}

fn integer_size(value: i64) -> usize {
    1 + varint_size(value as u64)
}

/// Seconds and no nanoseconds.
fn time_size(seconds: i64) -> usize {
    integer_size(seconds) + integer_size(0)
}

fn time(out: &mut Vec<u8>, field: u8, seconds: i64) {
    message(out, field, time_size(seconds));
    integer(out, 1, seconds);
    integer(out, 2, 0);
}

fn label_size(key: &str, value: &str) -> usize {
    framed(key.len()) + framed(value.len())
}

/// Labels are walked once: how long the message is, is written when it is there.
fn metadata(out: &mut Vec<u8>, row: &Row<'_>, asked_at: i64) {
    tag(out, 1, LENGTH_DELIMITED);
    let length_at = out.len();
    // Most are this long.
    out.extend([0; 2]);
    let start = out.len();
    for field in 1..=LAST_TEXT {
        text(
            out,
            field,
            match field {
                NAME => row.name(),
                NAMESPACE => row.namespace(),
                _ => "",
            },
        );
    }
    integer(out, 7, 0);
    time(out, 8, asked_at);
    for (key, value) in row.labels().iter() {
        message(out, 11, label_size(key, value));
        text(out, 1, key);
        text(out, 2, value);
    }
    let size = (out.len() - start) as u64;
    match varint_size(size) {
        2 => {
            out[length_at] = size as u8 | 0x80;
            out[length_at + 1] = (size >> 7) as u8;
        }
        _ => {
            let mut length = Vec::new();
            varint(&mut length, size);
            out.splice(length_at..start, length);
        }
    }
}

/// What is used, as entries of a map; the field number depends on where.
struct Amounts {
    cpu: figures::Short,
    memory: figures::Short,
    swap: Option<figures::Short>,
}

impl Amounts {
    fn of(usage: &Usage) -> Self {
        Self {
            cpu: figures::cpu(usage.nanocores),
            memory: figures::memory(usage.memory),
            swap: usage.swap.map(figures::memory),
        }
    }

    fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        let always = [("cpu", self.cpu.as_str()), ("memory", self.memory.as_str())];
        let swap = self.swap.as_ref().map(|swap| ("swap", swap.as_str()));
        always.into_iter().chain(swap)
    }

    fn entry_size(name: &str, amount: &str) -> usize {
        framed(name.len()) + framed(framed(amount.len()))
    }

    fn size(&self) -> usize {
        self.entries()
            .map(|(name, amount)| framed(Self::entry_size(name, amount)))
            .sum()
    }

    fn write(&self, out: &mut Vec<u8>, field: u8) {
        for (name, amount) in self.entries() {
            message(out, field, Self::entry_size(name, amount));
            text(out, 1, name);
            message(out, 2, framed(amount.len()));
            text(out, 1, amount);
        }
    }
}

/// One row's message, without a head.
pub fn object(out: &mut Vec<u8>, row: &Row<'_>, common: &Common) {
    metadata(out, row, common.asked_at);
    match row.seconds() {
        Some(at) => time(out, 2, at),
        None => message(out, 2, 0),
    }
    message(out, 3, integer_size(row.window()));
    integer(out, 1, row.window());
    match row {
        Row::Node(node) => Amounts::of(&node.usage).write(out, 4),
        Row::Pod(pod) => {
            for (name, usage) in pod.containers {
                let amounts = Amounts::of(usage);
                message(out, 4, framed(name.len()) + amounts.size());
                text(out, 1, name);
                amounts.write(out, 2);
            }
        }
    }
}

/// Only who it is: PartialObjectMetadata.
pub fn partial(out: &mut Vec<u8>, row: &Row<'_>, common: &Common) {
    metadata(out, row, common.asked_at);
}

/// Which fields of a list are what; they go out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListLayout {
    /// Metadata of its own, then its elements.
    MetadataFirst,
    /// The other way round: PartialObjectMetadataList of v1beta1.
    MetadataLast,
}

impl ListLayout {
    /// A list's own metadata: selfLink, resourceVersion and continue, all empty.
    pub fn metadata(self) -> [u8; 8] {
        let field = match self {
            Self::MetadataFirst => 1,
            Self::MetadataLast => 2,
        };
        [field << 3 | LENGTH_DELIMITED, 6, 0x0a, 0, 0x12, 0, 0x1a, 0]
    }

    /// An element of a list, from its message.
    pub fn element(self, out: &mut Vec<u8>, item: &[u8]) {
        let field = match self {
            Self::MetadataFirst => 2,
            Self::MetadataLast => 1,
        };
        message(out, field, item.len());
        out.extend_from_slice(item);
    }
}
