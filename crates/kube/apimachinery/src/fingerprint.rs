//! ETags: a hash of a document that tells a client whether its copy is current.

/// SHA-512 in capital letters.
pub fn fingerprint(body: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA512, body).as_ref())
}

/// As it stands in `ETag`.
pub fn quoted_fingerprint(body: &[u8]) -> String {
    format!("\"{}\"", fingerprint(body))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_quotes() {
        let etag = quoted_fingerprint(b"x");
        assert_eq!(etag.len(), 130);
        assert!(etag.starts_with("\"A4ABD4448C49562D828115D13A1FCCEA"));
    }
}
