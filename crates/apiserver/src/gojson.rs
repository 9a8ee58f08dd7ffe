//! JSON as Kubernetes reads it: the complaints of Go's decoder word by word, duplicate fields noted rather than
//! refused, broken UTF-8 replaced, and whole numbers kept whole.

use serde_json::{Map, Number, Value};

/// A decoded document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub value: Value,
    /// Paths of fields that were given more than once (`data.k`, `[0].path`); the last one counted.
    pub duplicates: Vec<String>,
}

impl Document {
    /// The complaints of strict decoding about the document itself.
    pub fn complaints(&self) -> Vec<String> {
        self.duplicates
            .iter()
            .map(|path| format!("duplicate field \"{path}\""))
            .collect()
    }
}

/// Nesting beyond this is refused. Go's limit is 10 000, with a stack that grows.
const MAX_DEPTH: usize = 1_000;
/// Go stops noting complaints after so many.
const MAX_COMPLAINTS: usize = 100;

/// Decodes a whole document; the error is the text of Go's decoder.
pub fn parse(text: &[u8]) -> Result<Document, String> {
    let mut reader = Reader {
        text,
        at: 0,
        path: Vec::new(),
        duplicates: Vec::new(),
    };
    reader.check_depth()?;
    let value = reader.value()?;
    reader.skip_space();
    if reader.peek().is_some() {
        return Err(reader.unexpected("after top-level value"));
    }
    Ok(Document {
        value,
        duplicates: reader.duplicates,
    })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    path: Vec<Step>,
    duplicates: Vec<String>,
}

enum Step {
    Field(String),
    Index(usize),
}

impl Reader<'_> {
    /// Recursion below is as deep as the document: refuse first what would exhaust the stack.
    fn check_depth(&self) -> Result<(), String> {
        let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
        for &byte in self.text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MAX_DEPTH {
                return Err("exceeded max depth".to_owned());
            }
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The complaint about the byte here, or about the end of the text.
    fn unexpected(&self, context: &str) -> String {
        let Some(byte) = self.peek() else {
            return "unexpected end of JSON input".to_owned();
        };
        let shown = match byte {
            b'\'' => "'\\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            byte => {
                let quoted = crate::field::quote(&char::from(byte).to_string());
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
        };
        format!("invalid character {shown} {context}")
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => self.string().map(Value::String),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn object(&mut self) -> Result<Value, String> {
        const KEY: &str = "looking for beginning of object key string";
        let mut fields = Map::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(fields));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected(KEY));
            }
            let name = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.path.push(Step::Field(name.clone()));
            if fields.contains_key(&name) {
                self.note_duplicate();
            }
            let value = self.value()?;
            self.path.pop();
            fields.insert(name, value);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(fields));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn list(&mut self) -> Result<Value, String> {
        let mut values = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(values));
        }
        loop {
            self.path.push(Step::Index(values.len()));
            values.push(self.value()?);
            self.path.pop();
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(values));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn note_duplicate(&mut self) {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
            }
        }
        if self.duplicates.len() < MAX_COMPLAINTS && !self.duplicates.contains(&path) {
            self.duplicates.push(path);
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.skip_digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            whole = false;
            self.at += 1;
            self.expect_digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            whole = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.expect_digit("in exponent of numeric literal")?;
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]);
        if whole && let Ok(number) = text.parse::<i64>() {
            return Ok(Value::from(number));
        }
        text.parse::<f64>()
            .ok()
            .and_then(Number::from_f64)
            .map(Value::Number)
            .ok_or_else(|| {
                format!("json: cannot unmarshal number {text} into Go value of type float64")
            })
    }

    fn expect_digit(&mut self, context: &str) -> Result<(), String> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(context));
        }
        self.skip_digits();
        Ok(())
    }

    fn skip_digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(String::from_utf8(bytes)
                        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()));
                }
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(0..=0x1f) | None => return Err(self.unexpected("in string literal")),
                Some(byte) => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let plain = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// Half of a surrogate pair without the other becomes the replacement character.
    fn unicode_escape(&mut self) -> Result<char, String> {
        let first = self.four_hex_digits()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        if first < 0xdc00 && self.text[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.four_hex_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn four_hex_digits(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|c| char::from(c).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check_error(text: &str, complaint: &str) {
        assert_eq!(parse(text.as_bytes()), Err(complaint.to_owned()), "{text}");
    }

    #[test]
    fn complaints_are_those_of_go() {
        const END: &str = "unexpected end of JSON input";
        check_error("", END);
        check_error("{", END);
        check_error("[1,", END);
        check_error("\"a", END);
        check_error("{}x", "invalid character 'x' after top-level value");
        check_error(
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string",
        );
        check_error("{\"a\" 1}", "invalid character '1' after object key");
        check_error(
            "{\"a\":1 \"b\"}",
            "invalid character '\"' after object key:value pair",
        );
        check_error("[1 2]", "invalid character '2' after array element");
        check_error("[]]", "invalid character ']' after top-level value");
        check_error("x", "invalid character 'x' looking for beginning of value");
        check_error("nul", END);
        check_error(
            "nuL",
            "invalid character 'L' in literal null (expecting 'l')",
        );
        check_error("-x", "invalid character 'x' in numeric literal");
        check_error("01", "invalid character '1' after top-level value");
        check_error(
            "1.e",
            "invalid character 'e' after decimal point in numeric literal",
        );
        check_error(
            "1ex",
            "invalid character 'x' in exponent of numeric literal",
        );
        check_error("\"\\q\"", "invalid character 'q' in string escape code");
        check_error(
            "\"\\u00g0\"",
            "invalid character 'g' in \\u hexadecimal character escape",
        );
        check_error("\"\n\"", "invalid character '\\n' in string literal");
    }

    #[test]
    fn nesting_has_a_limit_that_the_stack_can_bear() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        check_error(&nested(MAX_DEPTH + 1), "exceeded max depth");
    }

    #[test]
    fn duplicates_are_noted_and_the_last_counts() {
        let text = br#"{"data":{"k":"1","k":"2"},"l":[{"a":1,"a":2,"a":3}]}"#;
        let document = parse(text).unwrap();
        assert_eq!(document.value, json!({"data": {"k": "2"}, "l": [{"a": 3}]}));
        assert_eq!(
            document.complaints(),
            ["duplicate field \"data.k\"", "duplicate field \"l[0].a\""]
        );
    }

    #[test]
    fn broken_text_is_replaced() {
        let document = parse(b"[\"\\ud800x\", \"\\ud83d\\ude00\", \"a\xffb\"]").unwrap();
        assert_eq!(
            document.value,
            json!(["\u{fffd}x", "\u{1f600}", "a\u{fffd}b"])
        );
    }

    #[test]
    fn numbers_stay_whole_where_they_fit() {
        let document = parse(b"[1, -9223372036854775808, 9223372036854775808, 1.0]").unwrap();
        assert!(document.value[1].is_i64());
        assert!(document.value[2].is_f64());
        assert!(document.value[3].is_f64());
        check_error(
            "1e999",
            "json: cannot unmarshal number 1e999 into Go value of type float64",
        );
    }

    proptest! {
        #[test]
        fn agrees_with_another_reader(text in r#"[\[\]{}:,"a0-9.e+ \\]{0,20}"#) {
            let ours = parse(text.as_bytes()).is_ok();
            let theirs: Result<Value, _> = serde_json::from_str(&text);
            prop_assert_eq!(ours, theirs.is_ok());
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&bytes);
        }
    }
}
