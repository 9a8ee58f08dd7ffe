//! Disk usage of a directory tree.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use super::Beneath;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ended {
    /// Everything was seen.
    #[default]
    Complete,
    Cancelled,
    /// The tree has more entries than were allowed; the figures are a lower bound.
    TooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

/// Of one directory whose files are added up.
const MOST_FILES: u64 = 100_000;

/// Adds up what lies in `dir` and is no directory.
pub fn files_usage(dir: &Path) -> Result<Walked> {
    let wrap = |error: io::Error| HostError::io("list", dir, error);
    let mut usage = Walked::default();
    let mut entries = Beneath::open(dir)
        .and_then(|dir| dir.list(Path::new("")))
        .map_err(wrap)?;
    while let Some(Ok(entry)) = entries.read() {
        // A file that was rotated away meanwhile takes nothing.
        let Some(found) = look(&entries, entry.file_name()).filter(|found| !is_dir(found)) else {
            continue;
        };
        if usage.inodes >= MOST_FILES {
            usage.ended = Ended::TooLarge;
            break;
        }
        // Each counts for itself, as the kubelet has it.
        usage.add(&found, &mut HashSet::new());
    }
    Ok(usage)
}

/// A walk that can pause: a tree of millions of files takes minutes, and others wait for theirs.
#[derive(Debug)]
pub struct DirWalk {
    top: PathBuf,
    /// Device and number of the top: what has its name later may be something else.
    id: (u64, u64),
    /// Depth first: these are the unvisited directories of one path, not of the whole tree; from the top.
    pending: Vec<PathBuf>,
    pending_bytes: usize,
    /// What is left of the directory that is being read.
    entries: Option<(PathBuf, Dir)>,
    linked: HashSet<u64>,
    seen: u64,
    usage: Walked,
}

/// Looking at the clock costs about as much as looking at a file that is in memory.
const ENTRIES_BETWEEN_LOOKS: u64 = 64;
/// Of the names of directories that wait. A tree with more is too large: whoever made it is not to choose how much memory
/// we take.
const MOST_PENDING_BYTES: usize = 1 << 20;
/// Files with several names that are remembered, for the same reason.
const MOST_LINKED: usize = 1 << 17;

impl DirWalk {
    pub fn begin(dir: &Path) -> Result<Self> {
        let wrap = |error: io::Error| HostError::io("stat", dir, error);
        let top = Beneath::open(dir).map_err(wrap)?;
        let found = rustix::fs::fstat(top.top()).map_err(|error| wrap(error.into()))?;
        let mut walk = Self {
            top: dir.to_owned(),
            id: (found.st_dev, found.st_ino),
            pending: Vec::new(),
            pending_bytes: 0,
            entries: None,
            linked: HashSet::new(),
            seen: 1,
            usage: Walked::default(),
        };
        walk.usage.add(&found, &mut walk.linked);
        if is_dir(&found) {
            walk.pending.push(PathBuf::new());
        }
        Ok(walk)
    }

    /// Goes on for about so long. `None`: there is more to see.
    pub fn go_on(&mut self, walk: Walk<'_>, turn: Duration) -> Option<Walked> {
        let began = Instant::now();
        // Held for this turn only: a file system cannot be unmounted meanwhile.
        let Some(top) = self.reopen() else {
            return Some(self.usage);
        };
        while let Some((below, mut entries)) = self.next_directory(&top) {
            while let Some(entry) = entries.read() {
                if walk.cancel.load(Ordering::Relaxed) {
                    return Some(self.ended(Ended::Cancelled));
                }
                let Ok(entry) = entry else { break };
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                // Relative to the open directory, and never following a link.
                let Some(found) = look(&entries, name) else {
                    continue;
                };
                if found.st_dev != self.id.0 {
                    continue;
                }
                if self.seen >= walk.most_entries || self.linked.len() >= MOST_LINKED {
                    return Some(self.ended(Ended::TooLarge));
                }
                self.seen += 1;
                self.usage.add(&found, &mut self.linked);
                if is_dir(&found) && !self.push(below.join(OsStr::from_bytes(name.to_bytes()))) {
                    return Some(self.ended(Ended::TooLarge));
                }
                if self.seen.is_multiple_of(ENTRIES_BETWEEN_LOOKS) && began.elapsed() >= turn {
                    self.entries = Some((below, entries));
                    return None;
                }
            }
        }
        Some(self.usage)
    }

    fn ended(&mut self, how: Ended) -> Walked {
        self.usage.ended = how;
        self.usage
    }

    /// `None`: it has gone, and so has what is below.
    fn reopen(&self) -> Option<Beneath> {
        let top = Beneath::open(&self.top).ok()?;
        let found = rustix::fs::fstat(top.top()).ok()?;
        ((found.st_dev, found.st_ino) == self.id).then_some(top)
    }

    /// Whether there is room for it.
    fn push(&mut self, dir: PathBuf) -> bool {
        self.pending_bytes += dir.as_os_str().len();
        self.pending.push(dir);
        self.pending_bytes <= MOST_PENDING_BYTES
    }

    /// The one that was being read, or the next that can be; `None` after the last.
    fn next_directory(&mut self, top: &Beneath) -> Option<(PathBuf, Dir)> {
        if let Some(entries) = self.entries.take() {
            return Some(entries);
        }
        loop {
            let below = self.pending.pop()?;
            self.pending_bytes -= below.as_os_str().len();
            match top.list(&below) {
                Ok(entries) => return Some((below, entries)),
                Err(error) if is_gone(&error) || is_no_directory(&error) => {}
                Err(_) => self.usage.unreadable += 1,
            }
        }
    }
}

/// What was a directory when it was looked at, and is a link or a file now.
fn is_no_directory(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV))
}

fn look(dir: &Dir, name: &CStr) -> Option<Stat> {
    rustix::fs::statat(dir.fd().ok()?, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn is_dir(entry: &Stat) -> bool {
    FileType::from_raw_mode(entry.st_mode) == FileType::Directory
}

impl Walked {
    fn add(&mut self, entry: &Stat, linked: &mut HashSet<u64>) {
        // A directory's links are its children; it has only one name.
        if entry.st_nlink > 1 && !is_dir(entry) && !linked.insert(entry.st_ino) {
            return;
        }
        let blocks = u64::try_from(entry.st_blocks).unwrap_or(0);
        self.bytes = self.bytes.saturating_add(blocks.saturating_mul(BLOCK));
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

    /// A walk pauses with directories still to be visited; until it goes on, each has become a link to somewhere else.
    #[test]
    fn links_that_are_swapped_in_lead_nowhere() {
        let temp = tempfile::tempdir().unwrap();
        let path = |path: &str| temp.path().join(path);
        std::fs::create_dir_all(path("outside/b")).unwrap();
        for i in 0..50 {
            std::fs::write(path(&format!("outside/b/secret{i}")), "x").unwrap();
            std::fs::write(path(&format!("outside/secret{i}")), "x").unwrap();
        }
        for i in 0..100 {
            std::fs::create_dir_all(path(&format!("top/d{i}/b"))).unwrap();
        }
        let cancel = AtomicBool::new(false);
        let bounds = Walk {
            cancel: &cancel,
            most_entries: u64::MAX,
        };
        let mut walk = DirWalk::begin(&path("top")).unwrap();
        assert_eq!(walk.go_on(bounds, Duration::ZERO), None);
        for i in 0..100 {
            std::fs::remove_dir_all(path(&format!("top/d{i}"))).unwrap();
            std::os::unix::fs::symlink("../outside", path(&format!("top/d{i}"))).unwrap();
        }
        let walked = loop {
            if let Some(walked) = walk.go_on(bounds, Duration::ZERO) {
                break walked;
            }
        };
        // The top and a hundred names in it, whatever they were when they were looked at.
        assert!(walked.inodes <= 101, "{walked:?}");
    }

    /// The top itself is exchanged for a link.
    #[test]
    fn another_top_is_not_walked() {
        let temp = tree();
        let top = temp.path().join("a");
        let cancel = AtomicBool::new(false);
        let bounds = Walk {
            cancel: &cancel,
            most_entries: u64::MAX,
        };
        let mut walk = DirWalk::begin(&top).unwrap();
        std::fs::rename(&top, temp.path().join("was")).unwrap();
        std::os::unix::fs::symlink("/", &top).unwrap();
        assert_eq!(walk.go_on(bounds, Duration::MAX).unwrap().inodes, 1);
        // A link alone is what it is.
        assert_eq!(self::walk(&top, u64::MAX).inodes, 1);
    }

    #[test]
    fn depth_and_breadth_are_bounded() {
        let temp = tempfile::tempdir().unwrap();
        let mut at = temp.path().join("deep");
        for _ in 0..400 {
            at.push("d");
        }
        std::fs::create_dir_all(&at).unwrap();
        let deep = walk(&temp.path().join("deep"), u64::MAX);
        assert_eq!((deep.unreadable, deep.ended), (1, Ended::Complete));
        assert!(deep.inodes < 300, "{deep:?}");

        let wide = temp.path().join("wide");
        let names = MOST_PENDING_BYTES / 200 + 10;
        for i in 0..names {
            std::fs::create_dir_all(wide.join(format!("{i:0>200}"))).unwrap();
        }
        assert_eq!(walk(&wide, u64::MAX).ended, Ended::TooLarge);
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
