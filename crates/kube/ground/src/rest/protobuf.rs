//! Kubernetes' protobuf: messages by hand, and the envelope that they travel in.

pub const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
pub const LENGTH_DELIMITED: u8 = 2;

/// What every encoded object begins with.
const MAGIC: [u8; 4] = *b"k8s\0";

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

/// What comes before an object of this many bytes, and what comes after it.
pub fn envelope(api_version: &str, kind: &str, size: usize) -> (Vec<u8>, &'static [u8]) {
    let mut type_meta = Message::default();
    type_meta.text(1, api_version);
    type_meta.text(2, kind);
    let mut head = Message(MAGIC.to_vec());
    head.message(1, &type_meta);
    varint(&mut head.0, 2 << 3 | u64::from(LENGTH_DELIMITED));
    varint(&mut head.0, size as u64);
    // Content encoding and type, both empty.
    (head.0, &[0x1a, 0, 0x22, 0])
}

/// An object as it is sent.
pub fn enveloped(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let (mut out, tail) = envelope(api_version, kind, object.len());
    out.extend_from_slice(object);
    out.extend_from_slice(tail);
    out
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

    #[test]
    fn an_object_in_its_envelope() {
        assert_eq!(
            enveloped("v1", "A", b"xyz"),
            b"k8s\0\x0a\x07\x0a\x02v1\x12\x01A\x12\x03xyz\x1a\x00\x22\x00"
        );
    }
}
