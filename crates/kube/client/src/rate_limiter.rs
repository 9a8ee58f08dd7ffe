//! A rate limit: a token bucket that fills at a steady rate.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Holds up to `burst` tokens.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// Below zero when tokens were promised ahead of time.
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// Full at first.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self {
            per_second,
            burst: burst.into(),
            tokens: burst.into(),
            at: Instant::now(),
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.burst);
        self.at = now;
    }

    /// Takes one if there is one.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }

    /// Takes the next one, which may have to be waited for.
    pub fn take(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.tokens -= 1.0;
        match self.tokens < 0.0 {
            true => Duration::from_secs_f64(-self.tokens / self.per_second),
            false => Duration::ZERO,
        }
    }
}

/// A bucket that many take from, in turn.
#[derive(Debug)]
pub struct Limiter(Mutex<TokenBucket>);

impl Limiter {
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self(Mutex::new(TokenBucket::new(per_second, burst)))
    }

    /// Waits for a token. First come, first served.
    pub async fn take(&self) {
        let wait = self.0.lock().take(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_a_trickle() {
        let mut bucket = TokenBucket::new(1.0 / 300.0, 25);
        let taken =
            |bucket: &mut TokenBucket| (0..100).filter(|_| bucket.try_take(Instant::now())).count();
        assert_eq!(taken(&mut bucket), 25);
        tokio::time::advance(Duration::from_secs(299)).await;
        assert_eq!(taken(&mut bucket), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(taken(&mut bucket), 1);
        tokio::time::advance(Duration::from_secs(1_000_000)).await;
        assert_eq!(taken(&mut bucket), 25);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_keeps_the_rate() {
        let limiter = Limiter::new(50.0, 100);
        let began = Instant::now();
        for _ in 0..100 {
            limiter.take().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..50 {
            limiter.take().await;
        }
        let waited = began.elapsed().as_millis();
        assert!((990..=1100).contains(&waited), "{waited}");
    }
}
