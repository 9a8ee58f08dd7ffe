//! JSON to the letter of the original's encoder: `<`, `>` and `&` escaped, whole floats without a fraction, times
//! with as many decimals as they need.

use std::io::{self, BufWriter, Write};

use plimsoll_host::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// The many small writes of a serializer go to plain memory, where they cost nothing, and from there on in handfuls.
const HANDFUL: usize = 8 << 10;

pub fn write<T: Serialize + ?Sized>(value: &T, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(HANDFUL, out);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Plain);
    value.serialize(&mut serializer)?;
    out.flush()
}

pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(4 << 10);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Plain);
    value.serialize(&mut serializer)?;
    Ok(out)
}

#[derive(Debug, Clone, Copy)]
struct Plain;

impl Formatter for Plain {
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

/// A moment as RFC 3339 with nanoseconds; the original's zero time where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Option<Timestamp>);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(Some(at))
    }
}

const UNKNOWN_TIME: &str = "0001-01-01T00:00:00Z";

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.and_then(moment) {
            Some(at) => serializer.collect_str(&at),
            None => serializer.serialize_str(UNKNOWN_TIME),
        }
    }
}

#[cfg(test)]
impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(i64::try_from(at.as_nanosecond()).ok().map(Timestamp)))
    }
}

/// The same, cut to whole seconds: how Kubernetes writes times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Option<Timestamp>);

impl From<Timestamp> for Seconds {
    fn from(at: Timestamp) -> Self {
        Self(Some(at))
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole = self.0.map(|at| Timestamp::from_secs(at.secs()));
        match whole.and_then(moment) {
            Some(at) => serializer.collect_str(&at),
            None => serializer.serialize_none(),
        }
    }
}

fn moment(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_nanosecond(i128::from(at.nanos())).ok()
}

/// For `skip_serializing_if`.
pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
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
    fn times() {
        let at = Timestamp(1_794_778_428_542_205_520);
        assert_eq!(text(&Time::from(at)), r#""2026-11-15T21:33:48.54220552Z""#);
        assert_eq!(
            text(&Time::from(Timestamp::from_secs(1_794_778_428))),
            r#""2026-11-15T21:33:48Z""#
        );
        assert_eq!(text(&Time(None)), r#""0001-01-01T00:00:00Z""#);
        assert_eq!(text(&Seconds::from(at)), r#""2026-11-15T21:33:48Z""#);
        assert_eq!(text(&Seconds(None)), "null");
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
