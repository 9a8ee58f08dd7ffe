//! A moment on the clock that goes on while the machine sleeps.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// A moment. Time since then goes on while the process is stopped (as the monotonic clock does) and while the machine
/// sleeps (which is added). In tests with paused time it moves with tokio's clock.
#[derive(Debug, Clone, Copy)]
pub struct BootInstant {
    at: Instant,
    slept_before: Duration,
}

impl BootInstant {
    pub fn now() -> Self {
        Self {
            at: Instant::now(),
            slept_before: slept(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.at.elapsed() + slept().saturating_sub(self.slept_before)
    }
}

/// How long the machine has slept since it was started.
fn slept() -> Duration {
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let awake = read(ClockId::Monotonic);
    let slept = read(ClockId::Boottime).saturating_sub(awake);
    // The two are not read at the same moment.
    match slept < Duration::from_millis(100) {
        true => Duration::ZERO,
        false => slept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_moves_with_paused_time() {
        let began = BootInstant::now();
        tokio::time::advance(Duration::from_secs(15)).await;
        assert!(began.elapsed() >= Duration::from_secs(15));
    }
}
