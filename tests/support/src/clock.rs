//! The clock that all processes of a machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Since some fixed moment, the same one for every process: what one wrote down can be compared with what another did.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_and_is_the_kernels() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let before = monotonic();
        assert!(before > Duration::ZERO);
        // Uptime also counts time asleep.
        assert!(before.as_secs_f64() < uptime + 1.0);
        assert!(monotonic() >= before);
    }
}
