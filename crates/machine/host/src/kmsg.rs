//! Reads the kernel log, `/dev/kmsg`, record by record.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::error::is_gone;
use crate::parse::{self, Malformed};
use crate::wake::timespec;
use crate::{Clock, HostError, HostRoot, Result, Timestamp};

pub use crate::wake::Waker;

/// Longer than any record: a read into less fails.
const MOST_RECORD: usize = 16 * 1024;
/// How often a plain file, which cannot be waited for, is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One message of the kernel, or of a program that wrote to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// 0 (emergency) to 7 (debug).
    pub level: u8,
    /// 0 is the kernel itself; programs cannot claim it.
    pub facility: u64,
    pub sequence: u64,
    /// On the kernel's own clock, which began at boot.
    pub since_boot: Duration,
    pub part: Part,
    /// The task or CPU that printed it, where the kernel is built to say (`T123`, `C0`).
    pub caller: Option<Box<str>>,
    pub text: String,
}

impl Record {
    pub fn is_kernel(&self) -> bool {
        self.facility == 0
    }

    /// When it was logged, given a pair of simultaneous clock readings.
    pub fn wall_time(&self, now: Timestamp, monotonic: Duration) -> Timestamp {
        if self.since_boot > monotonic {
            return now;
        }
        now.minus(monotonic - self.since_boot)
    }
}

/// Whether a record is a line, or a piece of one that the kernel could not put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Whole,
    First,
    Following,
}

/// `prio,sequence,usec,flag[,key=value…];text`. Bytes that are not printable come as `\xHH`.
pub fn parse_record(line: &[u8]) -> Result<Record, Malformed> {
    let bad = || Malformed::at(0, line);
    let semicolon = memchr::memchr(b';', line).ok_or_else(bad)?;
    let mut head = line[..semicolon].split(|&b| b == b',');
    let mut number = || head.next().and_then(parse::u64).ok_or_else(bad);
    let (priority, sequence, usec) = (number()?, number()?, number()?);
    let part = match head.next() {
        Some(b"c") => Part::First,
        Some(b"+") => Part::Following,
        _ => Part::Whole,
    };
    let caller = head.find_map(|field| field.strip_prefix(b"caller="));
    Ok(Record {
        level: (priority & 7) as u8,
        facility: priority >> 3,
        sequence,
        since_boot: Duration::from_micros(usec),
        part,
        caller: caller.map(|name| String::from_utf8_lossy(name).into()),
        text: unescape(&line[semicolon + 1..]),
    })
}

fn unescape(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let code = rest
            .strip_prefix(b"\\x")
            .and_then(|digits| parse::hex(digits.get(..2)?));
        match code {
            Some(code) => {
                out.push(code as u8);
                rest = &rest[4..];
            }
            None => {
                out.push(b'\\');
                rest = &rest[1..];
            }
        }
    }
    out.extend_from_slice(rest);
    String::from_utf8_lossy(&out).into_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Only what is logged from now on.
    End,
    /// What the kernel still remembers first.
    Beginning,
}

#[derive(Debug)]
pub enum Next {
    Record {
        at: Timestamp,
        record: Record,
    },
    /// Nothing was logged in time.
    TimedOut,
    /// Somebody called [`Waker::wake`].
    Woken,
}

/// A reader of the log.
#[derive(Debug)]
pub struct Kmsg {
    file: OwnedFd,
    path: PathBuf,
    clock: Clock,
    waker: Waker,
    space: Vec<u8>,
    /// Read but not returned yet: the device gives one record a read, a fixture any number.
    from: usize,
    to: usize,
    expected: Option<u64>,
    overruns: u64,
    missed: u64,
}

impl Kmsg {
    /// `Ok(None)`: there is no such device (a container without it).
    pub fn open(root: &HostRoot, start: Start, clock: Clock) -> Result<Option<Self>> {
        Self::open_path(&root.path("/dev/kmsg"), start, clock)
    }

    /// Any device, pipe or file with records.
    pub fn open_path(path: &Path, start: Start, clock: Clock) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(error) if is_gone(&error.into()) => return Ok(None),
            Err(error) => return Err(HostError::io("open", path, error)),
        };
        if start == Start::End {
            // A pipe has no past to skip.
            match rustix::fs::seek(&file, SeekFrom::End(0)) {
                Ok(_) | Err(Errno::SPIPE) => {}
                Err(error) => return Err(HostError::io("seek", path, error)),
            }
        }
        Ok(Some(Self {
            file,
            path: path.to_owned(),
            clock,
            waker: Waker::new(path)?,
            space: vec![0; MOST_RECORD],
            from: 0,
            to: 0,
            expected: None,
            overruns: 0,
            missed: 0,
        }))
    }

    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// How often the kernel overwrote records before they were read.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// How many records were lost, as their numbers tell.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The next record, waiting for it as long as `within`. After an error the next call goes on with what follows.
    pub fn next(&mut self, within: Duration) -> Result<Next> {
        let until = Instant::now() + within;
        loop {
            if let Some(record) = self.take_buffered()? {
                let at = record.wall_time(self.clock.now(), self.clock.monotonic());
                return Ok(Next::Record { at, record });
            }
            let left = until.saturating_duration_since(Instant::now());
            match rustix::io::read(&self.file, &mut self.space[self.to..]) {
                // The end of a fixture, or a pipe without a writer: more may come.
                Ok(0) => match self.wait(left.min(LOOK_AGAIN), false)? {
                    Wait::Woken => return Ok(Next::Woken),
                    _ if left.is_zero() => return Ok(Next::TimedOut),
                    _ => {}
                },
                Ok(len) => self.to += len,
                Err(Errno::INTR) => {}
                // The kernel has gone on to the oldest record that is left.
                Err(Errno::PIPE) => self.overruns += 1,
                Err(Errno::AGAIN) => match self.wait(left, true)? {
                    Wait::Woken => return Ok(Next::Woken),
                    Wait::TimedOut => return Ok(Next::TimedOut),
                    Wait::Readable => {}
                },
                Err(error) => return Err(HostError::io("read", &self.path, error)),
            }
        }
    }

    fn take_buffered(&mut self) -> Result<Option<Record>> {
        while let Some(end) = memchr::memchr(b'\n', &self.space[self.from..self.to]) {
            let line = self.from..self.from + end;
            self.from = line.end + 1;
            // Indented lines are a dictionary about the record before (SUBSYSTEM=, DEVICE=).
            if matches!(self.space.get(line.start), Some(b' ' | b'\n')) {
                continue;
            }
            let record = parse_record(&self.space[line])
                .map_err(|at| HostError::malformed(&self.path, at))?;
            if let Some(expected) = self.expected {
                self.missed += record.sequence.saturating_sub(expected);
            }
            self.expected = Some(record.sequence.saturating_add(1));
            return Ok(Some(record));
        }
        self.space.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        // No record is this long: whatever it is, drop it rather than wait for its end for ever.
        if self.to == self.space.len() {
            self.to = 0;
        }
        Ok(None)
    }

    fn wait(&self, within: Duration, for_file: bool) -> Result<Wait> {
        let interest = match for_file {
            true => PollFlags::IN,
            false => PollFlags::empty(),
        };
        let mut fds = [
            PollFd::new(&self.waker, PollFlags::IN),
            PollFd::new(&self.file, interest),
        ];
        // A pipe that its writer left reports that for ever, which would end every wait at once.
        let watched = if for_file {
            &mut fds[..]
        } else {
            &mut fds[..1]
        };
        match poll(watched, Some(&timespec(within))) {
            Ok(0) | Err(Errno::INTR) => Ok(Wait::TimedOut),
            Ok(_) if fds[0].revents().contains(PollFlags::IN) => {
                self.waker.settle();
                Ok(Wait::Woken)
            }
            Ok(_) => Ok(Wait::Readable),
            Err(error) => Err(HostError::io("poll", &self.path, error)),
        }
    }
}

enum Wait {
    Readable,
    Woken,
    TimedOut,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const SOON: Duration = Duration::from_secs(20);

    fn text_of(next: Next) -> String {
        match next {
            Next::Record { record, .. } => record.text,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn headers() {
        let record = parse_record(b"6,339,5140900,-;NET: Registered \\x22x\\x22 \\ \\xzz").unwrap();
        assert_eq!((record.level, record.facility), (6, 0));
        assert_eq!(record.sequence, 339);
        assert_eq!(record.since_boot, Duration::from_micros(5_140_900));
        assert_eq!(record.text, "NET: Registered \"x\" \\ \\xzz");
        let record = parse_record(b"14,1,2,c,caller=T42;a;b").unwrap();
        assert_eq!((record.facility, record.part), (1, Part::First));
        assert_eq!(
            (record.caller.as_deref(), &*record.text),
            (Some("T42"), "a;b")
        );
        assert!(parse_record(b"6,339,x,-;text").is_err());
        assert!(parse_record(b"no header").is_err());
    }

    #[test]
    fn wall_time_is_counted_back_from_now() {
        let record = parse_record(b"6,1,1000000,-;x").unwrap();
        let now = Timestamp::from_secs(1000);
        let at = record.wall_time(now, Duration::from_secs(11));
        assert_eq!(at, Timestamp::from_secs(990));
        assert_eq!(record.wall_time(now, Duration::ZERO), now);
    }

    #[test]
    fn a_file_from_its_beginning_and_as_it_grows() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kmsg");
        std::fs::write(
            &path,
            "6,1,10,-;one\n SUBSYSTEM=pci\n DEVICE=+pci:1\n6,2,20,-;two\n4,7,30,-;eight\nbroken\n6,8,40,-;ni",
        )
        .unwrap();
        let clock = Clock::stepped(Timestamp::from_secs(50));
        let mut log = Kmsg::open_path(&path, Start::Beginning, clock)
            .unwrap()
            .unwrap();
        assert_eq!(text_of(log.next(SOON).unwrap()), "one");
        assert_eq!(text_of(log.next(SOON).unwrap()), "two");
        assert_eq!(log.missed(), 0);
        assert_eq!(text_of(log.next(SOON).unwrap()), "eight");
        assert_eq!(log.missed(), 4);
        assert!(log.next(SOON).unwrap_err().to_string().contains("broken"));
        assert!(matches!(log.next(Duration::ZERO).unwrap(), Next::TimedOut));
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"ne\n").unwrap();
        assert_eq!(text_of(log.next(SOON).unwrap()), "nine");
        assert_eq!(log.overruns(), 0);
    }

    #[test]
    fn a_file_from_its_end() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kmsg");
        std::fs::write(&path, "6,1,10,-;old\n").unwrap();
        let mut log = Kmsg::open_path(&path, Start::End, Clock::Real)
            .unwrap()
            .unwrap();
        assert!(matches!(
            log.next(Duration::from_millis(1)).unwrap(),
            Next::TimedOut
        ));
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"6,2,20,-;new\n").unwrap();
        assert_eq!(text_of(log.next(SOON).unwrap()), "new");
    }

    #[test]
    fn a_pipe_and_a_wake_up() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kmsg");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let mut log = Kmsg::open_path(&path, Start::End, Clock::Real)
            .unwrap()
            .unwrap();
        let mut writer = std::fs::File::options().write(true).open(&path).unwrap();
        writer.write_all(b"6,1,10,-;through a pipe\n").unwrap();
        assert_eq!(text_of(log.next(SOON).unwrap()), "through a pipe");

        let waker = log.waker();
        let thread = std::thread::spawn(move || waker.wake());
        assert!(matches!(log.next(SOON).unwrap(), Next::Woken));
        thread.join().unwrap();
        drop(writer);
        assert!(matches!(
            log.next(Duration::from_millis(1)).unwrap(),
            Next::TimedOut
        ));
        log.waker().wake();
        assert!(matches!(log.next(SOON).unwrap(), Next::Woken));
    }

    #[test]
    fn no_device() {
        let temp = tempfile::tempdir().unwrap();
        let root = HostRoot::new(temp.path());
        assert!(
            Kmsg::open(&root, Start::End, Clock::Real)
                .unwrap()
                .is_none()
        );
    }

    proptest! {
        #[test]
        fn any_record_survives(level in 0_u64..8, facility in 0_u64..24, sequence: u64, usec: u64, text in "[ -Z^-~]{0,40}") {
            let line = format!("{},{sequence},{usec},-;{text}", facility << 3 | level);
            let record = parse_record(line.as_bytes()).unwrap();
            prop_assert_eq!(u64::from(record.level), level);
            prop_assert_eq!((record.facility, record.sequence), (facility, sequence));
            prop_assert_eq!((record.since_boot.as_micros(), record.text), (u128::from(usec), text));
        }

        #[test]
        fn no_input_panics(line: Vec<u8>) {
            let _ = parse_record(&line);
            let _ = unescape(&line);
        }
    }
}
