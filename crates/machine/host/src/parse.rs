//! Byte-level parsing shared by the readers. Pure functions on slices; no allocation unless something is wrong.

/// Where a kernel text stopped making sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Counted from 1.
    pub line: usize,
    pub text: Box<str>,
    /// Nothing wrong so far, but more had to follow.
    pub cut_short: bool,
}

impl Malformed {
    pub fn at(line_index: usize, text: &[u8]) -> Self {
        // A hostile or binary file must not put a megabyte into a log line.
        let shown = &text[..text.len().min(120)];
        Self {
            line: line_index + 1,
            text: String::from_utf8_lossy(shown).into(),
            cut_short: false,
        }
    }

    /// The text ends before it told what every kernel tells. Read as it is, a counter would fall back to zero.
    pub fn cut_short(text: &[u8]) -> Self {
        let last = numbered(text).last().unwrap_or((0, b""));
        Self {
            cut_short: true,
            ..Self::at(last.0, last.1)
        }
    }
}

/// The kernel ends every line it prints; a text that stops in the middle of one is not all of it.
#[inline]
pub fn whole_lines(text: &[u8]) -> Result<&[u8], Malformed> {
    match text {
        [] | [.., b'\n'] => Ok(text),
        _ => Err(Malformed::cut_short(text)),
    }
}

/// Parses an unsigned decimal; `None` on anything else, overflow included.
#[inline]
pub fn u64(text: &[u8]) -> Option<u64> {
    // 19 digits cannot overflow, so the common case needs no checked arithmetic.
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let (head, tail) = text.split_at(text.len().min(19));
    let mut value: u64 = 0;
    for &byte in head {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for &byte in tail {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

#[inline]
pub fn i64(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(rest) => i64::try_from(u64(rest)?).ok().map(|v| -v),
        None => i64::try_from(u64(text)?).ok(),
    }
}

/// A limit file: a number, or `max` for "no limit".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Max,
    At(u64),
}

pub fn limit(text: &[u8]) -> Option<Limit> {
    match trim(text) {
        b"max" => Some(Limit::Max),
        number => u64(number).map(Limit::At),
    }
}

#[inline]
pub fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// Lines without their terminators; a last line without one counts too.
#[inline]
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n')
        .enumerate()
        .filter(move |(_, line)| !line.is_empty())
        .map(|(_, line)| line)
}

/// Splits on runs of blanks, as `/proc` tables need.
#[inline]
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| b.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
}

/// Lines with their index (from 0), as errors need it.
#[inline]
pub fn numbered(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split(|&b| b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
}

/// Parses hexadecimal digits without a prefix; `None` on anything else, overflow included.
#[inline]
pub fn hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    let mut value = 0;
    for &byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

/// Walks a flat-keyed file (`key value` a line). Such a file always has a line. `each` returns `false` to stop early.
///
/// Half of the agent's own work is here, so a line is gone over once: to the blank, then digit by digit.
#[inline]
pub fn flat_keyed(text: &[u8], mut each: impl FnMut(&[u8], u64) -> bool) -> Result<(), Malformed> {
    let mut rest = whole_lines(text)?;
    if rest.is_empty() {
        return Err(Malformed::cut_short(rest));
    }
    let mut index = 0;
    while !rest.is_empty() {
        let at = memchr::memchr2(b' ', b'\n', rest).unwrap_or(rest.len());
        let (key, tail) = rest.split_at(at);
        let value = match tail.first() {
            Some(b' ') => leading_u64(&tail[1..]),
            // An empty line is none; a key without a value is a mistake.
            _ if key.is_empty() => {
                rest = tail.get(1..).unwrap_or(&[]);
                index += 1;
                continue;
            }
            _ => None,
        };
        let end = |(_, digits): &(u64, usize)| tail.get(1 + digits).is_none_or(|&b| b == b'\n');
        let Some((value, digits)) = value.filter(end) else {
            let line = rest.split(|&b| b == b'\n').next().unwrap_or(rest);
            return Err(Malformed::at(index, line));
        };
        if !each(key, value) {
            return Ok(());
        }
        rest = tail.get(digits + 2..).unwrap_or(&[]);
        index += 1;
    }
    Ok(())
}

/// The number that the text begins with, and how many digits it has.
#[inline]
fn leading_u64(text: &[u8]) -> Option<(u64, usize)> {
    /// So many digits cannot overflow.
    const SAFE: usize = 19;
    let mut value = 0u64;
    let mut digits = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = match digits < SAFE {
            true => value * 10 + u64::from(digit),
            false => value.checked_mul(10)?.checked_add(u64::from(digit))?,
        };
        digits += 1;
    }
    (digits > 0).then_some((value, digits))
}

/// A file holding one number.
#[inline]
pub fn single(text: &[u8]) -> Result<u64, Malformed> {
    u64(trim(text)).ok_or_else(|| Malformed::at(0, text))
}

/// A kernel CPU or node list, `0-3,8,10-11`, as numbers in order. An empty list is empty.
pub fn index_list(text: &[u8]) -> Result<Vec<u32>, Malformed> {
    /// More CPUs than any kernel supports: a range beyond it is a mistake, not a machine.
    const MOST: u64 = 1 << 16;
    let mut out = Vec::new();
    let trimmed = trim(text);
    if trimmed.is_empty() {
        return Ok(out);
    }
    for part in trimmed.split(|&b| b == b',') {
        let bad = || Malformed::at(0, text);
        let mut ends = part.splitn(2, |&b| b == b'-');
        let first = ends.next().and_then(|t| u64(trim(t))).ok_or_else(bad)?;
        let last = match ends.next() {
            Some(t) => u64(trim(t)).ok_or_else(bad)?,
            None => first,
        };
        if last < first || last >= MOST {
            return Err(bad());
        }
        out.extend((first..=last).map(|v| v as u32));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers() {
        assert_eq!(u64(b"0"), Some(0));
        assert_eq!(u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(u64(b"18446744073709551616"), None);
        assert_eq!(u64(b""), None);
        assert_eq!(u64(b"12a"), None);
        assert_eq!(i64(b"-1"), Some(-1));
        assert_eq!(hex(b"0aF"), Some(0xaf));
        assert_eq!(hex(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(hex(b"10000000000000000"), None);
        assert_eq!(hex(b"0x1"), None);
    }

    #[test]
    fn lists() {
        assert_eq!(index_list(b"0-2,5\n").unwrap(), [0, 1, 2, 5]);
        assert_eq!(index_list(b"\n").unwrap(), [] as [u32; 0]);
        assert!(index_list(b"3-1").is_err());
        assert!(index_list(b"0-99999999999").is_err());
    }

    #[test]
    fn flat_keyed_names_the_bad_line() {
        let error = flat_keyed(b"a 1\nb x\n", |_, _| true).unwrap_err();
        assert_eq!(
            error,
            Malformed {
                line: 2,
                text: "b x".into(),
                cut_short: false,
            }
        );
    }

    #[track_caller]
    fn check_flat(text: &str, expected: Result<&[(&str, u64)], usize>) {
        let mut found = Vec::new();
        let outcome = flat_keyed(text.as_bytes(), |key, value| {
            found.push((String::from_utf8_lossy(key).into_owned(), value));
            true
        });
        let found: Vec<(&str, u64)> = found.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        let outcome = outcome.map(|()| found.as_slice()).map_err(|at| at.line);
        assert_eq!(outcome, expected, "{text:?}");
    }

    #[test]
    fn flat_keyed_lines() {
        check_flat("", Err(1));
        check_flat("\na 1\n\nb 22\n", Ok(&[("a", 1), ("b", 22)]));
        check_flat("a 1\nb 22", Err(2));
        check_flat("a 18446744073709551615\n", Ok(&[("a", u64::MAX)]));
        check_flat("a 18446744073709551616\n", Err(1));
        check_flat("a 99999999999999999999\n", Err(1));
        check_flat("a 1\nb\n", Err(2));
        check_flat("a 1\nb \nc 3\n", Err(2));
        check_flat("a 1x\n", Err(1));
        check_flat("a 1 2\n", Err(1));
        check_flat("a -1\n", Err(1));
    }

    #[test]
    fn what_is_cut_short_says_where() {
        assert!(whole_lines(b"").is_ok() && whole_lines(b"a\nb\n").is_ok());
        let error = whole_lines(b"a 1\nb 2").unwrap_err();
        assert_eq!((error.line, &*error.text), (2, "b 2"));
        assert!(error.cut_short);
    }

    proptest! {
        #[test]
        fn any_number_survives(value: u64) {
            prop_assert_eq!(u64(value.to_string().as_bytes()), Some(value));
        }

        #[test]
        fn any_flat_keyed_number_survives(value: u64) {
            let text = format!("key {value}\nnext 1\n");
            let mut found = Vec::new();
            flat_keyed(text.as_bytes(), |_, value| {
                found.push(value);
                true
            }).unwrap();
            prop_assert_eq!(found, [value, 1]);
        }

        #[test]
        fn any_hex_number_survives(value: u64) {
            prop_assert_eq!(hex(format!("{value:x}").as_bytes()), Some(value));
            prop_assert_eq!(hex(format!("{value:016X}").as_bytes()), Some(value));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = index_list(&text);
            let _ = flat_keyed(&text, |_, _| true);
            let _ = limit(&text);
            let _ = hex(&text);
        }
    }
}
