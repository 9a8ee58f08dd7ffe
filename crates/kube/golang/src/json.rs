//! JSON as Go's encoder writes it: `<`, `>` and `&` escaped, whole floats without a fraction.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

/// JSON text with `<`, `>` and `&` escaped, as Go does so that it is harmless within HTML.
pub fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            other => out.push(other),
        }
    }
    out
}

/// A serializer makes many small writes; they are collected in a buffer of this size.
const BUFFER: usize = 8 << 10;

pub fn write<T: Serialize + ?Sized>(value: &T, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, GoFormatter);
    value.serialize(&mut serializer)?;
    out.flush()
}

pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(4 << 10);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, GoFormatter);
    value.serialize(&mut serializer)?;
    Ok(out)
}

#[derive(Debug, Clone, Copy)]
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f32<W: ?Sized + Write>(&mut self, out: &mut W, value: f32) -> io::Result<()> {
        // The shortest digits are those of the single-precision number.
        write_float(out, f64::from(value), &format!("{value}"))
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        if value == 0.0 {
            return out.write_all(b"0");
        }
        write_float(out, value, &format!("{value}"))
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, escaped, width)) = next_escape(rest) {
            out.write_all(&rest.as_bytes()[..at])?;
            out.write_all(escaped)?;
            rest = &rest[at + width..];
        }
        out.write_all(rest.as_bytes())
    }
}

/// Plain digits between a millionth and 10²¹, an exponent beyond.
fn write_float<W: ?Sized + Write>(out: &mut W, value: f64, plain: &str) -> io::Result<()> {
    let size = value.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return out.write_all(plain.as_bytes());
    }
    let text = format!("{value:e}");
    match text.split_once("e-") {
        Some(_) => out.write_all(text.as_bytes()),
        None => out.write_all(text.replace('e', "e+").as_bytes()),
    }
}

/// Where the next character stands that a browser could take for markup or a line end.
fn next_escape(text: &str) -> Option<(usize, &'static [u8], usize)> {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => return Some((at, b"\\u003c", 1)),
            b'>' => return Some((at, b"\\u003e", 1)),
            b'&' => return Some((at, b"\\u0026", 1)),
            0xe2 if bytes[at..].starts_with("\u{2028}".as_bytes()) => {
                return Some((at, b"\\u2028", 3));
            }
            0xe2 if bytes[at..].starts_with("\u{2029}".as_bytes()) => {
                return Some((at, b"\\u2029", 3));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text<T: Serialize + ?Sized>(value: &T) -> String {
        String::from_utf8(to_vec(value).unwrap()).unwrap()
    }

    #[test]
    fn numbers_and_strings() {
        assert_eq!(
            text(&[0.0, 1.02, 100.0, 0.5, 1e-7, 1e21, -2.5]),
            "[0,1.02,100,0.5,1e-7,1e+21,-2.5]"
        );
        assert_eq!(text(&[0.3f32, 0.0, 99.9]), "[0.3,0,99.9]");
        assert_eq!(
            text("I<\u{2028} a&b\u{1}\"é"),
            r#""I\u003c\u2028 a\u0026b\u0001\"é""#
        );
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(
            escape_html(r#"{"a":"<b>&"}"#),
            r#"{"a":"\u003cb\u003e\u0026"}"#
        );
    }

    proptest! {
        #[test]
        fn any_string_reads_back(string: String) {
            prop_assert_eq!(serde_json::from_str::<String>(&text(&string)).unwrap(), string);
        }

        #[test]
        fn any_float_reads_back(value: f64) {
            prop_assume!(value.is_finite());
            prop_assert_eq!(text(&value).parse::<f64>().unwrap(), value);
        }
    }
}
