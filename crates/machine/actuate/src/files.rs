//! The only code of the house that opens kernel files for writing.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_host::fs::Beneath;
use rustix::fs::{AtFlags, Mode, OFlags};

/// No file that is read here is longer; a file of a hostile file system might be.
const LONGEST: usize = 1 << 20;
const FIRST_READ: usize = 4096;

/// A file below a mount point. The mount point is the machine's; the part below may have been made by others, so it is
/// opened without following links.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelFile {
    pub top: Arc<Path>,
    pub below: PathBuf,
}

impl KernelFile {
    pub fn new(top: &Path, below: impl Into<PathBuf>) -> Self {
        Self {
            top: top.into(),
            below: below.into(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.top.join(&self.below)
    }
}

impl fmt::Display for KernelFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

/// What an actuator does to the machine. Tests give it a simulated kernel.
pub trait Files: Send + Sync + fmt::Debug {
    /// The whole file; `None`: there is none, or its cgroup or process has gone.
    fn read(&self, file: &KernelFile) -> io::Result<Option<Vec<u8>>>;
    /// One `write(2)`.
    fn write(&self, file: &KernelFile, text: &str) -> io::Result<()>;
    /// One `write(2)` to a list that grows: `tasks` of resctrl.
    fn append(&self, file: &KernelFile, text: &str) -> io::Result<()>;
    /// The inode of a directory; `None`: there is none.
    fn inode(&self, dir: &KernelFile) -> io::Result<Option<u64>>;
    fn make_dir(&self, dir: &KernelFile) -> io::Result<()>;
    fn remove_dir(&self, dir: &KernelFile) -> io::Result<()>;
}

/// The machine itself.
#[derive(Debug, Default)]
pub struct MachineFiles {
    tops: Mutex<HashMap<Arc<Path>, Arc<Beneath>>>,
}

impl MachineFiles {
    fn top(&self, file: &KernelFile) -> io::Result<Arc<Beneath>> {
        let mut tops = self.tops.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(top) = tops.get(&file.top) {
            return Ok(top.clone());
        }
        // The machine's own links, such as `cpu` to `cpu,cpuacct`, lead where they should.
        let path = std::fs::canonicalize(&file.top)?;
        let top = Arc::new(Beneath::open(&path)?);
        tops.insert(file.top.clone(), top.clone());
        Ok(top)
    }

    fn parent(&self, dir: &KernelFile) -> io::Result<(std::os::fd::OwnedFd, PathBuf)> {
        let above = dir.below.parent().unwrap_or(Path::new(""));
        let name = dir
            .below
            .file_name()
            .ok_or(io::ErrorKind::InvalidInput)?
            .into();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok((self.top(dir)?.file(above, flags)?, name))
    }
}

impl Files for MachineFiles {
    fn read(&self, file: &KernelFile) -> io::Result<Option<Vec<u8>>> {
        match self.read_all(file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, file: &KernelFile, text: &str) -> io::Result<()> {
        // Where a write may reclaim memory, newer kernels do not wait for it if they are asked so.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        let opened = self.top(file)?.file(&file.below, flags)?;
        // Regular files are fixtures; kernel files have no length.
        if rustix::fs::fstat(&opened)?.st_size > 0 {
            let _ = rustix::fs::ftruncate(&opened, 0);
        }
        write_once(&opened, text)
    }

    fn append(&self, file: &KernelFile, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND;
        write_once(&self.top(file)?.file(&file.below, flags)?, text)
    }

    fn inode(&self, dir: &KernelFile) -> io::Result<Option<u64>> {
        let top = match self.top(dir) {
            Ok(top) => top,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let opened = match top.file(&dir.below, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(opened) => opened,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(rustix::fs::fstat(&opened)?.st_ino))
    }

    fn make_dir(&self, dir: &KernelFile) -> io::Result<()> {
        let (above, name) = self.parent(dir)?;
        match rustix::fs::mkdirat(&above, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_dir(&self, dir: &KernelFile) -> io::Result<()> {
        let (above, name) = self.parent(dir)?;
        match rustix::fs::unlinkat(&above, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl MachineFiles {
    fn read_all(&self, file: &KernelFile) -> io::Result<Vec<u8>> {
        let opened = self.top(file)?.file(&file.below, OFlags::RDONLY)?;
        let mut text = vec![0; FIRST_READ];
        let mut filled = 0;
        loop {
            if filled == text.len() {
                if filled >= LONGEST {
                    return Err(io::Error::from(io::ErrorKind::FileTooLarge));
                }
                text.resize(filled.saturating_mul(4).min(LONGEST), 0);
            }
            let read = match rustix::io::read(&opened, &mut text[filled..]) {
                Ok(read) => read,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if read == 0 {
                text.truncate(filled);
                return Ok(text);
            }
            filled += read;
        }
    }
}

fn write_once(opened: &std::os::fd::OwnedFd, text: &str) -> io::Result<()> {
    let written = rustix::io::write(opened, text.as_bytes())?;
    match written == text.len() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::WriteZero,
            "the kernel took only a part of it",
        )),
    }
}

/// The cgroup or process ended: expected.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    // ENOENT before the open, ENODEV on a file opened before the rmdir, ESRCH on a dead process.
    let gone = [
        rustix::io::Errno::NOENT,
        rustix::io::Errno::NODEV,
        rustix::io::Errno::SRCH,
        rustix::io::Errno::NOTDIR,
    ];
    let code = error.raw_os_error();
    gone.iter().any(|errno| Some(errno.raw_os_error()) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_written_without_following_links() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        std::fs::create_dir_all(path("top/a")).unwrap();
        std::fs::write(path("top/a/cpu.max"), "max 100000\n").unwrap();
        std::fs::write(path("secret"), "1\n").unwrap();
        std::os::unix::fs::symlink(path("secret"), path("top/a/link")).unwrap();
        let files = MachineFiles::default();
        let file = |below: &str| KernelFile::new(&path("top"), below);
        let read = |below: &str| files.read(&file(below)).unwrap();
        assert_eq!(read("a/cpu.max").unwrap(), b"max 100000\n");
        files.write(&file("a/cpu.max"), "5 6").unwrap();
        assert_eq!(read("a/cpu.max").unwrap(), b"5 6");
        assert_eq!(read("b/cpu.max"), None);
        files.write(&file("a/link"), "2").unwrap_err();
        files.write(&file("../secret"), "2").unwrap_err();
        assert_eq!(std::fs::read_to_string(path("secret")).unwrap(), "1\n");
        // A file that is not there is not made.
        assert!(is_gone(&files.write(&file("a/new"), "2").unwrap_err()));
        assert!(files.inode(&file("a")).unwrap().is_some());
        assert_eq!(files.inode(&file("b")).unwrap(), None);
        std::os::unix::fs::symlink(path("top"), path("link")).unwrap();
        let by_link = KernelFile::new(&path("link"), "a/cpu.max");
        assert!(files.read(&by_link).unwrap().is_some());
        files.make_dir(&file("a/c")).unwrap();
        files.make_dir(&file("a/c")).unwrap();
        files.remove_dir(&file("a/c")).unwrap();
        assert_eq!(files.inode(&file("a/c")).unwrap(), None);
    }

    #[test]
    fn long_files_are_read_whole() {
        let temp = tempfile::tempdir().unwrap();
        let text = "1\n".repeat(30_000);
        std::fs::write(temp.path().join("tasks"), &text).unwrap();
        let file = KernelFile::new(temp.path(), "tasks");
        let read = MachineFiles::default().read(&file).unwrap().unwrap();
        assert_eq!(read.len(), text.len());
    }
}
