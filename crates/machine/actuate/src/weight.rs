//! CPU shares and weights.
//!
//! The kubelet converts the shares of pods and tiers in a straight line. Runtimes did the same for containers until runc
//! 1.3.2 (and crun 1.23), which follow a curve through 2 → 1, 1024 → 100 and 262144 → 10000. A weight says nothing about
//! which of them it came from, so weights are compared as weights and never converted back.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WeightFormula {
    /// `1 + (shares - 2) * 9999 / 262142`.
    #[default]
    Linear,
    /// `⌈10^(L²/612 + 125 L/612 - 7/34)⌉`, where `L` is the binary logarithm of the shares.
    Quadratic,
}

pub const LEAST_SHARES: u64 = 2;
pub const MOST_SHARES: u64 = 262_144;
pub const MOST_WEIGHT: u64 = 10_000;

impl WeightFormula {
    pub fn weight(self, shares: u64) -> u64 {
        let shares = shares.clamp(LEAST_SHARES, MOST_SHARES);
        match self {
            Self::Linear => 1 + (shares - 2) * 9999 / 262_142,
            // At both ends the curve is cut off, as runc does.
            Self::Quadratic if shares <= LEAST_SHARES => 1,
            Self::Quadratic if shares >= MOST_SHARES => MOST_WEIGHT,
            Self::Quadratic => {
                let log = (shares as f64).log2();
                let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
                (10f64.powf(exponent).ceil() as u64).clamp(1, MOST_WEIGHT)
            }
        }
    }
}

/// Whether a weight is right for these shares. Runtimes have two ways.
pub fn fits(shares: u64, weight: u64, container: bool) -> bool {
    WeightFormula::Linear.weight(shares) == weight
        || container && WeightFormula::Quadratic.weight(shares) == weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formulas() {
        // The quadratic ones are what runc 1.3.2 writes.
        for (shares, linear, quadratic) in [
            (0, 1, 1),
            (2, 1, 1),
            (102, 4, 17),
            (1024, 39, 100),
            (2000, 77, 170),
            (262_144, 10_000, 10_000),
            (u64::MAX, 10_000, 10_000),
        ] {
            assert_eq!(WeightFormula::Linear.weight(shares), linear, "{shares}");
            assert_eq!(
                WeightFormula::Quadratic.weight(shares),
                quadratic,
                "{shares}"
            );
        }
    }

    /// The hash was computed by a Go program with runc's own line of code.
    #[test]
    fn the_curve_is_that_of_runc_everywhere() {
        let mut hash: u64 = 14_695_981_039_346_656_037;
        for shares in 3..MOST_SHARES {
            hash ^= WeightFormula::Quadratic.weight(shares);
            hash = hash.wrapping_mul(1_099_511_628_211);
        }
        assert_eq!(hash, 16_795_362_763_846_609_674);
    }

    #[test]
    fn only_containers_have_two_right_weights() {
        assert!(fits(1024, 39, true) && fits(1024, 39, false));
        assert!(fits(1024, 100, true) && !fits(1024, 100, false));
        assert!(!fits(1024, 40, true));
    }
}
