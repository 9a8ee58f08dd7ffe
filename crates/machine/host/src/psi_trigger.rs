//! PSI triggers: the kernel notifies when tasks stall for memory, CPU or I/O.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{is_gone, is_unsupported};
use crate::wake::{Waker, timespec};
use crate::{HostError, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// At least one task was waiting.
    Some,
    /// All of them were.
    Full,
}

/// Fires when stalls add up to `stalled` within any `window`. Windows: at most 10 s; at least 500 ms before Linux 6.4.
/// Without CAP_SYS_RESOURCE only multiples of 2 s (since 6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    pub stall: Stall,
    pub stalled: Duration,
    pub window: Duration,
}

impl Threshold {
    /// The same share of stalls in a window that everybody may ask for; `None` if this one is such already.
    fn coarser(&self) -> Option<Self> {
        const STEP: u128 = 2_000_000;
        let window = self.window.as_micros();
        let wider = window.next_multiple_of(STEP);
        if window == 0 || wider == window {
            return None;
        }
        let micros = |value: u128| Duration::from_micros(u64::try_from(value).unwrap_or(u64::MAX));
        Some(Self {
            stalled: micros(self.stalled.as_micros().saturating_mul(wider) / window),
            window: micros(wider),
            ..*self
        })
    }

    /// As the kernel wants it written, in microseconds.
    pub fn text(&self) -> String {
        let stall = match self.stall {
            Stall::Some => "some",
            Stall::Full => "full",
        };
        format!(
            "{stall} {} {}",
            self.stalled.as_micros(),
            self.window.as_micros()
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fired {
    Yes,
    /// Not within the time given.
    No,
    /// Somebody called [`Waker::wake`].
    Woken,
}

/// An armed trigger on a pressure file of a cgroup or of `/proc/pressure`. It lives as long as its descriptor, so
/// dropping it leaves nothing behind.
#[derive(Debug)]
pub struct PsiTrigger {
    file: OwnedFd,
    path: PathBuf,
    threshold: Threshold,
    waker: Waker,
}

impl PsiTrigger {
    /// `Ok(None)`: no such file, or a kernel without stall information. Without the privilege for a short window the
    /// next longer one is armed, for the same share of stalls: see [`Self::threshold`].
    pub fn arm(path: &Path, threshold: Threshold) -> Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(error) => return absent(error).ok_or_else(|| HostError::io("open", path, error)),
        };
        let mut threshold = threshold;
        loop {
            // The kernel reads a C string and wants its end.
            let text = threshold.text() + "\0";
            match rustix::io::write(&file, text.as_bytes()) {
                Ok(_) => break,
                Err(Errno::INVAL) => match threshold.coarser() {
                    Some(coarser) => threshold = coarser,
                    // Not a missing feature but a threshold that no kernel takes.
                    None => return Err(HostError::io("arm", path, Errno::INVAL)),
                },
                Err(error) => {
                    return absent(error).ok_or_else(|| HostError::io("arm", path, error));
                }
            }
        }
        Ok(Some(Self {
            file,
            path: path.to_owned(),
            threshold,
            waker: Waker::new(path)?,
        }))
    }

    /// What was armed.
    pub fn threshold(&self) -> Threshold {
        self.threshold
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits for the trigger. An error for which `is_gone` holds: the cgroup was removed.
    pub fn wait(&self, within: Duration) -> Result<Fired> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [
                PollFd::new(&self.waker, PollFlags::IN),
                PollFd::new(&self.file, PollFlags::PRI),
            ];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) => return Ok(Fired::No),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(HostError::io("poll", &self.path, error)),
            }
            if fds[0].revents().contains(PollFlags::IN) {
                self.waker.settle();
                return Ok(Fired::Woken);
            }
            return outcome(fds[1].revents(), &self.path);
        }
    }
}

impl AsFd for PsiTrigger {
    /// For waiting on many triggers at once: poll for [`PollFlags::PRI`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn outcome(events: PollFlags, path: &Path) -> Result<Fired> {
    // Both bits are set when a cgroup goes that has just fired; there is nothing left to protect in it.
    if events.contains(PollFlags::ERR) {
        return Err(HostError::io("poll", path, Errno::NODEV));
    }
    match events.contains(PollFlags::PRI) {
        true => Ok(Fired::Yes),
        false => Ok(Fired::No),
    }
}

fn absent(error: Errno) -> Option<Option<PsiTrigger>> {
    let error = error.into();
    (is_gone(&error) || is_unsupported(&error)).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Threshold = Threshold {
        stall: Stall::Some,
        stalled: Duration::from_millis(150),
        window: Duration::from_secs(1),
    };

    #[test]
    fn what_is_written() {
        assert_eq!(MEMORY.text(), "some 150000 1000000");
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("memory.pressure");
        assert!(PsiTrigger::arm(&path, MEMORY).unwrap().is_none());
        std::fs::write(&path, "").unwrap();
        let full = Threshold {
            stall: Stall::Full,
            ..MEMORY
        };
        let trigger = PsiTrigger::arm(&path, full).unwrap().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"full 150000 1000000\0");
        assert_eq!(trigger.wait(Duration::from_millis(1)).unwrap(), Fired::No);
        trigger.waker().wake();
        let woken = trigger.wait(Duration::from_secs(20)).unwrap();
        assert_eq!(woken, Fired::Woken);
        assert_eq!(trigger.wait(Duration::ZERO).unwrap(), Fired::No);
    }

    #[test]
    fn windows_for_programs_without_privileges() {
        let coarser = MEMORY.coarser().unwrap();
        assert_eq!(coarser.text(), "some 300000 2000000");
        assert_eq!(coarser.coarser(), None);
        let none = Threshold {
            window: Duration::ZERO,
            ..MEMORY
        };
        assert_eq!(none.coarser(), None);
    }

    #[test]
    fn events() {
        let path = Path::new("memory.pressure");
        assert_eq!(outcome(PollFlags::PRI, path).unwrap(), Fired::Yes);
        assert!(outcome(PollFlags::ERR, path).unwrap_err().is_gone());
        let both = PollFlags::ERR | PollFlags::PRI;
        assert!(outcome(both, path).unwrap_err().is_gone());
    }

    #[test]
    fn this_kernel_arms_or_refuses() {
        let path = Path::new("/proc/pressure/memory");
        // Sandboxes and old kernels refuse in many ways; where it is armed, it must answer in time.
        if let Ok(Some(trigger)) = PsiTrigger::arm(path, MEMORY) {
            let fired = trigger.wait(Duration::from_millis(1)).unwrap();
            assert_ne!(fired, Fired::Woken);
        }
    }
}
