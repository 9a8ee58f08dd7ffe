//! Percent-escapes, as in URLs.

/// `None` where an escape is malformed. In a form, `+` is a space.
pub(crate) fn decoded(text: &str, form: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
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
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Fit for a value in a query.
pub fn encoded(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(decoded("a%2Fb%c3%A4+", false).as_deref(), Some("a/bä+"));
        assert_eq!(encoded("a b=ä"), "a%20b%3D%C3%A4");
        assert_eq!(decoded("a+b", true).as_deref(), Some("a b"));
        for malformed in ["%", "%2", "a%zz", "%+1"] {
            assert_eq!(decoded(malformed, false), None, "{malformed}");
        }
    }
}
