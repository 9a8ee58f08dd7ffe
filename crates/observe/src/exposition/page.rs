//! A page of container metrics, written one container at a time into one buffer a family.
//!
//! The format wants all series of a family together, while everything a container needs (its lock, its label text,
//! its timestamp) is best touched once. So each family collects its lines in a buffer of its own, and the page is the
//! buffers in order. Nothing is allocated for a series.

use plimsoll_host::Timestamp;
use plimsoll_host::cgroup::{IoRow, Spec};

use super::families::{CONTAINER_FAMILIES, Family, Kind, When};
use super::labels::{LabelNames, Rendered, write_escaped};
use super::number::Number;
use crate::store::DeviceNames;
use crate::{Group, GroupSet, Sample};

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

/// Where each extra label goes among a page's labels.
#[derive(Debug, Clone)]
struct Places([u16; EXTRA_NAMES.len()]);

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

/// Appends the series of one family for one container.
#[derive(Debug)]
pub struct Out<'a> {
    buf: &'a mut Vec<u8>,
    /// The family's name and the brace.
    opening: &'a [u8],
    labels: &'a Rendered,
    places: &'a Places,
    /// ` 1794773054818\n`.
    at_sample: &'a [u8],
    at_now: &'a [u8],
}

impl Out<'_> {
    pub fn plain(&mut self, value: Number) {
        self.line(value, self.at_sample);
    }

    pub fn untimed(&mut self, value: Number) {
        self.line(value, b"\n");
    }

    pub fn at_now(&mut self, value: Number) {
        self.line(value, self.at_now);
    }

    #[inline]
    fn line(&mut self, value: Number, end: &[u8]) {
        self.buf.extend_from_slice(self.opening);
        self.buf.extend_from_slice(self.labels.closed());
        value.write(self.buf);
        self.buf.extend_from_slice(end);
    }

    /// With further labels, in alphabetical order of their keys.
    pub fn with(&mut self, extra: &[(Extra, &str)], value: Number) {
        debug_assert!(extra.windows(2).all(|w| w[0].0 < w[1].0));
        self.buf.extend_from_slice(self.opening);
        let mut from = 0;
        for (key, text) in extra {
            let to = usize::from(self.places.0[*key as usize]);
            if to < self.labels.count() {
                self.buf.extend_from_slice(self.labels.between(from, to));
            } else if from < to {
                // Past the last label: its closing brace makes way for a comma.
                let rest = self.labels.closed_from(from);
                self.buf.extend_from_slice(&rest[..rest.len() - 2]);
                self.buf.push(b',');
            }
            self.buf
                .extend_from_slice(EXTRA_NAMES[*key as usize].as_bytes());
            self.buf.extend_from_slice(b"=\"");
            write_escaped(text, self.buf);
            self.buf.extend_from_slice(b"\",");
            from = to;
        }
        if from < self.labels.count() {
            self.buf.extend_from_slice(self.labels.closed_from(from));
        } else {
            // An extra label came last; its comma becomes the brace.
            if let Some(comma) = self.buf.last_mut() {
                *comma = b'}';
            }
            self.buf.push(b' ');
        }
        value.write(self.buf);
        self.buf.extend_from_slice(self.at_sample);
    }
}

/// The lines of one family so far.
#[derive(Debug)]
struct Lines {
    family: &'static Family,
    index: usize,
    opening: Vec<u8>,
    body: Vec<u8>,
}

/// Collects a page.
#[derive(Debug)]
pub struct Page {
    families: Vec<Lines>,
    places: Places,
    at_now: Vec<u8>,
    at_sample: Vec<u8>,
}

impl Page {
    /// `room`: that of the last page, so that nothing grows while writing.
    pub fn new(names: &LabelNames, groups: GroupSet, now: Timestamp, room: &mut Room) -> Self {
        let families = CONTAINER_FAMILIES
            .iter()
            .enumerate()
            .filter(|(_, family)| match family.when {
                When::Always | When::Sampled => true,
                When::Group(group) => groups.has(group),
            })
            .map(|(index, family)| Lines {
                family,
                index,
                opening: format!("{}{{", family.name).into_bytes(),
                body: room.take(index),
            })
            .collect();
        let mut page = Self {
            families,
            places: Places::of(names),
            at_now: Vec::new(),
            at_sample: Vec::new(),
        };
        write_timestamp(now, &mut page.at_now);
        page
    }

    /// `sampled`: the container has a sample; without one only its spec is shown.
    pub fn add(&mut self, view: &ContainerView<'_>, labels: &Rendered, sampled: bool) {
        self.at_sample.clear();
        write_timestamp(view.sample.at, &mut self.at_sample);
        for lines in &mut self.families {
            let family = lines.family;
            let shown = match family.when {
                When::Always => true,
                When::Sampled => sampled,
                When::Group(group) => sampled && shows(view.sample, group),
            };
            if !shown {
                continue;
            }
            let mut out = Out {
                buf: &mut lines.body,
                opening: &lines.opening,
                labels,
                places: &self.places,
                at_sample: &self.at_sample,
                at_now: &self.at_now,
            };
            (family.emit)(view, &mut out);
        }
    }

    /// The families that have series, with their headers, in order.
    pub fn finish(self) -> Vec<FamilyText> {
        let families = self.families.into_iter();
        let told = families.filter(|lines| !lines.body.is_empty());
        told.map(
            |Lines {
                 family,
                 index,
                 body,
                 ..
             }| FamilyText {
                name: family.name,
                header: header(family.name, family.kind, family.help),
                body,
                index,
            },
        )
        .collect()
    }
}

/// Groups whose figures hang on something other than the cgroup are shown whenever they are on the page.
fn shows(sample: &Sample, group: Group) -> bool {
    matches!(group, Group::OomEvent | Group::CpuLoad) || sample.has(group)
}

fn write_timestamp(at: Timestamp, out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(at.millis()).as_bytes());
    out.push(b'\n');
}

pub fn header(name: &str, kind: Kind, help: &str) -> Vec<u8> {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n").into_bytes()
}

/// One family ready to be sent.
#[derive(Debug)]
pub struct FamilyText {
    pub name: &'static str,
    pub header: Vec<u8>,
    pub body: Vec<u8>,
    index: usize,
}

/// Where the last page's families were written, for the next page. To be made anew for each, a megabyte or two at a time
/// and by one thread or another, would leave the process with room for several.
#[derive(Debug)]
pub struct Room(Vec<Vec<u8>>);

impl Default for Room {
    fn default() -> Self {
        Self(vec![Vec::new(); CONTAINER_FAMILIES.len()])
    }
}

impl Room {
    fn take(&mut self, index: usize) -> Vec<u8> {
        self.0
            .get_mut(index)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub fn keep(&mut self, families: Vec<FamilyText>) {
        for FamilyText {
            index, mut body, ..
        } in families
        {
            // A little more than this time: counters grow digits. What growing left over, or containers that went, is
            // given up.
            let enough = body.len() + body.len() / 32;
            if body.capacity() > enough + enough / 4 {
                body = Vec::with_capacity(enough);
            }
            body.clear();
            if let Some(room) = self.0.get_mut(index) {
                *room = body;
            }
        }
    }
}
