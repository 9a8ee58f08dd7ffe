//! Names of series and metrics.

use std::fmt::{self, Write};
use std::time::Duration;

/// A metric with label values: `pod_cpu_usage` of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Series {
    pub metric: Metric,
    /// In the metric's order.
    pub labels: Vec<(&'static str, Box<str>)>,
}

/// Koordinator's names; CPU in cores, memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Metric {
    pub name: &'static str,
    /// Stored steps per unit; finer differences are lost.
    pub resolution: u32,
    pub labels: &'static [&'static str],
}

impl Metric {
    /// The series with these label values, in the metric's order.
    pub fn of(&self, values: &[&str]) -> Series {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        let labels = self.labels.iter().copied();
        Series {
            metric: *self,
            labels: labels
                .zip(values.iter().map(|value| Box::from(*value)))
                .collect(),
        }
    }
}

impl Series {
    /// Replaces the content of `key` with the key in the store.
    pub fn write_key(&self, key: &mut String) {
        key.clear();
        // Writing to a String cannot fail.
        let _ = write!(key, "{self}");
    }
}

impl fmt::Display for Series {
    /// The key in the store: `name{label=value,…}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.name)?;
        let mut between = '{';
        for (label, value) in &self.labels {
            write!(f, "{between}{label}={value}")?;
            between = ',';
        }
        match between {
            '{' => Ok(()),
            _ => f.write_char('}'),
        }
    }
}

/// A summary of a series over some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub avg: f64,
    pub last: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub count: usize,
    /// From the first to the last sample of that time.
    pub span: Duration,
}
