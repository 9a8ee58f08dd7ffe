//! The journal's file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::OpenError;

const FILE: &str = "protection.journal";
const NEW: &str = "protection.journal.new";
const LOCK: &str = "protection.lock";
/// A journal is never longer: it is compacted far below.
const LONGEST: u64 = 64 << 20;

/// The open file, of which no other process can open a second one.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    file: File,
    len: u64,
    _lock: File,
}

impl Disk {
    /// Opens the folder for writing, and returns what the file had.
    pub fn open(dir: &Path) -> Result<(Self, Vec<u8>), OpenError> {
        let wrap = |operation, path: &Path| {
            let path = path.to_owned();
            move |cause| OpenError::Io {
                operation,
                path,
                cause,
            }
        };
        std::fs::create_dir_all(dir).map_err(wrap("create", dir))?;
        let lock_path = dir.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(wrap("open", &lock_path))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(OpenError::InUse {
                    path: dir.to_owned(),
                });
            }
            // A file system without locks: go on without.
            Err(_) => {}
        }
        let path = dir.join(FILE);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(&path)
            .map_err(wrap("open", &path))?;
        let mut content = Vec::new();
        (&file)
            .take(LONGEST)
            .read_to_end(&mut content)
            .map_err(wrap("read", &path))?;
        let disk = Self {
            dir: dir.to_owned(),
            file,
            len: content.len() as u64,
            _lock: lock,
        };
        Ok((disk, content))
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// All of it or nothing: what was written in part is cut off again.
    pub fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        match self.file.write_all(frames) {
            Ok(()) => {
                self.len += frames.len() as u64;
                Ok(())
            }
            Err(error) => {
                let _ = self.file.set_len(self.len);
                Err(error)
            }
        }
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Puts a new file in the place of the old one. Whatever ends the process, one of them is there, whole.
    pub fn replace(&mut self, content: &[u8]) -> io::Result<()> {
        let new = self.dir.join(NEW);
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(&new)?;
        file.write_all(content)?;
        file.sync_data()?;
        let path = self.dir.join(FILE);
        std::fs::rename(&new, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.file = OpenOptions::new().append(true).open(&path)?;
        self.len = content.len() as u64;
        Ok(())
    }
}

/// What the file has, for readers; the process that writes it may be running.
pub fn read(dir: &Path) -> Result<Vec<u8>, OpenError> {
    let path = dir.join(FILE);
    let mut content = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(LONGEST).read_to_end(&mut content));
    match read {
        Ok(_) => Ok(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(OpenError::Io {
            operation: "read",
            path,
            cause,
        }),
    }
}
