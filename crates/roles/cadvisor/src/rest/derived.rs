//! Derived statistics as JSON: `/api/v2.x/summary`.

use serde::Serialize;

use super::json::Time;
use plimsoll_observe::derived::{self, Derived};

#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    timestamp: Time,
    latest_usage: Latest,
    minute_usage: Usage,
    hour_usage: Usage,
    day_usage: Usage,
}

#[derive(Debug, PartialEq, Serialize)]
struct Latest {
    cpu: u64,
    memory: u64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Usage {
    percent_complete: i32,
    cpu: Percentiles,
    memory: Percentiles,
}

#[derive(Debug, PartialEq, Serialize)]
struct Percentiles {
    present: bool,
    mean: u64,
    std: u64,
    max: u64,
    fifty: u64,
    ninety: u64,
    ninetyfive: u64,
    count: u64,
}

pub fn summary(derived: &Derived) -> Summary {
    let latest = derived.latest();
    let usage = latest.map(|(_, usage)| usage).unwrap_or_default();
    Summary {
        timestamp: Time(latest.map(|(at, _)| at)),
        latest_usage: Latest {
            cpu: usage.cpu,
            memory: usage.memory,
        },
        minute_usage: Usage::from(derived.minute()),
        hour_usage: Usage::from(derived.hour()),
        day_usage: Usage::from(derived.day()),
    }
}

impl From<derived::Usage> for Usage {
    fn from(usage: derived::Usage) -> Self {
        Self {
            percent_complete: usage.percent_complete,
            cpu: usage.cpu.into(),
            memory: usage.memory.into(),
        }
    }
}

impl From<derived::Percentiles> for Percentiles {
    fn from(p: derived::Percentiles) -> Self {
        Self {
            present: p.present,
            mean: p.mean,
            std: p.std,
            max: p.max,
            fifty: p.fifty,
            ninety: p.ninety,
            ninetyfive: p.ninety_five,
            count: p.count,
        }
    }
}
