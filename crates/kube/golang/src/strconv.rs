//! Floats and quoted strings as Go's `strconv` and `fmt` write them.

use std::fmt::Write;

/// A float as Go's `%v` writes it.
pub fn format_float(value: f64) -> String {
    let mut out = Vec::with_capacity(24);
    write_float(value, &mut out);
    // Only ASCII is written.
    String::from_utf8(out).unwrap_or_default()
}

/// Digits without the zeros at their end.
#[inline]
pub fn trim_zeros(text: &[u8]) -> &[u8] {
    let zeros = text.iter().rev().take_while(|&&b| b == b'0').count();
    &text[..text.len() - zeros]
}

/// Writes a float as Go's `%v` and `%g` do: the shortest digits that read back, with an exponent from a million on and
/// below a ten-thousandth.
pub fn write_float(value: f64, out: &mut Vec<u8>) {
    if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() {
            b"-0"
        } else {
            b"0"
        });
        return;
    }
    if !value.is_finite() {
        let text: &[u8] = if value.is_nan() {
            b"NaN"
        } else if value > 0.0 {
            b"+Inf"
        } else {
            b"-Inf"
        };
        out.extend_from_slice(text);
        return;
    }
    if value < 0.0 {
        out.push(b'-');
    }
    // The shortest digits, in whatever layout the formatter likes; only the digits and the scale are taken from it.
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value.abs());
    let (mantissa, written) = text
        .split_once(['e', 'E'])
        .map_or((text, 0), |(m, e)| (m, e.parse::<i32>().unwrap_or(0)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut all = [0u8; 40];
    let mut len = 0;
    for &byte in whole.as_bytes().iter().chain(fraction.as_bytes()) {
        all[len] = byte;
        len += 1;
    }
    let leading = all[..len].iter().take_while(|&&b| b == b'0').count();
    let exponent = whole.len() as i32 - 1 + written - leading as i32;
    write_digits(trim_zeros(&all[leading..len]), exponent, out);
}

/// `d.ddd × 10^exponent` in `%g` layout. `digits` has no zeros at either end.
#[inline]
pub fn write_digits(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    if !(-4..6).contains(&exponent) {
        exponent_form(digits, exponent, out);
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(digits);
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            out.extend_from_slice(digits);
            out.extend(std::iter::repeat_n(b'0', whole - digits.len()));
        } else {
            out.extend_from_slice(&digits[..whole]);
            out.push(b'.');
            out.extend_from_slice(&digits[whole..]);
        }
    }
}

fn exponent_form(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    out.push(digits.first().copied().unwrap_or(b'0'));
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.push(b'e');
    out.push(if exponent < 0 { b'-' } else { b'+' });
    let magnitude = exponent.unsigned_abs();
    if magnitude < 10 {
        out.push(b'0');
    }
    out.extend_from_slice(itoa::Buffer::new().format(magnitude).as_bytes());
}

/// A string as Go's `%q` writes it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            // What cannot be seen is told by its number.
            c if !c.is_ascii() && c.escape_debug().len() > 1 => {
                let _ = match c as u32 {
                    number @ ..=0xffff => write!(out, "\\u{number:04x}"),
                    number => write!(out, "\\U{number:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A character in single quotes, as `encoding/json` shows it in errors.
pub fn quote_char(c: char) -> String {
    match c {
        '\'' => "'\\''".to_owned(),
        '"' => "'\"'".to_owned(),
        other => {
            let quoted = quote(other.encode_utf8(&mut [0; 4]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_seen() {
        for (text, expected) in [
            ("a\"\n\0", r#""a\"\n\x00""#),
            ("\u{e9}\u{4e16}", "\"\u{e9}\u{4e16}\""),
            ("\u{200b}\u{85}\u{a0}", r#""\u200b\u0085\u00a0""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn characters() {
        for (c, expected) in [
            ('a', "'a'"),
            ('\'', r"'\''"),
            ('"', "'\"'"),
            ('\n', r"'\n'"),
            ('\\', r"'\\'"),
        ] {
            assert_eq!(quote_char(c), expected);
        }
    }

    #[test]
    fn floats() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (-1.0, "-1"),
            (0.1, "0.1"),
            (123_456.0, "123456"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (1e22, "1e+22"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(format_float(value), expected);
        }
    }

    proptest! {
        #[test]
        fn floats_read_back(value: f64) {
            prop_assume!(value.is_finite());
            prop_assert_eq!(format_float(value).parse::<f64>().unwrap(), value);
        }
    }
}
