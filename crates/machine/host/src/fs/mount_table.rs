//! The machine's mount table, read again only when it has changed.
//!
//! On a node the table grows with its pods, and each of them may ask about it: reading it for each would be quadratic.
//! The kernel tells by `poll` that the table is another one since it was opened or last asked.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, Timespec, fstatfs, open};

use super::mountinfo::{Mount, parse_mountinfo, table_files};
use crate::{HostError, HostRoot, ReadBuf, Result};

/// Shared by all who need mounts.
#[derive(Debug)]
pub struct MountTable {
    root: HostRoot,
    last: Mutex<Last>,
}

/// The table as of one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mounts {
    /// Another number is another table.
    pub version: u64,
    pub list: Vec<Mount>,
}

#[derive(Debug, Default)]
struct Last {
    file: Option<Watched>,
    mounts: Arc<Mounts>,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    file: OwnedFd,
    /// A file of a fixture tree has nobody who tells of changes.
    tells: bool,
}

impl MountTable {
    pub fn new(root: HostRoot) -> Self {
        Self {
            root,
            last: Mutex::default(),
        }
    }

    /// The mounts as of now. Costs one system call as long as nothing was mounted or unmounted.
    pub fn current(&self) -> Result<Arc<Mounts>> {
        let last = &mut *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = &last.file
            && watched.is_same()
        {
            return Ok(Arc::clone(&last.mounts));
        }
        // The process whose table it was may have ended, and the number may be another's now.
        last.file = None;
        let Some(watched) = Watched::open(&self.root)? else {
            last.replace(Vec::new());
            return Ok(Arc::clone(&last.mounts));
        };
        // A buffer of its own: the table of a busy node is long, and is seldom read.
        let mut buf = ReadBuf::default();
        let io = |error| HostError::io("read", &watched.path, error);
        let text = buf.records(&watched.file).map_err(io)?;
        let list = parse_mountinfo(text).map_err(|at| HostError::malformed(&watched.path, at))?;
        last.replace(list);
        last.file = Some(watched);
        Ok(Arc::clone(&last.mounts))
    }
}

impl Last {
    /// No number comes twice.
    fn replace(&mut self, list: Vec<Mount>) {
        if list != self.mounts.list {
            let version = self.mounts.version + 1;
            self.mounts = Arc::new(Mounts { version, list });
        }
    }
}

impl Watched {
    /// `Ok(None)`: there is no table.
    fn open(root: &HostRoot) -> Result<Option<Self>> {
        for path in table_files(root) {
            match open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => {
                    let on = fstatfs(&file).map_err(|e| HostError::io("statfs", &path, e))?;
                    let tells = on.f_type == PROC_SUPER_MAGIC;
                    return Ok(Some(Self { path, file, tells }));
                }
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(HostError::io("open", &path, error)),
            }
        }
        Ok(None)
    }

    fn is_same(&self) -> bool {
        if !self.tells {
            return false;
        }
        let mut fds = [PollFd::new(&self.file, PollFlags::PRI)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&at_once)) {
            // A change shows as both of these.
            Ok(_) => !fds[0].revents().intersects(PollFlags::PRI | PollFlags::ERR),
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_table_is_not_read_again() {
        let table = MountTable::new(HostRoot::new("/"));
        let first = table.current().unwrap();
        assert!(first.list.iter().any(|mount| mount.point == "/"));
        // Others may mount something meanwhile, but not each time.
        let same = (0..100).any(|_| {
            let before = table.current().unwrap();
            Arc::ptr_eq(&before, &table.current().unwrap())
        });
        assert!(same);
    }

    #[test]
    fn a_changed_table_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let table = MountTable::new(root.clone());
        assert_eq!(table.current().unwrap().list, []);
        let mounted = |points: &[&str]| {
            let line = |point: &&str| format!("1 0 8:1 / {point} rw - ext4 /dev/sda1 rw\n");
            let text: String = points.iter().map(line).collect();
            std::fs::create_dir_all(root.proc("1")).unwrap();
            std::fs::write(root.proc("1/mountinfo"), text).unwrap();
            table.current().unwrap()
        };
        let one = mounted(&["/"]);
        assert_eq!(one.list.len(), 1);
        assert_eq!(mounted(&["/"]).version, one.version);
        let two = mounted(&["/", "/a"]);
        assert_eq!(two.list.len(), 2);
        assert_ne!(two.version, one.version);
        std::fs::remove_file(root.proc("1/mountinfo")).unwrap();
        assert_eq!(table.current().unwrap().list, []);
        assert!(mounted(&["/"]).version > two.version);
    }
}
