//! Points in time, and what two of them amount to.

use thiserror::Error;

/// A container younger than this has not run long enough for a rate.
const YOUNGEST: i64 = 10_000_000_000;

/// What a kubelet said about a node or a container at one time. Times are nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Point {
    /// When it started; 0 where nobody said.
    pub start: i64,
    pub at: i64,
    /// CPU time used since it started, in nanoseconds.
    pub cpu: u64,
    pub memory: u64,
}

/// What is used: the difference between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub at: i64,
    /// Nanoseconds.
    pub window: i64,
    pub nanocores: u64,
    pub memory: u64,
    /// `None`: nobody asked, or the kubelet does not tell.
    pub swap: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Decrease {
    #[error("unexpected decrease in startTime of node/container")]
    Start,
    #[error("unexpected decrease in cumulative CPU usage value")]
    Cpu,
}

/// The last point, and the one before it that a rate can be had from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Track {
    pub last: Point,
    pub previous: Option<Point>,
    /// Bytes at the last point.
    pub swap: Option<u64>,
}

impl Track {
    /// The first that is heard of something.
    pub fn begin(point: Point, resolution: i64) -> Self {
        Self {
            last: point,
            previous: birth(&point, resolution),
            swap: None,
        }
    }

    #[must_use]
    pub fn with_swap(self, swap: Option<u64>) -> Self {
        Self { swap, ..self }
    }

    /// A further point. `resolution` is the time between scrapes: a container that began since the last one has used
    /// nothing when it began, and so has a rate at once.
    #[must_use]
    pub fn follow(self, point: Point, resolution: i64) -> Self {
        let previous = birth(&point, resolution).or_else(|| {
            let restarted = point.start >= self.last.at;
            let before = || self.previous.filter(|previous| previous.at < point.at);
            match point.at > self.last.at {
                _ if restarted => None,
                true => Some(self.last),
                // The kubelet has nothing new: what was known stays known.
                false => before(),
            }
        });
        Self {
            last: point,
            previous,
            swap: None,
        }
    }

    /// `None`: one point is not enough.
    pub fn usage(&self) -> Option<Result<Usage, Decrease>> {
        let usage = usage(&self.last, &self.previous?);
        Some(usage.map(|usage| Usage {
            swap: self.swap,
            ..usage
        }))
    }
}

/// The point at which a container began, if that was lately but not just now.
fn birth(point: &Point, resolution: i64) -> Option<Point> {
    let age = point.at.checked_sub(point.start)?;
    (point.start != 0 && (YOUNGEST..resolution).contains(&age)).then_some(Point {
        start: point.start,
        at: point.start,
        cpu: 0,
        memory: point.memory,
    })
}

fn usage(last: &Point, previous: &Point) -> Result<Usage, Decrease> {
    if last.start < previous.start {
        return Err(Decrease::Start);
    }
    let cpu = last.cpu.checked_sub(previous.cpu).ok_or(Decrease::Cpu)?;
    let window = last.at.saturating_sub(previous.at);
    // As the original computes it, down to the last bit.
    let seconds = window as f64 / 1e9;
    Ok(Usage {
        at: last.at,
        window,
        nanocores: (cpu as f64 / seconds) as u64,
        memory: last.memory,
        swap: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const RESOLUTION: i64 = 60 * SECOND;

    fn point(start: i64, at: i64, cpu: u64) -> Point {
        Point {
            start: start * SECOND,
            at: at * SECOND,
            cpu: cpu * SECOND as u64,
            memory: 7,
        }
    }

    /// Each point is start, time and CPU time in seconds; expected is the window in seconds and the millicores.
    #[track_caller]
    fn check(points: &[(i64, i64, u64)], expected: Option<(i64, u64)>) {
        let mut points = points.iter().map(|&(start, at, cpu)| point(start, at, cpu));
        let mut track = Track::begin(points.next().unwrap(), RESOLUTION);
        for point in points {
            track = track.follow(point, RESOLUTION);
        }
        let usage = track.usage().map(|usage| usage.unwrap());
        assert_eq!(
            usage.map(|usage| (usage.window / SECOND, usage.nanocores / 1_000_000)),
            expected
        );
    }

    #[test]
    fn two_points_make_a_rate() {
        check(&[(0, 1000, 10)], None);
        check(&[(0, 1000, 10), (0, 1060, 40)], Some((60, 500)));
        check(&[(500, 1000, 10), (500, 1060, 40)], Some((60, 500)));
    }

    #[test]
    fn a_page_seen_twice_keeps_what_was_known() {
        check(&[(0, 1000, 10), (0, 1000, 10)], None);
        check(
            &[(0, 1000, 10), (0, 1060, 40), (0, 1060, 40)],
            Some((60, 500)),
        );
        // Older than the last, newer than the one before it.
        check(
            &[(0, 1000, 10), (0, 1060, 40), (0, 1030, 25)],
            Some((30, 500)),
        );
        check(&[(0, 1000, 10), (0, 1060, 40), (0, 900, 5)], None);
    }

    #[test]
    fn a_young_container_has_a_rate_at_once() {
        check(&[(1000, 1009, 9)], None);
        check(&[(1000, 1010, 5)], Some((10, 500)));
        check(&[(1000, 1059, 59)], Some((59, 1000)));
        check(&[(1000, 1060, 60)], None);
        // Its beginning is preferred to the point before.
        check(&[(1000, 1010, 5), (1000, 1020, 20)], Some((20, 1000)));
    }

    #[test]
    fn a_restart_begins_anew() {
        check(&[(500, 1000, 10), (1050, 1055, 1)], None);
        check(&[(500, 1000, 10), (1020, 1055, 7)], Some((35, 200)));
        // Restarted at the very time of the last point.
        check(&[(500, 1000, 10), (1000, 1070, 1)], None);
    }

    #[test]
    fn counters_that_fall_are_errors() {
        let fell = Track {
            last: point(0, 1060, 5),
            previous: Some(point(0, 1000, 10)),
            swap: None,
        };
        assert_eq!(fell.usage(), Some(Err(Decrease::Cpu)));
        let younger = Track {
            last: point(1, 1060, 50),
            previous: Some(point(2, 1000, 10)),
            swap: None,
        };
        assert_eq!(younger.usage(), Some(Err(Decrease::Start)));
    }
}
