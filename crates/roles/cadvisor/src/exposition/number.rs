//! Numbers as Go's `%g` prints them, which is how every Prometheus client library of the original writes them.
//!
//! Shortest digits that read back as the same `f64`; exponent form from 1e+06 up and below 1e-04.

pub use plimsoll_golang::strconv::write_float as float;
use plimsoll_golang::strconv::{trim_zeros, write_digits};

/// A figure with the unit it was kept in; on the page everything is in base units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Whole(u64),
    /// Seconds from nanoseconds.
    Nanos(u64),
    /// Seconds from microseconds.
    Micros(u64),
    /// Seconds from milliseconds.
    Millis(u64),
    Float(f64),
}

/// Up to this many digits, the decimal digits of `n / 10^k` are the shortest that read back as its `f64`.
const EXACT: u64 = 1_000_000_000_000_000;

impl Number {
    /// What is read from the page, to the last digit.
    pub fn value(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Nanos(value) => value as f64 / 1e9,
            Self::Micros(value) => value as f64 / 1e6,
            Self::Millis(value) => value as f64 / 1e3,
            Self::Float(value) => value,
        }
    }

    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Whole(value) => scaled(value, 0, out),
            Self::Nanos(value) => scaled(value, 9, out),
            Self::Micros(value) => scaled(value, 6, out),
            Self::Millis(value) => scaled(value, 3, out),
            Self::Float(value) => float(value, out),
        }
    }
}

/// `value / 10^decimals`.
#[inline]
fn scaled(value: u64, decimals: i32, out: &mut Vec<u8>) {
    if value < 10 && decimals == 0 {
        out.push(b'0' + value as u8);
        return;
    }
    if value >= EXACT {
        float(value as f64 / 10f64.powi(decimals), out);
        return;
    }
    if value == 0 {
        out.push(b'0');
        return;
    }
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(value).as_bytes();
    let exponent = text.len() as i32 - 1 - decimals;
    write_digits(trim_zeros(text), exponent, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(number: Number) -> String {
        let mut out = Vec::new();
        number.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn as_the_original_prints_them() {
        for (number, expected) in [
            (Number::Whole(0), "0"),
            (Number::Whole(53351), "53351"),
            (Number::Whole(243850), "243850"),
            (Number::Whole(100000), "100000"),
            (Number::Whole(1000000), "1e+06"),
            (Number::Whole(3085301), "3.085301e+06"),
            (Number::Whole(25274793984), "2.5274793984e+10"),
            (Number::Whole(u64::MAX), "1.8446744073709552e+19"),
            (Number::Nanos(1480950000000), "1480.95"),
            (Number::Nanos(2819451218441), "2819.451218441"),
            (Number::Nanos(76572), "7.6572e-05"),
            (Number::Nanos(634279), "0.000634279"),
            (Number::Nanos(1), "1e-09"),
            (Number::Millis(518661), "518.661"),
            (Number::Micros(7), "7e-06"),
            (Number::Float(-1.0), "-1"),
            (Number::Float(1.794768889e9), "1.794768889e+09"),
            (Number::Float(0.1), "0.1"),
            (Number::Float(1e22), "1e+22"),
            (Number::Float(f64::NAN), "NaN"),
            (Number::Float(f64::NEG_INFINITY), "-Inf"),
        ] {
            assert_eq!(text(number), expected, "{number:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_back_as_the_same_number(value: f64) {
            prop_assume!(value.is_finite());
            prop_assert_eq!(text(Number::Float(value)).parse::<f64>().unwrap(), value);
        }

        #[test]
        fn the_fast_path_agrees_with_division(value: u64) {
            prop_assert_eq!(text(Number::Nanos(value)), text(Number::Float(value as f64 / 1e9)));
            prop_assert_eq!(text(Number::Micros(value)), text(Number::Float(value as f64 / 1e6)));
            prop_assert_eq!(text(Number::Whole(value)), text(Number::Float(value as f64)));
        }

        #[test]
        fn the_value_is_what_the_page_says(value: u64, small in 0u64..2_000_000_000_000_000) {
            for value in [value, small] {
                for number in [Number::Whole(value), Number::Nanos(value), Number::Micros(value), Number::Millis(value)] {
                    prop_assert_eq!(text(number).parse::<f64>().unwrap(), number.value());
                }
            }
        }

        #[test]
        fn the_fast_path_agrees_with_division_for_small(value in 0u64..2_000_000_000_000_000) {
            prop_assert_eq!(text(Number::Nanos(value)), text(Number::Float(value as f64 / 1e9)));
        }
    }
}
