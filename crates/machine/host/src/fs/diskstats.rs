//! `/proc/diskstats`: every block device, whatever its driver calls it.

use std::fmt;

use crate::parse::{self, Malformed};
use crate::{HostError, HostRoot, ReadBuf, Result, read_file};

/// A block device's name held in place: the kernel's limit is 31 bytes and a partition's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName {
    bytes: [u8; 47],
    len: u8,
}

impl Default for DeviceName {
    fn default() -> Self {
        Self {
            bytes: [0; 47],
            len: 0,
        }
    }
}

impl DeviceName {
    pub fn new(name: &[u8]) -> Option<Self> {
        std::str::from_utf8(name).ok()?;
        let mut this = Self::default();
        this.bytes.get_mut(..name.len())?.copy_from_slice(name);
        this.len = name.len() as u8;
        Some(this)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("")
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Since boot. Times in milliseconds, sectors of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    pub reads_completed: u64,
    pub reads_merged: u64,
    pub sectors_read: u64,
    pub read_ms: u64,
    pub writes_completed: u64,
    pub writes_merged: u64,
    pub sectors_written: u64,
    pub write_ms: u64,
    pub io_in_progress: u64,
    pub io_ms: u64,
    pub weighted_io_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskRow {
    pub major: u32,
    pub minor: u32,
    pub name: DeviceName,
    pub counters: DiskCounters,
}

/// Fills `out` with all devices, in the kernel's order.
pub fn parse_diskstats(text: &[u8], out: &mut Vec<DiskRow>) -> Result<(), Malformed> {
    let text = parse::whole_lines(text)?;
    out.clear();
    for (index, line) in parse::numbered(text) {
        let row = parse_row(line).ok_or_else(|| Malformed::at(index, line))?;
        out.push(row);
    }
    Ok(())
}

fn parse_row(line: &[u8]) -> Option<DiskRow> {
    let mut words = parse::words(line);
    let mut number = || parse::u64(words.next()?).and_then(|n| u32::try_from(n).ok());
    let (major, minor) = (number()?, number()?);
    let name = DeviceName::new(words.next()?)?;
    // Discards (4.18) and flushes (5.5) follow; nothing reports them yet.
    let mut values = [0; 11];
    for value in &mut values {
        *value = parse::u64(words.next()?)?;
    }
    let [
        reads_completed,
        reads_merged,
        sectors_read,
        read_ms,
        writes_completed,
        writes_merged,
        sectors_written,
        write_ms,
        io_in_progress,
        io_ms,
        weighted_io_ms,
    ] = values;
    Some(DiskRow {
        major,
        minor,
        name,
        counters: DiskCounters {
            reads_completed,
            reads_merged,
            sectors_read,
            read_ms,
            writes_completed,
            writes_merged,
            sectors_written,
            write_ms,
            io_in_progress,
            io_ms,
            weighted_io_ms,
        },
    })
}

/// `false`: this kernel counts no disk statistics, and `out` is empty.
pub fn read_diskstats(root: &HostRoot, buf: &mut ReadBuf, out: &mut Vec<DiskRow>) -> Result<bool> {
    out.clear();
    let path = root.proc("diskstats");
    let Some(text) = read_file(&path, buf)? else {
        return Ok(false);
    };
    parse_diskstats(text, out).map_err(|at| HostError::malformed(&path, at))?;
    Ok(true)
}

/// The row of a file system's device: by its `/dev/` name, else by number (device-mapper names are links).
pub fn find_disk<'r>(
    rows: &'r [DiskRow],
    device: &str,
    major: u32,
    minor: u32,
) -> Option<&'r DiskRow> {
    let name = device.strip_prefix("/dev/");
    rows.iter()
        .find(|row| Some(row.name.as_str()) == name)
        .or_else(|| {
            rows.iter()
                .find(|row| row.major == major && row.minor == minor)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n 254       0 vda 121774 11837 5705338 134894 25993 114407 13184312 34255 1 22500 170769 11925 17 4616328 1530 1697 88\n 259       1 nvme0n1p1 1 2 3 4 5 6 7 8 9 10 11\n 179       0 mmcblk0 1 0 0 0 0 0 0 0 0 0 0\n   9     127 md127 2 0 0 0 0 0 0 0 0 0 0\n 253       3 dm-3 3 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn every_driver_counts() {
        let mut rows = Vec::new();
        parse_diskstats(TEXT.as_bytes(), &mut rows).unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names,
            ["loop0", "vda", "nvme0n1p1", "mmcblk0", "md127", "dm-3"]
        );
        let vda = find_disk(&rows, "/dev/vda", 0, 0).unwrap();
        assert_eq!(vda.counters.sectors_written, 13_184_312);
        assert_eq!(
            (vda.counters.io_in_progress, vda.counters.io_ms),
            (1, 22_500)
        );
        let nvme = find_disk(&rows, "/dev/nvme0n1p1", 0, 0).unwrap();
        assert_eq!(nvme.counters.weighted_io_ms, 11);
        let mapped = find_disk(&rows, "/dev/mapper/vg-root", 253, 3).unwrap();
        assert_eq!(mapped.counters.reads_completed, 3);
        assert_eq!(find_disk(&rows, "tmpfs", 0, 27), None);
    }

    #[test]
    fn bad_rows_are_named() {
        let mut rows = Vec::new();
        let error = parse_diskstats(
            b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 1 sda1 1 2 3 4\n",
            &mut rows,
        );
        assert_eq!(error.unwrap_err().line, 2);
        assert!(parse_diskstats(b"8 x sda 1 2 3 4 5 6 7 8 9 10 11\n", &mut rows).is_err());
    }

    #[test]
    fn this_machine_and_a_tree_without() {
        let mut buf = ReadBuf::default();
        let mut rows = vec![DiskRow::default()];
        let temp = tempfile::tempdir().unwrap();
        assert!(!read_diskstats(&HostRoot::new(temp.path()), &mut buf, &mut rows).unwrap());
        assert!(rows.is_empty());
        read_diskstats(&HostRoot::new("/"), &mut buf, &mut rows).unwrap();
    }

    proptest! {
        #[test]
        fn any_device_survives(major: u32, minor: u32, name in "[a-z0-9!-]{1,31}", v: [u64; 11]) {
            let values: Vec<String> = v.iter().map(u64::to_string).collect();
            let text = format!("{major:4} {minor:7} {name} {}\n", values.join(" "));
            let mut rows = Vec::new();
            parse_diskstats(text.as_bytes(), &mut rows).unwrap();
            prop_assert_eq!(rows[0].name.as_str(), name);
            prop_assert_eq!((rows[0].major, rows[0].minor), (major, minor));
            let c = rows[0].counters;
            prop_assert_eq!((c.reads_completed, c.write_ms, c.weighted_io_ms), (v[0], v[7], v[10]));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_diskstats(&text, &mut Vec::new());
        }
    }
}
