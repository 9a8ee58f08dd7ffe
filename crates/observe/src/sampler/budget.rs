//! Staying within a share of one core by sampling less often.

use std::time::Duration;

use plimsoll_host::ReadBuf;
use plimsoll_host::proc::stat::SelfUsage;

/// How often the own usage is looked at.
const WINDOW: Duration = Duration::from_secs(5);
/// The budget is aimed at from below, so that it is reached before it is exceeded.
const AIM: f64 = 0.9;
const MOST_STRETCH: f64 = 60.0;

#[derive(Debug)]
pub struct Budget {
    share: f64,
    stretch: f64,
    window: Option<(Duration, Duration)>,
    buf: ReadBuf,
}

impl Budget {
    /// `share` of one core; zero or less: no limit.
    pub fn new(share: f64) -> Self {
        Self {
            share,
            stretch: 1.0,
            window: None,
            buf: ReadBuf::default(),
        }
    }

    /// What intervals are multiplied by.
    pub fn stretch(&self) -> f64 {
        self.stretch
    }

    /// Looks at the process's own CPU time once a window; `Some` when it did.
    pub fn update(&mut self, now: Duration) -> Option<f64> {
        if self.share <= 0.0 {
            return None;
        }
        let due = self
            .window
            .is_none_or(|(at, _)| now.saturating_sub(at) >= WINDOW);
        if !due {
            return None;
        }
        let cpu = SelfUsage::now(&mut self.buf).ok()?.cpu;
        if let Some((at, before)) = self.window {
            let elapsed = now.saturating_sub(at).as_secs_f64();
            let used = cpu.saturating_sub(before).as_secs_f64() / elapsed;
            self.stretch = next_stretch(self.stretch, used, self.share);
        }
        self.window = Some((now, cpu));
        Some(self.stretch)
    }
}

/// The stretch at which the same work would have kept to the budget.
fn next_stretch(stretch: f64, used: f64, share: f64) -> f64 {
    let demand = used * stretch;
    (demand / (share * AIM)).clamp(1.0, MOST_STRETCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_to_the_budget_and_comes_back() {
        // Twice the budget: intervals double (and a little more).
        let stretched = next_stretch(1.0, 0.2, 0.1);
        assert!((stretched - 2.222).abs() < 0.01, "{stretched}");
        // At that stretch the same work uses 0.09: it stays there.
        let steady = next_stretch(stretched, 0.09, 0.1);
        assert!((steady - stretched).abs() < 0.01, "{steady}");
        // The work goes away: back to the plain interval, never below.
        assert_eq!(next_stretch(stretched, 0.001, 0.1), 1.0);
        assert_eq!(next_stretch(1.0, 100.0, 0.1), MOST_STRETCH);
    }
}
