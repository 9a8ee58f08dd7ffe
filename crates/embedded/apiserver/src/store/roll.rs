//! The roll: a second file that says which objects there must be, and in which state. It is written after each commit and
//! not flushed, so after a loss of power it may lag behind; it is never ahead of a store that is whole. With it, what is
//! missing in a damaged store has a name, and what is found there can be vouched for.
//!
//! A line has a checksum, a revision, the checksum of the object at that revision (`-`: it is deleted, `=`: the store has
//! come so far), and the row as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::record::Seal;

/// The file is written anew when it has so many lines more than there are objects …
const SPARE_LINES: usize = 50_000;
/// … and so many times as many.
const TIMES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Put(u32),
    Deleted,
    Reached,
}

/// What the roll says.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub rows: BTreeMap<String, Seal>,
    pub revision: u64,
    pub lines: usize,
    /// Lines that cannot be read. The last one, cut short, is none of them.
    pub flaws: usize,
}

pub(super) fn path(store: &Path) -> PathBuf {
    store.with_extension("roll")
}

/// `None`: there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Listed>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut listed = Listed::default();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else {
            break;
        };
        listed.lines += 1;
        match parse(line) {
            Some((revision, said, row)) => listed.take(revision, said, row),
            None => listed.flaws += 1,
        }
    }
    Ok(Some(listed))
}

impl Listed {
    fn take(&mut self, revision: u64, said: Said, row: String) {
        self.revision = self.revision.max(revision);
        match said {
            Said::Put(checksum) => {
                self.rows.insert(row, Seal { revision, checksum });
            }
            Said::Deleted => {
                self.rows.remove(&row);
            }
            Said::Reached => {}
        }
    }
}

fn parse(line: &[u8]) -> Option<(u64, Said, String)> {
    let (sum, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(rest.as_bytes()) {
        return None;
    }
    let (revision, rest) = rest.split_once(' ')?;
    let (said, row) = rest.split_once(' ')?;
    let said = match said {
        "-" => Said::Deleted,
        "=" => Said::Reached,
        sum => Said::Put(u32::from_str_radix(sum, 16).ok()?),
    };
    Some((
        revision.parse().ok()?,
        said,
        serde_json::from_str(row).ok()?,
    ))
}

/// Lines to be written together.
#[derive(Debug, Default)]
pub(super) struct Lines {
    text: String,
    count: usize,
}

impl Lines {
    pub(super) fn put(&mut self, row: &str, seal: Seal) {
        self.line(seal.revision, &format!("{:08x}", seal.checksum), row);
    }

    pub(super) fn delete(&mut self, row: &str, revision: u64) {
        self.line(revision, "-", row);
    }

    pub(super) fn reached(&mut self, revision: u64) {
        self.line(revision, "=", "");
    }

    fn line(&mut self, revision: u64, said: &str, row: &str) {
        let row = serde_json::Value::from(row);
        let rest = format!("{revision} {said} {row}");
        let sum = crc32fast::hash(rest.as_bytes());
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{sum:08x} {rest}");
        self.count += 1;
    }
}

/// The file, while the store is open.
#[derive(Debug)]
pub(super) struct Roll {
    path: PathBuf,
    /// `None`: it could not be written, and lags behind until it is written anew.
    file: Option<File>,
    lines: usize,
}

impl Roll {
    /// Goes on behind what is there.
    pub(super) fn open(path: &Path, lines: usize) -> Self {
        Self {
            file: OpenOptions::new().append(true).open(path).ok(),
            path: path.to_owned(),
            lines,
        }
    }

    pub(super) fn append(&mut self, lines: &Lines) {
        let Some(file) = &mut self.file else {
            return;
        };
        self.lines += lines.count;
        if let Err(error) = file.write_all(lines.text.as_bytes()) {
            tracing::warn!(%error, "the store's roll cannot be written; it will be written anew");
            self.file = None;
        }
    }

    /// Whether it should be written anew, where there are so many objects.
    pub(super) fn is_stale(&self, objects: usize) -> bool {
        self.file.is_none()
            || self.lines > objects.saturating_mul(TIMES).saturating_add(SPARE_LINES)
    }

    /// The whole of it, in place of what is there.
    pub(super) fn rewrite(&mut self, lines: &Lines) -> io::Result<()> {
        self.file = None;
        let fresh = self.path.with_extension("roll.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(lines.text.as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&fresh, &self.path)?;
        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
        self.lines = lines.count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.roll");
        assert!(read(&path).unwrap().is_none());
        let seal = |revision| Seal {
            revision,
            checksum: 0xab_cdef,
        };
        let mut lines = Lines::default();
        lines.put("pods\0a/b", seal(2));
        lines.put("clusterroles\0odd\nname \"x\"", seal(3));
        let mut roll = Roll::open(&path, 0);
        roll.rewrite(&lines).unwrap();
        let mut more = Lines::default();
        more.put("pods\0a/b", seal(4));
        more.delete("clusterroles\0odd\nname \"x\"", 5);
        more.reached(9);
        roll.append(&more);
        let listed = read(&path).unwrap().unwrap();
        assert_eq!(
            listed.rows,
            BTreeMap::from([("pods\0a/b".to_owned(), seal(4))])
        );
        assert_eq!((listed.revision, listed.lines, listed.flaws), (9, 5, 0));
        // A byte that changed costs its line, or joins two.
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() - 1 {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, changed).unwrap();
            assert!(read(&path).unwrap().unwrap().flaws > 0, "{at}");
        }
        // Half a line at the end was never finished.
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let listed = read(&path).unwrap().unwrap();
        assert_eq!((listed.revision, listed.flaws), (5, 0));
    }

    #[test]
    fn what_a_full_disk_refuses_is_made_up_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.roll");
        let mut lines = Lines::default();
        lines.reached(7);
        let mut roll = Roll::open(&path, 0);
        roll.rewrite(&lines).unwrap();
        roll.file = Some(OpenOptions::new().append(true).open("/dev/full").unwrap());
        assert!(!roll.is_stale(0));
        lines.reached(8);
        roll.append(&lines);
        assert!(roll.is_stale(0));
        roll.append(&lines);
        assert_eq!(read(&path).unwrap().unwrap().revision, 7);
        roll.rewrite(&lines).unwrap();
        assert!(!roll.is_stale(0));
        assert_eq!(read(&path).unwrap().unwrap().revision, 8);
    }
}
