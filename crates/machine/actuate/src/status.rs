//! What an actuator tells about itself: for `plimsoll qos`, for a page of JSON, and for metrics.

use plimsoll_plan::{Asker, Target, Value};
use serde::{Deserialize, Serialize};

use crate::Mode;

/// How a target stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Nothing was done yet.
    Pending,
    /// The kernel has what is wanted.
    Applied,
    /// It would be written in mode `enforce`.
    Planned,
    /// An operator's hold covers it.
    Held,
    /// Somebody else changed it; it is put right at a bounded rate.
    Drifted,
    /// The value makes no sense, or the kernel did not take it.
    Refused,
    /// This kernel has no such file.
    Unsupported,
    /// The cgroup or the process is not there.
    Absent,
    /// The kernel is still at it.
    Writing,
    /// Nobody wants it any more; the base is not back yet.
    Releasing,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    pub target: Target,
    /// Empty: this machine has no such thing.
    pub file: String,
    pub state: State,
    /// What was there before our first write. `None`: we never wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Value>,
    /// What would be there without us, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Value>,
    /// When it was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Asker>,
    /// A sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Who wants something else and does not get it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruled: Vec<Overruled>,
    /// What was wrong with it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How often somebody else changed it.
    pub drifts: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overruled {
    pub asker: Asker,
    pub wanted: Value,
}

/// A hold of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// A cgroup's path (with all below it), or a file.
    pub what: String,
    /// Nanoseconds since the epoch. `None`: until it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// Somebody else keeps changing what we write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecondAgent {
    pub file: String,
    pub we_want: Value,
    pub they_write: Value,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub mode: Mode,
    /// `observe` although `enforce` is wanted, because of a second agent.
    pub effective_mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_agent: Option<SecondAgent>,
    pub holds: Vec<Hold>,
    pub targets: Vec<TargetStatus>,
    pub counters: Counters,
    /// Why the journal cannot be written; nothing new is touched then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_error: Option<String>,
}

/// Since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    /// Looked at, and as wanted.
    pub unchanged: u64,
    pub refused: u64,
    pub drifted: u64,
    /// Drifted, and put right.
    pub repaired: u64,
    pub restored: u64,
    pub overruled: u64,
    pub unsupported: u64,
    /// Planned in mode `observe`.
    pub planned: u64,
    /// Cgroups and processes that went, or were made anew.
    pub forgotten: u64,
    /// Given up because the kernel did not come back.
    pub blocked: u64,
}

/// What one turn did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    pub reads: u64,
    pub writes: u64,
    pub unchanged: u64,
    pub refused: u64,
    pub drifted: u64,
    pub repaired: u64,
    pub restored: u64,
    pub overruled: u64,
    pub unsupported: u64,
    pub planned: u64,
    pub forgotten: u64,
    pub blocked: u64,
    /// Slow writes that are under way.
    pub writing: u64,
    /// A second agent was found in this turn.
    pub second_agent: bool,
}

impl Counters {
    pub(crate) fn add(&mut self, turn: &Applied) {
        let sums = [
            (&mut self.reads, turn.reads),
            (&mut self.writes, turn.writes),
            (&mut self.unchanged, turn.unchanged),
            (&mut self.refused, turn.refused),
            (&mut self.drifted, turn.drifted),
            (&mut self.repaired, turn.repaired),
            (&mut self.restored, turn.restored),
            (&mut self.overruled, turn.overruled),
            (&mut self.unsupported, turn.unsupported),
            (&mut self.planned, turn.planned),
            (&mut self.forgotten, turn.forgotten),
            (&mut self.blocked, turn.blocked),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// What an earlier process left.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovered {
    /// Values of it that nobody has given back yet.
    pub targets: Vec<Target>,
    /// It left off in the middle of a record.
    pub cut_off: bool,
    /// Values of an earlier boot; the kernel has forgotten them.
    pub earlier_boot: usize,
    /// Records of a newer program, kept for it.
    pub unknown: usize,
}

/// What is to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    All,
    Asker(Asker),
    Target(Target),
    /// A cgroup with all below it.
    Cgroup(String),
}

impl Filter {
    pub fn matches(&self, target: &Target, asker: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Asker(wanted) => asker == Some(wanted.as_str()),
            Self::Target(wanted) => wanted == target,
            Self::Cgroup(top) => target.cgroup_path().is_some_and(|path| is_below(path, top)),
        }
    }
}

/// Whether `path` is `top` or below it.
pub(crate) fn is_below(path: &str, top: &str) -> bool {
    let top = top.trim_end_matches('/');
    path.strip_prefix(top)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
