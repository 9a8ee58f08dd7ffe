//! What a page says of containers, gathered one container at a time and told one family at a time.
//!
//! The format wants all series of a family together, while a container should be locked once, and shown as it was at one
//! moment. So each container leaves its records, in the order of the families, and each family takes from every container
//! what comes next. Nothing is allocated for a series.

use std::io;
use std::sync::Arc;

use plimsoll_host::Timestamp;
use plimsoll_host::cgroup::{IoRow, Spec};

use super::families::{CONTAINER_FAMILIES, When};
use super::gathered::{Extras, Family, Labels, Line};
use super::labels::{LabelNames, Rendered};
use super::number::Number;
use super::record::{self, Reader, Stamp};
use plimsoll_observe::store::DeviceNames;
use plimsoll_observe::{Group, GroupSet, Sample};

macro_rules! extras {
    ($($variant:ident = $name:literal,)*) => {
        /// The label keys that families add to the container's own, in alphabetical order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Extra { $($variant),* }

        const EXTRA_NAMES: &[&str] = &[$($name),*];
    };
}

extras! {
    Cpu = "cpu",
    Device = "device",
    Event = "event",
    FailureType = "failure_type",
    Interface = "interface",
    Major = "major",
    Minor = "minor",
    Node = "node",
    NodeId = "node_id",
    Operation = "operation",
    Pagesize = "pagesize",
    Pmu = "pmu",
    Scope = "scope",
    Socket = "socket",
    State = "state",
    TcpState = "tcp_state",
    Type = "type",
    UdpState = "udp_state",
    Ulimit = "ulimit",
}

/// As many as any family adds.
const MOST_EXTRAS: usize = 4;
/// Records are kept in pieces of this size: small enough that their room goes back when the page has been written.
const BLOCK: usize = 32 << 10;

/// Where each extra label goes among a page's labels.
#[derive(Debug, Clone)]
pub struct Places([u16; EXTRA_NAMES.len()]);

impl Places {
    fn of(names: &LabelNames) -> Self {
        let mut places = [0; EXTRA_NAMES.len()];
        for (place, extra) in places.iter_mut().zip(EXTRA_NAMES) {
            *place = names.place(extra) as u16;
        }
        Self(places)
    }
}

/// What the families look at.
#[derive(Debug)]
pub struct ContainerView<'a> {
    pub sample: &'a Sample,
    pub spec: &'a Spec,
    pub created: Timestamp,
    pub started: Timestamp,
    pub health: &'a str,
    pub oom_events: u64,
    pub now: Timestamp,
    /// One CPU series a CPU, or one in all.
    pub per_cpu: bool,
    pub devices: &'a DeviceNames,
}

impl ContainerView<'_> {
    pub fn has_quota(&self) -> bool {
        self.spec.cpu_quota_us != 0
    }

    pub fn created_secs(&self) -> u64 {
        self.created.secs().max(0) as u64
    }

    pub fn started_secs(&self) -> u64 {
        self.started.secs().max(0) as u64
    }

    pub fn health(&self) -> f64 {
        match self.health {
            "healthy" => 1.0,
            "" => -1.0,
            _ => 0.0,
        }
    }

    /// Hands over the device's name, `/dev/vda`; a number the machine has no name for stays a number, so that two
    /// such devices remain two series.
    pub fn device(&self, row: &IoRow, use_name: impl FnOnce(&str)) {
        match self.devices.get(row.major, row.minor) {
            Some(name) => use_name(name),
            None => use_name(&format!("{}:{}", row.major, row.minor)),
        }
    }
}

/// Keeps the series of one family for one container.
#[derive(Debug)]
pub struct Out<'a> {
    records: &'a mut Vec<u8>,
}

impl Out<'_> {
    pub fn plain(&mut self, value: Number) {
        self.keep(&[], value, Stamp::Sample);
    }

    pub fn untimed(&mut self, value: Number) {
        self.keep(&[], value, Stamp::None);
    }

    pub fn at_now(&mut self, value: Number) {
        self.keep(&[], value, Stamp::Now);
    }

    /// With further labels, in alphabetical order of their keys.
    pub fn with(&mut self, extra: &[(Extra, &str)], value: Number) {
        debug_assert!(extra.windows(2).all(|w| w[0].0 < w[1].0));
        debug_assert!(extra.len() <= MOST_EXTRAS);
        self.keep(extra, value, Stamp::Sample);
    }

    fn keep(&mut self, extra: &[(Extra, &str)], value: Number, stamp: Stamp) {
        record::head(value, stamp, extra.len(), self.records);
        for (key, text) in extra {
            self.records.push(*key as u8);
            record::varint(text.len() as u64, self.records);
            self.records.extend_from_slice(text.as_bytes());
        }
        record::tail(value, stamp, self.records);
    }
}

/// All containers of a page.
#[derive(Debug)]
pub struct Containers {
    names: Arc<LabelNames>,
    places: Places,
    now: Timestamp,
    rows: Vec<Row>,
    blocks: Vec<Vec<u8>>,
}

/// One container.
#[derive(Debug)]
struct Row {
    labels: Arc<Rendered>,
    /// Of its sample.
    at: Timestamp,
    block: u32,
    /// Its records in the block: the family's number, how many bytes, its lines; and so on.
    start: u32,
    end: u32,
}

/// Gathers them.
#[derive(Debug)]
pub struct Gathering {
    families: Vec<u8>,
    gathered: Containers,
    /// The records of one container, and the lines of one family.
    records: Vec<u8>,
    lines: Vec<u8>,
}

impl Gathering {
    pub fn new(names: &Arc<LabelNames>, groups: GroupSet, now: Timestamp, expected: usize) -> Self {
        let families = (0u8..)
            .zip(CONTAINER_FAMILIES)
            .filter(|(_, family)| match family.when {
                When::Always | When::Sampled => true,
                When::Group(group) => groups.has(group),
            });
        Self {
            families: families.map(|(index, _)| index).collect(),
            gathered: Containers {
                names: Arc::clone(names),
                places: Places::of(names),
                now,
                rows: Vec::with_capacity(expected),
                blocks: Vec::new(),
            },
            records: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// `sampled`: the container has a sample; without one only its spec is shown.
    pub fn add(&mut self, view: &ContainerView<'_>, labels: &Arc<Rendered>, sampled: bool) {
        self.records.clear();
        for &index in &self.families {
            let family = &CONTAINER_FAMILIES[usize::from(index)];
            let shown = match family.when {
                When::Always => true,
                When::Sampled => sampled,
                When::Group(group) => sampled && shows(view.sample, group),
            };
            if !shown {
                continue;
            }
            self.lines.clear();
            let records = &mut self.lines;
            (family.emit)(view, &mut Out { records });
            if !self.lines.is_empty() {
                self.records.push(index);
                record::varint(self.lines.len() as u64, &mut self.records);
                self.records.extend_from_slice(&self.lines);
            }
        }
        self.gathered.keep(&self.records, labels, view.sample.at);
    }

    pub fn finish(self) -> Containers {
        self.gathered
    }
}

impl Containers {
    /// A container's records lie in one piece.
    fn keep(&mut self, records: &[u8], labels: &Arc<Rendered>, at: Timestamp) {
        let fits = |block: &Vec<u8>| block.capacity() - block.len() >= records.len();
        if !self.blocks.last().is_some_and(fits) {
            self.blocks
                .push(Vec::with_capacity(BLOCK.max(records.len())));
        }
        let number = self.blocks.len() - 1;
        let block = &mut self.blocks[number];
        let start = block.len();
        block.extend_from_slice(records);
        self.rows.push(Row {
            labels: Arc::clone(labels),
            at,
            block: number as u32,
            start: start as u32,
            end: block.len() as u32,
        });
    }

    /// Every family that has series, in order.
    pub fn each(&self, mut visit: impl FnMut(&Family<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut cursors: Vec<u32> = self.rows.iter().map(|row| row.start).collect();
        for index in (0u8..).take(CONTAINER_FAMILIES.len()) {
            let mut rows = self.rows.iter().zip(&cursors);
            if !rows.any(|(row, cursor)| self.next(row, *cursor) == Some(index)) {
                continue;
            }
            if let Some(family) = Family::of_containers(self, index, &cursors) {
                visit(&family)?;
            }
            for (row, cursor) in self.rows.iter().zip(&mut cursors) {
                if self.next(row, *cursor) == Some(index) {
                    let rest = self.past(row, *cursor);
                    *cursor = row.end - rest.0.len() as u32;
                }
            }
        }
        Ok(())
    }

    /// Which family a container's next records are of.
    #[inline]
    fn next(&self, row: &Row, cursor: u32) -> Option<u8> {
        self.records(row, cursor).first().copied()
    }

    fn records(&self, row: &Row, cursor: u32) -> &[u8] {
        &self.blocks[row.block as usize][cursor as usize..row.end as usize]
    }

    /// What follows a container's next family.
    fn past(&self, row: &Row, cursor: u32) -> Reader<'_> {
        let mut reader = Reader(self.records(row, cursor));
        reader.byte();
        let length = reader.varint();
        reader.bytes(length as usize);
        reader
    }

    pub(super) fn lines(
        &self,
        family: u8,
        cursors: &[u32],
        mut visit: impl FnMut(&Line<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        for (index, (row, cursor)) in self.rows.iter().zip(cursors).enumerate() {
            let mut reader = Reader(self.records(row, *cursor));
            if reader.0.first() != Some(&family) {
                continue;
            }
            reader.byte();
            let length = reader.varint();
            let mut lines = Reader(reader.bytes(length as usize));
            while !lines.is_at_end() {
                let head = lines.head();
                let mut list: [(u8, &[u8]); MOST_EXTRAS] = [(0, &[]); MOST_EXTRAS];
                let count = head.labels.min(MOST_EXTRAS);
                for extra in &mut list[..count] {
                    let key = lines.byte();
                    let length = lines.varint();
                    *extra = (key, lines.bytes(length as usize));
                }
                let (value, stamp) = lines.tail(head);
                visit(&Line {
                    labels: Labels::Container {
                        index,
                        own: &row.labels,
                        names: &self.names,
                        extra: Extras {
                            places: &self.places,
                            list: &list[..count],
                        },
                    },
                    value,
                    at: match stamp {
                        Stamp::None => None,
                        Stamp::Sample => Some(row.at),
                        Stamp::Now => Some(self.now),
                        Stamp::Own(at) => Some(at),
                    },
                })?;
            }
        }
        Ok(())
    }

    /// How many bytes the figures take.
    pub fn size(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(Vec::capacity).sum();
        blocks + self.rows.capacity() * size_of::<Row>()
    }
}

impl<'a> Extras<'a> {
    pub fn is_empty(self) -> bool {
        self.list.is_empty()
    }

    /// How many of the container's labels come before, the key, and the value.
    pub fn iter(self) -> impl Iterator<Item = (usize, &'static str, &'a [u8])> {
        self.list.iter().map(move |(key, text)| {
            let key = usize::from(*key);
            (usize::from(self.places.0[key]), EXTRA_NAMES[key], *text)
        })
    }
}

/// Groups whose figures hang on something other than the cgroup are shown whenever they are on the page.
fn shows(sample: &Sample, group: Group) -> bool {
    matches!(group, Group::OomEvent | Group::CpuLoad) || sample.has(group)
}
