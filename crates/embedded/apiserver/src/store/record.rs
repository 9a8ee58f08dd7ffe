//! An object as it lies in the file: it says itself what it is, and a checksum covers all of that. So a byte that changed
//! is noticed, and records can be found even where the file's own structure is broken.

use bytes::Bytes;

/// Where a record begins. The first byte is in no text.
const MAGIC: [u8; 4] = [0xf5, b'o', b'b', b'j'];
const HEAD: usize = MAGIC.len() + 4 + 8 + 4 + 4;

/// `shelf NUL key`.
pub(super) fn row(shelf: &str, key: &str) -> String {
    format!("{shelf}\0{key}")
}

/// As a person would say it.
pub(super) fn spoken(row: &str) -> String {
    row.replacen('\0', " ", 1)
}

/// What identifies one state of one object, as far as a checksum can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    pub revision: u64,
    pub checksum: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub row: &'a str,
    pub seal: Seal,
    pub body: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn new(row: &'a str, revision: u64, body: &'a [u8]) -> Self {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&middle(row, revision, body));
        sum.update(row.as_bytes());
        sum.update(body);
        let checksum = sum.finalize();
        Self {
            row,
            seal: Seal { revision, checksum },
            body,
        }
    }

    pub(super) fn size(&self) -> usize {
        HEAD + self.row.len() + self.body.len()
    }

    /// `out` is as long as [`Self::size`].
    pub(super) fn write(&self, out: &mut [u8]) {
        let parts: [&[u8]; 5] = [
            &MAGIC,
            &self.seal.checksum.to_le_bytes(),
            &middle(self.row, self.seal.revision, self.body),
            self.row.as_bytes(),
            self.body,
        ];
        let mut at = 0;
        for part in parts {
            out[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    /// The record at the beginning of these bytes, if it is whole.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (checksum, rest) = rest.split_first_chunk()?;
        let (revision, rest) = rest.split_first_chunk()?;
        let (row_length, rest) = rest.split_first_chunk()?;
        let (body_length, rest) = rest.split_first_chunk()?;
        let row_length = usize::try_from(u32::from_le_bytes(*row_length)).ok()?;
        let body_length = usize::try_from(u32::from_le_bytes(*body_length)).ok()?;
        let (row, rest) = rest.split_at_checked(row_length)?;
        let (body, _) = rest.split_at_checked(body_length)?;
        let record = Self::new(
            std::str::from_utf8(row).ok()?,
            u64::from_le_bytes(*revision),
            body,
        );
        (record.seal.checksum == u32::from_le_bytes(*checksum)).then_some(record)
    }
}

fn middle(row: &str, revision: u64, body: &[u8]) -> [u8; 16] {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut all = [0; 16];
    all[..8].copy_from_slice(&revision.to_le_bytes());
    all[8..12].copy_from_slice(&length(row.len()));
    all[12..].copy_from_slice(&length(body.len()));
    all
}

/// All whole records in a file, those that were replaced and not yet written over among them.
pub(super) fn find(file: &[u8]) -> impl Iterator<Item = Record<'_>> {
    memchr::memmem::find_iter(file, &MAGIC).filter_map(|at| Record::read(&file[at..]))
}

/// A record that outlives the file it was read from.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub row: String,
    pub seal: Seal,
    pub body: Bytes,
}

impl From<Record<'_>> for Kept {
    fn from(record: Record<'_>) -> Self {
        Self {
            row: record.row.to_owned(),
            seal: record.seal,
            body: Bytes::copy_from_slice(record.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_is_noticed() {
        let row = row("configmaps", "a/b");
        let record = Record::new(&row, 77, b"{\"x\": 1}");
        let mut bytes = vec![0; record.size()];
        record.write(&mut bytes);
        assert_eq!(Record::read(&bytes), Some(record));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(Record::read(&changed), None, "{at} {bit}");
            }
        }
        for length in 0..bytes.len() {
            assert_eq!(Record::read(&bytes[..length]), None, "{length}");
        }
        let mut file = vec![7; 1000];
        file.extend(&bytes);
        file.extend(&bytes[..9]);
        file.extend(&bytes);
        assert_eq!(find(&file).collect::<Vec<_>>(), [record, record]);
    }
}
