//! Histograms.

use std::sync::Arc;

/// Counts of observations up to some bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: Arc<[f64]>,
    /// One more than bounds: the last is of what is above them all.
    counts: Box<[u64]>,
    sum: f64,
}

impl Histogram {
    pub fn new(bounds: Arc<[f64]>) -> Self {
        Self {
            counts: vec![0; bounds.len() + 1].into(),
            bounds,
            sum: 0.0,
        }
    }

    pub fn observe(&mut self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place] += 1;
        self.sum += value;
    }

    /// Adds the observations of another that has the same bounds.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Each bound with how many were not above it, as exposition has it. What is above the last is in [`Self::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        std::iter::zip(self.bounds.iter().copied(), counts)
    }
}
