//! Many numbers in little room: exact ends and mean, and percentiles to within a few percent.

/// Steps between one power of two and the next.
const FINENESS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
    pub p95: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Digest {
    count: u32,
    sum: f64,
    min: u64,
    max: u64,
    /// How many numbers fell into which class, sorted by class; samples of one workload fall into few.
    classes: Vec<(u16, u32)>,
}

/// Numbers of one class differ by less than one in two to the `FINENESS`.
fn class(value: u64) -> u16 {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(FINENESS + 1);
    let top = (value >> shift) as u16;
    ((shift as u16) << FINENESS) + top
}

/// The largest number of a class.
fn upper(class: u16) -> u64 {
    let fine = 1 << FINENESS;
    if class < 2 * fine {
        return class.into();
    }
    let shift = u32::from(class / fine - 1);
    let top = u64::from(class % fine + fine);
    ((top + 1) << shift).wrapping_sub(1)
}

impl Digest {
    pub fn take(&mut self, value: u64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count = self.count.saturating_add(1);
        self.sum += value as f64;
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        let class = class(value);
        match self.classes.binary_search_by_key(&class, |(of, _)| *of) {
            Ok(found) => self.classes[found].1 += 1,
            Err(at) => self.classes.insert(at, (class, 1)),
        }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Keeps its room for the next ones.
    pub fn clear(&mut self) {
        self.classes.clear();
        (self.count, self.sum) = (0, 0.0);
    }

    /// `None`: of nothing.
    pub fn summary(&self) -> Option<Summary> {
        if self.count == 0 {
            return None;
        }
        let rank = u64::from(self.count).saturating_mul(95).div_ceil(100);
        let mut seen = 0;
        let class = self.classes.iter().find(|(_, count)| {
            seen += u64::from(*count);
            seen >= rank
        });
        let p95 = class.map_or(self.max, |(class, _)| upper(*class).min(self.max));
        Some(Summary {
            min: self.min as f64,
            mean: self.sum / f64::from(self.count),
            max: self.max as f64,
            p95: p95 as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_follow_each_other() {
        assert_eq!((class(0), upper(0)), (0, 0));
        let mut last = 0;
        for value in (0..5000).chain([1 << 40, (1 << 40) + (1 << 35), u64::MAX]) {
            let class = class(value);
            assert!(class >= last && upper(class) >= value, "{value}");
            last = class;
        }
        assert_eq!(upper(class(u64::MAX)), u64::MAX);
    }

    proptest! {
        #[test]
        fn percentiles_are_nearly_right(mut values in proptest::collection::vec(any::<u64>(), 1..200)) {
            let mut digest = Digest::default();
            for value in &mut values {
                *value >>= *value % 50;
                digest.take(*value);
            }
            values.sort_unstable();
            let summary = digest.summary().unwrap();
            let exact = values[(values.len() * 95).div_ceil(100) - 1] as f64;
            prop_assert!(summary.p95 >= exact * 0.999_999 && summary.p95 <= exact * 1.04 + 1.0);
            prop_assert_eq!(summary.min, values[0] as f64);
            prop_assert_eq!(summary.max, values[values.len() - 1] as f64);
            let mean = values.iter().map(|value| *value as f64).sum::<f64>() / values.len() as f64;
            prop_assert!((summary.mean - mean).abs() <= mean * 1e-9);
        }
    }
}
