//! How long to wait before trying again.

use std::time::Duration;

use tokio::time::Instant;

/// Waits that double up to a limit, each up to twice as long by chance, so that many who wait for the same thing do not
/// all try at once. Begins anew after a time without failures; a single success proves little.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    calm: Duration,
    failures: u32,
    last: Option<Instant>,
}

impl Default for Backoff {
    /// 0.8 s to 30 s, anew after two minutes: what Kubernetes' own components do when a watch fails.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(800),
            longest: Duration::from_secs(30),
            calm: Duration::from_secs(120),
            failures: 0,
            last: None,
        }
    }
}

impl Backoff {
    /// Has it been calm until now?
    pub fn is_fresh(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() > self.calm)
    }

    /// After one more failure.
    pub fn next_wait(&mut self) -> Duration {
        if self.is_fresh() {
            self.failures = 0;
        }
        let doubled = self.first.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        let wait = doubled.min(self.longest).mul_f64(1.0 + fastrand::f64());
        // The wait itself is no calm.
        self.last = Some(Instant::now() + wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn doubles_to_a_limit_and_forgets_after_a_calm() {
        let mut backoff = Backoff::default();
        let first = |wait: Duration| (800..=1600).contains(&wait.as_millis());
        assert!(backoff.is_fresh());
        let waits: Vec<_> = (0..10).map(|_| backoff.next_wait()).collect();
        assert!(first(waits[0]) && !first(waits[2]), "{waits:?}");
        for wait in &waits[6..] {
            assert!((30..=60).contains(&wait.as_secs()), "{waits:?}");
        }
        tokio::time::sleep(waits[9] + Duration::from_secs(119)).await;
        assert!(!backoff.is_fresh() && !first(backoff.next_wait()));
        tokio::time::sleep(Duration::from_secs(60 + 121)).await;
        assert!(first(backoff.next_wait()));
    }
}
