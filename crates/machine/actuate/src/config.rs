//! What an actuator is told once.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_host::Clock;
use plimsoll_host::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Machine, WeightFormula};

/// What may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Plans are taken and nothing comes of them.
    Off,
    /// What would be written is in the journal, once for each change; nothing is written.
    #[default]
    Observe,
    Enforce,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "off" => Ok(Self::Off),
            "observe" => Ok(Self::Observe),
            "enforce" => Ok(Self::Enforce),
            other => Err(UnknownMode(other.into())),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not off, observe or enforce")]
pub struct UnknownMode(Box<str>);

#[derive(Debug, Clone)]
pub struct Config {
    pub machine: Machine,
    /// Where the journal is; it is created. `None`: it is kept in memory only, and nothing can be restored after the
    /// process has ended. That is for tests and demonstrations.
    pub journal: Option<PathBuf>,
    pub mode: Mode,
    /// How this node's runtime converts the shares of containers. It is asked only if a container's shares must be given
    /// back and the weight that was found is not right for them.
    pub runtime_weights: WeightFormula,
    pub pace: Pace,
    /// Writes that may block run on a thread of their own. Tests say `false`.
    pub slow_thread: bool,
}

impl Config {
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            journal: None,
            mode: Mode::default(),
            runtime_weights: WeightFormula::Quadratic,
            pace: Pace::default(),
            slow_thread: true,
        }
    }
}

/// How often things are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Each file is compared with what is wanted at least so often.
    pub recheck: Duration,
    /// A value that somebody else changed is put right at most so often…
    pub repair: Duration,
    /// …and at most so often if they do it again and again.
    pub repair_most: Duration,
    /// A value that is gone so soon after it was written was changed by a second agent…
    pub flip: Duration,
    /// …if that happens so many times.
    pub flips: u32,
    /// A file that this kernel does not have is looked for again after this time.
    pub unsupported: Duration,
    /// A write that the kernel refused is tried again after this time, then twice this time, and so on…
    pub refused: Duration,
    /// …until this time.
    pub refused_most: Duration,
    /// A write that takes longer is given up.
    pub slow_write: Duration,
    /// A turn waits for slow writes so long; what takes longer is told by a later turn.
    pub slow_grace: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            recheck: Duration::from_secs(10),
            repair: Duration::from_secs(10),
            repair_most: Duration::from_secs(60),
            flip: Duration::from_secs(2),
            flips: 3,
            unsupported: Duration::from_secs(60),
            refused: Duration::from_secs(2),
            refused_most: Duration::from_secs(60),
            slow_write: Duration::from_secs(5),
            slow_grace: Duration::from_millis(20),
        }
    }
}

/// When a turn takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For intervals.
    pub monotonic: Duration,
    /// For people.
    pub wall: Timestamp,
}

impl Now {
    pub fn of(clock: &Clock) -> Self {
        Self {
            monotonic: clock.monotonic(),
            wall: clock.now(),
        }
    }
}
