//! An amount that goes up and down: `200m±20%`.

use std::str::FromStr;

use plimsoll_api::quantity::Quantity;

/// In units: cores, bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    pub base: f64,
    /// As a share of the base, at most one: nothing uses less than nothing.
    pub spread: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no amount like 200m or 200m±20%: {why}")]
pub struct BadLevel {
    pub given: String,
    why: &'static str,
}

impl FromStr for Level {
    type Err = BadLevel;

    /// `+-` does for those without a `±` on their keyboard.
    fn from_str(text: &str) -> Result<Self, BadLevel> {
        let bad = |why| BadLevel {
            given: text.to_owned(),
            why,
        };
        let parts = text.split_once('±').or_else(|| text.split_once("+-"));
        let (base, spread) = match parts {
            Some((base, spread)) => (base, Some(spread)),
            None => (text, None),
        };
        let base: Quantity = base
            .trim()
            .parse()
            .map_err(|_| bad("the amount is no quantity"))?;
        if base.nanos() < 0 {
            return Err(bad("the amount is below zero"));
        }
        let spread = match spread {
            None => 0.0,
            Some(spread) => spread
                .trim()
                .strip_suffix('%')
                .and_then(|share| share.trim_end().parse::<u8>().ok())
                .filter(|share| *share <= 100)
                .map(|share| f64::from(share) / 100.0)
                .ok_or_else(|| bad("the spread must be from 0% to 100%"))?,
        };
        Ok(Self {
            base: base.nanos() as f64 / 1e9,
            spread,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, base: f64, spread: f64) {
        assert_eq!(text.parse(), Ok(Level { base, spread }));
    }

    #[test]
    fn levels() {
        check("200m", 0.2, 0.0);
        check("200m±20%", 0.2, 0.2);
        check("2 ± 100 %", 2.0, 1.0);
        check("1Gi+-5%", 1_073_741_824.0, 0.05);
        check("0", 0.0, 0.0);
        for bad in ["", "±20%", "1±", "1±20", "1±101%", "1±-1%", "-1", "much"] {
            assert!(bad.parse::<Level>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Level>();
        }
    }
}
