//! `/proc`: processes, networks, time and memory of the machine.

pub mod meminfo;
pub mod net;
pub mod process;
pub mod ps;
mod schedstat;
pub mod stat;
pub mod tasks;
pub mod taskstats;

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use crate::parse::Malformed;
use crate::read::read_at;
use crate::{HostError, HostRoot, ReadBuf, Result};

pub use schedstat::{Schedstat, SchedstatSum, parse_schedstat};

/// An open `/proc`, from which the files of many processes are read without building paths.
#[derive(Debug)]
pub struct Procfs {
    dir: OwnedFd,
    path: PathBuf,
}

impl Procfs {
    pub fn open(root: &HostRoot) -> Result<Self> {
        let path = root.path("/proc");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(dir) => Ok(Self { dir, path }),
            Err(error) => Err(HostError::io("open", &path, error)),
        }
    }

    /// The text of `/proc/<pid>/<file>`. `Ok(None)`: the process has ended, or this kernel has no such file.
    pub fn read<'b>(&self, pid: u32, file: &str, buf: &'b mut ReadBuf) -> Result<Option<&'b [u8]>> {
        let name = Name::new(pid, file);
        read_at(&self.dir, name.as_str(), buf)
            .map_err(|source| HostError::io("read", &self.path.join(name.as_str()), source))
    }

    /// Reads and parses in one step; a parse error comes back naming the file.
    pub fn parse<T>(
        &self,
        pid: u32,
        file: &str,
        buf: &mut ReadBuf,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<Option<T>> {
        let parsed = match self.read(pid, file, buf)? {
            Some(text) => parse(text),
            None => return Ok(None),
        };
        parsed
            .map(Some)
            .map_err(|at| HostError::malformed(&self.place(pid, file), at))
    }

    /// All process ids, into the caller's vector.
    pub fn pids(&self, out: &mut Vec<u32>) -> Result<()> {
        out.clear();
        let fail = |error| HostError::io("list", &self.path, error);
        for entry in rustix::fs::Dir::read_from(&self.dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let pid = crate::parse::u64(entry.file_name().to_bytes());
            out.extend(pid.and_then(|pid| u32::try_from(pid).ok()));
        }
        out.sort_unstable();
        Ok(())
    }

    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    pub(crate) fn place(&self, pid: u32, file: &str) -> PathBuf {
        self.path.join(Name::new(pid, file).as_str())
    }
}

/// `<pid>/<file>` on the stack.
pub(crate) struct Name {
    bytes: [u8; 64],
    len: usize,
}

impl Name {
    pub(crate) fn new(pid: u32, file: &str) -> Self {
        let mut name = Self {
            bytes: [0; 64],
            len: 0,
        };
        // File names are this crate's own constants; none comes near the limit.
        let written = write!(name, "{pid}/{file}");
        debug_assert!(written.is_ok());
        name
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl std::fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_fixture_tree() {
        let temp = tempfile::tempdir().unwrap();
        for (pid, text) in [("7", "1 2 3\n"), ("12", "broken\n")] {
            let dir = temp.path().join("proc").join(pid);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("schedstat"), text).unwrap();
        }
        std::fs::create_dir_all(temp.path().join("proc/sys")).unwrap();
        let procfs = Procfs::open(&HostRoot::new(temp.path())).unwrap();
        let mut pids = vec![99];
        procfs.pids(&mut pids).unwrap();
        assert_eq!(pids, [7, 12]);

        let mut buf = ReadBuf::default();
        let text = procfs.read(7, "schedstat", &mut buf).unwrap();
        assert_eq!(text, Some(b"1 2 3\n".as_slice()));
        assert_eq!(procfs.read(8, "schedstat", &mut buf).unwrap(), None);

        let error = procfs
            .parse(12, "schedstat", &mut buf, parse_schedstat)
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("proc/12/schedstat: line 1: cannot understand \"broken\""),
            "{error}"
        );
    }

    /// The last figure of such a text may be half a figure.
    #[test]
    fn a_text_that_breaks_off_is_an_error() {
        type Parse = fn(&[u8]) -> Result<(), Malformed>;
        let parsers: [(&str, Parse); 11] = [
            ("proc/1/net/dev", |t| net::parse_dev(t, &mut Vec::new())),
            ("proc/1/net/snmp", |t| {
                net::parse_snmp(t, &mut Default::default())
            }),
            ("proc/1/net/tcp", |t| net::parse_tcp(t).map(|_| ())),
            ("proc/1/net/udp", |t| net::parse_udp(t).map(|_| ())),
            ("proc/self/limits", |t| process::parse_limits(t).map(|_| ())),
            ("proc/self/schedstat", |t| parse_schedstat(t).map(|_| ())),
            ("proc/self/stat", |t| ps::parse_pid_stat(t).map(|_| ())),
            ("proc/self/mountinfo", |t| {
                crate::fs::parse_mountinfo(t).map(|_| ())
            }),
            ("proc/meminfo", |t| meminfo::parse_meminfo(t).map(|_| ())),
            ("proc/stat", |t| stat::ProcStat::default().parse(t)),
            ("proc/uptime", |t| stat::parse_uptime(t).map(|_| ())),
        ];
        for (file, parse) in parsers {
            // What this machine lacks is no matter.
            let Ok(text) = std::fs::read(format!("/{file}")) else {
                continue;
            };
            assert!(parse(&text).is_ok(), "{file}");
            for cut in 1..text.len().min(3000) {
                let is_whole = text[cut - 1] == b'\n';
                assert!(is_whole || parse(&text[..cut]).is_err(), "{file} {cut}");
            }
        }
    }

    #[test]
    fn this_process_is_listed() {
        let procfs = Procfs::open(&HostRoot::new("/")).unwrap();
        let mut pids = Vec::new();
        procfs.pids(&mut pids).unwrap();
        assert!(pids.contains(&std::process::id()));
    }
}
