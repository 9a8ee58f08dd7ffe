//! Wakes a thread that polls a descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::{HostError, Result};

/// Kept by whoever should end the wait. All clones wake the same waiter.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new(waits_on: &Path) -> Result<Self> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(|fd| Self(Arc::new(fd)))
            .map_err(|error| HostError::io("make a waker for", waits_on, error))
    }

    pub fn wake(&self) {
        // The counter can only be full if it was never read, and then the waiter is awake already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the next wait wait again.
    pub(crate) fn settle(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
