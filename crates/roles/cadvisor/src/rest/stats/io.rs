//! Block I/O by device.

use plimsoll_host::cgroup::{IoOp, IoRow};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::{PsiPair, psi};
use plimsoll_observe::Sample;
use plimsoll_observe::store::DeviceNames;

#[derive(Debug, Serialize)]
pub struct DiskIo<'a> {
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_service_bytes: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_serviced: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_queued: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    sectors: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_service_time: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_wait_time: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_merged: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_time: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_cost_usage: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_cost_wait: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_cost_indebt: Rows<'a>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    io_cost_indelay: Rows<'a>,
    psi: PsiPair,
}

pub fn disk_io<'a>(sample: &'a Sample, devices: &'a DeviceNames) -> DiskIo<'a> {
    let rows = |rows: &'a Vec<IoRow>| Rows { rows, devices };
    let io = &sample.io;
    DiskIo {
        io_service_bytes: rows(&io.service_bytes),
        io_serviced: rows(&io.serviced),
        io_queued: rows(&io.queued),
        sectors: rows(&io.sectors),
        io_service_time: rows(&io.service_time_ns),
        io_wait_time: rows(&io.wait_time_ns),
        io_merged: rows(&io.merged),
        io_time: rows(&io.time_ms),
        io_cost_usage: rows(&io.cost_usage_us),
        io_cost_wait: rows(&io.cost_wait_us),
        io_cost_indebt: rows(&io.cost_indebt_us),
        io_cost_indelay: rows(&io.cost_indelay_us),
        psi: psi(&sample.io_psi),
    }
}

#[derive(Debug)]
struct Rows<'a> {
    rows: &'a [IoRow],
    devices: &'a DeviceNames,
}

impl Rows<'_> {
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.rows.len()))?;
        for row in self.rows {
            list.serialize_element(&Device {
                device: self.devices.get(row.major, row.minor).unwrap_or(""),
                major: row.major,
                minor: row.minor,
                stats: Operations(row),
            })?;
        }
        list.end()
    }
}

#[derive(Debug, Serialize)]
struct Device<'a> {
    device: &'a str,
    major: u64,
    minor: u64,
    stats: Operations<'a>,
}

#[derive(Debug)]
struct Operations<'a>(&'a IoRow);

/// A map in the original, so its keys come sorted.
const SORTED_OPERATIONS: [IoOp; 7] = [
    IoOp::Async,
    IoOp::Count,
    IoOp::Discard,
    IoOp::Read,
    IoOp::Sync,
    IoOp::Total,
    IoOp::Write,
];

impl Serialize for Operations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let present = SORTED_OPERATIONS
            .iter()
            .filter_map(|op| Some((op.name(), self.0.get(*op)?)));
        serializer.collect_map(present)
    }
}
