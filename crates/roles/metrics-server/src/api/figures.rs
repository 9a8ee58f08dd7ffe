//! Amounts, times and spans as Kubernetes writes them, straight into a buffer: a list has hundreds of thousands.

use std::fmt::Write;

const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const SECOND: i64 = 1_000_000_000;

/// A short text on the stack.
#[derive(Clone, Copy)]
pub struct Short {
    bytes: [u8; 40],
    length: u8,
}

impl Short {
    fn new() -> Self {
        Self {
            bytes: [0; 40],
            length: 0,
        }
    }

    /// A number below a hundred, and what follows it.
    fn two_digits(&mut self, number: i64, then: &[u8]) {
        let digits = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        for byte in digits.iter().chain(then) {
            if let Some(place) = self.bytes.get_mut(usize::from(self.length)) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    pub fn as_str(&self) -> &str {
        // Nothing but whole texts is ever added.
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl std::fmt::Debug for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let start = usize::from(self.length);
        let room = self.bytes.get_mut(start..start + text.len());
        room.ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length += text.len() as u8;
        Ok(())
    }
}

fn joined(number: u64, suffix: &str) -> Short {
    let mut out = Short::new();
    let mut digits = itoa::Buffer::new();
    // Twenty digits and two letters fit.
    let _ = out.write_str(digits.format(number));
    let _ = out.write_str(suffix);
    out
}

/// Beyond what an `i64` holds Kubernetes counts in tens.
fn within_reach(amount: u64) -> u64 {
    match i64::try_from(amount) {
        Ok(_) => amount,
        Err(_) => amount / 10 * 10,
    }
}

/// Nanocores: `250m`, `34301354n`.
pub fn cpu(nanocores: u64) -> Short {
    decimal(within_reach(nanocores), 0)
}

fn decimal(mut number: u64, mut suffix: usize) -> Short {
    if number == 0 {
        return joined(0, "");
    }
    while number.is_multiple_of(1000) && suffix + 1 < DECIMAL.len() {
        number /= 1000;
        suffix += 1;
    }
    joined(number, DECIMAL[suffix])
}

/// Bytes: `81656Ki`; never rounded.
pub fn memory(bytes: u64) -> Short {
    if bytes < 1024 {
        return decimal(bytes, 3);
    }
    let number = within_reach(bytes);
    let factors = (number.trailing_zeros() as usize / 10).min(BINARY.len() - 1);
    joined(number >> (10 * factors), BINARY[factors])
}

/// Whole seconds since the epoch.
pub fn seconds(nanos: i64) -> i64 {
    nanos.div_euclid(SECOND)
}

/// `2021-11-08T03:29:22Z`, without fractions.
pub fn time(seconds: i64) -> Short {
    let days = seconds.div_euclid(86_400);
    let rest = seconds.rem_euclid(86_400);
    let (year, month, day) = date(days);
    let mut out = Short::new();
    if (0..10_000).contains(&year) {
        out.two_digits(year / 100, b"");
        out.two_digits(year % 100, b"-");
    } else {
        let _ = write!(out, "{year:04}-");
    }
    out.two_digits(month, b"-");
    out.two_digits(day, b"T");
    out.two_digits(rest / 3600, b":");
    out.two_digits(rest / 60 % 60, b":");
    out.two_digits(rest % 60, b"Z");
    out
}

/// The civil date of a day since the epoch; years begin in March here, so that the leap day comes last.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    const FROM_MARCH_OF_YEAR_0: i64 = 719_468;
    let days = days + FROM_MARCH_OF_YEAR_0;
    let era = days.div_euclid(DAYS_OF_400_YEARS);
    let day = days.rem_euclid(DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day_of_month)
}

/// Nanoseconds as Go writes a duration: `1m0.5s`, `980ms`.
pub fn span(nanos: i64) -> Short {
    let mut out = Short::new();
    // The longest has 26 letters.
    let _ = plimsoll_golang::duration::write(&mut out, nanos);
    out
}

#[cfg(test)]
mod tests {
    use plimsoll_api::quantity::{Notation, Quantity};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts() {
        for (nanocores, expected) in [
            (0, "0"),
            (34_301_354, "34301354n"),
            (34_301_000, "34301u"),
            (100_000_000, "100m"),
            (2_000_000_000, "2"),
            (3_000_000_000_000, "3k"),
            (u64::MAX, "18446744073709551610n"),
        ] {
            assert_eq!(cpu(nanocores).as_str(), expected);
        }
        for (bytes, expected) in [
            (0, "0"),
            (512, "512"),
            (1000, "1k"),
            (1023, "1023"),
            (1024, "1Ki"),
            (83_615_744, "81656Ki"),
            (1 << 20, "1Mi"),
            (1_500_001, "1500001"),
            (1 << 62, "4Ei"),
        ] {
            assert_eq!(memory(bytes).as_str(), expected);
        }
    }

    #[test]
    fn times_and_spans() {
        assert_eq!(time(1_636_342_162).as_str(), "2021-11-08T03:29:22Z");
        assert_eq!(time(0).as_str(), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_400).as_str(), "2000-02-29T00:00:00Z");
        assert_eq!(seconds(-1), -1);
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (980_000_000, "980ms"),
            (15_052_000_000, "15.052s"),
            (60_000_000_000, "1m0s"),
            (60_500_000_000, "1m0.5s"),
            (3_600_000_000_000, "1h0m0s"),
            (-1_000_000, "-1ms"),
            (i64::MAX, "2562047h47m16.854775807s"),
        ] {
            assert_eq!(span(nanos).as_str(), expected);
        }
    }

    proptest! {
        #[test]
        fn as_the_quantity_type_writes_it(amount in 0..i64::MAX as u64, zeros in 0..6_u32) {
            let round = amount - amount % 1000_u64.pow(zeros);
            for amount in [amount, round, amount >> 10 << 10, amount >> 20 << 20] {
                let exact = Quantity::from_nanos(i128::from(amount), Notation::Decimal);
                prop_assert_eq!(cpu(amount).as_str().to_owned(), exact.to_string());
                prop_assert_eq!(memory(amount).as_str().to_owned(), Quantity::from_bytes(amount).to_string());
            }
        }

        #[test]
        fn as_jiff_writes_it(seconds in -10_000_000_000..100_000_000_000_i64) {
            let exact = jiff::Timestamp::from_second(seconds).unwrap();
            prop_assert_eq!(time(seconds).as_str().to_owned(), exact.to_string());
        }
    }
}
