//! Derived statistics: CPU and memory of the last minute, hour and day, as means and percentiles.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_host::Timestamp;

const MINUTE: Duration = Duration::from_secs(60);
const MINUTES_AN_HOUR: usize = 60;
/// The day is kept in quarters of an hour: a day of minutes for hundreds of containers would be most of our memory.
/// (The original keeps sixty minutes, so that its day is never more than four per cent complete.)
const MINUTES_A_QUARTER: usize = 15;
const QUARTERS_A_DAY: usize = 24 * 4;

/// Mean, maximum and percentiles of a figure over a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Percentiles {
    pub present: bool,
    pub mean: u64,
    pub std: u64,
    pub max: u64,
    pub fifty: u64,
    pub ninety: u64,
    pub ninety_five: u64,
    pub count: u64,
}

/// CPU in thousandths of a core, memory (working set) in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// How much of the span there was to look at.
    pub percent_complete: i32,
    pub cpu: Percentiles,
    pub memory: Percentiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latest {
    pub cpu: u64,
    pub memory: u64,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    at: Timestamp,
    cpu_ns: u64,
    memory: u64,
}

/// A finished minute, or a quarter of an hour of them, as small as the hour and the day need it.
#[derive(Debug, Clone, Copy)]
struct Span {
    cpu: Brief,
    memory: Brief,
}

#[derive(Debug, Clone, Copy, Default)]
struct Brief {
    mean: u64,
    max: u64,
    ninety: u64,
}

/// One container's derived statistics, fed by the sampler.
#[derive(Debug, Default)]
pub struct Derived {
    points: Vec<Point>,
    minutes: VecDeque<Span>,
    quarters: VecDeque<Span>,
    /// Minutes since the last full quarter.
    since_quarter: usize,
    minute: Usage,
    latest: Option<(Timestamp, Latest)>,
}

impl Derived {
    pub fn add(&mut self, at: Timestamp, cpu_ns: u64, memory: u64) {
        let point = Point { at, cpu_ns, memory };
        if let Some(previous) = self.points.last() {
            let cpu = rate_milli(previous, &point).unwrap_or(0);
            self.latest = Some((at, Latest { cpu, memory }));
        } else {
            self.latest = Some((at, Latest { cpu: 0, memory }));
        }
        self.points.push(point);
        let first = self.points[0].at;
        if at.since(first) >= MINUTE {
            self.close_minute(point);
        }
    }

    fn close_minute(&mut self, last: Point) {
        let mut rates: Vec<u64> = self
            .points
            .windows(2)
            .filter_map(|pair| rate_milli(&pair[0], &pair[1]))
            .collect();
        let mut memory: Vec<u64> = self.points.iter().map(|p| p.memory).collect();
        self.minute = Usage {
            percent_complete: 100,
            cpu: percentiles(&mut rates),
            memory: percentiles(&mut memory),
        };
        keep(
            &mut self.minutes,
            MINUTES_AN_HOUR,
            Span {
                cpu: brief(&self.minute.cpu),
                memory: brief(&self.minute.memory),
            },
        );
        self.since_quarter += 1;
        if self.since_quarter == MINUTES_A_QUARTER {
            self.since_quarter = 0;
            let quarter = fold(&self.minutes, MINUTES_A_QUARTER);
            let quarter = Span {
                cpu: brief(&quarter.0),
                memory: brief(&quarter.1),
            };
            keep(&mut self.quarters, QUARTERS_A_DAY, quarter);
        }
        // The next minute's first rate needs the last point of this one.
        self.points.clear();
        self.points.push(last);
    }

    pub fn latest(&self) -> Option<(Timestamp, Latest)> {
        self.latest
    }

    /// The last full minute; before there is one, `percent_complete` is 0 and nothing is present.
    pub fn minute(&self) -> Usage {
        self.minute
    }

    pub fn hour(&self) -> Usage {
        usage(&self.minutes, MINUTES_AN_HOUR)
    }

    /// Of full quarters of an hour; before the first one, of the minutes there are.
    pub fn day(&self) -> Usage {
        if self.quarters.is_empty() {
            return usage(&self.minutes, MINUTES_A_QUARTER * QUARTERS_A_DAY);
        }
        usage(&self.quarters, QUARTERS_A_DAY)
    }
}

fn keep(spans: &mut VecDeque<Span>, most: usize, span: Span) {
    if spans.len() == most {
        spans.pop_front();
    }
    spans.push_back(span);
}

/// (cpu, memory) over the newest `count` spans.
fn fold(spans: &VecDeque<Span>, count: usize) -> (Percentiles, Percentiles) {
    let newest = spans.iter().skip(spans.len().saturating_sub(count));
    (
        over_spans(newest.clone().map(|s| s.cpu)),
        over_spans(newest.map(|s| s.memory)),
    )
}

fn usage(spans: &VecDeque<Span>, of: usize) -> Usage {
    let (cpu, memory) = fold(spans, of);
    Usage {
        percent_complete: (spans.len().min(of) * 100 / of) as i32,
        cpu,
        memory,
    }
}

/// Thousandths of a core between two readings; `None` where they are too close, or the counter went back.
fn rate_milli(from: &Point, to: &Point) -> Option<u64> {
    let elapsed = to.at.since(from.at);
    if elapsed < Duration::from_millis(10) {
        return None;
    }
    let used = to.cpu_ns.checked_sub(from.cpu_ns)?;
    u64::try_from(u128::from(used) * 1000 / elapsed.as_nanos()).ok()
}

fn brief(p: &Percentiles) -> Brief {
    Brief {
        mean: p.mean,
        max: p.max,
        ninety: p.ninety,
    }
}

fn percentiles(values: &mut [u64]) -> Percentiles {
    if values.is_empty() {
        return Percentiles::default();
    }
    values.sort_unstable();
    let count = values.len();
    let mean = values.iter().map(|v| *v as f64).sum::<f64>() / count as f64;
    let std = if count < 2 {
        0.0
    } else {
        let squares: f64 = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum();
        (squares / (count - 1) as f64).sqrt()
    };
    Percentiles {
        present: true,
        mean: mean as u64,
        std: std as u64,
        max: values[count - 1],
        fifty: percentile(values, 0.5),
        ninety: percentile(values, 0.9),
        ninety_five: percentile(values, 0.95),
        count: count as u64,
    }
}

/// The original's rule: position d·(count+1), interpolated only strictly inside the list.
fn percentile(sorted: &[u64], d: f64) -> u64 {
    let position = d * (sorted.len() + 1) as f64;
    let index = position.floor() as usize;
    let Some(&low) = sorted.get(index.saturating_sub(1)) else {
        return sorted.last().copied().unwrap_or(0);
    };
    if index > 1 && index < sorted.len() {
        let fraction = position - index as f64;
        return low + (fraction * (sorted[index] as f64 - low as f64)) as u64;
    }
    low
}

/// Percentiles of the spans' ninetieth percentiles, mean of means, maximum of maxima.
fn over_spans(spans: impl Iterator<Item = Brief> + Clone) -> Percentiles {
    let mut nineties: Vec<u64> = spans.clone().map(|m| m.ninety).collect();
    let mut out = percentiles(&mut nineties);
    if out.present {
        let total: u128 = spans.clone().map(|m| u128::from(m.mean)).sum();
        out.mean = u64::try_from(total / nineties.len() as u128).unwrap_or(u64::MAX);
        out.max = spans.map(|m| m.max).max().unwrap_or(0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_rule() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 0.5), 50);
        assert_eq!(percentile(&values, 0.9), 90);
        assert_eq!(percentile(&values, 0.95), 95);
        assert_eq!(percentile(&[7], 0.95), 7);
        assert_eq!(percentile(&[7], 0.1), 7);
    }

    #[test]
    fn a_steady_half_core() {
        let mut derived = Derived::default();
        let start = 1_000_000;
        for second in 0..=3700i64 {
            derived.add(
                Timestamp::from_secs(start + second),
                second as u64 * 500_000_000,
                4096,
            );
        }
        assert_eq!(
            derived.latest().unwrap().1,
            Latest {
                cpu: 500,
                memory: 4096
            }
        );
        let minute = derived.minute();
        assert_eq!(
            (minute.percent_complete, minute.cpu.mean, minute.cpu.std),
            (100, 500, 0)
        );
        assert_eq!((minute.cpu.count, minute.memory.count), (60, 61));
        let hour = derived.hour();
        assert_eq!(
            (hour.percent_complete, hour.cpu.ninety_five, hour.memory.max),
            (100, 500, 4096)
        );
        assert_eq!(derived.day().percent_complete, 4);
    }

    #[test]
    fn a_restarted_counter_is_skipped() {
        let mut derived = Derived::default();
        for (second, total) in [(0, 9_000_000_000), (1, 9_100_000_000), (2, 5), (61, 10)] {
            derived.add(Timestamp::from_secs(second), total, 1);
        }
        assert_eq!(derived.minute().cpu.count, 2);
        assert_eq!(derived.minute().cpu.max, 100);
    }
}
