//! Amounts of resources, compared and added.

use std::cmp::Ordering;

/// In billionths, which is as fine as Kubernetes keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity(pub i128);

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    pub fn parse(text: &str) -> Option<Self> {
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.')))
            .unwrap_or(text.len());
        let (digits, suffix) = text.split_at(end);
        let (numerator, denominator) = scale(suffix)?;
        let (negative, digits) = match digits.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, digits.strip_prefix('+').unwrap_or(digits)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        // Finer digits than billionths only round up.
        let (fraction, rest) = fraction.split_at(fraction.len().min(18));
        let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        let denominator = denominator * 10_i128.checked_pow(fraction.len() as u32)?;
        let product = mantissa.checked_mul(numerator)?.checked_mul(NANOS)?;
        let inexact = product % denominator != 0 || rest.bytes().any(|byte| byte != b'0');
        let amount = product / denominator + i128::from(inexact);
        Some(Self(if negative { -amount } else { amount }))
    }

    /// Zero where the text is not a quantity.
    pub fn of(text: &str) -> Self {
        Self::parse(text).unwrap_or_default()
    }

    /// Rounded up to whole units.
    pub fn ceil(self) -> i128 {
        self.0.div_euclid(NANOS) + i128::from(self.0.rem_euclid(NANOS) != 0)
    }

    pub fn is_whole(self) -> bool {
        self.0 % NANOS == 0
    }

    /// A decimal amount as Kubernetes writes it: `1`, `1500m`, `2k`.
    pub fn decimal(self) -> String {
        self.written(&[
            (NANOS * 1_000_000_000_000_000_000, "E"),
            (NANOS * 1_000_000_000_000_000, "P"),
            (NANOS * 1_000_000_000_000, "T"),
            (NANOS * 1_000_000_000, "G"),
            (NANOS * 1_000_000, "M"),
            (NANOS * 1_000, "k"),
            (NANOS, ""),
            (1_000_000, "m"),
            (1_000, "u"),
            (1, "n"),
        ])
    }

    /// A binary amount: `1536Mi`.
    pub fn binary(self) -> String {
        if !self.is_whole() || self.0.abs() < NANOS * 1024 {
            return self.decimal();
        }
        self.written(&[
            (NANOS << 60, "Ei"),
            (NANOS << 50, "Pi"),
            (NANOS << 40, "Ti"),
            (NANOS << 30, "Gi"),
            (NANOS << 20, "Mi"),
            (NANOS << 10, "Ki"),
            (NANOS, ""),
        ])
    }

    /// Written the way `like` is.
    pub fn written_like(self, like: &str) -> String {
        if like.ends_with('i') {
            self.binary()
        } else {
            self.decimal()
        }
    }

    fn written(self, units: &[(i128, &str)]) -> String {
        if self.0 == 0 {
            return "0".to_owned();
        }
        units
            .iter()
            .find(|(unit, _)| self.0 % unit == 0)
            .map_or_else(String::new, |(unit, suffix)| {
                format!("{}{suffix}", self.0 / unit)
            })
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// A suffix's factor as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (1, factor) } else { (factor, 1) }
        }
    })
}

pub fn compare(a: &str, b: &str) -> Ordering {
    Quantity::of(a).cmp(&Quantity::of(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_compare_across_units() {
        assert_eq!(compare("1Gi", "1024Mi"), Ordering::Equal);
        assert_eq!(compare("500m", "0.5"), Ordering::Equal);
        assert_eq!(compare("1e3", "1k"), Ordering::Equal);
        assert_eq!(compare("-1", "0"), Ordering::Less);
        assert_eq!(Quantity::parse("1x"), None);
    }

    #[test]
    fn amounts_are_written_in_the_largest_exact_unit() {
        assert_eq!(Quantity::of("1.5").decimal(), "1500m");
        assert_eq!(Quantity::of("1.5Gi").binary(), "1536Mi");
        assert_eq!(Quantity::of("0.0001").ceil(), 1);
        assert_eq!((Quantity::of("200m") + Quantity::of("0.8")).decimal(), "1");
    }
}
