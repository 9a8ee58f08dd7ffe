//! The envelope in which Kubernetes sends protobuf.

use plimsoll_golang::protowire::{LENGTH_DELIMITED, Message, varint};

/// What every encoded object begins with.
const MAGIC: [u8; 4] = *b"k8s\0";

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
    fn an_object_in_its_envelope() {
        assert_eq!(
            enveloped("v1", "A", b"xyz"),
            b"k8s\0\x0a\x07\x0a\x02v1\x12\x01A\x12\x03xyz\x1a\x00\x22\x00"
        );
    }
}
