//! What the journal is made of: frames of `length u32 · CRC-32 u32 · JSON`, both numbers little-endian.
//!
//! A program that is older or newer reads what it knows. Fields that it does not know it skips, records that it does not
//! know it keeps as they are, for whoever knows them.

use plimsoll_plan::{Reason, Target, Value};
use serde::{Deserialize, Serialize};

use crate::status::Hold;

/// No record is longer; a length beyond it is garbage.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Record {
    /// Everything that follows happened after this start of the machine.
    Boot {
        boot: String,
    },
    Base(Base),
    Line(Line),
    /// The base is back, or its owner has gone.
    Closed {
        target: Target,
    },
    /// What older records say of a target, in one.
    Kept(Kept),
    Holds {
        holds: Vec<Hold>,
    },
}

/// What was there before our first write. It is on disk before that write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Base {
    pub at: i64,
    pub target: Target,
    /// Inode, or start time of a process.
    pub owner: u64,
    pub found: Value,
    pub asker: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub target: Target,
    pub asker: String,
    /// What we wrote, the newest last.
    #[serde(default)]
    pub ours: Vec<Value>,
    #[serde(default)]
    pub verified: bool,
    /// What somebody else wrote last.
    #[serde(default)]
    pub foreign: Option<Value>,
    #[serde(default)]
    pub until_ms: Option<u64>,
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// About to be written. Shown only if nothing follows: the process ended in the middle.
    Armed,
    Applied,
    /// It would have been written in mode `enforce`.
    Planned,
    Overruled,
    /// Somebody else changed it.
    Drifted,
    /// It drifted, and was put right.
    Repaired,
    Refused,
    /// The kernel did not come back from the write in time.
    Blocked,
    Unsupported,
    OwnerGone,
    Restored,
    Held,
    Released,
    SecondAgent,
    ModeChanged,
    Noted,
}

/// Why something was wanted, for readers of another version, too.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    pub code: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<(String, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

impl From<&Reason> for Why {
    fn from(reason: &Reason) -> Self {
        let finite = reason.figures().filter(|(_, value)| value.is_finite());
        Self {
            code: reason.code.to_owned(),
            figures: finite
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            policy: reason.policy.map(str::to_owned),
        }
    }
}

/// One line of the story for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    pub seq: u64,
    /// Nanoseconds since the epoch.
    pub at: i64,
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asker: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<Value>,
    /// Values on the way, while it is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// Monotonic milliseconds after which it goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// A sentence.
    pub text: String,
}

pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 8);
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Records that can be read, and where reading ended: at the first frame that is not whole.
pub fn frames(file: &[u8]) -> (Vec<&[u8]>, usize) {
    let mut found = Vec::new();
    let mut rest = file;
    while let Some((payload, after)) = first_frame(rest) {
        found.push(payload);
        rest = after;
    }
    (found, file.len() - rest.len())
}

fn first_frame(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (crc, after) = after.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length > LONGEST || length > after.len() {
        return None;
    }
    let (payload, after) = after.split_at(length);
    (crc32fast::hash(payload) == u32::from_le_bytes(*crc)).then_some((payload, after))
}

pub fn encode(record: &Record) -> Vec<u8> {
    // Values and names always have a form in JSON; figures are finite.
    serde_json::to_vec(record).unwrap_or_default()
}

/// `None`: a record of another version.
pub fn decode(payload: &[u8]) -> Option<Record> {
    serde_json::from_slice(payload).ok()
}
