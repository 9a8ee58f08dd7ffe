//! How much a directory tree takes on its disk.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

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
    let top = std::fs::metadata(dir).map_err(|e| HostError::io("stat", dir, e))?;
    let mut usage = Walked {
        bytes: 0,
        inodes: 0,
        unreadable: 0,
        ended: Ended::Complete,
    };
    let mut linked = HashSet::new();
    let mut seen = 1;
    usage.add(&top, &mut linked);
    if !top.is_dir() {
        return Ok(usage);
    }
    // Depth first: the stack holds the unvisited directories of one path, not of the whole tree.
    let mut pending: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(next) = pending.pop() {
        let entries = match std::fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) => continue,
            Err(_) => {
                usage.unreadable += 1;
                continue;
            }
        };
        for entry in entries {
            if walk.cancel.load(Ordering::Relaxed) {
                usage.ended = Ended::Cancelled;
                return Ok(usage);
            }
            // Relative to the open directory, and never following a link.
            let Ok(entry) = entry else { continue };
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.dev() != top.dev() {
                continue;
            }
            if seen >= walk.most_entries {
                usage.ended = Ended::TooLarge;
                return Ok(usage);
            }
            seen += 1;
            usage.add(&found, &mut linked);
            if found.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(usage)
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
