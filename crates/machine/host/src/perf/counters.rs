//! Open counters and what they have counted.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::events::{EventCode, generic_event};
use super::pmu::{Pmu, pmus};
use super::sys::{self, Target};
use super::{EventGroup, EventSet};
use crate::machine::Topology;
use crate::read::Reserved;
use crate::{Descriptors, HostError, HostRoot, ReadBuf, Result};

/// One group on one CPU: reading the leader reads them all.
#[derive(Debug)]
struct OpenGroup {
    cpu: u32,
    leader: OwnedFd,
    /// Held open, never read.
    _others: Vec<OwnedFd>,
    /// Their places in the list of names.
    events: Vec<usize>,
    /// For uncore groups, the place of the unit.
    pmu: usize,
    _room: Reserved,
}

/// A group that this machine or kernel would not count.
#[derive(Debug)]
pub struct Refused {
    pub events: Vec<String>,
    pub why: HostError,
}

/// What could be opened, and what could not.
#[derive(Debug)]
pub struct Opened<T> {
    pub counters: T,
    pub refused: Vec<Refused>,
}

/// A counter's value, scaled up for the time it was not on the hardware.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Place in `events()`.
    pub event: usize,
    pub cpu: u32,
    pub value: u64,
    /// Share of the time that the counter really ran.
    pub scaling_ratio: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UncoreReading {
    /// Place in `events()`.
    pub event: usize,
    /// Place in `pmus()`.
    pub pmu: usize,
    /// -1 where the topology does not tell.
    pub socket: i64,
    pub value: u64,
    pub scaling_ratio: f64,
}

/// One read of a group's leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupReading<'a> {
    enabled: u64,
    running: u64,
    values: &'a [[u8; 8]],
}

impl GroupReading<'_> {
    /// Share of the time that the group really ran; one where it never did, as there is nothing to scale.
    pub fn scaling_ratio(&self) -> f64 {
        match (self.enabled, self.running) {
            (0, _) | (_, 0) => 1.0,
            (enabled, running) => running as f64 / enabled as f64,
        }
    }

    /// The counts in the group's order, scaled up to the whole time.
    pub fn scaled(&self) -> impl Iterator<Item = u64> {
        self.values.iter().map(|word| {
            let value = u64::from_ne_bytes(*word);
            if self.running == 0 || self.enabled == 0 {
                return value;
            }
            let scaled = u128::from(value) * u128::from(self.enabled) / u128::from(self.running);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        })
    }
}

/// `nr, time_enabled, time_running, value…`, all in the machine's own byte order. `None`: not what was asked for.
pub fn decode_group(bytes: &[u8], events: usize) -> Option<GroupReading<'_>> {
    let (words, _) = bytes.as_chunks::<8>();
    let (head, rest) = words.split_first_chunk::<3>()?;
    let [count, enabled, running] = head.map(u64::from_ne_bytes);
    let values = rest.get(..events)?;
    (count == events as u64).then_some(GroupReading {
        enabled,
        running,
        values,
    })
}

/// The core events of one cgroup on all its CPUs.
#[derive(Debug)]
pub struct CgroupCounters {
    path: PathBuf,
    events: Vec<String>,
    groups: Vec<OpenGroup>,
}

impl CgroupCounters {
    /// Starts counting. `dir` is the cgroup's directory in the unified or the `perf_event` hierarchy. A group that
    /// cannot be counted, or has no room in the budget of descriptors (one an event and CPU), is refused as a whole;
    /// the others go on.
    pub fn open(
        root: &HostRoot,
        dir: &Path,
        set: &EventSet,
        cpus: &[u32],
        descriptors: &Arc<Descriptors>,
        buf: &mut ReadBuf,
    ) -> Result<Opened<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cgroup = rustix::fs::open(dir, flags, Mode::empty())
            .map_err(|error| HostError::io("open", dir, error))?;
        let units = pmus(root, buf)?;
        let mut this = Self {
            path: dir.to_owned(),
            events: Vec::new(),
            groups: Vec::new(),
        };
        let mut refused = Vec::new();
        for group in &set.groups {
            let opened = resolve_core(group, set, &units, buf).and_then(|codes| {
                let first = this.events.len();
                let place = Place {
                    target: Target::Cgroup(cgroup.as_fd()),
                    pmu: 0,
                    path: dir,
                    descriptors,
                };
                cpus.iter()
                    .map(|&cpu| open_group(&codes, first, cpu, &place))
                    .collect::<Result<Vec<_>>>()
            });
            match opened {
                Ok(opened) => {
                    this.events.extend(group.events.iter().cloned());
                    this.groups.extend(opened);
                }
                Err(why) => refused.push(Refused {
                    events: group.events.clone(),
                    why,
                }),
            }
        }
        Ok(Opened {
            counters: this,
            refused,
        })
    }

    pub fn events(&self) -> &[String] {
        &self.events
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Fills `out` with one reading an event and CPU.
    pub fn read(&self, out: &mut Vec<Reading>) -> Result<()> {
        out.clear();
        for group in &self.groups {
            let mut space = [0; MOST_BYTES];
            let reading = read_group(group, &self.path, &mut space)?;
            for (event, value) in group.events.iter().zip(reading.scaled()) {
                out.push(Reading {
                    event: *event,
                    cpu: group.cpu,
                    value,
                    scaling_ratio: reading.scaling_ratio(),
                });
            }
        }
        Ok(())
    }
}

/// The uncore events of the machine.
#[derive(Debug)]
pub struct UncoreCounters {
    path: PathBuf,
    events: Vec<String>,
    pmus: Vec<String>,
    /// By CPU number, of the CPUs that count for a unit.
    sockets: Vec<(u32, i64)>,
    groups: Vec<OpenGroup>,
}

impl UncoreCounters {
    /// Starts counting on every unit whose name begins as an event asks (`uncore_imc/cas_count_read`).
    /// `Ok(None)`: this machine has no such units, as virtual ones do not.
    pub fn open(
        root: &HostRoot,
        set: &EventSet,
        topology: &Topology,
        descriptors: &Arc<Descriptors>,
        buf: &mut ReadBuf,
    ) -> Result<Option<Opened<Self>>> {
        let mut units = pmus(root, buf)?;
        units.retain(|unit| unit.is_uncore() && !unit.cpus.is_empty());
        if units.is_empty() {
            return Ok(None);
        }
        let socket = |cpu: &u32| (*cpu, topology.socket_of(*cpu).unwrap_or(-1));
        let mut this = Self {
            path: root.sys("bus/event_source/devices"),
            events: Vec::new(),
            pmus: units.iter().map(|unit| unit.name.clone()).collect(),
            sockets: units
                .iter()
                .flat_map(|u| u.cpus.iter().map(socket))
                .collect(),
            groups: Vec::new(),
        };
        let mut refused = Vec::new();
        for group in &set.groups {
            let first = this.events.len();
            match open_uncore(group, set, &units, first, descriptors, buf) {
                Ok(opened) => {
                    let name = |event: &String| plain_name(event).to_owned();
                    this.events.extend(group.events.iter().map(name));
                    this.groups.extend(opened);
                }
                Err(why) => refused.push(Refused {
                    events: group.events.clone(),
                    why,
                }),
            }
        }
        Ok(Some(Opened {
            counters: this,
            refused,
        }))
    }

    pub fn events(&self) -> &[String] {
        &self.events
    }

    pub fn pmus(&self) -> &[String] {
        &self.pmus
    }

    pub fn read(&self, out: &mut Vec<UncoreReading>) -> Result<()> {
        out.clear();
        for group in &self.groups {
            let mut space = [0; MOST_BYTES];
            let reading = read_group(group, &self.path, &mut space)?;
            let socket = self.sockets.iter().find(|(cpu, _)| *cpu == group.cpu);
            for (event, value) in group.events.iter().zip(reading.scaled()) {
                out.push(UncoreReading {
                    event: *event,
                    pmu: group.pmu,
                    socket: socket.map_or(-1, |(_, socket)| *socket),
                    value,
                    scaling_ratio: reading.scaling_ratio(),
                });
            }
        }
        Ok(())
    }
}

/// Room for more counters than any hardware has.
const MOST_BYTES: usize = 64 * 8;

fn read_group<'s>(
    group: &OpenGroup,
    path: &Path,
    space: &'s mut [u8; MOST_BYTES],
) -> Result<GroupReading<'s>> {
    let len = rustix::io::read(&group.leader, &mut space[..])
        .map_err(|error| HostError::io("read counters of", path, error))?;
    decode_group(&space[..len], group.events.len())
        .ok_or_else(|| HostError::io("read counters of", path, std::io::ErrorKind::InvalidData))
}

/// Where a group is opened.
struct Place<'a> {
    target: Target<'a>,
    pmu: usize,
    /// For errors.
    path: &'a Path,
    descriptors: &'a Arc<Descriptors>,
}

fn open_group(codes: &[EventCode], first: usize, cpu: u32, place: &Place<'_>) -> Result<OpenGroup> {
    let fail = |source: std::io::Error| HostError::io("count events of", place.path, source);
    let Some(room) = place.descriptors.reserve(codes.len()) else {
        let problem =
            "the descriptor limit leaves no room for counters; raise the open-files limit";
        return Err(HostError::Unsupported(problem.into()));
    };
    let mut fds: Vec<OwnedFd> = Vec::with_capacity(codes.len());
    for code in codes {
        let leader = fds.first().map(AsFd::as_fd);
        fds.push(sys::open(*code, place.target, cpu, leader).map_err(fail)?);
    }
    let others = fds.split_off(fds.len().min(1));
    let Some(leader) = fds.pop() else {
        return Err(fail(std::io::ErrorKind::InvalidInput.into()));
    };
    sys::start(&leader).map_err(fail)?;
    Ok(OpenGroup {
        cpu,
        leader,
        _others: others,
        events: (first..first + codes.len()).collect(),
        pmu: place.pmu,
        _room: room,
    })
}

fn resolve_core(
    group: &EventGroup,
    set: &EventSet,
    units: &[Pmu],
    buf: &mut ReadBuf,
) -> Result<Vec<EventCode>> {
    let mut codes = Vec::with_capacity(group.events.len());
    for name in &group.events {
        let code = match (set.custom(name), generic_event(name)) {
            (Some(custom), _) => Some(custom.code(custom.kind)),
            (None, Some(code)) => Some(code),
            // Events that the processor's driver names: `cpu/mem-loads`, or just `mem-loads`.
            (None, None) => {
                let (unit, event) = name.split_once('/').unwrap_or(("cpu", name));
                match units.iter().find(|known| known.name == unit) {
                    Some(unit) => unit.event(event.trim_end_matches('/'), buf)?,
                    None => None,
                }
            }
        };
        codes.push(code.ok_or_else(|| unknown(name))?);
    }
    Ok(codes)
}

fn open_uncore(
    group: &EventGroup,
    set: &EventSet,
    units: &[Pmu],
    first: usize,
    descriptors: &Arc<Descriptors>,
    buf: &mut ReadBuf,
) -> Result<Vec<OpenGroup>> {
    let Some(leading) = group.events.first() else {
        return Ok(Vec::new());
    };
    let mut opened = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        if !counts(unit, leading, set) {
            continue;
        }
        let mut codes = Vec::with_capacity(group.events.len());
        for name in &group.events {
            // Counters of two units cannot start together.
            if !counts(unit, name, set) {
                let problem = format!("{name} and {leading} are counted by different units");
                return Err(HostError::Unsupported(problem.into()));
            }
            let code = match set.custom(name) {
                Some(custom) => Some(custom.code(unit.kind)),
                None => unit.event(plain_name(name), buf)?,
            };
            codes.push(code.ok_or_else(|| unknown(name))?);
        }
        let place = Place {
            target: Target::Everything,
            pmu: at,
            path: Path::new(&unit.name),
            descriptors,
        };
        for &cpu in &unit.cpus {
            opened.push(open_group(&codes, first, cpu, &place)?);
        }
    }
    match opened.is_empty() {
        true => Err(unknown(leading)),
        false => Ok(opened),
    }
}

/// Whether a unit is meant by an event: by number for custom events that have one, else by prefix.
fn counts(unit: &Pmu, event: &str, set: &EventSet) -> bool {
    match set.custom(event) {
        Some(custom) if custom.kind != 0 => custom.kind == unit.kind,
        _ => event
            .split_once('/')
            .is_some_and(|(prefix, _)| !prefix.is_empty() && unit.name.starts_with(prefix)),
    }
}

/// `cas_count_read` of `uncore_imc/cas_count_read`.
fn plain_name(event: &str) -> &str {
    event.split_once('/').map_or(event, |(_, name)| name)
}

fn unknown(event: &str) -> HostError {
    HostError::Unsupported(format!("this machine cannot count {event:?}").into())
}
