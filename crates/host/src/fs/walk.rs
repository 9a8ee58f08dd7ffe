//! How much a directory tree takes on its disk.

use std::collections::HashSet;
use std::fs::{Metadata, ReadDir};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::is_gone;
use crate::{HostError, Result};

/// `st_blocks` counts these, whatever the file system's own block size.
const BLOCK: u64 = 512;

/// How far a walk may go.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'a> {
    /// Looked at before every entry; set it to end the walk early.
    pub cancel: &'a AtomicBool,
    pub most_entries: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything was seen.
    Complete,
    Cancelled,
    /// The tree has more entries than were allowed; the figures are a lower bound.
    TooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    pub bytes: u64,
    pub inodes: u64,
    /// Directories that could not be listed.
    pub unreadable: u64,
    pub ended: Ended,
}

/// Adds up `dir` and everything below it on the same device, hard links once. Entries that vanish meanwhile are
/// passed over; only a `dir` that cannot be looked at is an error.
pub fn dir_usage(dir: &Path, walk: Walk<'_>) -> Result<Walked> {
    let mut on_the_way = DirWalk::begin(dir)?;
    loop {
        if let Some(walked) = on_the_way.go_on(walk, Duration::MAX) {
            return Ok(walked);
        }
    }
}

/// A walk that can pause: a tree of millions of files takes minutes, and others wait for theirs.
#[derive(Debug)]
pub struct DirWalk {
    device: u64,
    /// Depth first: these are the unvisited directories of one path, not of the whole tree.
    pending: Vec<PathBuf>,
    /// What is left of the directory that is being read.
    entries: Option<ReadDir>,
    linked: HashSet<u64>,
    seen: u64,
    usage: Walked,
}

/// Looking at the clock costs about as much as looking at a file that is in memory.
const ENTRIES_BETWEEN_LOOKS: u64 = 64;

impl DirWalk {
    pub fn begin(dir: &Path) -> Result<Self> {
        let top = std::fs::metadata(dir).map_err(|e| HostError::io("stat", dir, e))?;
        let mut walk = Self {
            device: top.dev(),
            pending: Vec::new(),
            entries: None,
            linked: HashSet::new(),
            seen: 1,
            usage: Walked {
                bytes: 0,
                inodes: 0,
                unreadable: 0,
                ended: Ended::Complete,
            },
        };
        walk.usage.add(&top, &mut walk.linked);
        if top.is_dir() {
            walk.pending.push(dir.to_owned());
        }
        Ok(walk)
    }

    /// Goes on for about so long. `None`: there is more to see.
    pub fn go_on(&mut self, walk: Walk<'_>, turn: Duration) -> Option<Walked> {
        let began = Instant::now();
        while let Some(mut entries) = self.next_directory() {
            while let Some(entry) = entries.next() {
                if walk.cancel.load(Ordering::Relaxed) {
                    self.usage.ended = Ended::Cancelled;
                    return Some(self.usage);
                }
                // Relative to the open directory, and never following a link.
                let Ok(entry) = entry else { continue };
                let Ok(found) = entry.metadata() else {
                    continue;
                };
                if found.dev() != self.device {
                    continue;
                }
                if self.seen >= walk.most_entries {
                    self.usage.ended = Ended::TooLarge;
                    return Some(self.usage);
                }
                self.seen += 1;
                self.usage.add(&found, &mut self.linked);
                if found.is_dir() {
                    self.pending.push(entry.path());
                }
                if self.seen.is_multiple_of(ENTRIES_BETWEEN_LOOKS) && began.elapsed() >= turn {
                    self.entries = Some(entries);
                    return None;
                }
            }
        }
        Some(self.usage)
    }

    /// The one that was being read, or the next that can be; `None` after the last.
    fn next_directory(&mut self) -> Option<ReadDir> {
        if let Some(entries) = self.entries.take() {
            return Some(entries);
        }
        loop {
            match std::fs::read_dir(self.pending.pop()?) {
                Ok(entries) => return Some(entries),
                Err(error) if is_gone(&error) => {}
                Err(_) => self.usage.unreadable += 1,
            }
        }
    }
}

impl Walked {
    fn add(&mut self, entry: &Metadata, linked: &mut HashSet<u64>) {
        // A directory's links are its children; it has only one name.
        if entry.nlink() > 1 && !entry.is_dir() && !linked.insert(entry.ino()) {
            return;
        }
        self.bytes = self
            .bytes
            .saturating_add(entry.blocks().saturating_mul(BLOCK));
        self.inodes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(dir: &Path, most_entries: u64) -> Walked {
        let cancel = AtomicBool::new(false);
        dir_usage(
            dir,
            Walk {
                cancel: &cancel,
                most_entries,
            },
        )
        .unwrap()
    }

    fn tree() -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        let sub = temp.path().join("a/b");
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(temp.path().join("one"), vec![1; 10_000]).unwrap();
        std::fs::hard_link(temp.path().join("one"), sub.join("again")).unwrap();
        std::fs::write(sub.join("two"), "x").unwrap();
        std::os::unix::fs::symlink("/", sub.join("link")).unwrap();
        temp
    }

    #[test]
    fn hard_links_count_once_and_links_are_not_followed() {
        let temp = tree();
        let found = walk(temp.path(), u64::MAX);
        // The tree itself, a, b, one, two and the link.
        assert_eq!((found.inodes, found.ended), (6, Ended::Complete));
        let alone = walk(&temp.path().join("one"), u64::MAX);
        assert_eq!(alone.inodes, 1);
        assert!(alone.bytes >= 10_000 && alone.bytes <= found.bytes);
        assert!(found.bytes < 2 * 10_000 + 5 * 8192);
    }

    #[test]
    fn pauses_change_nothing() {
        let temp = tempfile::tempdir().unwrap();
        for i in 0..20 {
            let dir = temp.path().join(format!("d{i}"));
            std::fs::create_dir(&dir).unwrap();
            for j in 0..20 {
                std::fs::write(dir.join(format!("f{j}")), "x").unwrap();
            }
        }
        let cancel = AtomicBool::new(false);
        let bounds = Walk {
            cancel: &cancel,
            most_entries: u64::MAX,
        };
        let mut on_the_way = DirWalk::begin(temp.path()).unwrap();
        let mut pauses = 0;
        let walked = loop {
            match on_the_way.go_on(bounds, Duration::ZERO) {
                Some(walked) => break walked,
                None => pauses += 1,
            }
        };
        assert_eq!(pauses, 421 / ENTRIES_BETWEEN_LOOKS);
        assert_eq!(walked, walk(temp.path(), u64::MAX));
        assert_eq!(walked.inodes, 421);
    }

    #[test]
    fn bounds() {
        let temp = tree();
        let found = walk(temp.path(), 3);
        assert_eq!(found.ended, Ended::TooLarge);
        assert!(found.inodes <= 3);
        let cancelled = dir_usage(
            temp.path(),
            Walk {
                cancel: &AtomicBool::new(true),
                most_entries: 10,
            },
        );
        assert_eq!(cancelled.unwrap().ended, Ended::Cancelled);
        let missing = dir_usage(
            &temp.path().join("none"),
            Walk {
                cancel: &AtomicBool::new(false),
                most_entries: 10,
            },
        );
        assert!(missing.unwrap_err().is_gone());
    }
}
