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
