//! What was there before us, and what we did, so that it can be told and undone.
//!
//! A target's base is on disk before the first write to it; everything else is handed to the kernel without waiting for
//! the disk, which survives the end of the process, and after a reboot there is nothing to undo.

mod disk;
mod record;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use plimsoll_plan::{Target, Value};

pub(crate) use record::{Base, Kept};
pub use record::{Line, Outcome, Why};

use crate::OpenError;
use crate::status::Hold;
use disk::Disk;
use record::{Record, decode, encode, frame, frames};

/// Lines that are kept for people.
const TAIL: usize = 2000;
/// Lines that survive a compaction.
const TAIL_ON_DISK: usize = 500;
/// The file is compacted when it is longer than this and twice as long as after the last time.
const COMPACT_AT: u64 = 1 << 20;
/// Records of newer programs that are kept, in bytes. The oldest go first.
const MOST_UNKNOWN: usize = 1 << 20;
/// What waits for a disk that does not take it, in bytes. Lines beyond it are lost; bases are not, because nothing is
/// touched without them.
const MOST_PENDING: usize = 1 << 20;

/// What a journal says of one target.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Touched {
    pub owner: u64,
    pub found: Value,
    pub asker: String,
    /// What we wrote, or were about to write; the newest last.
    pub ours: Vec<Value>,
    /// The newest of them was read back; else it may not have been written.
    pub verified: bool,
    pub foreign: Option<Value>,
    pub until_ms: Option<u64>,
}

impl Touched {
    pub fn kept(&self, target: &Target) -> Kept {
        Kept {
            target: target.clone(),
            asker: self.asker.clone(),
            ours: self.ours.clone(),
            verified: self.verified,
            foreign: self.foreign.clone(),
            until_ms: self.until_ms,
        }
    }
}

/// What was read at the start.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub touched: BTreeMap<Target, Touched>,
    pub holds: Vec<Hold>,
    pub cut_off: bool,
    pub earlier_boot: usize,
    pub unknown: usize,
}

#[derive(Debug)]
pub(crate) struct Journal {
    disk: Option<Disk>,
    boot: String,
    seq: u64,
    tail: VecDeque<Line>,
    /// The bases of all targets that are not closed, as they were written.
    bases: BTreeMap<Target, Vec<u8>>,
    unknown: VecDeque<Vec<u8>>,
    recent: VecDeque<Vec<u8>>,
    /// Not on disk yet.
    pending: Vec<u8>,
    must_sync: bool,
    compacted_len: u64,
    error: Option<String>,
    /// The disk takes nothing.
    #[cfg(test)]
    pub fail: bool,
}

impl Journal {
    pub fn open(dir: Option<&Path>, boot: String) -> Result<(Self, Replayed), OpenError> {
        let mut journal = Self {
            disk: None,
            boot,
            seq: 0,
            tail: VecDeque::new(),
            bases: BTreeMap::new(),
            unknown: VecDeque::new(),
            recent: VecDeque::new(),
            pending: Vec::new(),
            must_sync: false,
            compacted_len: 0,
            error: None,
            #[cfg(test)]
            fail: false,
        };
        let Some(dir) = dir else {
            return Ok((journal, Replayed::default()));
        };
        let (disk, content) = Disk::open(dir)?;
        journal.disk = Some(disk);
        let replayed = journal.replay(&content);
        journal.compact(&replayed.kept(), &replayed.holds);
        Ok((journal, replayed))
    }

    fn replay(&mut self, content: &[u8]) -> Replayed {
        let (payloads, whole) = frames(content);
        let mut replayed = Replayed {
            cut_off: whole < content.len(),
            ..Replayed::default()
        };
        let mut earlier = false;
        for payload in payloads {
            let Some(record) = decode(payload) else {
                self.keep_unknown(payload.to_vec());
                continue;
            };
            match record {
                // The first record of a file, and the only one of its kind.
                Record::Boot { boot } => earlier = boot != self.boot,
                Record::Base(base) => {
                    self.bases.insert(base.target.clone(), payload.to_vec());
                    replayed.touched.insert(
                        base.target,
                        Touched {
                            owner: base.owner,
                            found: base.found,
                            asker: base.asker,
                            ours: Vec::new(),
                            verified: false,
                            foreign: None,
                            until_ms: None,
                        },
                    );
                }
                Record::Closed { target } => {
                    self.bases.remove(&target);
                    replayed.touched.remove(&target);
                }
                Record::Kept(kept) => {
                    if let Some(touched) = replayed.touched.get_mut(&kept.target) {
                        touched.asker = kept.asker;
                        touched.ours = kept.ours;
                        touched.verified = kept.verified;
                        touched.foreign = kept.foreign;
                        touched.until_ms = kept.until_ms;
                    }
                }
                Record::Holds { holds } => replayed.holds = holds,
                Record::Line(line) => {
                    replayed.learn(&line);
                    self.seq = self.seq.max(line.seq);
                    self.remember(line, payload.to_vec());
                }
            }
        }
        if earlier {
            replayed.earlier_boot = replayed.touched.len();
            replayed.touched.clear();
            self.bases.clear();
        }
        replayed.unknown = self.unknown.len();
        replayed
    }

    fn keep_unknown(&mut self, payload: Vec<u8>) {
        self.unknown.push_back(payload);
        let mut bytes: usize = self.unknown.iter().map(Vec::len).sum();
        while bytes > MOST_UNKNOWN {
            bytes -= self
                .unknown
                .pop_front()
                .map_or(bytes, |oldest| oldest.len());
        }
    }

    fn remember(&mut self, line: Line, payload: Vec<u8>) {
        if self.disk.is_some() {
            self.recent.push_back(payload);
            if self.recent.len() > TAIL_ON_DISK {
                self.recent.pop_front();
            }
        }
        if line.outcome == Outcome::Armed {
            return;
        }
        self.tail.push_back(line);
        if self.tail.len() > TAIL {
            self.tail.pop_front();
        }
    }

    /// A target's base; it must be [`Self::flush`]ed before the target is written.
    pub fn base(&mut self, base: Base) {
        let target = base.target.clone();
        let payload = encode(&Record::Base(base));
        self.pending.extend(frame(&payload));
        self.bases.insert(target, payload);
        self.must_sync = true;
    }

    pub fn closed(&mut self, target: &Target) {
        if self.bases.remove(target).is_some() {
            let record = Record::Closed {
                target: target.clone(),
            };
            self.pending.extend(frame(&encode(&record)));
        }
    }

    pub fn line(&mut self, mut line: Line) {
        self.seq = self.seq.saturating_add(1);
        line.seq = self.seq;
        let payload = encode(&Record::Line(line.clone()));
        if self.pending.len() < MOST_PENDING {
            self.pending.extend(frame(&payload));
        }
        self.remember(line, payload);
    }

    pub fn holds(&mut self, holds: &[Hold]) {
        let record = Record::Holds {
            holds: holds.to_vec(),
        };
        self.pending.extend(frame(&encode(&record)));
    }

    /// Brings to disk what is not there yet; `false`: it did not take it.
    pub fn flush(&mut self) -> bool {
        let Some(disk) = &mut self.disk else {
            self.pending.clear();
            self.must_sync = false;
            return true;
        };
        #[cfg(test)]
        if self.fail {
            self.error = Some("write the journal: no space".to_owned());
            return false;
        }
        let mut outcome = match self.pending.is_empty() {
            true => Ok(()),
            false => disk.append(&self.pending),
        };
        if outcome.is_ok() {
            self.pending.clear();
            if self.must_sync {
                outcome = disk.sync();
            }
        }
        match outcome {
            Ok(()) => {
                self.must_sync = false;
                self.error = None;
                true
            }
            Err(error) => {
                self.error = Some(format!("write the journal: {error}"));
                false
            }
        }
    }

    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub fn must_compact(&self) -> bool {
        let len = self.disk.as_ref().map_or(0, Disk::len);
        len > COMPACT_AT.max(self.compacted_len.saturating_mul(2))
    }

    /// Writes the file anew: what is not closed, what others can read, and the newest lines.
    pub fn compact(&mut self, kept: &[Kept], holds: &[Hold]) {
        let boot = Record::Boot {
            boot: self.boot.clone(),
        };
        let mut content = frame(&encode(&boot));
        for payload in self.bases.values() {
            content.extend(frame(payload));
        }
        let known = kept
            .iter()
            .filter(|kept| self.bases.contains_key(&kept.target));
        for kept in known {
            content.extend(frame(&encode(&Record::Kept(kept.clone()))));
        }
        for payload in &self.unknown {
            content.extend(frame(payload));
        }
        if !holds.is_empty() {
            let holds = holds.to_vec();
            content.extend(frame(&encode(&Record::Holds { holds })));
        }
        for payload in &self.recent {
            content.extend(frame(payload));
        }
        let Some(disk) = &mut self.disk else {
            return;
        };
        match disk.replace(&content) {
            Ok(()) => {
                self.compacted_len = disk.len();
                self.pending.clear();
                self.must_sync = false;
                self.error = None;
            }
            Err(error) => self.error = Some(format!("compact the journal: {error}")),
        }
    }

    /// Lines after a number, the oldest first; at most so many of the newest.
    pub fn tail(&self, after: u64, most: usize) -> Vec<Line> {
        newest(self.tail.iter().filter(|line| line.seq > after), most)
    }
}

fn newest<'a>(lines: impl DoubleEndedIterator<Item = &'a Line>, most: usize) -> Vec<Line> {
    let mut lines: Vec<_> = lines.rev().take(most).cloned().collect();
    lines.reverse();
    lines
}

impl Replayed {
    fn learn(&mut self, line: &Line) {
        let Some(target) = &line.target else { return };
        let Some(touched) = self.touched.get_mut(target) else {
            return;
        };
        match line.outcome {
            Outcome::Armed => {
                touched.ours.extend(line.through.iter().cloned());
                touched.ours.extend(line.wanted.clone());
                touched.asker = line.asker.clone();
                touched.verified = false;
                touched.until_ms = line.until_ms;
            }
            // Read back after the write, this is exactly what we left.
            Outcome::Applied | Outcome::Repaired => {
                touched.ours = line.has.clone().into_iter().collect();
                touched.verified = true;
            }
            Outcome::Drifted => touched.foreign = line.has.clone(),
            _ => {}
        }
    }

    fn kept(&self) -> Vec<Kept> {
        let kept = |(target, touched): (&Target, &Touched)| touched.kept(target);
        self.touched.iter().map(kept).collect()
    }
}

/// The story as the file tells it, while nobody else can be asked. What was about to be written is told only if nothing
/// says how that ended.
pub fn read_journal(dir: &Path, after: u64, most: usize) -> Result<Vec<Line>, OpenError> {
    let content = disk::read(dir)?;
    let mut lines: Vec<Line> = Vec::new();
    for payload in frames(&content).0 {
        let Some(Record::Line(line)) = decode(payload) else {
            continue;
        };
        if line.outcome != Outcome::Armed && line.target.is_some() {
            let answered =
                |earlier: &Line| earlier.outcome == Outcome::Armed && earlier.target == line.target;
            // Outcomes follow within the same turn.
            let from = lines.len().saturating_sub(TAIL);
            if let Some(armed) = lines[from..].iter().rposition(answered) {
                lines.remove(from + armed);
            }
        }
        lines.push(line);
    }
    Ok(newest(lines.iter().filter(|line| line.seq > after), most))
}

#[cfg(test)]
mod tests;
