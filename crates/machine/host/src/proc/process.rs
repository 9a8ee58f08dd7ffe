//! Single processes: descriptors, limits, referenced memory, scheduler state.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, RawDir};

use super::{Name, Procfs};
use crate::error::is_gone;
use crate::parse::{self, Malformed};
use crate::{HostError, ReadBuf, Result};

/// The text of `cgroup.procs`, `cgroup.threads` or `tasks`, into the caller's vector.
pub fn parse_pids(text: &[u8], out: &mut Vec<u32>) -> Result<(), Malformed> {
    let text = parse::whole_lines(text)?;
    out.clear();
    for (index, line) in parse::numbered(text) {
        let pid = parse::u64(line)
            .and_then(|pid| u32::try_from(pid).ok())
            .ok_or_else(|| Malformed::at(index, line))?;
        // Zero stands for a process outside our pid namespace: there is nothing to read about it.
        if pid != 0 {
            out.push(pid);
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FdCount {
    pub fds: u64,
    pub sockets: u64,
}

/// What a limit without a bound is reported as.
pub const UNLIMITED: i64 = -1;

/// "Max open files" of `/proc/PID/limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFilesLimit {
    pub soft: i64,
    pub hard: i64,
}

/// `Ok(None)`: the table has no such line.
pub fn parse_limits(text: &[u8]) -> Result<Option<OpenFilesLimit>, Malformed> {
    let text = parse::whole_lines(text)?;
    const NAME: &[u8] = b"Max open files";
    for (index, line) in parse::numbered(text) {
        let Some(rest) = line.strip_prefix(NAME) else {
            continue;
        };
        let mut values = parse::words(rest).map(|word| match word {
            b"unlimited" => Some(UNLIMITED),
            number => parse::i64(number),
        });
        let mut next = || {
            values
                .next()
                .flatten()
                .ok_or_else(|| Malformed::at(index, line))
        };
        return Ok(Some(OpenFilesLimit {
            soft: next()?,
            hard: next()?,
        }));
    }
    Ok(None)
}

/// The sum of `Referenced:` lines in `smaps` or `smaps_rollup`, in bytes.
pub fn parse_referenced(text: &[u8]) -> Result<u64, Malformed> {
    let text = parse::whole_lines(text)?;
    let mut sum = 0_u64;
    for (index, line) in parse::numbered(text) {
        let Some(rest) = line.strip_prefix(b"Referenced:") else {
            continue;
        };
        let kib = parse::words(rest)
            .next()
            .and_then(parse::u64)
            .ok_or_else(|| Malformed::at(index, line))?;
        sum = sum.saturating_add(kib.saturating_mul(1024));
    }
    Ok(sum)
}

impl Procfs {
    /// Open descriptors of a process and how many of them are sockets. `Ok(None)`: it has ended.
    pub fn fd_count(&self, pid: u32) -> Result<Option<FdCount>> {
        let count = self
            .open_dir(pid, "fd")
            .and_then(|dir| count_fds(&dir).map_err(std::io::Error::from));
        match count {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(source) => Err(HostError::io("list", &self.place(pid, "fd"), source)),
        }
    }

    fn open_dir(&self, pid: u32, name: &str) -> std::io::Result<OwnedFd> {
        let name = Name::new(pid, name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            self.dir(),
            name.as_str(),
            flags,
            Mode::empty(),
        )?)
    }

    pub fn open_files_limit(&self, pid: u32, buf: &mut ReadBuf) -> Result<Option<OpenFilesLimit>> {
        let limit = self.parse(pid, "limits", buf, parse_limits)?;
        Ok(limit.flatten())
    }

    /// Bytes that a process touched since its referenced bits were last cleared.
    pub fn referenced_bytes(&self, pid: u32, buf: &mut ReadBuf) -> Result<Option<u64>> {
        // The roll-up (4.14) is one record, where the full list has one a mapping.
        match self.parse(pid, "smaps_rollup", buf, parse_referenced)? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.parse(pid, "smaps", buf, parse_referenced),
        }
    }
}

fn count_fds(dir: &OwnedFd) -> rustix::io::Result<FdCount> {
    let mut count = FdCount::default();
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir, &mut space);
    // Only the first letters of a link's target matter.
    let mut target = [0; 8];
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        count.fds += 1;
        let read = rustix::fs::readlinkat_raw(dir, name, &mut target[..]);
        // A descriptor closed since it was listed still counts once, as it did for the listing.
        if read.is_ok_and(|len| target[..len].starts_with(b"socket")) {
            count.sockets += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostRoot;
    use proptest::prelude::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Procfs) {
        let temp = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = temp.path().join("proc").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let procfs = Procfs::open(&HostRoot::new(temp.path())).unwrap();
        (temp, procfs)
    }

    #[test]
    fn pids() {
        let mut out = vec![1];
        parse_pids(b"10\n0\n22\n", &mut out).unwrap();
        assert_eq!(out, [10, 22]);
        assert_eq!(parse_pids(b"10\n-3\n", &mut out).unwrap_err().line, 2);
    }

    #[test]
    fn limits() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max cpu time              unlimited            unlimited            seconds   \n\
                     Max open files            1024                 524288               files     \n";
        let limit = parse_limits(table.as_bytes()).unwrap().unwrap();
        assert_eq!((limit.soft, limit.hard), (1024, 524_288));
        let limit = parse_limits(b"Max open files  unlimited unlimited files\n")
            .unwrap()
            .unwrap();
        assert_eq!((limit.soft, limit.hard), (UNLIMITED, UNLIMITED));
        assert_eq!(parse_limits(b"Max cpu time 1 1\n").unwrap(), None);
        assert!(parse_limits(b"Max open files 12\n").is_err());
    }

    #[test]
    fn referenced_prefers_the_roll_up() {
        let smaps = "00400000-00401000 r-xp 00000000 fd:01 1 /bin/x\nRss: 8 kB\nReferenced:          8 kB\n\
                     00600000-00601000 rw-p 00000000 fd:01 1 /bin/x\nReferenced:          4 kB\n";
        let (_temp, procfs) = tree(&[
            ("5/smaps", smaps),
            ("6/smaps", smaps),
            ("6/smaps_rollup", "Rss: 9 kB\nReferenced: 20 kB\n"),
            ("7/smaps", "Referenced: much\n"),
        ]);
        let mut buf = ReadBuf::default();
        assert_eq!(procfs.referenced_bytes(5, &mut buf).unwrap(), Some(12_288));
        assert_eq!(procfs.referenced_bytes(6, &mut buf).unwrap(), Some(20_480));
        assert!(procfs.referenced_bytes(7, &mut buf).is_err());
        assert_eq!(procfs.referenced_bytes(8, &mut buf).unwrap(), None);
    }

    #[test]
    fn descriptors_of_a_tree_and_of_this_process() {
        let (temp, procfs) = tree(&[("5/stat", "")]);
        let fd = temp.path().join("proc/5/fd");
        std::fs::create_dir(&fd).unwrap();
        for (name, target) in [
            ("0", "/dev/null"),
            ("1", "socket:[123]"),
            ("2", "pipe:[7]"),
            ("17", "socket:[9]"),
        ] {
            std::os::unix::fs::symlink(target, fd.join(name)).unwrap();
        }
        let count = procfs.fd_count(5).unwrap();
        assert_eq!(count, Some(FdCount { fds: 4, sockets: 2 }));
        assert_eq!(procfs.fd_count(6).unwrap(), None);

        let procfs = Procfs::open(&HostRoot::new("/")).unwrap();
        let _socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let count = procfs.fd_count(std::process::id()).unwrap().unwrap();
        assert!(count.sockets >= 1 && count.fds > count.sockets, "{count:?}");
        let limit = procfs
            .open_files_limit(std::process::id(), &mut ReadBuf::default())
            .unwrap();
        assert!(limit.is_some());
    }

    proptest! {
        #[test]
        fn any_pids_survive(pids in prop::collection::vec(1_u32..=u32::MAX, 0..50)) {
            let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
            let mut out = Vec::new();
            parse_pids(text.as_bytes(), &mut out).unwrap();
            prop_assert_eq!(out, pids);
        }

        #[test]
        fn any_limit_survives(soft in 0..i64::MAX, hard in prop::option::of(0..i64::MAX)) {
            let word = hard.map_or("unlimited".to_owned(), |hard| hard.to_string());
            let text = format!("Max open files            {soft:<20} {word:<20} files     \n");
            let limit = parse_limits(text.as_bytes()).unwrap().unwrap();
            prop_assert_eq!((limit.soft, limit.hard), (soft, hard.unwrap_or(UNLIMITED)));
        }

        #[test]
        fn any_referenced_sum_survives(kib in prop::collection::vec(0_u64..1 << 40, 0..9)) {
            let text: String = kib.iter().map(|k| format!("Rss: 1 kB\nReferenced: {k:10} kB\n")).collect();
            prop_assert_eq!(parse_referenced(text.as_bytes()).unwrap(), kib.iter().sum::<u64>() * 1024);
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_pids(&text, &mut Vec::new());
            let _ = parse_limits(&text);
            let _ = parse_referenced(&text);
        }
    }
}
