//! Reads numbers of the exposition format.

/// Exact in an `f64`, each of them.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// A number up to the next blank or the end, and how long it is. `Err(true)`: there is none; `Err(false)`: it is none.
pub fn leading_float(text: &[u8]) -> Result<(f64, usize), bool> {
    if let Some(found) = quick(text) {
        return Ok(found);
    }
    let ends = |byte: &u8| matches!(byte, b' ' | b'\t' | b'{');
    let length = text.iter().position(ends).unwrap_or(text.len());
    if length == 0 {
        return Err(true);
    }
    let word = std::str::from_utf8(&text[..length]).map_err(|_| false)?;
    let value: f64 = word.parse().map_err(|_| false)?;
    // What is no number has no sign.
    if value.is_nan() && word.starts_with(['+', '-']) {
        return Err(false);
    }
    // Infinity must be asked for by name.
    let named = || word.bytes().any(|byte| matches!(byte, b'i' | b'I'));
    match value.is_infinite() && !named() {
        true => Err(false),
        false => Ok((value, length)),
    }
}

/// Numbers that need no more than one exact operation, which is nearly all there are: digits that fit an `f64`, times
/// or over a power of ten that does, too. `None` says nothing about other numbers.
fn quick(text: &[u8]) -> Option<(f64, usize)> {
    let (mut mantissa, mut at) = digits_after(0, text, 0);
    let mut digits = at;
    let mut exponent = 0_i32;
    if text.get(at) == Some(&b'.') {
        let point = at + 1;
        (mantissa, at) = digits_after(mantissa, text, point);
        digits += at - point;
        exponent = -i32::try_from(at - point).ok()?;
    }
    // Twenty could overflow.
    if digits == 0 || digits > 19 || mantissa > 1 << 53 {
        return None;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = text.get(at + 1)?;
        let start = at + 1 + usize::from(matches!(sign, b'+' | b'-'));
        let (power, length) =
            leading_integer(text.get(start..start.checked_add(3)?.min(text.len()))?)?;
        let power = i32::try_from(power).ok()?;
        exponent += if *sign == b'-' { -power } else { power };
        at = start + length;
    }
    if !matches!(text.get(at), None | Some(b' ' | b'\t')) {
        return None;
    }
    let power = POWERS.get(exponent.unsigned_abs() as usize)?;
    let value = match exponent < 0 {
        true => mantissa as f64 / power,
        false => mantissa as f64 * power,
    };
    Some((value, at))
}

/// Puts the digits from there on behind a number, and says where they end. More than nineteen overflow.
fn digits_after(mut number: u64, text: &[u8], mut at: usize) -> (u64, usize) {
    while let Some(eight) = text.get(at..).and_then(eight_digits) {
        number = number.wrapping_mul(100_000_000).wrapping_add(eight);
        at += 8;
    }
    while let Some(digit) = text.get(at).map(|byte| byte.wrapping_sub(b'0'))
        && digit < 10
    {
        number = number.wrapping_mul(10).wrapping_add(digit.into());
        at += 1;
    }
    (number, at)
}

/// The number that the first eight bytes are, if all of them are digits: looked at and added up side by side.
fn eight_digits(text: &[u8]) -> Option<u64> {
    let word = u64::from_le_bytes(*text.first_chunk::<8>()?);
    let digits = word.wrapping_sub(u64::from_ne_bytes([b'0'; 8]));
    // A byte that is no digit is more than nine now, or has become so by six more.
    let excess = digits | digits.wrapping_add(u64::from_ne_bytes([6; 8]));
    if excess & u64::from_ne_bytes([0xf0; 8]) != 0 {
        return None;
    }
    // Pairs, then fours, then all: the first digit is in the lowest byte.
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some((fours & 0xffff) * 10_000 + (fours >> 32))
}

/// Decimal digits, and how many.
pub fn leading_integer(text: &[u8]) -> Option<(i64, usize)> {
    /// So many digits fit, whatever they are.
    const SAFE: usize = 18;
    let (mut value, mut at) = match eight_digits(text) {
        Some(eight) => (eight.cast_signed(), 8),
        None => (0, 0),
    };
    while let Some(digit) = text.get(at).map(|byte| byte.wrapping_sub(b'0'))
        && digit < 10
    {
        value = match at < SAFE {
            true => value * 10 + i64::from(digit),
            false => value.checked_mul(10)?.checked_add(digit.into())?,
        };
        at += 1;
    }
    (at > 0).then_some((value, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_that_are_numbers_and_words_that_are_not() {
        for (text, expected) in [
            ("0", Ok((0.0, 1))),
            ("4.802156974 1", Ok((4.802156974, 11))),
            ("1.794767396e+09", Ok((1_794_767_396.0, 15))),
            ("5e-324", Ok((5e-324, 6))),
            ("-1.5\t", Ok((-1.5, 4))),
            ("+1.5", Ok((1.5, 4))),
            (".5", Ok((0.5, 2))),
            ("5.", Ok((5.0, 2))),
            ("+Inf", Ok((f64::INFINITY, 4))),
            (
                "18446744073709551616",
                Ok((18_446_744_073_709_551_616.0, 20)),
            ),
            ("1e999", Err(false)),
            ("-NaN", Err(false)),
            ("1e", Err(false)),
            ("1e+", Err(false)),
            (".", Err(false)),
            ("0x1p3", Err(false)),
            ("1_000", Err(false)),
            ("1\r", Err(false)),
            ("", Err(true)),
            ("{", Err(true)),
        ] {
            assert_eq!(leading_float(text.as_bytes()), expected, "{text:?}");
        }
        assert!(leading_float(b"NaN").unwrap().0.is_nan());
    }

    #[test]
    fn eight_at_once() {
        assert_eq!(eight_digits(b"12345678"), Some(12_345_678));
        assert_eq!(eight_digits(b"000000019"), Some(1));
        assert_eq!(eight_digits(b"99999999"), Some(99_999_999));
        assert_eq!(eight_digits(b"1234567"), None);
        for at in 0..8 {
            for byte in (0..=255).filter(|byte: &u8| !byte.is_ascii_digit()) {
                let mut text = *b"90909090";
                text[at] = byte;
                assert_eq!(eight_digits(&text), None, "{byte} at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn as_the_library_reads_them(number in any::<u64>(), rest in "([^0-9].*)?") {
            let text = format!("{number}{rest}");
            let expected = i64::try_from(number).ok().map(|value| (value, number.to_string().len()));
            prop_assert_eq!(leading_integer(text.as_bytes()), expected);
        }

        /// The last bit matters: what is truncated to nanoseconds may otherwise be one less.
        #[test]
        fn as_exact_as_the_library(text in r"-?[0-9]{0,21}(\.[0-9]{0,21})?([eE][+-]?[0-9]{0,4})?") {
            let expected = text.parse::<f64>().ok().filter(|value| value.is_finite());
            prop_assert_eq!(leading_float(text.as_bytes()).ok(), expected.map(|value| (value, text.len())));
        }

        #[test]
        fn what_is_printed_comes_back(value in any::<f64>()) {
            let text = format!("{value:e}");
            let (back, _) = leading_float(text.as_bytes()).unwrap();
            prop_assert!(back == value || value.is_nan());
        }
    }
}
