//! How a gathered line is kept until it is written: a few bytes, whatever the format it will be written in.

use plimsoll_host::Timestamp;

use super::number::Number;

/// So many labels are kept in the first byte; with more, a byte of their own tells.
const MANY: u8 = 7;

/// Whose time a line has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    None,
    /// That of the container's sample.
    Sample,
    /// That of the page.
    Now,
    Own(Timestamp),
}

impl Stamp {
    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Sample => 1,
            Self::Now => 2,
            Self::Own(_) => 3,
        }
    }
}

/// What a line begins with. Its labels follow, then [`tail`].
pub fn head(value: Number, stamp: Stamp, labels: usize, out: &mut Vec<u8>) {
    let kind = match value {
        Number::Whole(_) => 0,
        Number::Nanos(_) => 1,
        Number::Micros(_) => 2,
        Number::Millis(_) => 3,
        Number::Float(_) => 4,
    };
    let count = u8::try_from(labels).unwrap_or(u8::MAX);
    out.push(kind | stamp.number() << 3 | count.min(MANY) << 5);
    if count >= MANY {
        out.push(count);
    }
}

pub fn tail(value: Number, stamp: Stamp, out: &mut Vec<u8>) {
    match value {
        Number::Whole(value)
        | Number::Nanos(value)
        | Number::Micros(value)
        | Number::Millis(value) => varint(value, out),
        Number::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
    }
    if let Stamp::Own(at) = stamp {
        out.extend_from_slice(&at.nanos().to_le_bytes());
    }
}

pub fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes records apart again. What was cut short reads as zeros.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

/// The first half of a line.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    kind: u8,
    stamp: u8,
    pub labels: usize,
}

impl<'a> Reader<'a> {
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    #[inline]
    pub fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 63 {
                return value;
            }
        }
    }

    #[inline]
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn eight(&mut self) -> [u8; 8] {
        self.bytes(8).try_into().unwrap_or_default()
    }

    #[inline]
    pub fn head(&mut self) -> Head {
        let byte = self.byte();
        let labels = match byte >> 5 {
            MANY => self.byte(),
            few => few,
        };
        Head {
            kind: byte & 7,
            stamp: byte >> 3 & 3,
            labels: usize::from(labels),
        }
    }

    #[inline]
    pub fn tail(&mut self, head: Head) -> (Number, Stamp) {
        let value = match head.kind {
            0 => Number::Whole(self.varint()),
            1 => Number::Nanos(self.varint()),
            2 => Number::Micros(self.varint()),
            3 => Number::Millis(self.varint()),
            _ => Number::Float(f64::from_le_bytes(self.eight())),
        };
        let stamp = match head.stamp {
            0 => Stamp::None,
            1 => Stamp::Sample,
            2 => Stamp::Now,
            _ => Stamp::Own(Timestamp(i64::from_le_bytes(self.eight()))),
        };
        (value, stamp)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = Number> {
        prop_oneof![
            any::<u64>().prop_map(Number::Whole),
            any::<u64>().prop_map(Number::Nanos),
            any::<u64>().prop_map(Number::Micros),
            any::<u64>().prop_map(Number::Millis),
            proptest::num::f64::NORMAL.prop_map(Number::Float),
        ]
    }

    fn stamp() -> impl Strategy<Value = Stamp> {
        prop_oneof![
            Just(Stamp::None),
            Just(Stamp::Sample),
            Just(Stamp::Now),
            any::<i64>().prop_map(|at| Stamp::Own(Timestamp(at))),
        ]
    }

    proptest! {
        #[test]
        fn lines_read_back(value in number(), stamp in stamp(), labels in 0usize..=255) {
            let mut kept = Vec::new();
            head(value, stamp, labels, &mut kept);
            tail(value, stamp, &mut kept);
            let mut reader = Reader(&kept);
            let head = reader.head();
            prop_assert_eq!(head.labels, labels);
            prop_assert_eq!(reader.tail(head), (value, stamp));
            prop_assert!(reader.is_at_end());
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let mut reader = Reader(&bytes);
            while !reader.is_at_end() {
                let head = reader.head();
                reader.tail(head);
                let count = reader.varint();
                reader.bytes(count as usize);
            }
        }
    }
}
