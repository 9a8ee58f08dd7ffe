//! The CPU and memory of one subject.

use jiff::{SignedDuration, Timestamp};

use crate::Amount;
use crate::histogram::{Buckets, Histogram};

/// How soon the past fades.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HalfLives {
    pub cpu: SignedDuration,
    pub memory: SignedDuration,
}

impl Default for HalfLives {
    fn default() -> Self {
        Self {
            cpu: SignedDuration::from_hours(12),
            memory: SignedDuration::from_hours(24),
        }
    }
}

/// A clock may be behind what was learnt last by this much before it counts as set back.
const SLACK: SignedDuration = SignedDuration::from_mins(1);

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub cpu: Histogram,
    pub memory: Histogram,
    pub updated: Timestamp,
    /// `None`: never.
    pub saved: Option<Timestamp>,
}

/// What a figure will not exceed, this often.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Peaks {
    pub p60: f64,
    pub p90: f64,
    pub p95: f64,
    pub p98: f64,
    pub max: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prediction {
    pub cpu: Peaks,
    pub memory: Peaks,
}

impl Prediction {
    /// The peak to plan with: memory that is missing kills, so it is judged more carefully than CPU.
    pub fn peak(&self) -> Amount {
        Amount {
            cpu: self.cpu.p95,
            memory: self.memory.p98,
        }
    }
}

impl Model {
    pub fn new(now: Timestamp) -> Self {
        Self::fading(HalfLives::default(), now)
    }

    pub fn fading(half_lives: HalfLives, now: Timestamp) -> Self {
        Self {
            cpu: Histogram::new(Buckets::CPU, half_lives.cpu),
            memory: Histogram::new(Buckets::MEMORY, half_lives.memory),
            updated: now,
            saved: None,
        }
    }

    pub fn add(&mut self, usage: Amount, now: Timestamp) {
        let behind = self.updated.duration_since(now);
        if behind > SLACK {
            self.cpu.set_back(behind);
            self.memory.set_back(behind);
            self.saved = self.saved.map(|saved| saved.min(now));
        }
        self.cpu.add(usage.cpu, now);
        self.memory.add(usage.memory, now);
        self.updated = now;
    }

    pub fn predict(&self) -> Prediction {
        Prediction {
            cpu: peaks(&self.cpu),
            memory: peaks(&self.memory),
        }
    }
}

fn peaks(histogram: &Histogram) -> Peaks {
    Peaks {
        p60: histogram.percentile(0.6),
        p90: histogram.percentile(0.9),
        p95: histogram.percentile(0.95),
        p98: histogram.percentile(0.98),
        max: histogram.percentile(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu: f64) -> Amount {
        Amount { cpu, memory: 1e9 }
    }

    #[test]
    fn a_clock_that_was_ahead_for_a_minute_does_not_count_for_a_month() {
        let start: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let minute = |n: i64| start + SignedDuration::from_mins(n);
        let mut model = Model::new(start);
        // A month ahead, and three times as busy, for a minute.
        model.add(usage(3.0), start + SignedDuration::from_hours(720));
        for n in 0..600 {
            model.add(usage(1.0), minute(n));
        }
        let peaks = model.predict().cpu;
        assert!(peaks.p95 < 1.2, "{peaks:?}");
        assert_eq!(model.updated, minute(599));
    }
}
