//! Points in time by Go's reading of RFC 3339, and its words for what is none: clients match on those.
//!
//! Go is more lenient than the standard in a few places (an hour of one digit, a comma before the fraction, an offset
//! of 24 hours), and stricter than most libraries in others (`T` and `Z` are capitals).

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::Date;

/// RFC 3339 in, whole seconds in UTC out: `2026-01-02T15:04:05Z`. The error is Go's text.
pub fn seconds(text: &str) -> Result<String, String> {
    Ok(show_seconds(parse(text, Layout::Seconds)?))
}

/// As [`seconds`], but exactly six digits of fraction in and out.
pub fn micros(text: &str) -> Result<String, String> {
    Ok(show_micros(parse(text, Layout::Micros)?))
}

/// A time zone can bring a time before the year 0, which nobody could read again.
fn readable(time: Timestamp) -> Timestamp {
    const YEAR_0: i64 = -62_167_219_200;
    match time.as_second() < YEAR_0 {
        true => Timestamp::from_second(YEAR_0).unwrap_or(time),
        false => time,
    }
}

pub fn show_seconds(time: Timestamp) -> String {
    readable(time).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn show_micros(time: Timestamp) -> String {
    readable(time)
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string()
}

/// What a moment may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Any fraction of a second, or none.
    Seconds,
    /// Exactly six digits of fraction.
    Micros,
}

impl Layout {
    fn text(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// A moment beyond the years that can be reckoned with here is the nearest one that can.
pub fn parse(text: &str, layout: Layout) -> Result<Timestamp, String> {
    let mut reading = Reading {
        whole: text,
        rest: text,
        layout,
    };
    let year = reading.year()?;
    reading.mark("-")?;
    let month = reading.number("01", true)?;
    if !(1..=12).contains(&month) {
        return Err(reading.out_of_range("month"));
    }
    reading.mark("-")?;
    let day = reading.number("02", true)?;
    reading.mark("T")?;
    let hour = reading.number("15", false)?;
    if hour > 23 {
        return Err(reading.out_of_range("hour"));
    }
    reading.mark(":")?;
    let minute = reading.number("04", true)?;
    if minute > 59 {
        return Err(reading.out_of_range("minute"));
    }
    reading.mark(":")?;
    let second = reading.number("05", true)?;
    if second > 59 {
        return Err(reading.out_of_range("second"));
    }
    let nanos = reading.fraction()?;
    let offset = reading.offset()?;
    if !reading.rest.is_empty() {
        let extra = quote(reading.rest);
        return Err(format!("parsing time {}: extra text: {extra}", quote(text)));
    }
    // Whether a month has such a day is looked at last.
    let date = i8::try_from(day).ok().and_then(|day| {
        let (year, month) = (i16::try_from(year).ok()?, i8::try_from(month).ok()?);
        Date::new(year, month, day).ok()
    });
    let Some(date) = date else {
        return Err(reading.out_of_range("day"));
    };
    let days = i64::from((date - Date::constant(1970, 1, 1)).get_days());
    let clock = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    let seconds = days * 86_400 + clock - offset;
    let nearest = if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Ok(Timestamp::new(seconds, nanos).unwrap_or(nearest))
}

struct Reading<'a> {
    whole: &'a str,
    rest: &'a str,
    layout: Layout,
}

impl<'a> Reading<'a> {
    fn refuse(&self, expected: &str) -> String {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quote(self.whole),
            quote(self.layout.text()),
            quote(self.rest),
            quote(expected)
        )
    }

    fn out_of_range(&self, part: &str) -> String {
        format!("parsing time {}: {part} out of range", quote(self.whole))
    }

    /// The number that a text of digits is.
    fn digits(text: &str) -> Option<u32> {
        let all = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| all)
    }

    fn take(&mut self, width: usize) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(width)?;
        self.rest = rest;
        Some(taken)
    }

    fn mark(&mut self, mark: &str) -> Result<(), String> {
        self.rest = self
            .rest
            .strip_prefix(mark)
            .ok_or_else(|| self.refuse(mark))?;
        Ok(())
    }

    fn year(&mut self) -> Result<u32, String> {
        let year = self.rest.get(..4).and_then(Self::digits);
        let year = year.ok_or_else(|| self.refuse("2006"))?;
        self.take(4);
        Ok(year)
    }

    /// Two digits; or one, where that is allowed.
    fn number(&mut self, expected: &str, two: bool) -> Result<u32, String> {
        let widths = if two { &[2][..] } else { &[2, 1][..] };
        for &width in widths {
            if let Some(number) = self.rest.get(..width).and_then(Self::digits) {
                self.take(width);
                return Ok(number);
            }
        }
        Err(self.refuse(expected))
    }

    /// Nanoseconds.
    fn fraction(&mut self) -> Result<i32, String> {
        let point = self.rest.starts_with(['.', ',']);
        let behind = self.rest.get(1..).unwrap_or_default();
        let width = behind.bytes().take_while(u8::is_ascii_digit).count();
        let width = match self.layout {
            Layout::Seconds if point && width > 0 => width,
            Layout::Seconds => return Ok(0),
            Layout::Micros if point && width >= 6 => 6,
            Layout::Micros => return Err(self.refuse(".000000")),
        };
        self.take(1 + width);
        let kept = &behind[..width.min(9)];
        Ok(format!("{kept:0<9}").parse().unwrap_or_default())
    }

    /// Seconds east of Greenwich.
    fn offset(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let parts = self.rest.get(..6).and_then(|zone| {
            let (clock, sign) = (&zone.get(1..)?, zone.get(..1)?);
            let (hours, minutes) = clock.split_once(':')?;
            let hours = Self::digits(hours).filter(|_| hours.len() == 2)?;
            Some((sign, hours, Self::digits(minutes)?))
        });
        let Some((sign, hours, minutes)) = parts else {
            return Err(self.refuse("Z07:00"));
        };
        // Offsets of 24 hours or 60 minutes do get written.
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
        let signed = match sign {
            "+" => seconds,
            "-" => -seconds,
            _ => return Err(self.refuse("Z07:00")),
        };
        self.take(6);
        Ok(signed)
    }
}

/// Go's time package quotes in a way of its own: whatever is not plain ASCII byte by byte.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='\x7f' => out.push(c),
            _ => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "\\x{byte:02x}");
                }
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_in_and_out() {
        assert_eq!(
            seconds("2026-01-02T15:04:05+02:00").unwrap(),
            "2026-01-02T13:04:05Z"
        );
        assert_eq!(
            seconds("2026-01-02T15:04:05.9Z").unwrap(),
            "2026-01-02T15:04:05Z"
        );
        assert_eq!(
            micros("2026-01-02T15:04:05.123456+01:00").unwrap(),
            "2026-01-02T14:04:05.123456Z"
        );
        assert!(micros("2026-01-02T15:04:05Z").is_err());
        // As far back as can be read again.
        let first = seconds("0000-01-01T00:00:00+23:59").unwrap();
        assert_eq!(first, "0000-01-01T00:00:00Z");
        assert_eq!(seconds(&first).unwrap(), first);
        let first = micros("0000-01-01T00:00:00.000000+01:00").unwrap();
        assert_eq!(micros(&first).unwrap(), first);
    }

    #[test]
    fn complaints_in_gos_words() {
        for (text, expected) in [
            (
                "x",
                "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
            ),
            (
                "2026-01-02",
                "parsing time \"2026-01-02\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\"",
            ),
            (
                "2026-13-02T15:04:05Z",
                "parsing time \"2026-13-02T15:04:05Z\": month out of range",
            ),
        ] {
            assert_eq!(seconds(text).unwrap_err(), expected);
        }
    }

    #[track_caller]
    fn check(text: &str, layout: Layout, expected: Result<&str, &str>) {
        let found = parse(text, layout).map(|moment| moment.to_string());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn moments() {
        for (text, expected) in [
            ("2026-01-02T15:04:05Z", "2026-01-02T15:04:05Z"),
            ("2026-01-02T15:04:05+02:00", "2026-01-02T13:04:05Z"),
            ("2026-01-02T15:04:05.5Z", "2026-01-02T15:04:05.5Z"),
            ("2026-01-02T15:04:05,25Z", "2026-01-02T15:04:05.25Z"),
            (
                "2026-01-02T15:04:05.1234567899Z",
                "2026-01-02T15:04:05.123456789Z",
            ),
            ("2026-01-02T5:04:05-24:60", "2026-01-03T06:04:05Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            check(text, Layout::Seconds, Ok(expected));
        }
        let micros = "2026-01-02T15:04:05.123456+01:00";
        check(micros, Layout::Micros, Ok("2026-01-02T14:04:05.123456Z"));
    }

    /// Every one of these was read off Go.
    #[test]
    fn refusals() {
        let cannot = |text: &str, rest: &str, step: &str| {
            format!(
                r#"parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{rest}" as "{step}""#
            )
        };
        for (text, rest, step) in [
            ("", "", "2006"),
            ("x", "x", "2006"),
            ("20x6-01-02T15:04:05Z", "20x6-01-02T15:04:05Z", "2006"),
            ("2026-01-02", "", "T"),
            ("2026-1-02T15:04:05Z", "1-02T15:04:05Z", "01"),
            ("2026-01-02 15:04:05Z", " 15:04:05Z", "T"),
            ("2026-01-02t15:04:05z", "t15:04:05z", "T"),
            ("2026-01-02T15:04:05", "", "Z07:00"),
            ("2026-01-02T15:04:05+0100", "+0100", "Z07:00"),
            ("2026-01-02T15:04:05.Z", ".Z", "Z07:00"),
        ] {
            check(text, Layout::Seconds, Err(&cannot(text, rest, step)));
        }
        for (text, why) in [
            ("2026-13-02T15:04:05Z", "month out of range"),
            ("2026-02-30T15:04:05Z", "day out of range"),
            ("2026-02-20T25:04:05Z", "hour out of range"),
            ("2026-02-20T15:60:05Z", "minute out of range"),
            ("2026-02-20T15:04:60Z", "second out of range"),
            (
                "2026-02-20T15:04:05+25:00",
                "time zone offset hour out of range",
            ),
            ("2026-02-20T15:04:05Zx", r#"extra text: "x""#),
        ] {
            let expected = format!("parsing time \"{text}\": {why}");
            check(text, Layout::Seconds, Err(&expected));
        }
        check(
            "2026-01-02T15:04:05Z",
            Layout::Micros,
            Err(
                r#"parsing time "2026-01-02T15:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
        );
        assert_eq!(quote("é\"\n"), r#""\xc3\xa9\"\x0a""#);
    }

    proptest! {
        #[test]
        fn reads_what_others_write(seconds in -62_135_596_800_i64..253_402_300_000, nanos in 0..1_000_000_000_i32) {
            let moment = Timestamp::new(seconds, nanos).unwrap();
            prop_assert_eq!(parse(&moment.to_string(), Layout::Seconds), Ok(moment));
        }

        #[test]
        fn nothing_panics(text: String, digits in "[0-9TZ:+.-]{0,40}") {
            let _ = parse(&text, Layout::Seconds);
            let _ = parse(&digits, Layout::Micros);
        }
    }
}
