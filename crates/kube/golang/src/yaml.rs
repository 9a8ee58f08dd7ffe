//! YAML as Go's library writes it: keys sorted, lists not indented, quotes where a text would read as something else,
//! long texts folded.

use serde_json::Value;

/// Texts are folded at the first space beyond this column.
const WIDTH: usize = 80;

/// A document, ending with a new line.
pub fn to_string(value: &Value) -> String {
    let mut out = Writer {
        text: String::new(),
        column: 0,
    };
    match value {
        Value::Object(map) if !map.is_empty() => out.map(map, 0),
        Value::Array(list) if !list.is_empty() => out.list(list, 0),
        scalar => {
            out.scalar(scalar, 0);
            out.end_line();
        }
    }
    out.text
}

struct Writer {
    text: String,
    column: usize,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.text.push_str(text);
        self.column += text.chars().count();
    }

    fn end_line(&mut self) {
        self.text.push('\n');
        self.column = 0;
    }

    fn indent(&mut self, depth: usize) {
        self.put(&" ".repeat(depth));
    }

    fn map(&mut self, map: &serde_json::Map<String, Value>, depth: usize) {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by(|a, b| natural(a.0, b.0));
        for (position, (key, value)) in entries.into_iter().enumerate() {
            // The first entry of a map within a list stands behind the dash.
            if position > 0 || self.column == 0 {
                self.indent(depth);
            }
            self.string(key, depth, true);
            self.put(":");
            match value {
                Value::Object(inner) if !inner.is_empty() => {
                    self.end_line();
                    self.map(inner, depth + 2);
                }
                Value::Array(inner) if !inner.is_empty() => {
                    self.end_line();
                    self.list(inner, depth);
                }
                scalar => {
                    self.put(" ");
                    self.scalar(scalar, depth);
                    self.end_line();
                }
            }
        }
    }

    fn list(&mut self, list: &[Value], depth: usize) {
        for (position, value) in list.iter().enumerate() {
            if position > 0 || self.column == 0 {
                self.indent(depth);
            }
            self.put("- ");
            match value {
                Value::Object(inner) if !inner.is_empty() => self.map(inner, depth + 2),
                Value::Array(inner) if !inner.is_empty() => self.list(inner, depth + 2),
                scalar => {
                    self.scalar(scalar, depth);
                    self.end_line();
                }
            }
        }
    }

    fn scalar(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Null => self.put("null"),
            Value::Bool(flag) => self.put(if *flag { "true" } else { "false" }),
            Value::Number(number) => self.put(&number.to_string()),
            Value::String(text) => self.string(text, depth, false),
            Value::Array(_) => self.put("[]"),
            Value::Object(_) => self.put("{}"),
        }
    }

    fn string(&mut self, text: &str, depth: usize, is_key: bool) {
        let fold = if is_key { None } else { Some(depth + 2) };
        if text.contains('\n') && !is_key {
            return self.literal(text, depth + 2);
        }
        if text.is_empty() || reads_as_other(text) {
            return self.double_quoted(text, fold);
        }
        if text.chars().any(char::is_control) {
            return self.double_quoted(text, fold);
        }
        if may_be_plain(text) {
            return self.folded(text, fold);
        }
        self.put("'");
        self.folded(&text.replace('\'', "''"), fold);
        self.put("'");
    }

    fn literal(&mut self, text: &str, depth: usize) {
        let body = text.trim_end_matches('\n');
        self.put(match text.len() - body.len() {
            0 => "|-",
            1 => "|",
            _ => "|+",
        });
        for line in body.split('\n') {
            self.end_line();
            if !line.is_empty() {
                self.indent(depth);
                self.put(line);
            }
        }
    }

    fn double_quoted(&mut self, text: &str, fold: Option<usize>) {
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '"' => escaped.push_str("\\\""),
                '\\' => escaped.push_str("\\\\"),
                '\n' => escaped.push_str("\\n"),
                '\t' => escaped.push_str("\\t"),
                '\r' => escaped.push_str("\\r"),
                c if c.is_control() => escaped.push_str(&format!("\\x{:02X}", u32::from(c))),
                c => escaped.push(c),
            }
        }
        self.put("\"");
        self.folded(&escaped, fold);
        self.put("\"");
    }

    /// `fold` is the column at which a folded text goes on.
    fn folded(&mut self, text: &str, fold: Option<usize>) {
        let chars: Vec<char> = text.chars().collect();
        for (at, c) in chars.iter().enumerate() {
            // Between two words, with no more than one space between them.
            let inner =
                at > 0 && at + 1 < chars.len() && chars[at - 1] != ' ' && chars[at + 1] != ' ';
            match fold {
                Some(depth) if *c == ' ' && inner && self.column > WIDTH => {
                    self.end_line();
                    self.indent(depth);
                }
                _ => {
                    self.text.push(*c);
                    self.column += 1;
                }
            }
        }
    }
}

/// Keys sort by letters, with the numbers in them by value.
fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let common = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let (Some(x), Some(y)) = (a.get(common), b.get(common)) else {
        return a.len().cmp(&b.len());
    };
    let number = |chars: &[char]| {
        let mut start = common;
        while start > 0 && chars[start - 1].is_ascii_digit() {
            start -= 1;
        }
        let digits: String = chars[start..]
            .iter()
            .take_while(|c| c.is_ascii_digit())
            .collect();
        digits.parse::<u64>().ok()
    };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => x.cmp(y),
        // Signs come before letters, and so do numbers.
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => match (number(&a), number(&b)) {
            (Some(n), Some(m)) if n != m => n.cmp(&m),
            _ => x.cmp(y),
        },
    }
}

/// A text that would be read as a number, a time, a truth value or nothing.
fn reads_as_other(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off",
        "OFF", "true", "True", "TRUE", "false", "False", "FALSE", "~", "null", "Null", "NULL",
        "<<", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf",
        "-.Inf", "-.INF",
    ];
    WORDS.contains(&text) || is_number(text) || is_time(text) || is_base_sixty(text)
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0b", 2), ("0o", 8)] {
        if let Some(digits) = unsigned.strip_prefix(prefix) {
            return i64::from_str_radix(digits, radix).is_ok();
        }
    }
    let numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    numeric && unsigned.parse::<f64>().is_ok()
}

/// `2001-2-3`, alone or with a time of day.
fn is_time(text: &str) -> bool {
    let date = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let digits = |part: &str, least: usize, most: usize| {
        (least..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
    };
    let is_date = digits(year, 4, 4) && digits(month, 1, 2) && digits(day, 1, 2);
    let rest = &text[date.len()..];
    is_date
        && (rest.is_empty()
            || rest[1..]
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, ':' | '.' | '+' | '-' | 'Z' | ' ')))
}

/// `1:30`, which once meant ninety.
fn is_base_sixty(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    let is_first = first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mut count = 0;
    let rest = parts.all(|part| {
        count += 1;
        let whole = part.split('.').next().unwrap_or_default();
        (1..=2).contains(&whole.len()) && whole.bytes().all(|b| b.is_ascii_digit())
    });
    is_first && count > 0 && rest
}

fn may_be_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return false;
    };
    let second = chars.next();
    let spaced = second.is_none_or(|c| c == ' ');
    let starts_well = match first {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
        | '@' | '`' | ' ' => false,
        '?' | ':' | '-' => !spaced,
        _ => true,
    };
    starts_well
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document() {
        let value = json!({
            "b": {"n": "5", "e": "", "at": "2026-01-01T00:00:15Z", "empty": {}, "none": []},
            "a": [{"y": 1, "x": ["p", null]}, ["q"], "15.052s"],
            "c": "a: b", "d": "one\n\ntwo", "label-10": "x", "label-9": "1:30"
        });
        assert_eq!(
            to_string(&value),
            "a:\n- x:\n  - p\n  - null\n  \"y\": 1\n- - q\n- 15.052s\n\
             b:\n  at: \"2026-01-01T00:00:15Z\"\n  e: \"\"\n  empty: {}\n  \"n\": \"5\"\n  none: []\n\
             c: 'a: b'\nd: |-\n  one\n\n  two\nlabel-9: \"1:30\"\nlabel-10: x\n"
        );
    }

    #[test]
    fn long_texts_are_folded() {
        let value = json!({"message": "only the following media types are accepted: application/json, application/yaml, text/plain"});
        assert_eq!(
            to_string(&value),
            "message: 'only the following media types are accepted: application/json, application/yaml,\n  text/plain'\n"
        );
    }

    #[test]
    fn what_needs_quotes() {
        for (text, expected) in [
            ("820201893n", "820201893n"),
            ("1e3", "\"1e3\""),
            ("0x1f", "\"0x1f\""),
            (".5", "\".5\""),
            ("v1", "v1"),
            ("1.2.3", "1.2.3"),
            ("true", "\"true\""),
            ("-x", "-x"),
            ("- x", "'- x'"),
            ("@x", "'@x'"),
            ("it's", "it's"),
            ("x: it's", "'x: it''s'"),
            ("a\tb", "\"a\\tb\""),
            ("2026-1-2", "\"2026-1-2\""),
        ] {
            assert_eq!(to_string(&json!(text)), format!("{expected}\n"));
        }
    }
}
