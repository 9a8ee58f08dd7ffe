//! Memory bandwidth, from bytes that the hardware has counted.

use std::time::Duration;

use plimsoll_host::Timestamp;

use super::Rate;

/// One counter of bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bandwidth(Rate);

impl Bandwidth {
    /// Bytes a second.
    pub fn next(&mut self, at: Timestamp, bytes: u64, forget: Duration) -> Option<f64> {
        Some(bandwidth(self.0.next(at, bytes, forget)?))
    }
}

/// From bytes a nanosecond.
pub fn bandwidth(per_nanosecond: f64) -> f64 {
    per_nanosecond * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_a_second() {
        let mut bandwidth = Bandwidth::default();
        let forget = Duration::from_secs(60);
        assert_eq!(bandwidth.next(Timestamp::from_secs(0), 0, forget), None);
        assert_eq!(
            bandwidth.next(Timestamp::from_secs(10), 5_000_000_000, forget),
            Some(500_000_000.0)
        );
    }
}
