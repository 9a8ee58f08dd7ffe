//! A JSON reader that keeps the order and the duplicates of keys, and complains in Go's words: clients see those.

use std::borrow::Cow;

use plimsoll_golang::strconv::quote_char;
use serde_json::Value;

use super::objections::Objections;
use crate::depth::{MAX_DEPTH, TooDeep};
use crate::met::Met;

/// A document as it was written. Never deeper than [`MAX_DEPTH`].
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    Null,
    Bool(bool),
    /// The digits as given.
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    #[error("unexpected end of JSON input")]
    End,
    #[error("invalid character {} {context}", quote_char(*.found))]
    Character {
        found: char,
        context: Cow<'static, str>,
    },
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
}

impl<'a> Node<'a> {
    pub fn parse(text: &'a str) -> Result<Self, SyntaxError> {
        Self::parse_within(text, 0)
    }

    /// As [`Self::parse`], of what stands this many levels down in a document.
    pub fn parse_within(text: &'a str, outer: usize) -> Result<Self, SyntaxError> {
        let mut reader = Reader { text, at: 0 };
        let node = reader.value(outer)?;
        reader.space();
        match reader.peek() {
            None => Ok(node),
            Some(found) => Err(bad(found, "after top-level value")),
        }
    }

    /// A view of a value, for a second pass through the decoder.
    pub fn of(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.to_string().into()),
            Value::String(text) => Self::Text(text.as_str().into()),
            Value::Array(items) => Self::List(items.iter().map(Node::of).collect()),
            Value::Object(map) => Self::Object(
                map.iter()
                    .map(|(key, value)| (key.as_str().into(), Node::of(value)))
                    .collect(),
            ),
        }
    }

    /// As plain JSON; of duplicate keys the last one counts.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(digits) => number(digits),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::List(items) => items.iter().map(Node::to_value).collect(),
            Self::Object(entries) => entries
                .iter()
                .map(|(key, value)| (key.clone().into_owned(), value.to_value()))
                .collect(),
        }
    }

    /// Free of the text that it was read from.
    pub fn into_owned(self) -> Node<'static> {
        match self {
            Self::Null => Node::Null,
            Self::Bool(value) => Node::Bool(value),
            Self::Number(text) => Node::Number(text.into_owned().into()),
            Self::Text(text) => Node::Text(text.into_owned().into()),
            Self::List(items) => Node::List(items.into_iter().map(Node::into_owned).collect()),
            Self::Object(entries) => Node::Object(
                entries
                    .into_iter()
                    .map(|(key, value)| (key.into_owned().into(), value.into_owned()))
                    .collect(),
            ),
        }
    }

    /// The complaints about fields that are given more than once, each named once.
    pub fn duplicates(&self) -> Vec<String> {
        let mut complaints = Objections::default();
        self.note_duplicates(&mut String::new(), &mut complaints);
        complaints.into_words()
    }

    fn note_duplicates(&self, path: &mut String, complaints: &mut Objections) {
        let outer = path.len();
        match self {
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push_str(&format!("[{index}]"));
                    item.note_duplicates(path, complaints);
                    path.truncate(outer);
                }
            }
            Self::Object(entries) => {
                let mut names = Met::default();
                for (key, value) in entries {
                    if outer > 0 {
                        path.push('.');
                    }
                    path.push_str(key);
                    if names.meet(key.as_ref()) == 1 {
                        complaints.add(|| format!("duplicate field \"{path}\""));
                    }
                    value.note_duplicates(path, complaints);
                    path.truncate(outer);
                }
            }
            _ => {}
        }
    }

    /// What Go calls this in "cannot unmarshal … into".
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::List(_) => "array",
            Self::Object(_) => "object",
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        match self {
            Self::Object(entries) => entries
                .iter()
                .rev()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }
}

/// Whole numbers stay whole; a float that is whole becomes one, as Kubernetes' decoder has it.
pub fn number(digits: &str) -> Value {
    if let Ok(whole) = digits.parse::<i64>() {
        return whole.into();
    }
    match digits.parse::<f64>() {
        Ok(float) => float.into(),
        Err(_) => Value::Null,
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// Go reads bytes: of a letter that has several it shows the first.
fn bad(found: char, context: &'static str) -> SyntaxError {
    let mut bytes = [0; 4];
    let first = found.encode_utf8(&mut bytes).bytes().next();
    SyntaxError::Character {
        found: first.map_or(found, char::from),
        context: context.into(),
    }
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next character is not what it should be.
    fn unexpected<T>(&self, context: &'static str) -> Result<T, SyntaxError> {
        Err(match self.peek() {
            Some(found) => bad(found, context),
            None => SyntaxError::End,
        })
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        self.space();
        match self.byte() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => Err(TooDeep.into()),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Node::Text),
            Some(b't') => self.literal("true", Node::Bool(true)),
            Some(b'f') => self.literal("false", Node::Bool(false)),
            Some(b'n') => self.literal("null", Node::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.unexpected("looking for beginning of value"),
        }
    }

    fn literal(&mut self, word: &'static str, node: Node<'a>) -> Result<Node<'a>, SyntaxError> {
        for expected in word.chars() {
            match self.peek() {
                Some(found) if found == expected => self.at += 1,
                Some(found) => {
                    return Err(SyntaxError::Character {
                        found,
                        context: format!("in literal {word} (expecting '{expected}')").into(),
                    });
                }
                None => return Err(SyntaxError::End),
            }
        }
        Ok(node)
    }

    fn digits(&mut self) {
        while matches!(self.byte(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Node<'a>, SyntaxError> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.unexpected("in numeric literal"),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            if !matches!(self.byte(), Some(b'0'..=b'9')) {
                return self.unexpected("after decimal point in numeric literal");
            }
            self.digits();
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.byte(), Some(b'0'..=b'9')) {
                return self.unexpected("in exponent of numeric literal");
            }
            self.digits();
        }
        Ok(Node::Number(self.text[start..self.at].into()))
    }

    fn list(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.byte() == Some(b']') {
            self.at += 1;
            return Ok(Node::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            match self.byte() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Node::List(items));
                }
                _ => return self.unexpected("after array element"),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        self.at += 1;
        let mut entries = Vec::new();
        self.space();
        if self.byte() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(entries));
        }
        loop {
            self.space();
            if self.byte() != Some(b'"') {
                return self.unexpected("looking for beginning of object key string");
            }
            let key = self.string()?;
            self.space();
            if self.byte() != Some(b':') {
                return self.unexpected("after object key");
            }
            self.at += 1;
            entries.push((key, self.value(depth + 1)?));
            self.space();
            match self.byte() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Node::Object(entries));
                }
                _ => return self.unexpected("after object key:value pair"),
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        // Most strings have no escape and are borrowed as they are.
        loop {
            match self.byte() {
                Some(b'"') => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => break,
                Some(byte) if byte < 0x20 => return self.unexpected("in string literal"),
                Some(_) => self.at += 1,
                None => return Err(SyntaxError::End),
            }
        }
        let mut out = self.text[start..self.at].to_owned();
        loop {
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Ok(out.into());
                }
                Some('\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(c) if (c as u32) < 0x20 => return self.unexpected("in string literal"),
                Some(c) => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
                None => return Err(SyntaxError::End),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let c = match self.byte() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let first = self.hex()?;
                return Ok(self.surrogates(first));
            }
            _ => return self.unexpected("in string escape code"),
        };
        self.at += 1;
        Ok(c)
    }

    fn hex(&mut self) -> Result<u32, SyntaxError> {
        let mut unit = 0;
        for _ in 0..4 {
            match self.peek().and_then(|c| c.to_digit(16)) {
                Some(digit) => unit = unit * 16 + digit,
                None => return self.unexpected("in \\u hexadecimal character escape"),
            }
            self.at += 1;
        }
        Ok(unit)
    }

    /// A pair of UTF-16 halves is one character; a lonely half becomes the replacement character.
    fn surrogates(&mut self, first: u32) -> char {
        if let Some(c) = char::from_u32(first) {
            return c;
        }
        let before = self.at;
        if first < 0xdc00 && self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            if let Ok(second @ 0xdc00..=0xdfff) = self.hex() {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
            self.at = before;
        }
        char::REPLACEMENT_CHARACTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        assert_eq!(
            Node::parse(text).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn complaints_in_gos_words() {
        check_error("", "unexpected end of JSON input");
        check_error(
            "{bad",
            "invalid character 'b' looking for beginning of object key string",
        );
        check_error("{\"a\" 1}", "invalid character '1' after object key");
        check_error(
            "{\"a\":1 \"b\"}",
            "invalid character '\"' after object key:value pair",
        );
        check_error("[1 2]", "invalid character '2' after array element");
        check_error("{} x", "invalid character 'x' after top-level value");
        check_error(
            "trux",
            "invalid character 'x' in literal true (expecting 'e')",
        );
        check_error("-x", "invalid character 'x' in numeric literal");
        check_error(
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        );
        check_error("\"\\q\"", "invalid character 'q' in string escape code");
        check_error("\"a\nb\"", "invalid character '\\n' in string literal");
        check_error(
            "'",
            "invalid character '\\'' looking for beginning of value",
        );
        let too_deep = "the document nests deeper than 100 levels";
        check_error(&"[".repeat(5000), too_deep);
        check_error(&"{\"a\":".repeat(101), too_deep);
        check_error(&"[".repeat(100), "unexpected end of JSON input");
        check_error(
            "\u{feff}{}",
            "invalid character 'ï' looking for beginning of value",
        );
    }

    #[test]
    fn order_and_duplicates_are_kept() {
        let node =
            Node::parse(r#"{"b":1,"a":[true,null,"x\n\u00e9\ud83d\ude00"],"b":2.5}"#).unwrap();
        let Node::Object(entries) = &node else {
            panic!("{node:?}")
        };
        let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_ref()).collect();
        assert_eq!(keys, ["b", "a", "b"]);
        assert_eq!(
            node.to_value().to_string(),
            r#"{"a":[true,null,"x\né😀"],"b":2.5}"#
        );
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_serde_json(text in r#"[\[\]{}:,"\\a-f0-9.eE+\- tnul]{0,24}"#) {
            let ours = Node::parse(&text).ok().map(|node| node.to_value());
            let theirs = serde_json::from_str::<Value>(&text).ok();
            // Numbers beyond the range of a float are theirs to refuse.
            if !text.contains(['e', 'E']) {
                proptest::prop_assert_eq!(ours, theirs);
            }
        }
    }
}
