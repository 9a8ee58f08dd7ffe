//! JSON syntax errors, in the words of Go's decoder.

use Doing::*;
use plimsoll_golang::strconv::quote_char;

/// What comes next while the text is gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Value,
    /// Behind `[`: a value, or the end.
    FirstElement,
    /// Behind `{`: a key, or the end.
    FirstKey,
    Key,
    Colon,
    /// Behind a whole value.
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Object,
    Array,
}

/// Nobody needs more, and it bounds the memory.
const DEEPEST: usize = 10_000;

/// What is wrong with the first value of `text`, if anything. What comes after it is not looked at.
pub fn fault(text: &[u8]) -> Option<String> {
    Scan { text, at: 0 }.value().err()
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn value(&mut self) -> Result<(), String> {
        let mut within = Vec::new();
        let mut doing = Value;
        loop {
            if doing == After && within.is_empty() {
                return Ok(());
            }
            let byte = self.word()?;
            doing = match (doing, byte) {
                (FirstKey, b'}') | (FirstElement, b']') => {
                    within.pop();
                    After
                }
                (FirstKey | Key, b'"') => {
                    self.string()?;
                    Colon
                }
                (FirstKey | Key, _) => {
                    return Err(bad(byte, "looking for beginning of object key string"));
                }
                (Colon, b':') => Value,
                (Colon, _) => return Err(bad(byte, "after object key")),
                (Value | FirstElement, b'{') => deeper(&mut within, Within::Object, FirstKey)?,
                (Value | FirstElement, b'[') => deeper(&mut within, Within::Array, FirstElement)?,
                (Value | FirstElement, _) => {
                    self.scalar(byte)?;
                    After
                }
                (After, _) => match (within.last(), byte) {
                    (Some(Within::Object), b',') => Key,
                    (Some(Within::Array), b',') => Value,
                    (Some(Within::Object), b'}') | (Some(Within::Array), b']') => {
                        within.pop();
                        After
                    }
                    (Some(Within::Array), _) => return Err(bad(byte, "after array element")),
                    _ => return Err(bad(byte, "after object key:value pair")),
                },
            };
        }
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = self.text.get(self.at).copied();
        self.at += 1;
        byte.ok_or_else(|| "unexpected EOF".to_owned())
    }

    /// The next byte that is no blank.
    fn word(&mut self) -> Result<u8, String> {
        loop {
            match self.next()? {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                byte => return Ok(byte),
            }
        }
    }

    fn scalar(&mut self, first: u8) -> Result<(), String> {
        match first {
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(first),
            _ => Err(bad(first, "looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                let expected = char::from(expected);
                let place = format!("in literal {word} (expecting '{expected}')");
                return Err(bad(byte, &place));
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next()?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(bad(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(bad(byte, "in string escape code")),
                },
                byte if byte < b' ' => return Err(bad(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let first = match first {
            b'-' => self.digit("in numeric literal")?,
            digit => digit,
        };
        if first != b'0' {
            self.digits();
        }
        if self.eat(b".") {
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if self.eat(b"eE") {
            self.eat(b"+-");
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Result<u8, String> {
        match self.next()? {
            digit @ b'0'..=b'9' => Ok(digit),
            byte => Err(bad(byte, place)),
        }
    }

    fn digits(&mut self) {
        while self.eat(b"0123456789") {}
    }

    fn eat(&mut self, any_of: &[u8]) -> bool {
        let here = self.text.get(self.at).is_some_and(|b| any_of.contains(b));
        self.at += usize::from(here);
        here
    }
}

fn deeper(within: &mut Vec<Within>, what: Within, doing: Doing) -> Result<Doing, String> {
    if within.len() >= DEEPEST {
        return Err("exceeded max depth".to_owned());
    }
    within.push(what);
    Ok(doing)
}

/// The original takes a byte for a character, whatever it belongs to.
fn bad(byte: u8, place: &str) -> String {
    let shown = quote_char(char::from(byte));
    format!("invalid character {shown} {place}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every answer here was read off the original's decoder.
    #[test]
    fn as_the_original_says_it() {
        for (text, expected) in [
            (
                "{num_stats:1}",
                "'n' looking for beginning of object key string",
            ),
            (
                r#"{"a":1,}"#,
                "'}' looking for beginning of object key string",
            ),
            ("{,}", "',' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "'1' after object key"),
            (r#"{"a":}"#, "'}' looking for beginning of value"),
            (r#"{"a":{"b":}}"#, "'}' looking for beginning of value"),
            (r#"{"a":+1}"#, "'+' looking for beginning of value"),
            (r#"{"a":'1'}"#, r"'\'' looking for beginning of value"),
            (r#"{"a":1 2}"#, "'2' after object key:value pair"),
            (r#"{"a":01}"#, "'1' after object key:value pair"),
            (r#"{"a":1;}"#, "';' after object key:value pair"),
            (r#"{"a":tru}"#, "'}' in literal true (expecting 'e')"),
            ("falsy", "'y' in literal false (expecting 'e')"),
            (r#"{"a":-}"#, "'}' in numeric literal"),
            (r#"{"a":1.}"#, "'}' after decimal point in numeric literal"),
            (r#"{"a":1e}"#, "'}' in exponent of numeric literal"),
            ("{\"a\":\"b\nc\"}", r"'\n' in string literal"),
            ("{\"a\":\"\0\"}", r"'\x00' in string literal"),
            (r#"{"a":"\q"}"#, "'q' in string escape code"),
            (
                r#"{"a":"\u12g"}"#,
                r"'g' in \u hexadecimal character escape",
            ),
            ("[1 2]", "'2' after array element"),
            ("[1,]", "']' looking for beginning of value"),
            ("\u{e9}", "'Ã' looking for beginning of value"),
        ] {
            let expected = format!("invalid character {expected}");
            assert_eq!(fault(text.as_bytes()), Some(expected), "{text}");
        }
        for text in ["[1,2", "\"abc", "tru", "-", r#"{"a"#, r#"{"a":nul"#, "{"] {
            let fault = fault(text.as_bytes());
            assert_eq!(fault.as_deref(), Some("unexpected EOF"), "{text}");
        }
        for text in [
            r#"{"a":1}}"#,
            "null x",
            "[]",
            "{}",
            "-0.5e+7",
            r#" {"a":[{},[]]}"#,
        ] {
            assert_eq!(fault(text.as_bytes()), None, "{text}");
        }
        let deep = "[".repeat(1 << 20);
        assert_eq!(
            fault(deep.as_bytes()).as_deref(),
            Some("exceeded max depth")
        );
    }

    proptest! {
        /// It agrees with another reader on what is JSON.
        #[test]
        fn finds_fault_with_nothing_that_is_json(text in r#"[\{\}\[\]",:0-9eE+tfn\- \.\\u]{0,24}"#) {
            let read: Result<serde_json::Value, _> = serde_json::from_str(&text);
            if read.is_ok() {
                prop_assert_eq!(fault(text.as_bytes()), None);
            }
        }

        #[test]
        fn nothing_panics(text: Vec<u8>) {
            let _ = fault(&text);
        }
    }
}
