//! How many tasks of a cgroup are in which state.
//!
//! v1 answers over netlink in one question a cgroup; on v2 the kernel refuses that question, so states are counted
//! from the tasks' own files.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use super::Procfs;
use crate::error::is_gone;
use crate::{HostError, ReadBuf, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskStates {
    pub sleeping: u64,
    pub running: u64,
    pub stopped: u64,
    pub uninterruptible: u64,
    /// Always zero on v2: `/proc` does not tell it apart from `uninterruptible`.
    pub io_wait: u64,
}

impl TaskStates {
    fn count(&mut self, state: u8) {
        match state {
            b'R' => self.running += 1,
            b'S' => self.sleeping += 1,
            b'D' => self.uninterruptible += 1,
            b'T' | b't' => self.stopped += 1,
            // Idle kernel threads, zombies and the dead are no load.
            _ => {}
        }
    }
}

/// Counts the states of `tasks` (thread ids, as `cgroup.threads` lists them) from `/proc`. Ended ones do not count.
pub fn count_states(procfs: &Procfs, tasks: &[u32], buf: &mut ReadBuf) -> TaskStates {
    let mut states = TaskStates::default();
    for &task in tasks {
        if let Ok(Some(text)) = procfs.read(task, "stat", buf)
            && let Some(state) = state_of(text)
        {
            states.count(state);
        }
    }
    states
}

/// The letter after the command, which may itself hold any character.
fn state_of(stat: &[u8]) -> Option<u8> {
    let close = memchr::memrchr(b')', stat)?;
    crate::parse::words(&stat[close + 1..])
        .next()?
        .first()
        .copied()
}

// From linux/netlink.h, linux/genetlink.h, linux/taskstats.h and linux/cgroupstats.h.
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const FAMILY: &[u8] = b"TASKSTATS\0";
const CGROUPSTATS_CMD_GET: u8 = 4;
const CGROUPSTATS_CMD_ATTR_FD: u16 = 1;
const CGROUPSTATS_TYPE_STATS: u16 = 1;

/// A netlink conversation with the kernel's task statistics.
#[derive(Debug)]
pub struct TaskstatsSocket {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
}

impl TaskstatsSocket {
    /// `Ok(None)`: this kernel was built without task statistics.
    pub fn open() -> Result<Option<Self>> {
        let fail = |error| HostError::io("open", Path::new("netlink:taskstats"), error);
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::GENERIC),
        )
        .map_err(fail)?;
        // The kernel answers at once or not at all; a lost answer must not stop the reader.
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1))).map_err(fail)?;
        let mut this = Self {
            socket,
            family: 0,
            sequence: 0,
        };
        let outcome = this.ask(
            GENL_ID_CTRL,
            CTRL_CMD_GETFAMILY,
            CTRL_ATTR_FAMILY_NAME,
            FAMILY,
            |attributes| {
                let id = attribute(attributes, CTRL_ATTR_FAMILY_ID)?;
                Some(u16::from_ne_bytes(id.get(..2)?.try_into().ok()?))
            },
        );
        match outcome {
            Ok(family) => {
                this.family = family;
                Ok(Some(this))
            }
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    /// States of the tasks in a v1 cgroup directory. `Ok(None)`: it has gone, or it is not a v1 cgroup.
    pub fn states(&mut self, cgroup: &Path) -> Result<Option<TaskStates>> {
        let fail = |error| HostError::io("ask task states of", cgroup, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(cgroup, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error.into()) => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let number = dir.as_raw_fd().cast_unsigned().to_ne_bytes();
        let outcome = self.ask(
            self.family,
            CGROUPSTATS_CMD_GET,
            CGROUPSTATS_CMD_ATTR_FD,
            &number,
            |attributes| decode_states(attribute(attributes, CGROUPSTATS_TYPE_STATS)?),
        );
        match outcome {
            Ok(states) => Ok(Some(states)),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NODEV) => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    fn ask<T>(
        &mut self,
        family: u16,
        command: u8,
        attribute: u16,
        payload: &[u8],
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> rustix::io::Result<T> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut space = [0; 64];
        let request = encode(
            &mut space,
            family,
            command,
            self.sequence,
            attribute,
            payload,
        )
        .ok_or(rustix::io::Errno::MSGSIZE)?;
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, request, SendFlags::empty(), &kernel)?;
        let mut answer = [0; 4096];
        loop {
            let len = match recv(&self.socket, &mut answer[..], RecvFlags::empty()) {
                Ok((len, _)) => len,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            match decode_answer(&answer[..len], self.sequence) {
                Answer::Attributes(attributes) => {
                    return decode(attributes).ok_or(rustix::io::Errno::BADMSG);
                }
                Answer::Refused(code) => return Err(rustix::io::Errno::from_raw_os_error(code)),
                // The late answer to a question that timed out.
                Answer::Other => {}
                Answer::Broken => return Err(rustix::io::Errno::BADMSG),
            }
        }
    }
}

fn encode<'s>(
    space: &'s mut [u8],
    family: u16,
    command: u8,
    sequence: u32,
    attribute: u16,
    payload: &[u8],
) -> Option<&'s [u8]> {
    let attribute_len = 4 + payload.len();
    let len = HEADER + GENERIC_HEADER + attribute_len.next_multiple_of(4);
    let message = space.get_mut(..len)?;
    message.fill(0);
    message[..4].copy_from_slice(&u32::try_from(len).ok()?.to_ne_bytes());
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message[16] = command;
    message[17] = 1;
    message[20..22].copy_from_slice(&u16::try_from(attribute_len).ok()?.to_ne_bytes());
    message[22..24].copy_from_slice(&attribute.to_ne_bytes());
    message[24..24 + payload.len()].copy_from_slice(payload);
    Some(message)
}

#[derive(Debug, PartialEq, Eq)]
enum Answer<'a> {
    Attributes(&'a [u8]),
    Refused(i32),
    Other,
    Broken,
}

fn decode_answer(message: &[u8], sequence: u32) -> Answer<'_> {
    let (Some(len), Some(kind), Some(answers)) =
        (u32_at(message, 0), u16_at(message, 4), u32_at(message, 8))
    else {
        return Answer::Broken;
    };
    if answers != sequence {
        return Answer::Other;
    }
    let Some(body) = message.get(HEADER..len as usize) else {
        return Answer::Broken;
    };
    if kind == NLMSG_ERROR {
        return match u32_at(body, 0) {
            Some(code) => Answer::Refused(code.cast_signed().wrapping_neg()),
            None => Answer::Broken,
        };
    }
    match body.get(GENERIC_HEADER..) {
        Some(attributes) => Answer::Attributes(attributes),
        None => Answer::Broken,
    }
}

/// The payload of the first attribute of a kind.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        let payload = rest.get(4..len)?;
        if kind == wanted {
            return Some(payload);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

fn decode_states(payload: &[u8]) -> Option<TaskStates> {
    let word = |at: usize| -> Option<u64> {
        Some(u64::from_ne_bytes(
            payload.get(at * 8..at * 8 + 8)?.try_into().ok()?,
        ))
    };
    Some(TaskStates {
        sleeping: word(0)?,
        running: word(1)?,
        stopped: word(2)?,
        uninterruptible: word(3)?,
        io_wait: word(4)?,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostRoot;
    use proptest::prelude::*;

    #[test]
    fn states_from_the_tasks_own_files() {
        let temp = tempfile::tempdir().unwrap();
        for (task, state) in [(1, 'R'), (2, 'S'), (3, 'D'), (4, 't'), (5, 'Z'), (6, 'R')] {
            let dir = temp.path().join(format!("proc/{task}"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("stat"), format!("{task} (a) b) {state} 1 1\n")).unwrap();
        }
        let procfs = Procfs::open(&HostRoot::new(temp.path())).unwrap();
        let states = count_states(&procfs, &[1, 2, 3, 4, 5, 6, 7], &mut ReadBuf::default());
        assert_eq!(
            states,
            TaskStates {
                running: 2,
                sleeping: 1,
                uninterruptible: 1,
                stopped: 1,
                io_wait: 0
            }
        );
    }

    #[test]
    fn a_question_and_its_answers() {
        let mut space = [0; 64];
        let request = encode(&mut space, 16, 3, 9, 2, FAMILY).unwrap();
        assert_eq!(request.len(), 36);
        assert_eq!(attribute(&request[20..], 2), Some(FAMILY));
        assert_eq!(decode_answer(request, 8), Answer::Other);
        assert_eq!(
            decode_answer(request, 9),
            Answer::Attributes(&request[20..])
        );
        assert_eq!(decode_answer(&request[..12], 9), Answer::Broken);

        let mut refusal = request[..20].to_vec();
        refusal[0] = 20;
        refusal[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        refusal[16..20].copy_from_slice(&(-22_i32).to_ne_bytes());
        assert_eq!(decode_answer(&refusal, 9), Answer::Refused(22));
        assert!(encode(&mut [0; 8], 16, 3, 9, 2, FAMILY).is_none());
    }

    #[test]
    fn this_kernel_answers_or_says_that_it_cannot() {
        // Sandboxes may forbid netlink altogether; what must not happen is a wrong figure or a hang.
        let Ok(Some(mut socket)) = TaskstatsSocket::open() else {
            return;
        };
        let temp = tempfile::tempdir().unwrap();
        assert!(!matches!(socket.states(temp.path()), Ok(Some(_))));
        assert!(matches!(
            socket.states(&temp.path().join("missing")),
            Ok(None)
        ));
    }

    proptest! {
        #[test]
        fn any_states_survive(v: [u64; 5]) {
            let bytes: Vec<u8> = v.iter().flat_map(|n| n.to_ne_bytes()).collect();
            let states = decode_states(&bytes).unwrap();
            let found = [
                states.sleeping, states.running, states.stopped, states.uninterruptible, states.io_wait,
            ];
            prop_assert_eq!(found, v);
        }

        #[test]
        fn no_input_panics(message: Vec<u8>, sequence: u32, kind: u16) {
            let _ = decode_answer(&message, sequence);
            let _ = attribute(&message, kind);
            let _ = decode_states(&message);
            let _ = state_of(&message);
        }
    }
}
