//! Repeated reads of kernel files without allocation: a shared buffer, open handles, and a descriptor budget.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};

use crate::error::{is_gone, is_unsupported};
use crate::parse::Malformed;
use crate::{HostError, Result};

/// Most kernel files fit a page; memory.stat of a recent kernel needs almost two.
const FIRST_CAPACITY: usize = 16 * 1024;
/// A file this large is not something this program means to read.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// One buffer for all reads of a thread.
pub struct ReadBuf {
    bytes: Vec<u8>,
}

impl Default for ReadBuf {
    fn default() -> Self {
        Self {
            bytes: vec![0; FIRST_CAPACITY],
        }
    }
}

impl fmt::Debug for ReadBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBuf")
            .field("capacity", &self.bytes.len())
            .finish()
    }
}

/// How the kernel hands out a file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One record: a read that does not fill the buffer has seen all of it.
    Whole,
    /// Many records: the kernel may stop at any record boundary, so only a read of nothing is the end.
    Records,
}

impl ReadBuf {
    fn fill(&mut self, file: &OwnedFd, shape: Shape) -> rustix::io::Result<usize> {
        let mut filled = 0;
        loop {
            if filled == self.bytes.len() {
                if filled >= MOST_BYTES {
                    return Err(rustix::io::Errno::FBIG);
                }
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
            let room = self.bytes.len() - filled;
            let got = match rustix::io::pread(file, &mut self.bytes[filled..], filled as u64) {
                Ok(got) => got,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            filled += got;
            if got == 0 || (shape == Shape::Whole && got < room) {
                return Ok(filled);
            }
        }
    }

    /// The whole of an open file that the kernel hands out record by record.
    pub(crate) fn records(&mut self, file: &OwnedFd) -> rustix::io::Result<&[u8]> {
        let len = self.fill(file, Shape::Records)?;
        Ok(self.text(len))
    }

    pub fn text(&self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }
}

/// How many files may be held open, shared by all readers of the process.
///
/// Within the budget a reader keeps its handle; beyond it, it opens, reads and closes each time, which costs more but
/// never fails for want of descriptors. Going over is said once.
#[derive(Debug)]
pub struct Descriptors {
    most: usize,
    free: AtomicUsize,
    warned: AtomicBool,
}

impl Descriptors {
    /// Leaves this many descriptors to sockets, inotify and everything else.
    const RESERVE: u64 = 512;

    /// Takes the process's soft limit less a reserve.
    pub fn from_limit() -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        let reserve = Self::RESERVE.min(limit / 2);
        Self::new(usize::try_from(limit - reserve).unwrap_or(usize::MAX))
    }

    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            free: AtomicUsize::new(most),
            warned: AtomicBool::new(false),
        })
    }

    pub fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Room for descriptors that cannot be opened for each reading, all of them or none.
    pub(crate) fn reserve(self: &Arc<Self>, count: usize) -> Option<Reserved> {
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(count)
            })
            .ok()
            .map(|_| Reserved(Arc::clone(self), count))
    }

    /// For a file that is read seldom: only while there is plenty.
    fn take_spare(self: &Arc<Self>) -> Option<Permit> {
        match self.free() > self.most / 2 {
            true => self.take(),
            false => None,
        }
    }

    /// So few are left that files that are read seldom give theirs back.
    fn is_scarce(&self) -> bool {
        self.free() < self.most / 4
    }

    fn take(self: &Arc<Self>) -> Option<Permit> {
        let taken = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(1)
            });
        if taken.is_err() && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "descriptor limit reached: further files are opened for each reading; raise the open-files limit to avoid the cost"
            );
        }
        taken.ok().map(|_| Permit(Arc::clone(self)))
    }
}

#[derive(Debug)]
struct Permit(Arc<Descriptors>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returned to the budget when dropped.
#[derive(Debug)]
pub(crate) struct Reserved(Arc<Descriptors>, usize);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.free.fetch_add(self.1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum State {
    /// Not looked at yet, or there was no room in the budget.
    Unopened,
    Open(
        OwnedFd,
        #[expect(dead_code, reason = "returned to the budget when dropped")] Permit,
    ),
    /// This cgroup or kernel has no such file; not asked again.
    Absent,
}

/// One kernel file that is read again and again.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    state: State,
    shape: Shape,
    /// Leaves the last descriptors to files that are read more often.
    seldom: bool,
    descriptors: Arc<Descriptors>,
}

impl Source {
    /// A file that the kernel hands out in one piece, as nearly all cgroup files are.
    pub fn new(path: PathBuf, descriptors: &Arc<Descriptors>) -> Self {
        Self {
            path,
            state: State::Unopened,
            shape: Shape::Whole,
            seldom: false,
            descriptors: Arc::clone(descriptors),
        }
    }

    /// A file that is read every few seconds rather than with every sample.
    pub fn seldom(path: PathBuf, descriptors: &Arc<Descriptors>) -> Self {
        Self {
            seldom: true,
            ..Self::new(path, descriptors)
        }
    }

    /// A file made of records (`cgroup.procs`, `/proc/net/*`).
    pub fn records(path: PathBuf, descriptors: &Arc<Descriptors>) -> Self {
        Self {
            shape: Shape::Records,
            ..Self::new(path, descriptors)
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's text now. `Ok(None)`: no such file, or the kernel does not answer for it.
    pub fn read<'b>(&mut self, buf: &'b mut ReadBuf) -> Result<Option<&'b [u8]>> {
        let outcome = match &self.state {
            State::Absent => return Ok(None),
            State::Open(file, _) => buf.fill(file, self.shape),
            State::Unopened => return self.open_and_read(buf),
        };
        if self.seldom && self.descriptors.is_scarce() {
            self.reopen();
        }
        self.settle(outcome).map(|len| len.map(|n| buf.text(n)))
    }

    fn open_and_read<'b>(&mut self, buf: &'b mut ReadBuf) -> Result<Option<&'b [u8]>> {
        let file = match open(&self.path) {
            Ok(file) => file,
            // Asking every time would cost a failing syscall for ever. A file that does appear later (a v1 directory made
            // last, a controller enabled since) is found when the owner says `retry_absent`, or by a reader made anew.
            Err(error) if is_gone(&error) => {
                self.state = State::Absent;
                return Ok(None);
            }
            Err(source) => return Err(HostError::io("open", &self.path, source)),
        };
        let outcome = buf.fill(&file, self.shape);
        if outcome.is_ok() {
            // Without room it is opened again for the next reading, when there may be some.
            let permit = match self.seldom {
                true => self.descriptors.take_spare(),
                false => self.descriptors.take(),
            };
            if let Some(permit) = permit {
                self.state = State::Open(file, permit);
            }
        }
        self.settle(outcome).map(|len| len.map(|n| buf.text(n)))
    }

    fn settle(&mut self, outcome: rustix::io::Result<usize>) -> Result<Option<usize>> {
        match outcome.map_err(std::io::Error::from) {
            Ok(len) => Ok(Some(len)),
            Err(error) if is_unsupported(&error) => {
                self.state = State::Absent;
                Ok(None)
            }
            Err(source) => Err(HostError::io("read", &self.path, source)),
        }
    }

    /// Reads and parses in one step; a parse error comes back naming this file.
    pub fn parse<T>(
        &mut self,
        buf: &mut ReadBuf,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<Option<T>> {
        let parsed = match self.read(buf)? {
            Some(text) => parse(text),
            None => return Ok(None),
        };
        parsed
            .map(Some)
            .map_err(|at| HostError::malformed(&self.path, at))
    }

    /// Forgets that the file was absent.
    pub fn retry_absent(&mut self) {
        if matches!(self.state, State::Absent) {
            self.state = State::Unopened;
        }
    }

    /// Gives up the handle: the file may have been removed and made anew under the same name.
    pub fn reopen(&mut self) {
        self.state = State::Unopened;
    }

    /// Known not to exist, or not to answer.
    pub fn is_absent(&self) -> bool {
        matches!(self.state, State::Absent)
    }
}

fn open(path: &Path) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens, reads and closes a file that is read now and then. `Ok(None)`: no such file, or the kernel does not answer.
pub fn read_file<'b>(path: &Path, buf: &'b mut ReadBuf) -> Result<Option<&'b [u8]>> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(source) => return Err(HostError::io("open", path, source)),
    };
    match buf
        .fill(&file, Shape::Records)
        .map_err(std::io::Error::from)
    {
        Ok(len) => Ok(Some(buf.text(len))),
        Err(error) if is_unsupported(&error) || is_gone(&error) => Ok(None),
        Err(source) => Err(HostError::io("read", path, source)),
    }
}

/// `read_file` relative to an open directory, so that a thousand `/proc/PID/…` reads build no thousand paths.
/// The error is the bare one: only the caller knows the whole name.
pub(crate) fn read_at<'b>(
    dir: &OwnedFd,
    name: &str,
    buf: &'b mut ReadBuf,
) -> std::io::Result<Option<&'b [u8]>> {
    let opened = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let outcome = opened.and_then(|file| buf.fill(&file, Shape::Records));
    match outcome.map_err(std::io::Error::from) {
        Ok(len) => Ok(Some(buf.text(len))),
        Err(error) if is_unsupported(&error) || is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `read_file` and a parser in one step; a parse error comes back naming the file.
pub fn parse_file<T>(
    path: &Path,
    buf: &mut ReadBuf,
    parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
) -> Result<Option<T>> {
    let parsed = match read_file(path, buf)? {
        Some(text) => parse(text),
        None => return Ok(None),
    };
    parsed
        .map(Some)
        .map_err(|at| HostError::malformed(path, at))
}

/// `read_file` for short texts where an owned string is what the caller wants anyway.
pub fn read_text(path: &Path, buf: &mut ReadBuf) -> Result<Option<String>> {
    Ok(read_file(path, buf)?.map(|text| String::from_utf8_lossy(text.trim_ascii()).into_owned()))
}

/// The names in a directory; an absent directory has none.
pub fn list_dir(path: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(source) => return Err(HostError::io("list", path, source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => names
                .push(String::from_utf8_lossy(OsStr::as_bytes(&entry.file_name())).into_owned()),
            Err(error) if is_gone(&error) => {}
            Err(source) => return Err(HostError::io("list", path, source)),
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_budget_files_are_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let budget = Descriptors::new(1);
        let mut sources: Vec<Source> = (0..3)
            .map(|i| {
                let path = dir.path().join(format!("f{i}"));
                std::fs::write(&path, format!("{i}\n")).unwrap();
                Source::new(path, &budget)
            })
            .collect();
        let mut buf = ReadBuf::default();
        for _ in 0..2 {
            for (i, source) in sources.iter_mut().enumerate() {
                assert_eq!(
                    source.read(&mut buf).unwrap(),
                    Some(format!("{i}\n").as_bytes())
                );
            }
        }
        assert_eq!(budget.free(), 0);
        drop(sources);
        assert_eq!(budget.free(), 1);
    }

    #[test]
    fn what_is_read_seldom_leaves_half_of_the_budget() {
        let dir = tempfile::tempdir().unwrap();
        let budget = Descriptors::new(4);
        let mut sources: Vec<Source> = (0..4)
            .map(|i| {
                let path = dir.path().join(format!("f{i}"));
                std::fs::write(&path, "1\n").unwrap();
                Source::seldom(path, &budget)
            })
            .collect();
        let mut read = |source: &mut Source| {
            assert!(source.read(&mut ReadBuf::default()).unwrap().is_some());
        };
        sources.iter_mut().for_each(&mut read);
        assert_eq!(budget.free(), 2);
        // Files that are read often take the rest, and in the end those, too.
        let mut often: Vec<Source> = sources
            .iter()
            .map(|source| Source::new(source.path().to_owned(), &budget))
            .collect();
        for _ in 0..3 {
            often.iter_mut().for_each(&mut read);
            sources.iter_mut().for_each(&mut read);
        }
        assert!(often.iter().all(|s| matches!(s.state, State::Open(..))));
        assert_eq!(budget.free(), 0);
    }

    #[test]
    fn reservations_are_whole_and_returned() {
        let budget = Descriptors::new(5);
        let three = budget.reserve(3).unwrap();
        assert!(budget.reserve(3).is_none());
        assert_eq!(budget.free(), 2);
        drop(three);
        assert_eq!(budget.free(), 5);
    }

    #[test]
    fn absent_is_a_value_and_large_files_grow_the_buffer() {
        let dir = tempfile::tempdir().unwrap();
        let budget = Descriptors::new(8);
        let mut buf = ReadBuf::default();
        let mut missing = Source::new(dir.path().join("missing"), &budget);
        assert_eq!(missing.read(&mut buf).unwrap(), None);

        let large = vec![b'x'; FIRST_CAPACITY * 3 + 7];
        std::fs::write(dir.path().join("large"), &large).unwrap();
        let mut source = Source::new(dir.path().join("large"), &budget);
        assert_eq!(source.read(&mut buf).unwrap(), Some(large.as_slice()));
    }

    #[test]
    fn a_malformed_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pids.current");
        std::fs::write(&path, "many\n").unwrap();
        let mut source = Source::new(path.clone(), &Descriptors::new(1));
        let error = source
            .parse(&mut ReadBuf::default(), crate::parse::single)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{}: line 1: cannot understand \"many\\n\"", path.display())
        );
    }
}
