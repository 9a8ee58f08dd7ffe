//! Percent-escapes, as Go's `net/url` reads and writes them. Which bytes stay as they are differs by the part of a URL.

use std::fmt::Write;

/// The bytes that a text stands for; `None` where an escape is malformed. In a form, `+` is a space.
pub fn unescape_bytes(text: &[u8], form: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let (code, tail) = rest.split_at_checked(2)?;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(code[0])? * 16 + digit(code[1])?;
                bytes.push(u8::try_from(value).ok()?);
                rest = tail;
            }
            b'+' if form => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    Some(bytes)
}

/// [`unescape_bytes`] as text; what is no UTF-8 is replaced.
pub fn unescape(text: &str, form: bool) -> Option<String> {
    let bytes = unescape_bytes(text.as_bytes(), form)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text with every byte escaped that is not to be kept. Only ASCII may be kept.
pub fn escape(text: &str, keep: impl Fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii() && keep(byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Letters, digits and `-_.~`, which are never escaped.
pub fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

/// Escaped for a value in a query. A space is `%20`.
pub fn query_escape(text: &str) -> String {
    escape(text, is_unreserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(unescape("a%2Fb%c3%A4+", false).as_deref(), Some("a/bä+"));
        assert_eq!(query_escape("a b=ä"), "a%20b%3D%C3%A4");
        assert_eq!(unescape("a+b", true).as_deref(), Some("a b"));
        for malformed in ["%", "%2", "a%zz", "%+1"] {
            assert_eq!(unescape(malformed, false), None, "{malformed}");
        }
    }
}
