//! Cycles and instructions of a cgroup over a window of time.

use plimsoll_host::perf::Reading;

/// Counts of one window, over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cpi {
    pub cycles: u64,
    pub instructions: u64,
}

/// The events in the order in which they are counted.
pub const EVENTS: [&str; 2] = ["cycles", "instructions"];

/// A window that is being counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Window(Cpi);

impl Window {
    /// The perf events of a window, as a group.
    pub fn events() -> Vec<String> {
        EVENTS.map(str::to_owned).into()
    }

    /// Starts with these counter values.
    pub fn begin(readings: &[Reading]) -> Self {
        Self(sum(readings))
    }

    /// `None`: nothing ran, so there is no ratio.
    pub fn end(self, readings: &[Reading]) -> Option<Cpi> {
        let now = sum(readings);
        let cpi = Cpi {
            cycles: now.cycles.saturating_sub(self.0.cycles),
            instructions: now.instructions.saturating_sub(self.0.instructions),
        };
        (cpi.instructions > 0).then_some(cpi)
    }
}

fn sum(readings: &[Reading]) -> Cpi {
    let mut cpi = Cpi::default();
    for reading in readings {
        let place = match reading.event {
            0 => &mut cpi.cycles,
            1 => &mut cpi.instructions,
            _ => continue,
        };
        *place = place.saturating_add(reading.value);
    }
    cpi
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(event: usize, cpu: u32, value: u64) -> Reading {
        Reading {
            event,
            cpu,
            value,
            scaling_ratio: 1.0,
        }
    }

    #[test]
    fn what_was_counted_in_between() {
        let begin = [
            reading(0, 0, 10),
            reading(1, 0, 5),
            reading(0, 1, 100),
            reading(1, 1, 50),
        ];
        let end = [
            reading(0, 0, 30),
            reading(1, 0, 15),
            reading(0, 1, 400),
            reading(1, 1, 75),
        ];
        let expected = Cpi {
            cycles: 320,
            instructions: 35,
        };
        assert_eq!(Window::begin(&begin).end(&end), Some(expected));
        assert_eq!(Window::begin(&end).end(&end), None);
    }
}
