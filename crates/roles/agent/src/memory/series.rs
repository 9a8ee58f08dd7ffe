//! The names under which samples are remembered.

use std::fmt::{self, Write};
use std::time::Duration;

/// A figure of something: `pod_cpu_usage` of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Series {
    pub metric: Metric,
    /// In the order that the metric names them.
    pub properties: Vec<(&'static str, Box<str>)>,
}

/// Koordinator's names; CPU in cores, memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Metric {
    pub name: &'static str,
    /// How many steps a unit has in storage; finer differences are not kept.
    pub steps: u32,
    pub properties: &'static [&'static str],
}

impl Metric {
    /// The series whose properties have these values, in the order that the metric names them.
    pub fn of(&self, values: &[&str]) -> Series {
        debug_assert_eq!(values.len(), self.properties.len(), "{}", self.name);
        let properties = self.properties.iter().copied();
        Series {
            metric: *self,
            properties: properties
                .zip(values.iter().map(|value| Box::from(*value)))
                .collect(),
        }
    }
}

impl Series {
    /// The key in the store, in place of what `key` holds.
    pub fn write_key(&self, key: &mut String) {
        key.clear();
        // Writing to a String cannot fail.
        let _ = write!(key, "{self}");
    }
}

impl fmt::Display for Series {
    /// The key in the store: `name{property=value,…}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.name)?;
        let mut between = '{';
        for (property, value) in &self.properties {
            write!(f, "{between}{property}={value}")?;
            between = ',';
        }
        match between {
            '{' => Ok(()),
            _ => f.write_char('}'),
        }
    }
}

/// What a series was like during some time.
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
