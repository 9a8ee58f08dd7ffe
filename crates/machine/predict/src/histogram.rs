//! A histogram whose past fades: a sample counts half as much after each half-life.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// A bucket that weighs less counts as empty.
const EPSILON: f64 = 1e-4;
/// Weights grow instead of the past's shrinking; beyond this many half-lives they are brought down again.
const MAX_EXPONENT: i64 = 100;
/// The heaviest bucket of a saved histogram.
const SAVED_WEIGHT: f64 = 10_000.0;

/// Buckets that grow by a constant share: precision is relative, and few cover a wide range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buckets {
    /// How wide the first bucket is.
    pub first: f64,
    /// Values beyond go into the last bucket.
    pub max: f64,
}

/// How much wider each bucket is than the one before.
const RATIO: f64 = 1.05;

impl Buckets {
    /// In cores.
    pub const CPU: Self = Self {
        first: 0.025,
        max: 1024.0,
    };
    /// In bytes, up to 2 TiB.
    pub const MEMORY: Self = Self {
        first: 5.0 * 1024.0 * 1024.0,
        max: 2_199_023_255_552.0,
    };

    pub fn count(&self) -> usize {
        self.position(self.max).ceil() as usize + 1
    }

    /// Where a value lies, in buckets.
    fn position(&self, value: f64) -> f64 {
        (value * (RATIO - 1.0) / self.first + 1.0).ln() / RATIO.ln()
    }

    fn find(&self, value: f64) -> usize {
        if value.is_nan() || value < self.first {
            return 0;
        }
        (self.position(value).floor() as usize).min(self.count() - 1)
    }

    fn start(&self, bucket: usize) -> f64 {
        self.first * (RATIO.powi(bucket as i32) - 1.0) / (RATIO - 1.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    buckets: Buckets,
    half_life: SignedDuration,
    /// A sample taken now weighs 1.
    reference: Option<Timestamp>,
    weights: Vec<f64>,
    total: f64,
}

/// A histogram in numbers that fit a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    pub reference: Option<Timestamp>,
    /// Relative to the heaviest bucket's 10 000; those that round to 0 are left out.
    pub weights: BTreeMap<usize, u32>,
    pub total: f64,
}

impl Histogram {
    pub fn new(buckets: Buckets, half_life: SignedDuration) -> Self {
        Self {
            buckets,
            half_life,
            reference: None,
            weights: vec![0.0; buckets.count()],
            total: 0.0,
        }
    }

    pub fn add(&mut self, value: f64, at: Timestamp) {
        let weight = self.weight(at);
        self.weights[self.buckets.find(value)] += weight;
        self.total += weight;
    }

    pub fn is_empty(&self) -> bool {
        self.filled().is_none()
    }

    /// The value that this share (0 to 1) of the weight does not exceed: the upper edge of the bucket where it lies. 0
    /// without samples.
    pub fn percentile(&self, share: f64) -> f64 {
        let Some((first, last)) = self.filled() else {
            return 0.0;
        };
        let threshold = share * self.total;
        let mut sum = 0.0;
        let within = self.weights[first..last].iter().position(|weight| {
            sum += weight;
            sum >= threshold
        });
        let bucket = within.map_or(last, |passed| first + passed);
        // The last bucket has no upper edge.
        self.buckets.start((bucket + 1).min(self.weights.len() - 1))
    }

    /// The first and the last bucket that count.
    fn filled(&self) -> Option<(usize, usize)> {
        let counts = |weight: &f64| *weight >= EPSILON;
        let first = self.weights.iter().position(counts)?;
        let last = self.weights.iter().rposition(counts)?;
        Some((first, last))
    }

    fn weight(&mut self, at: Timestamp) -> f64 {
        let half_life = self.half_life.as_secs_f64();
        let reference = match self.reference {
            Some(reference) => reference,
            None => *self.reference.insert(rounded(at, self.half_life)),
        };
        let mut exponent = at.duration_since(reference).as_secs_f64() / half_life;
        if exponent > MAX_EXPONENT as f64 {
            let reference = rounded(at, self.half_life);
            self.shift(reference);
            exponent = at.duration_since(reference).as_secs_f64() / half_life;
        }
        exponent.exp2()
    }

    /// The clock was set back: what has been keeps its weight against what comes. Otherwise what was learnt in a future
    /// that never came would outweigh everything until then.
    pub fn set_back(&mut self, by: SignedDuration) {
        self.reference = self
            .reference
            .map(|reference| reference.checked_sub(by).unwrap_or(reference));
    }

    fn shift(&mut self, to: Timestamp) {
        let Some(from) = self.reference.replace(to) else {
            return;
        };
        let half_lives = from.duration_since(to).as_secs_f64() / self.half_life.as_secs_f64();
        let factor = half_lives.round().exp2();
        for weight in &mut self.weights {
            *weight *= factor;
        }
        self.total *= factor;
    }

    pub fn save(&self) -> Saved {
        let heaviest = self.weights.iter().copied().fold(0.0, f64::max);
        let mut weights = BTreeMap::new();
        if let Some((first, last)) = self.filled() {
            for bucket in first..=last {
                let relative = (self.weights[bucket] * SAVED_WEIGHT / heaviest).round() as u32;
                if relative > 0 {
                    weights.insert(bucket, relative);
                }
            }
        }
        Saved {
            reference: self.reference,
            weights,
            total: self.total,
        }
    }

    /// `None`: it cannot be one of these buckets.
    pub fn load(buckets: Buckets, half_life: SignedDuration, saved: &Saved) -> Option<Self> {
        let mut histogram = Self::new(buckets, half_life);
        let sum: f64 = saved
            .weights
            .values()
            .map(|weight| f64::from(*weight))
            .sum();
        if !saved.total.is_finite() || saved.total < 0.0 {
            return None;
        }
        histogram.reference = saved.reference;
        // Nothing but zeros weighs nothing; sharing the total among them would make it no number.
        if sum == 0.0 {
            return Some(histogram);
        }
        for (&bucket, &weight) in &saved.weights {
            let weight = f64::from(weight) * saved.total / sum;
            *histogram.weights.get_mut(bucket)? += weight;
            histogram.total += weight;
        }
        Some(histogram)
    }
}

/// To the nearest multiple of the half-life, counted from the start of the first year; the later of two equally near.
fn rounded(at: Timestamp, half_life: SignedDuration) -> Timestamp {
    /// From there to the epoch.
    const YEAR_ONE: i64 = 62_135_596_800;
    let half_life = half_life.as_secs().max(1);
    let seconds = at.as_second() + YEAR_ONE;
    let past = seconds.rem_euclid(half_life);
    let down = seconds - past;
    let up_or_down = if past * 2 >= half_life {
        down + half_life
    } else {
        down
    };
    Timestamp::from_second(up_or_down - YEAR_ONE).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HALF_DAY: SignedDuration = SignedDuration::from_hours(12);

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn after(hours: i64) -> Timestamp {
        time("2026-01-01T00:00:00Z") + SignedDuration::from_hours(hours)
    }

    #[test]
    fn buckets_are_those_of_others() {
        assert_eq!(Buckets::CPU.count(), 158);
        assert_eq!(Buckets::MEMORY.count(), 205);
        assert_eq!(Buckets::CPU.find(0.0249), 0);
        assert_eq!(Buckets::CPU.find(0.025), 1);
        assert_eq!(Buckets::CPU.find(1e9), 157);
        assert_eq!(Buckets::CPU.find(f64::NAN), 0);
        assert!((Buckets::CPU.start(1) - 0.025).abs() < 1e-12);
        assert!((Buckets::CPU.start(2) - 0.051_25).abs() < 1e-12);
    }

    #[track_caller]
    fn check_percentiles(samples: &[(f64, i64)], expected: &[(f64, f64)]) {
        let mut histogram = Histogram::new(Buckets::CPU, HALF_DAY);
        for &(value, hour) in samples {
            histogram.add(value, after(hour));
        }
        for &(share, value) in expected {
            let bucket = Buckets::CPU.find(value);
            assert_eq!(
                histogram.percentile(share),
                Buckets::CPU.start(bucket + 1),
                "p{}",
                share * 100.0
            );
        }
    }

    #[test]
    fn percentiles() {
        check_percentiles(&[(1.0, 0)], &[(0.5, 1.0), (1.0, 1.0)]);
        let even: Vec<(f64, i64)> = (1..=10).map(|n| (f64::from(n), 0)).collect();
        check_percentiles(
            &even,
            &[
                (0.05, 1.0),
                (0.5, 5.0),
                (0.9, 9.0),
                (0.95, 10.0),
                (1.0, 10.0),
            ],
        );
    }

    #[test]
    fn the_past_fades() {
        // Two old samples weigh as much as one that is a half-life younger.
        let samples = [(8.0, 0), (8.0, 0), (1.0, 12)];
        check_percentiles(&samples, &[(0.49, 1.0), (0.51, 8.0)]);
        // Ten days later hardly anything is left of them.
        check_percentiles(&[(8.0, 0), (8.0, 0), (1.0, 240)], &[(0.99, 1.0)]);
    }

    #[test]
    fn years_do_not_overflow() {
        let mut histogram = Histogram::new(Buckets::CPU, HALF_DAY);
        for day in 0..3000 {
            histogram.add(1.0, after(day * 24));
        }
        assert!(histogram.total.is_finite());
        // Bounds of buckets are powers: their last digits depend on the C library.
        let bound = Buckets::CPU.start(Buckets::CPU.find(1.0) + 1);
        let found = histogram.percentile(0.95);
        assert!((found - bound).abs() < 1e-12, "{found}, not {bound}");
    }

    #[test]
    fn a_file_of_zeros_is_an_empty_histogram() {
        let saved = Saved {
            reference: Some(after(0)),
            weights: BTreeMap::from([(3, 0), (7, 0)]),
            total: 5.0,
        };
        let mut histogram = Histogram::load(Buckets::CPU, HALF_DAY, &saved).unwrap();
        assert!(histogram.is_empty());
        histogram.add(1.0, after(1));
        assert!(histogram.total.is_finite());
    }

    #[test]
    fn nothing_says_nothing() {
        let histogram = Histogram::new(Buckets::CPU, HALF_DAY);
        assert!(histogram.is_empty());
        assert_eq!(histogram.percentile(0.95), 0.0);
    }

    #[test]
    fn times_are_rounded_as_others_do() {
        for (at, expected) in [
            ("2026-11-15T19:43:50Z", "2026-11-16T00:00:00Z"),
            ("2026-11-15T06:00:00Z", "2026-11-15T12:00:00Z"),
            ("2026-11-15T05:59:59Z", "2026-11-15T00:00:00Z"),
        ] {
            assert_eq!(rounded(time(at), HALF_DAY), time(expected));
        }
    }

    proptest! {
        #[test]
        fn what_is_saved_is_loaded(samples in prop::collection::vec((0.0f64..2000.0, 0i64..2000), 0..60)) {
            let mut histogram = Histogram::new(Buckets::CPU, HALF_DAY);
            for (value, hour) in samples {
                histogram.add(value, after(hour));
            }
            let saved = histogram.save();
            let loaded = Histogram::load(Buckets::CPU, HALF_DAY, &saved).unwrap();
            prop_assert_eq!(loaded.reference, histogram.reference);
            prop_assert!((loaded.total - histogram.total).abs() <= histogram.total * 1e-9 || saved.weights.is_empty());
            // Saving again changes nothing, but for buckets on the verge of counting: rounding does not creep.
            let heavy = |saved: &Saved| -> BTreeMap<usize, u32> {
                saved.weights.clone().into_iter().filter(|(_, weight)| *weight > 2).collect()
            };
            prop_assert_eq!(heavy(&loaded.save()), heavy(&saved));
        }

        #[test]
        fn percentiles_grow_with_their_share(samples in prop::collection::vec((0.0f64..2000.0, 0i64..200), 1..60)) {
            let mut histogram = Histogram::new(Buckets::CPU, HALF_DAY);
            for (value, hour) in samples {
                histogram.add(value, after(hour));
            }
            let percentiles: Vec<f64> = (0..=20).map(|n| histogram.percentile(f64::from(n) / 20.0)).collect();
            prop_assert!(percentiles.is_sorted());
        }
    }
}
