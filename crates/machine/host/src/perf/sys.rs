//! The system call behind the counters: the only unsafe code of this crate.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};

use super::events::EventCode;

/// `struct perf_event_attr` as of 2.6.39 (`PERF_ATTR_SIZE_VER1`). Later kernels take the short form and read zeros.
#[repr(C)]
#[derive(Debug, Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

const SIZE: usize = 72;
const _: () = assert!(size_of::<Attr>() == SIZE);

const READ_FORMAT: u64 = 1 | 2 | 8; // time enabled, time running, group
const DISABLED: u64 = 1;
const FLAG_PID_CGROUP: libc::c_ulong = 1 << 2;
const FLAG_CLOEXEC: libc::c_ulong = 1 << 3;
const ENABLE: Opcode = opcode::none(b'$', 0);
const RESET: Opcode = opcode::none(b'$', 3);

/// Whose events are counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    Cgroup(BorrowedFd<'a>),
    Everything,
}

/// Opens one counter on one CPU. The first of a group is its leader and starts stopped.
pub(super) fn open(
    code: EventCode,
    target: Target<'_>,
    cpu: u32,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let attr = Attr {
        kind: code.kind,
        size: SIZE as u32,
        config: code.config[0],
        config1: code.config[1],
        config2: code.config[2],
        read_format: READ_FORMAT,
        flags: if leader.is_none() { DISABLED } else { 0 },
        ..Attr::default()
    };
    let (pid, flags) = match target {
        Target::Cgroup(dir) => (dir.as_raw_fd(), FLAG_CLOEXEC | FLAG_PID_CGROUP),
        Target::Everything => (-1, FLAG_CLOEXEC),
    };
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    let leader = leader.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: `attr` is a valid, fully initialised structure of the size it states, and outlives the call; the kernel
    // only reads it. The other arguments are plain numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            pid,
            cpu,
            leader,
            flags,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a group's counters to zero and lets them run.
pub(super) fn start(leader: impl AsFd) -> io::Result<()> {
    // SAFETY: both requests take no pointer; on a descriptor that is not a counter the kernel refuses them.
    unsafe {
        ioctl(&leader, NoArg::<RESET>::new())?;
        ioctl(&leader, NoArg::<ENABLE>::new())?;
    }
    Ok(())
}
