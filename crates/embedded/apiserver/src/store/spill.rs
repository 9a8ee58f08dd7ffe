//! What is many and seldom read leaves memory: bodies are appended to files without a name. Where one is stays in memory,
//! and a file is gone when the last object in it is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{Attributes, Expiry};

/// What is written next goes into another file when one has this much. Objects expire in the order in which they were
/// written, so files become empty one after the other.
const SEGMENT_BYTES: u32 = 4 << 20;

#[derive(Debug)]
pub(super) struct Spill {
    dir: PathBuf,
    expiry: Expiry,
    current: Option<(Arc<Segment>, u32)>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    expiry: Expiry,
}

/// Where a body is.
#[derive(Debug, Clone)]
pub(super) struct Slip {
    segment: Arc<Segment>,
    offset: u32,
    length: u32,
    checksum: u32,
}

/// A body did not come back from where it was put.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error(transparent)]
    Unread(#[from] io::Error),
    #[error("it has changed on the disk")]
    Changed,
}

impl Spill {
    pub(super) fn new(dir: PathBuf, expiry: Expiry) -> Self {
        Self {
            dir,
            expiry,
            current: None,
        }
    }

    pub(super) fn shelf(&self) -> &'static str {
        self.expiry.shelf
    }

    pub(super) fn is_for(&self, shelf: &str) -> bool {
        shelf == self.expiry.shelf
    }

    /// `None`: there is no room, and it has to stay where it is.
    pub(super) fn take(&mut self, body: &[u8]) -> Option<Slip> {
        match self.append(body) {
            Ok(slip) => Some(slip),
            Err(error) => {
                tracing::debug!(%error, "cannot move an object out of memory");
                self.current = None;
                None
            }
        }
    }

    fn append(&mut self, body: &[u8]) -> io::Result<Slip> {
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let (segment, offset) = match self.current.take() {
            Some((segment, used)) if used < SEGMENT_BYTES => (segment, used),
            _ => (Arc::new(self.segment()?), 0),
        };
        let end = offset.checked_add(length);
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        segment.file.write_all_at(body, u64::from(offset))?;
        self.current = Some((segment.clone(), end));
        Ok(Slip {
            segment,
            offset,
            length,
            checksum: crc32fast::hash(body),
        })
    }

    /// Nobody else finds the file: its room is free again when it is closed, however that happens.
    fn segment(&self) -> io::Result<Segment> {
        let path = self.dir.join("spilled");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Segment {
            file,
            expiry: self.expiry,
        })
    }
}

impl Slip {
    pub(super) fn len(&self) -> usize {
        self.length as usize
    }

    pub(super) fn read(&self) -> Result<Bytes, Lost> {
        let mut body = vec![0; self.len()];
        let file = &self.segment.file;
        file.read_exact_at(&mut body, u64::from(self.offset))?;
        match crc32fast::hash(&body) == self.checksum {
            true => Ok(body.into()),
            false => Err(Lost::Changed),
        }
    }

    pub(super) fn attributes(&self, object: &Value) -> Attributes {
        let Expiry {
            shelf, attributes, ..
        } = self.segment.expiry;
        attributes(shelf, object)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_body_that_changed_on_the_disk_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let expiry = Expiry {
            shelf: "events",
            after: SignedDuration::from_secs(1),
            attributes: |_, _| Attributes::default(),
        };
        let mut spill = Spill::new(dir.path().to_owned(), expiry);
        let first = spill.take(b"{\"a\":1}").unwrap();
        let second = spill.take(b"{\"a\":2}").unwrap();
        assert_eq!(&first.read().unwrap()[..], b"{\"a\":1}");
        let file = &second.segment.file;
        file.write_all_at(b"3", u64::from(second.offset) + 5)
            .unwrap();
        assert!(matches!(second.read(), Err(Lost::Changed)));
        file.set_len(3).unwrap();
        assert!(matches!(first.read(), Err(Lost::Unread(_))));
    }
}
