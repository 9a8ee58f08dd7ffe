//! Loads `plimsoll up` from outside, as its clients do, and says what it can take. Built in release, so that what is
//! measured is the server; on loopback, and bounded in count and time.

mod against;
mod crds;
mod create;
mod fan_out;
mod kill;
mod peer;
mod soak;
mod start;
mod subject;
mod wire;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use serde_json::{Map, Value, json};

/// What `plimsoll up` does without being told.
const EVENT_TTL: &str = "1h0m0s";

#[derive(Debug, Parser)]
struct Options {
    /// The plimsoll to be measured.
    #[arg(long)]
    program: PathBuf,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Part::Start, Part::Create, Part::FanOut, Part::Kill])]
    parts: Vec<Part>,
    /// Simulated nodes.
    #[arg(long, default_value_t = 1_000)]
    nodes: u32,
    /// Pods.
    #[arg(long, default_value_t = 10_000)]
    pods: u32,
    /// Watchers of all pods.
    #[arg(long, default_value_t = 50)]
    watchers: u32,
    /// Updates that each of them must see.
    #[arg(long, default_value_t = 5_000)]
    updates: u32,
    /// How many of those a second.
    #[arg(long, default_value_t = 250)]
    rate: u32,
    /// How long the soak is.
    #[arg(long, default_value_t = 30)]
    minutes: u32,
    /// How many pods come and go a second in the soak.
    #[arg(long, default_value_t = 20)]
    soak_rate: u32,
    /// How many of them live at a time.
    #[arg(long, default_value_t = 2_000)]
    alive: u32,
    /// How long events are kept in the soak.
    #[arg(long, default_value = EVENT_TTL)]
    event_ttl: String,
    /// Another plimsoll: both do the same work in turns, and the ratio of what they cost is told. No other part is done.
    #[arg(long)]
    against: Option<PathBuf>,
    /// How many turns each of them has then.
    #[arg(long, default_value_t = 12)]
    rounds: u32,
    /// A folder with kube-apiserver and etcd, which are asked the same.
    #[arg(long)]
    kube_bin: Option<PathBuf>,
    /// Judge nothing: only print.
    #[arg(long)]
    no_bars: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Start,
    Create,
    FanOut,
    Kill,
    /// Not unless asked for: it takes long.
    Soak,
    /// Not unless asked for: a bench of its own.
    Crds,
}

/// Figures with their bars.
#[derive(Debug, Default)]
struct Report {
    figures: Map<String, Value>,
    missed: Vec<String>,
}

impl Report {
    /// A figure without a bar.
    fn note(&mut self, name: &str, value: f64, unit: &str) {
        println!("{name:<58} {value:>10.2} {unit}");
        self.figures.insert(name.to_owned(), json!(value));
    }

    fn at_most(&mut self, name: &str, value: f64, unit: &str, bar: f64) {
        self.judge(name, value, unit, bar, "≤", value <= bar);
    }

    fn at_least(&mut self, name: &str, value: f64, unit: &str, bar: f64) {
        self.judge(name, value, unit, bar, "≥", value >= bar);
    }

    fn judge(&mut self, name: &str, value: f64, unit: &str, bar: f64, sign: &str, reached: bool) {
        let verdict = if reached { "reached" } else { "MISSED" };
        println!("{name:<58} {value:>10.2} {unit:<10} {sign} {bar} {verdict}");
        self.figures.insert(name.to_owned(), json!(value));
        if !reached {
            self.missed.push(name.to_owned());
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(old) = &options.against {
        return against::compare(&options, old).await;
    }
    let mut report = Report::default();
    for part in &options.parts {
        match part {
            Part::Start => start::measure(&options, &mut report).await?,
            Part::Create => create::measure(&options, &mut report).await?,
            Part::FanOut => fan_out::measure(&options, &mut report).await?,
            Part::Kill => kill::measure(&options, &mut report).await?,
            Part::Crds => crds::measure(&options, &mut report).await?,
            Part::Soak => soak::measure(&options, &mut report).await?,
        }
    }
    println!("{}", Value::Object(report.figures));
    ensure!(
        options.no_bars || report.missed.is_empty(),
        "missed: {}",
        report.missed.join(", ")
    );
    Ok(())
}

/// The value below which this share of them lies.
fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let place = (values.len() as f64 * share).ceil() as usize;
    values
        .get(place.saturating_sub(1).min(last))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 0.99), 99.0);
        assert_eq!(percentile(&mut values, 0.5), 50.0);
        assert_eq!(percentile(&mut [7.0], 0.99), 7.0);
        assert!(percentile(&mut [], 0.5).is_nan());
    }
}
