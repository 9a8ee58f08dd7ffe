//! Pages in the delimited protobuf format: `io.prometheus.client.MetricFamily` messages, each after its length.
//!
//! The length comes first, and a family can be large, so a family is walked twice: once to add up lengths, which is
//! cheap, and once to write. Neither needs more memory than a line.

use std::io::{self, Write};

use crate::exposition::{Family, Kind, LabelNames, Labels, Line, Rendered, Writer};
use plimsoll_golang::protowire::{Message, bytes_size, varint};
use plimsoll_metrics::{MetricType, field, to_delimited_protobuf, unescape};

const HANDFUL: usize = 16 << 10;

/// Writes pages as messages.
#[derive(Debug)]
pub struct MessageWriter<W> {
    out: W,
    buffer: Message,
    /// How many bytes the labels of each container take, where that was added up already.
    own: Vec<usize>,
    /// What follows the labels of a line.
    tail: Message,
    value: Message,
    text: Vec<u8>,
}

impl<W: Write> MessageWriter<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            buffer: Message(Vec::with_capacity(HANDFUL + HANDFUL / 4)),
            own: Vec::new(),
            tail: Message::default(),
            value: Message::default(),
            text: Vec::new(),
        }
    }

    /// To be called at the end.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer.0)
    }

    /// How many bytes a line's labels take.
    fn labels_size(&mut self, labels: &Labels<'_>) -> usize {
        match labels {
            Labels::Listed(labels) => labels
                .iter()
                .map(|(name, value)| bytes_of_label(name.len(), value.len()))
                .sum(),
            Labels::Container {
                index,
                own,
                names,
                extra,
            } => {
                let more = extra
                    .iter()
                    .map(|(_, name, value)| bytes_of_label(name.len(), value.len()));
                let more: usize = more.sum();
                more + self.own_size(*index, own, names)
            }
        }
    }

    fn own_size(&mut self, index: usize, own: &Rendered, names: &LabelNames) -> usize {
        if let Some(&known) = self.own.get(index).filter(|known| **known > 0) {
            return known;
        }
        let mut size = 0;
        for (label, name) in names.iter().enumerate() {
            let value = value(own, label, name, &mut self.text);
            size += bytes_of_label(name.len(), value.len());
        }
        if self.own.len() <= index {
            self.own.resize(index + 1, 0);
        }
        self.own[index] = size;
        size
    }

    /// Puts the value and the time into `tail`.
    fn put_tail(&mut self, kind: MetricType, line: &Line<'_>) {
        self.value.0.clear();
        self.value.double(field::VALUE, line.value.value());
        self.tail.0.clear();
        self.tail.message(kind.field(), &self.value);
        if let Some(at) = line.at {
            // Two's complement, as the format wants it.
            self.tail
                .integer(field::METRIC_TIMESTAMP, at.millis() as u64);
        }
    }

    fn put_labels(&mut self, labels: &Labels<'_>) {
        let Self { buffer, text, .. } = self;
        match labels {
            Labels::Listed(labels) => {
                for (name, value) in *labels {
                    put_label(buffer, name, value.as_bytes());
                }
            }
            Labels::Container {
                own, names, extra, ..
            } => {
                let mut extra = extra.iter().peekable();
                for (label, name) in names.iter().enumerate() {
                    while let Some((_, name, value)) = extra.next_if(|(place, ..)| *place == label)
                    {
                        put_label(buffer, name, value);
                    }
                    put_label(buffer, name, value(own, label, name, text));
                }
                for (_, name, value) in extra {
                    put_label(buffer, name, value);
                }
            }
        }
    }

    fn line(&mut self, kind: MetricType, line: &Line<'_>) -> io::Result<()> {
        self.put_tail(kind, line);
        let length = self.labels_size(&line.labels) + self.tail.0.len();
        self.buffer.begin(field::FAMILY_METRIC, length);
        self.put_labels(&line.labels);
        self.buffer.0.extend_from_slice(&self.tail.0);
        if self.buffer.0.len() >= HANDFUL {
            self.out.write_all(&self.buffer.0)?;
            self.buffer.0.clear();
        }
        Ok(())
    }
}

impl<W: Write> Writer for MessageWriter<W> {
    fn written(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.write_all(&self.buffer.0)?;
        self.buffer.0.clear();
        self.out.write_all(&to_delimited_protobuf(text))
    }

    fn family(&mut self, family: &Family<'_>) -> io::Result<()> {
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let mut head = Message::default();
        head.text(field::FAMILY_NAME, family.name);
        head.text(field::FAMILY_HELP, family.help);
        head.integer(field::FAMILY_TYPE, kind.number());
        let mut length = head.0.len();
        family.each(|line| {
            self.put_tail(kind, line);
            // A byte says that it is a metric.
            length += 1 + bytes_size(self.labels_size(&line.labels) + self.tail.0.len());
            Ok(())
        })?;
        varint(&mut self.buffer.0, length as u64);
        self.buffer.0.extend_from_slice(&head.0);
        family.each(|line| self.line(kind, line))
    }
}

/// A name and a value, and what says that it is a label.
fn bytes_of_label(name: usize, value: usize) -> usize {
    1 + bytes_size(2 + bytes_size(name) + bytes_size(value))
}

fn put_label(out: &mut Message, name: &str, value: &[u8]) {
    let length = 2 + bytes_size(name.len()) + bytes_size(value.len());
    out.begin(field::METRIC_LABEL, length);
    out.text(field::LABEL_NAME, name);
    out.bytes(field::LABEL_VALUE, value);
}

/// A label's value as it was before it was written for the page of text. `room` is for one that looked different.
fn value<'a>(own: &'a Rendered, label: usize, name: &str, room: &'a mut Vec<u8>) -> &'a [u8] {
    let escaped = own.escaped_value(label, name.len());
    if own.is_plain() {
        return escaped;
    }
    unescape(escaped, room);
    room
}
