//! Protobuf messages written by hand: varints, lengths, fields. Named after Go's package.

pub const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
pub const LENGTH_DELIMITED: u8 = 2;

pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn varint_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// This many bytes, with their length before them.
pub fn bytes_size(length: usize) -> usize {
    varint_size(length as u64) + length
}

/// A message under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message(pub Vec<u8>);

impl Message {
    pub fn integer(&mut self, field: u64, value: u64) {
        varint(&mut self.0, field << 3);
        varint(&mut self.0, value);
    }

    pub fn double(&mut self, field: u64, value: f64) {
        varint(&mut self.0, field << 3 | u64::from(EIGHT_BYTES));
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A field of so many bytes, which are to follow.
    pub fn begin(&mut self, field: u64, length: usize) {
        varint(&mut self.0, field << 3 | u64::from(LENGTH_DELIMITED));
        varint(&mut self.0, length as u64);
    }

    pub fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.begin(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub fn message(&mut self, field: u64, inner: &Self) {
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_numbers() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX] {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(out.len(), varint_size(value), "{value}");
        }
    }
}
