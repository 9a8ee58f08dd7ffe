//! Amounts of resources, compared and added.

use std::cmp::Ordering;

use plimsoll_api::quantity::{self, Notation};

/// In billionths, which is as fine as Kubernetes keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity(pub i128);

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<quantity::Quantity>()
            .ok()
            .map(|amount| Self(amount.nanos()))
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

    /// Whole, and no more than can be counted: the API server takes what is larger for a fraction.
    pub fn is_countable(self) -> bool {
        self.is_whole() && self.ceil() <= i128::from(i64::MAX)
    }

    /// A decimal amount as Kubernetes writes it: `1`, `1500m`, `2k`.
    pub fn decimal(self) -> String {
        quantity::Quantity::from_nanos(self.0, Notation::Decimal).to_string()
    }

    /// Written the way `like` is.
    pub fn written_like(self, like: &str) -> String {
        let notation = if like.ends_with('i') {
            Notation::Binary
        } else {
            Notation::Decimal
        };
        quantity::Quantity::from_nanos(self.0, notation).to_string()
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
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
        assert_eq!(Quantity::of("1.5Gi").written_like("1Gi"), "1536Mi");
        assert_eq!(Quantity::of("0.0001").ceil(), 1);
        assert_eq!((Quantity::of("200m") + Quantity::of("0.8")).decimal(), "1");
    }
}
