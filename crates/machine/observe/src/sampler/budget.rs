//! Keeps the process within a share of one core by sampling less often.

use std::time::Duration;

use plimsoll_host::ReadBuf;
use plimsoll_host::proc::stat::{SelfUsage, thread_cpu};

/// How often the own usage is looked at.
const WINDOW: Duration = Duration::from_secs(5);
/// The budget is aimed at from below, so that it is reached before it is exceeded.
const AIM: f64 = 0.9;
/// What remains for sampling when everything else (scrapes, in `up` a whole API server) has used up the budget: less
/// sampling would not bring it back.
const LEAST: f64 = 0.1;
const MOST_STRETCH: f64 = 60.0;

/// CPU time up to a moment.
#[derive(Debug, Clone, Copy)]
struct Spent {
    at: Duration,
    process: Duration,
    sampler: Duration,
}

#[derive(Debug)]
pub struct Budget {
    share: f64,
    stretch: f64,
    window: Option<Spent>,
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

    /// Looks at the process's own CPU time once a window; `Some` when it did. To be called on the thread that samples.
    pub fn update(&mut self, now: Duration) -> Option<f64> {
        if self.share <= 0.0 {
            return None;
        }
        let due = self
            .window
            .is_none_or(|last| now.saturating_sub(last.at) >= WINDOW);
        if !due {
            return None;
        }
        let spent = Spent {
            at: now,
            process: SelfUsage::now(&mut self.buf).ok()?.cpu,
            sampler: thread_cpu(),
        };
        if let Some(last) = self.window.replace(spent) {
            let elapsed = now.saturating_sub(last.at).as_secs_f64();
            let share =
                |to: Duration, from: Duration| to.saturating_sub(from).as_secs_f64() / elapsed;
            let sampling = share(spent.sampler, last.sampler);
            let others = (share(spent.process, last.process) - sampling).max(0.0);
            self.stretch = next_stretch(self.stretch, sampling, others, self.share);
        }
        Some(self.stretch)
    }
}

/// The stretch at which sampling would have kept to what the others leave of the budget.
fn next_stretch(stretch: f64, sampling: f64, others: f64, share: f64) -> f64 {
    let demand = sampling * stretch;
    let left = (share * AIM - others).max(share * LEAST);
    (demand / left).clamp(1.0, MOST_STRETCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_to_the_budget_and_comes_back() {
        // Twice the budget: intervals double (and a little more).
        let stretched = next_stretch(1.0, 0.2, 0.0, 0.1);
        assert!((stretched - 2.222).abs() < 0.01, "{stretched}");
        // At that stretch the same work uses 0.09: it stays there.
        let steady = next_stretch(stretched, 0.09, 0.0, 0.1);
        assert!((steady - stretched).abs() < 0.01, "{steady}");
        // The work goes away: back to the plain interval, never below.
        assert_eq!(next_stretch(stretched, 0.001, 0.0, 0.1), 1.0);
        assert_eq!(next_stretch(1.0, 100.0, 0.0, 0.1), MOST_STRETCH);
    }

    #[test]
    fn others_take_their_part_but_not_everything() {
        // Half of the budget is gone for other things: sampling has the rest.
        let stretched = next_stretch(1.0, 0.08, 0.05, 0.1);
        assert!((stretched - 2.0).abs() < 0.01, "{stretched}");
        // Somebody else uses many times the budget: cheap sampling goes on as it is, for as long as it takes.
        let mut stretch = 1.0;
        for _ in 0..100 {
            stretch = next_stretch(stretch, 0.002 / stretch, 2.0, 0.25);
        }
        assert_eq!(stretch, 1.0);
        // Expensive sampling shrinks to the least, and stays there.
        for _ in 0..100 {
            stretch = next_stretch(stretch, 0.1 / stretch, 2.0, 0.25);
        }
        assert!((stretch - 4.0).abs() < 0.01, "{stretch}");
    }
}
