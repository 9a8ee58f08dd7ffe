//! What `zfs` and `dmsetup` print about pools. Starting them is the caller's business: this crate forks nothing.

use super::statfs::FsUsage;
use crate::Result;
use crate::parse::{self, Malformed};

/// `zfs list -Hp -o used,available,usedbydataset NAME`: one line of three numbers, `-` for none.
pub fn parse_zfs_list(text: &[u8]) -> Result<FsUsage, Malformed> {
    let bad = || Malformed::at(0, parse::trim(text));
    let mut values = [0; 3];
    let mut words = parse::words(text);
    for value in &mut values {
        *value = match words.next().ok_or_else(bad)? {
            b"-" => 0,
            number => parse::u64(number).ok_or_else(bad)?,
        };
    }
    if words.next().is_some() {
        return Err(bad());
    }
    let [used, available, by_dataset] = values;
    Ok(FsUsage {
        capacity: used.saturating_add(available).saturating_add(by_dataset),
        free: available,
        available,
        inodes: None,
    })
}

/// Data blocks of a thin pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmPool {
    pub used_blocks: u64,
    pub total_blocks: u64,
}

impl DmPool {
    pub fn usage(self, block_sectors: u64) -> FsUsage {
        let bytes = |blocks: u64| blocks.saturating_mul(block_sectors).saturating_mul(512);
        let free = bytes(self.total_blocks.saturating_sub(self.used_blocks));
        FsUsage {
            capacity: bytes(self.total_blocks),
            free,
            available: free,
            inodes: None,
        }
    }
}

/// `dmsetup status POOL`: `0 409534464 thin-pool 64085 3705/4161600 88106/3199488 - rw …`.
pub fn parse_dm_status(text: &[u8]) -> Result<DmPool, Malformed> {
    let parsed = || {
        let data = parse::words(text).nth(5)?;
        let slash = memchr::memchr(b'/', data)?;
        Some(DmPool {
            used_blocks: parse::u64(&data[..slash])?,
            total_blocks: parse::u64(&data[slash + 1..])?,
        })
    };
    parsed().ok_or_else(|| Malformed::at(0, parse::trim(text)))
}

/// The data device of a thin pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmTable {
    pub major: u32,
    pub minor: u32,
    pub block_sectors: u64,
}

/// `dmsetup table POOL`: `0 409534464 thin-pool 253:6 253:7 128 32768 1 …`.
pub fn parse_dm_table(text: &[u8]) -> Result<DmTable, Malformed> {
    let parsed = || {
        let mut words = parse::words(text).skip(4);
        let device = words.next()?;
        let colon = memchr::memchr(b':', device)?;
        let number = |text| parse::u64(text).and_then(|n| u32::try_from(n).ok());
        Some(DmTable {
            major: number(&device[..colon])?,
            minor: number(&device[colon + 1..])?,
            block_sectors: parse::u64(words.next()?)?,
        })
    };
    parsed().ok_or_else(|| Malformed::at(0, parse::trim(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pools() {
        let usage = parse_zfs_list(b"123456\t789012\t654321\n").unwrap();
        assert_eq!((usage.capacity, usage.free), (1_566_789, 789_012));
        assert_eq!(parse_zfs_list(b"100\t-\t50\n").unwrap().capacity, 150);
        assert!(parse_zfs_list(b"100\t200\n").is_err());
        assert!(parse_zfs_list(b"1 2 3 4\n").is_err());

        let status =
            b"0 409534464 thin-pool 64085 3705/4161600 88106/3199488 - rw no_discard_passdown\n";
        let pool = parse_dm_status(status).unwrap();
        assert_eq!((pool.used_blocks, pool.total_blocks), (88_106, 3_199_488));
        assert_eq!(pool.usage(128).capacity, 3_199_488 * 65_536);
        assert!(parse_dm_status(b"Device does not exist.\n").is_err());

        let table = parse_dm_table(b"0 409534464 thin-pool 253:6 258:9 512 32768 1 x\n").unwrap();
        assert_eq!(
            (table.major, table.minor, table.block_sectors),
            (258, 9, 512)
        );
        assert!(parse_dm_table(b"0 409534464 thin-pool 253:6\n").is_err());
    }

    proptest! {
        #[test]
        fn any_pool_survives(used: u64, total: u64, major: u32, minor: u32, sectors: u64) {
            let status = format!("0 9 thin-pool 1 2/3 {used}/{total} - rw\n");
            let pool = DmPool { used_blocks: used, total_blocks: total };
            prop_assert_eq!(parse_dm_status(status.as_bytes()).unwrap(), pool);
            let _ = pool.usage(sectors);
            let table = format!("0 9 thin-pool 1:2 {major}:{minor} {sectors} 0 0\n");
            let expected = DmTable { major, minor, block_sectors: sectors };
            prop_assert_eq!(parse_dm_table(table.as_bytes()).unwrap(), expected);
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_zfs_list(&text);
            let _ = parse_dm_status(&text);
            let _ = parse_dm_table(&text);
        }
    }
}
