//! Documents that clients keep: a fingerprint tells whether theirs is still the right one.

use http::header::{HeaderMap, IF_NONE_MATCH};

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

/// Does the client have it already?
pub fn is_known(etag: &str, headers: &HeaderMap) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|one| one.trim() == etag || one.trim() == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_it_already() {
        let etag = quoted_fingerprint(b"x");
        assert_eq!(etag.len(), 130);
        let mut headers = HeaderMap::new();
        assert!(!is_known(&etag, &headers));
        headers.insert(IF_NONE_MATCH, "\"y\"".parse().unwrap());
        assert!(!is_known(&etag, &headers));
        let both = format!("\"y\", {etag}");
        headers.insert(IF_NONE_MATCH, both.parse().unwrap());
        assert!(is_known(&etag, &headers));
    }
}
