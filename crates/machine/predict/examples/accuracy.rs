//! How good the forecasts are: `cargo xtask bench predict` runs this.
//!
//! Two weeks of minutes of each trace, the same in every run. Once an hour, after the first day, the forecast (p95 of
//! CPU, p98 of memory, and the margin) is held against the highest minute of the hour that follows. `exceeded` is how
//! often that was above the forecast; `reclaimed` is the share of what was truly free (request less peak) that the
//! forecast would have lent. One JSON line a trace and figure.

use jiff::{SignedDuration, Timestamp};
use plimsoll_predict::reclaim::Config;
use plimsoll_predict::{Amount, Model};

const HOUR: i64 = 60;
const DAY: i64 = 24 * HOUR;
const DAYS: i64 = 14;
/// Of CPU, in cores; memory is in GiB.
const REQUEST: f64 = 4.0;
const GIB: f64 = 1_073_741_824.0;

type Trace = fn(minute: i64, noise: f64) -> f64;

const TRACES: [(&str, Trace); 5] = [
    ("steady", |_, noise| 1.5 * (1.0 + 0.06 * noise)),
    ("daily", |minute, noise| {
        let phase = (minute % DAY) as f64 / DAY as f64 * std::f64::consts::TAU;
        (1.4 - 0.9 * phase.cos()) * (1.0 + 0.04 * noise)
    }),
    ("bursty", |minute, noise| {
        // A batch of work, five minutes long, some times a day.
        let burst = minute.wrapping_mul(7919) % 311 < 5;
        let level = if burst { 3.0 } else { 0.4 };
        level * (1.0 + 0.1 * noise)
    }),
    ("leaking", |minute, noise| {
        (0.5 + 3.0 * minute as f64 / (DAYS * DAY) as f64) * (1.0 + 0.02 * noise)
    }),
    ("restart", |minute, noise| {
        // Every two days it begins small and needs a while to warm up.
        let age = minute % (2 * DAY);
        (2.0 * (1.0 - (-(age as f64) / 90.0).exp())) * (1.0 + 0.05 * noise)
    }),
];

fn main() {
    for (name, trace) in TRACES {
        for (figure, of_amount) in [
            ("cpu", (|a| a.cpu) as fn(Amount) -> f64),
            ("memory", |a| a.memory / GIB),
        ] {
            let found = judge(trace, of_amount);
            println!(
                "{{\"trace\":\"{name}\",\"figure\":\"{figure}\",\"hours\":{},\"exceeded\":{:.3},\"exceeded_by\":{:.3},\"reclaimed\":{:.3}}}",
                found.hours, found.exceeded, found.worst, found.reclaimed
            );
        }
    }
}

struct Judged {
    hours: usize,
    exceeded: f64,
    /// By how much at most, as a share of the forecast.
    worst: f64,
    reclaimed: f64,
}

fn judge(trace: Trace, of_amount: fn(Amount) -> f64) -> Judged {
    let start = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let usage: Vec<f64> = (0..DAYS * DAY)
        .map(|minute| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Roughly normal, a deviation wide.
            let noise: f64 = (0..4)
                .map(|part| ((random >> (part * 16)) & 0xffff) as f64 / 65_535.0 - 0.5)
                .sum::<f64>()
                * 1.73;
            trace(minute, noise).max(0.0)
        })
        .collect();
    let margin = 1.0 + Config::default().margin;
    let mut model = Model::new(start);
    let (mut hours, mut exceeded, mut worst) = (0, 0, 0.0f64);
    let (mut lent, mut free) = (0.0, 0.0);
    for (minute, &used) in (0..).zip(&usage) {
        let amount = Amount {
            cpu: used,
            memory: used * GIB,
        };
        model.add(amount, start + SignedDuration::from_mins(minute));
        let next = minute as usize + 1;
        if minute < DAY || (minute + 1) % HOUR != 0 || next + HOUR as usize > usage.len() {
            continue;
        }
        let peak = usage[next..next + HOUR as usize]
            .iter()
            .copied()
            .fold(0.0, f64::max);
        let forecast = of_amount(model.predict().peak()) * margin;
        hours += 1;
        if peak > forecast {
            exceeded += 1;
            worst = worst.max(peak / forecast - 1.0);
        }
        lent += (REQUEST - forecast).clamp(0.0, REQUEST - peak.min(REQUEST));
        free += (REQUEST - peak).max(0.0);
    }
    Judged {
        hours,
        exceeded: f64::from(exceeded) / hours as f64,
        worst,
        reclaimed: lent / free,
    }
}
