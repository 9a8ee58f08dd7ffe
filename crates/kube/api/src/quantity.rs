//! Kubernetes quantities: `100m`, `1.5Gi`, `12e6`. Exact arithmetic in billionths, and the canonical text to the letter.

use std::cmp::Ordering;
use std::fmt;

const NANO: i128 = 1_000_000_000;

/// An amount that remembers in which notation it was given.
#[derive(Debug, Clone)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
    /// The text it was given in, where that already was canonical in Kubernetes' eyes.
    given: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// `12M`
    Decimal,
    /// `12Mi`
    Binary,
    /// `12e6`
    Exponent,
}

/// In Kubernetes' words, which reach users through Status messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

/// Kubernetes handles shorter numbers on a path that keeps the given text; how many digits that is.
const KEPT_DIGITS: usize = 18;

/// What is left of a text when sign, digits and suffix are told apart.
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, ParseError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let whole_digits = whole.trim_start_matches('0');
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let letters = rest
            .bytes()
            .take_while(|byte| b"eEinumkKMGTP".contains(byte))
            .count();
        let exponent = &rest[letters..];
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseError::Format);
        }
        Ok(Self {
            negative: text.starts_with('-'),
            whole: if whole_digits.is_empty() {
                "0"
            } else {
                whole_digits
            },
            fraction,
            suffix: rest,
        })
    }
}

/// What a suffix multiplies by.
enum Factor {
    Ten(i64, Notation),
    Two(u32),
}

fn suffix(text: &str) -> Option<Factor> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(suffix, _)| *suffix == text) {
        return Some(Factor::Ten(i64::from(*exponent), Notation::Decimal));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(suffix, _)| *suffix == text) {
        return Some(Factor::Two(*exponent));
    }
    let exponent = text.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    Some(Factor::Ten(i64::from(exponent), Notation::Exponent))
}

impl std::str::FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Format);
        }
        let parts = Parts::split(text)?;
        let factor = suffix(parts.suffix).ok_or(ParseError::Suffix)?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let canonical = text == "0" || is_canonical(&parts, &factor, &digits);
        let (digits, fraction) = within_reach(&parts, digits);
        let (nanos, mut notation) = match factor {
            Factor::Ten(exponent, notation) => {
                (scaled(&digits, exponent - i64::from(fraction)), notation)
            }
            Factor::Two(exponent) => {
                let nanos = scaled_by_two(&digits, fraction, exponent);
                let cap = i128::from(i64::MAX) * NANO;
                (nanos.min(cap), Notation::Binary)
            }
        };
        if notation == Notation::Binary && nanos > 0 && nanos < NANO {
            notation = Notation::Decimal;
        }
        Ok(Self {
            nanos: if parts.negative { -nanos } else { nanos },
            notation,
            given: canonical.then(|| text.into()),
        })
    }
}

fn is_canonical(parts: &Parts<'_>, factor: &Factor, digits: &str) -> bool {
    match factor {
        Factor::Ten(exponent, _) => {
            let scale = exponent - parts.fraction.len() as i64;
            parts.whole.len() + parts.fraction.len() <= KEPT_DIGITS
                && scale >= -9
                && scale % 3 == 0
                && !digits.ends_with("000")
                && !digits.starts_with('0')
        }
        Factor::Two(exponent) => {
            let room = 15 - parts.whole.len() as i32 - (*exponent as i32 * 3 / 10) - 1;
            parts.fraction.is_empty()
                && room >= 0
                && exponent % 10 == 0
                && parts.whole.parse::<i64>().is_ok_and(|value| value & 7 != 0)
        }
    }
}

/// The digits that fit into the numbers that are used here, and how many of them stand behind the point. Of a longer
/// fraction, all that counts is whether there is anything more.
fn within_reach(parts: &Parts<'_>, mut digits: String) -> (String, u32) {
    const REACH: usize = 37;
    let kept = parts
        .fraction
        .len()
        .min(REACH.saturating_sub(parts.whole.len()));
    let cut = digits.split_off(parts.whole.len() + kept);
    let mut fraction = kept as u32;
    if cut.bytes().any(|digit| digit != b'0') {
        digits.push('1');
        fraction += 1;
    }
    (digits, fraction)
}

/// `digits × 10^exponent` in billionths, rounded up to the next one; saturating.
fn scaled(digits: &str, exponent: i64) -> i128 {
    let value = digits.parse::<i128>().unwrap_or(i128::MAX);
    let exponent = exponent + 9;
    if value == 0 {
        return 0;
    }
    if exponent >= 0 {
        return power_of_ten(exponent.unsigned_abs())
            .and_then(|factor| value.checked_mul(factor))
            .unwrap_or(i128::MAX);
    }
    match power_of_ten(exponent.unsigned_abs()) {
        Some(divisor) => div_up(value, divisor),
        None => 1,
    }
}

fn power_of_ten(exponent: u64) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

fn scaled_by_two(digits: &str, fraction: u32, exponent: u32) -> i128 {
    let value = digits.parse::<i128>().unwrap_or(i128::MAX);
    let product = value
        .checked_mul(1_i128 << exponent)
        .and_then(|product| product.checked_mul(NANO));
    match (product, 10_i128.checked_pow(fraction)) {
        (Some(product), Some(divisor)) => div_up(product, divisor),
        (None, _) => i128::MAX,
        (_, None) => 1,
    }
}

fn div_up(value: i128, divisor: i128) -> i128 {
    value / divisor + i128::from(value % divisor != 0)
}

impl Quantity {
    pub fn from_nanos(nanos: i128, notation: Notation) -> Self {
        Self {
            // As far below nought as above it.
            nanos: nanos.max(-i128::MAX),
            notation,
            given: None,
        }
    }

    pub fn from_milli(milli: i64) -> Self {
        Self::from_nanos(i128::from(milli) * 1_000_000, Notation::Decimal)
    }

    pub fn from_bytes(bytes: u64) -> Self {
        Self::from_nanos(i128::from(bytes) * NANO, Notation::Binary)
    }

    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// Thousandths, rounded away from zero.
    pub fn milli(&self) -> i64 {
        self.rounded(1_000_000)
    }

    /// Whole units, rounded away from zero.
    pub fn value(&self) -> i64 {
        self.rounded(NANO)
    }

    fn rounded(&self, unit: i128) -> i64 {
        let magnitude = div_up(self.nanos.abs(), unit) * self.nanos.signum();
        i64::try_from(magnitude).unwrap_or(if magnitude < 0 { i64::MIN } else { i64::MAX })
    }

    /// Rounds up to thousandths, as Kubernetes does with every amount in a resource list.
    pub fn round_up_to_milli(mut self) -> Self {
        if self.nanos % 1_000_000 != 0 {
            let magnitude = div_up(self.nanos.abs(), 1_000_000).saturating_mul(1_000_000);
            self.nanos = magnitude * self.nanos.signum();
            self.given = None;
        }
        self
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    pub fn notation(&self) -> Notation {
        self.notation
    }
}

impl std::ops::Add<&Quantity> for &Quantity {
    type Output = Quantity;

    fn add(self, other: &Quantity) -> Quantity {
        let notation = if self.nanos == 0 {
            other.notation
        } else {
            self.notation
        };
        Quantity::from_nanos(self.nanos.saturating_add(other.nanos), notation)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(given) = &self.given {
            return f.write_str(given);
        }
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANO;
        if self.notation == Notation::Binary && !small && self.nanos % NANO == 0 {
            let mut value = self.nanos / NANO;
            let mut power = 0;
            while value % 1024 == 0 && power < BINARY.len() {
                value /= 1024;
                power += 1;
            }
            let suffix = if power == 0 { "" } else { BINARY[power - 1].0 };
            return write!(f, "{value}{suffix}");
        }
        let mut value = self.nanos;
        let mut exponent = -9;
        // Fractions beyond the suffixes' reach cannot be: a billionth is the smallest.
        while value % 1000 == 0 && exponent < 18 {
            value /= 1000;
            exponent += 3;
        }
        match self.notation {
            Notation::Exponent if exponent == 0 => write!(f, "{value}"),
            Notation::Exponent => write!(f, "{value}e{exponent}"),
            _ => {
                let suffix = DECIMAL
                    .iter()
                    .find(|(_, of)| *of == exponent)
                    .map_or("", |(suffix, _)| suffix);
                write!(f, "{value}{suffix}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        let shown = match given.parse::<Quantity>() {
            Ok(quantity) => quantity.to_string(),
            Err(error) => format!("{error:?}"),
        };
        assert_eq!(shown, expected, "{given}");
    }

    #[test]
    fn canonical_texts() {
        for (given, expected) in [
            ("1000000", "1M"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1e3"),
            ("+5", "+5"),
            ("0.5", "500m"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("8Gi", "8Gi"),
            ("1500Mi", "1500Mi"),
            ("0", "0"),
            ("00", "0"),
            ("0Gi", "0"),
            ("1.", "1."),
            ("0.0001", "100u"),
            ("1e30", "1e30"),
            ("9223372036854775808Ki", "9223372036854775807"),
            ("-1", "-1"),
            ("512", "512"),
            ("0.1Gi", "107374182400m"),
            ("1E", "1E"),
            ("1e", "Suffix"),
            ("", "Format"),
            ("abc", "Format"),
            ("Gi", "0"),
            ("1 Gi", "Format"),
            ("1Gb", "Format"),
            ("1KB", "Format"),
            ("1mM", "Suffix"),
        ] {
            check(given, expected);
        }
    }

    /// Whatever is written, there is a number or a refusal, and all that is done with numbers comes to an end.
    #[test]
    fn extremes() {
        let long = |digit: &str| digit.repeat(1000);
        let nines = [
            long("9"),
            format!("-{}", long("9")),
            format!("0.{}", long("9")),
        ];
        let threes = format!("0.{}", long("3"));
        check(&threes, "333333334n");
        check(&format!("1.{}1", long("0")), "1000000001n");
        for text in [
            "1e2147483647",
            "-1e2147483647",
            "1e-2147483648",
            "1.5e-2147483648",
            "0e2147483647",
            "1e9223372036854775807",
            "1e400",
            "NaN",
            "inf",
            "\u{661}",
            "170141183460469231731687303715884105727",
            "-170141183460469231731687303715884105728",
            "99999999999999999999999999999999999999Ei",
            "-99999999999999999999999999999999999999E",
            "9223372036854775807",
            "-9223372036854775808",
        ]
        .into_iter()
        .chain(nines.iter().map(String::as_str))
        {
            let Ok(one) = text.parse::<Quantity>() else {
                continue;
            };
            for other in [&one, &Quantity::from_nanos(i128::MIN, Notation::Binary)] {
                let sum = &(&one + other) + other;
                let shown =
                    [&one, other, &sum].map(|it| it.clone().round_up_to_milli().to_string());
                assert!(shown.iter().all(|text| !text.is_empty()));
                let _ = (sum.milli(), sum.value(), sum.cmp(&one), sum.to_string());
            }
        }
    }

    #[test]
    fn resource_lists_are_rounded_up_to_thousandths() {
        let small: Quantity = "0.0001".parse().unwrap();
        assert_eq!(small.round_up_to_milli().to_string(), "1m");
        let exact: Quantity = "+5".parse().unwrap();
        assert_eq!(exact.round_up_to_milli().to_string(), "+5");
    }

    #[test]
    fn values() {
        let quantity: Quantity = "1.5".parse().unwrap();
        assert_eq!((quantity.milli(), quantity.value()), (1500, 2));
        assert!("1Gi".parse::<Quantity>().unwrap() > "1G".parse().unwrap());
        assert_eq!(Quantity::from_bytes(1 << 30).to_string(), "1Gi");
        assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "[+-]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[0-9]{0,3}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let again: Quantity = quantity.to_string().parse().unwrap();
                if quantity.nanos().abs() < i128::from(i64::MAX) * NANO {
                    proptest::prop_assert_eq!(again, quantity);
                }
            }
        }
    }
}
