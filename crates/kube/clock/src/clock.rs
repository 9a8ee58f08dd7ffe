//! Wall-clock timestamps and the monotonic clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const ZERO: Self = Self(0);

    pub fn from_secs(secs: i64) -> Self {
        Self(secs * 1_000_000_000)
    }

    pub fn nanos(self) -> i64 {
        self.0
    }

    pub fn millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// How much later `self` is than `earlier`; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    pub fn minus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)),
        )
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX)),
            Err(before) => Self(-i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX)),
        }
    }
}

/// The one source of "now". Production reads the kernel; tests step it by hand.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    Real,
    Stepped(Arc<AtomicI64>),
}

impl Clock {
    pub fn stepped(start: Timestamp) -> Self {
        Self::Stepped(Arc::new(AtomicI64::new(start.0)))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::Real => SystemTime::now().into(),
            Self::Stepped(nanos) => Timestamp(nanos.load(Ordering::Acquire)),
        }
    }

    /// Never goes back; its zero means nothing.
    pub fn monotonic(&self) -> Duration {
        match self {
            Self::Real => {
                let t = clock_gettime(ClockId::Monotonic);
                Duration::new(
                    u64::try_from(t.tv_sec).unwrap_or(0),
                    u32::try_from(t.tv_nsec).unwrap_or(0),
                )
            }
            Self::Stepped(nanos) => {
                Duration::from_nanos(u64::try_from(nanos.load(Ordering::Acquire)).unwrap_or(0))
            }
        }
    }

    /// Moves a stepped clock; a real one moves by itself.
    pub fn step(&self, by: Duration) {
        if let Self::Stepped(nanos) = self {
            nanos.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(0), Ordering::AcqRel);
        }
    }
}
