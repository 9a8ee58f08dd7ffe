//! Sealed blocks: one immutable file with a compressed column a series.
//!
//! ```text
//! magic · record… · index record · footer
//! record = length u32 · CRC-32 u32 · payload
//! footer = index offset u64 · oldest i64 · newest i64 · CRC-32 of these u32 · magic
//! ```
//! Series sampled in the same rounds share one column of timestamps. All integers are little-endian.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pco::ChunkConfig;
use pco::standalone::{simple_compress, simple_decompress};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::varint::{self, Reader};

const MAGIC: [u8; 8] = *b"plimtsb1";
const FOOTER: usize = 8 + 8 + 8 + 4 + 8;
/// Beyond this, whole numbers are not exact in a float.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Higher levels cost more time than they save room on columns of some hundred samples.
const LEVEL: usize = 6;

#[derive(Debug, Error)]
pub enum BlockError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Corrupt(&'static str),
}

#[derive(Clone, Copy)]
enum Kind {
    Whole = 0,
    Float = 1,
    Constant = 2,
}

/// Collects columns into the bytes of a block.
#[derive(Debug)]
pub struct Builder {
    bytes: Vec<u8>,
    times: FxHashMap<Box<[i64]>, u32>,
    time_records: Vec<Place>,
    index: Vec<u8>,
    columns: u64,
    range: Option<(i64, i64)>,
}

/// Where a record is; the length includes its head.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u32,
    length: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            bytes: MAGIC.to_vec(),
            times: FxHashMap::default(),
            time_records: Vec::new(),
            index: Vec::new(),
            columns: 0,
            range: None,
        }
    }
}

impl Builder {
    /// Samples of one series in the order of time; at least one.
    pub fn add(
        &mut self,
        key: &str,
        steps: f64,
        times: &[i64],
        values: &[f64],
    ) -> Result<(), BlockError> {
        let (Some(&oldest), Some(&newest)) = (times.first(), times.last()) else {
            return Ok(());
        };
        let shared = match self.times.get(times) {
            Some(&shared) => shared,
            None => {
                let column = compressed(times)?;
                let place = self.record(&[&column])?;
                let shared = self.time_records.len() as u32;
                self.time_records.push(place);
                self.times.insert(times.into(), shared);
                shared
            }
        };
        let place = self.values(values)?;
        varint::put_text(&mut self.index, key);
        self.index.extend_from_slice(&steps.to_le_bytes());
        varint::put(&mut self.index, u64::from(shared));
        varint::put(&mut self.index, u64::from(place.offset));
        varint::put(&mut self.index, u64::from(place.length));
        self.columns += 1;
        self.range = Some(match self.range {
            Some((from, to)) => (from.min(oldest), to.max(newest)),
            None => (oldest, newest),
        });
        Ok(())
    }

    fn values(&mut self, values: &[f64]) -> Result<Place, BlockError> {
        let first = values[0];
        if values
            .iter()
            .all(|value| value.to_bits() == first.to_bits())
        {
            let count = (values.len() as u32).to_le_bytes();
            return self.record(&[&[Kind::Constant as u8], &count, &first.to_le_bytes()]);
        }
        let whole = |value: &f64| {
            value.fract() == 0.0
                && value.abs() < EXACT
                && (*value != 0.0 || value.is_sign_positive())
        };
        if values.iter().all(whole) {
            let values: Vec<i64> = values.iter().map(|value| *value as i64).collect();
            self.record(&[&[Kind::Whole as u8], &compressed(&values)?])
        } else {
            self.record(&[&[Kind::Float as u8], &compressed(values)?])
        }
    }

    fn record(&mut self, parts: &[&[u8]]) -> Result<Place, BlockError> {
        let offset = u32::try_from(self.bytes.len())
            .map_err(|_| BlockError::Corrupt("more than fits a block"))?;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut crc = crc32fast::Hasher::new();
        for part in parts {
            crc.update(part);
        }
        self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
        self.bytes.extend_from_slice(&crc.finalize().to_le_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        Ok(Place {
            offset,
            length: length as u32 + 8,
        })
    }

    /// `None`: there were no samples.
    pub fn finish(mut self) -> Result<Option<Vec<u8>>, BlockError> {
        let Some((oldest, newest)) = self.range else {
            return Ok(None);
        };
        let mut index = Vec::with_capacity(self.index.len() + self.time_records.len() * 8);
        varint::put(&mut index, self.time_records.len() as u64);
        for place in &self.time_records {
            varint::put(&mut index, u64::from(place.offset));
            varint::put(&mut index, u64::from(place.length));
        }
        varint::put(&mut index, self.columns);
        let columns = std::mem::take(&mut self.index);
        let place = self.record(&[&index, &columns])?;
        let mut footer = Vec::with_capacity(FOOTER);
        footer.extend_from_slice(&u64::from(place.offset).to_le_bytes());
        footer.extend_from_slice(&oldest.to_le_bytes());
        footer.extend_from_slice(&newest.to_le_bytes());
        let crc = crc32fast::hash(&footer);
        footer.extend_from_slice(&crc.to_le_bytes());
        footer.extend_from_slice(&MAGIC);
        self.bytes.extend_from_slice(&footer);
        Ok(Some(self.bytes))
    }
}

/// A block's name is its number.
pub fn made(path: &Path) -> u64 {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    stem.and_then(|stem| stem.parse().ok()).unwrap_or(0)
}

fn compressed<T: pco::data_types::Number>(numbers: &[T]) -> Result<Vec<u8>, BlockError> {
    let config = ChunkConfig::default().with_compression_level(LEVEL);
    simple_compress(numbers, &config)
        .map_err(|_| BlockError::Corrupt("numbers that cannot be compressed"))
}

/// A block on disk.
#[derive(Debug)]
pub struct Block {
    /// Tells it from any other that this process has opened.
    id: u64,
    file: File,
    pub path: PathBuf,
    /// Blocks are numbered in the order in which they were written.
    pub made: u64,
    pub bytes: u64,
    pub oldest: i64,
    pub newest: i64,
    times: Vec<Place>,
    /// Sorted by slot.
    columns: Vec<Column>,
}

/// What it takes to know of one series in one block.
pub const COLUMN_BYTES: usize = size_of::<Column>();

#[derive(Debug, Clone, Copy)]
struct Column {
    slot: u32,
    times: u32,
    place: Place,
}

/// A series that a block has, as the block says it.
#[derive(Debug)]
pub struct Listed<'a> {
    pub key: &'a str,
    pub steps: f64,
}

impl Block {
    /// Opens a block and checks its index; columns are checked as they are read. `slot` says where a series belongs, or
    /// that nobody wants to know of it.
    pub fn open(
        path: &Path,
        mut slot: impl FnMut(Listed<'_>) -> Option<u32>,
    ) -> Result<Self, BlockError> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let end = bytes
            .checked_sub(FOOTER as u64)
            .ok_or(BlockError::Corrupt("too short for a footer"))?;
        let mut footer = [0; FOOTER];
        file.read_exact_at(&mut footer, end)?;
        let (offset, oldest, newest) =
            read_footer(&footer).ok_or(BlockError::Corrupt("bad footer"))?;
        let length = end
            .checked_sub(offset)
            .ok_or(BlockError::Corrupt("index beyond the end"))?;
        let mut record = vec![0; length as usize];
        file.read_exact_at(&mut record, offset)?;
        let index = checked(&record)?;
        let (times, columns) =
            read_index(index, &mut slot).ok_or(BlockError::Corrupt("bad index"))?;
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            id: OPENED.fetch_add(1, Ordering::Relaxed),
            file,
            path: path.to_owned(),
            made: made(path),
            bytes,
            oldest,
            newest,
            times,
            columns,
        })
    }

    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.columns.iter().map(|column| column.slot)
    }

    /// What is known of series' columns goes; the file stays as it is. `false`: nothing is left to be known.
    pub fn forget(&mut self, gone: impl Fn(u32) -> bool) -> bool {
        self.columns.retain(|column| !gone(column.slot));
        self.columns.shrink_to_fit();
        !self.columns.is_empty()
    }

    /// The samples of a series, oldest first; `false`: it has none here.
    pub fn read(&self, slot: u32, scratch: &mut Columns) -> Result<bool, BlockError> {
        let Ok(found) = self
            .columns
            .binary_search_by_key(&slot, |column| column.slot)
        else {
            return Ok(false);
        };
        let column = self.columns[found];
        // One column of times serves many series that are asked for in a row.
        let cached = (self.id, column.times);
        if scratch.times_of != Some(cached) {
            scratch.times_of = None;
            let place = *self
                .times
                .get(column.times as usize)
                .ok_or(BlockError::Corrupt("no such column of times"))?;
            let payload = self.record(place, &mut scratch.bytes)?;
            scratch.times = decompressed(payload)?;
            scratch.times_of = Some(cached);
        }
        let payload = self.record(column.place, &mut scratch.bytes)?;
        scratch.values.clear();
        let (&kind, payload) = payload
            .split_first()
            .ok_or(BlockError::Corrupt("empty column"))?;
        if kind == Kind::Whole as u8 {
            let whole: Vec<i64> = decompressed(payload)?;
            scratch
                .values
                .extend(whole.into_iter().map(|value| value as f64));
        } else if kind == Kind::Float as u8 {
            scratch.values = decompressed(payload)?;
        } else if kind == Kind::Constant as u8 {
            let (count, value) = payload
                .split_first_chunk::<4>()
                .ok_or(BlockError::Corrupt("short constant"))?;
            let value: [u8; 8] = value
                .try_into()
                .map_err(|_| BlockError::Corrupt("short constant"))?;
            let count = u32::from_le_bytes(*count) as usize;
            if count != scratch.times.len() {
                return Err(BlockError::Corrupt("columns of different lengths"));
            }
            scratch.values.resize(count, f64::from_le_bytes(value));
        } else {
            return Err(BlockError::Corrupt("unknown kind of column"));
        }
        if scratch.values.len() != scratch.times.len() {
            return Err(BlockError::Corrupt("columns of different lengths"));
        }
        Ok(true)
    }

    fn record<'a>(&self, place: Place, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], BlockError> {
        buffer.resize(place.length as usize, 0);
        self.file.read_exact_at(buffer, u64::from(place.offset))?;
        checked(buffer)
    }
}

/// What a block's columns are read into.
#[derive(Debug, Default)]
pub struct Columns {
    pub times: Vec<i64>,
    pub values: Vec<f64>,
    times_of: Option<(u64, u32)>,
    bytes: Vec<u8>,
}

fn decompressed<T: pco::data_types::Number>(payload: &[u8]) -> Result<Vec<T>, BlockError> {
    simple_decompress(payload)
        .map_err(|_| BlockError::Corrupt("a column that cannot be decompressed"))
}

/// The payload of a record whose checksum is right.
fn checked(record: &[u8]) -> Result<&[u8], BlockError> {
    let short = BlockError::Corrupt("short record");
    let Some((length, rest)) = record.split_first_chunk::<4>() else {
        return Err(short);
    };
    let Some((crc, payload)) = rest.split_first_chunk::<4>() else {
        return Err(short);
    };
    if u32::from_le_bytes(*length) as usize != payload.len() {
        return Err(BlockError::Corrupt("record of another length"));
    }
    if crc32fast::hash(payload) != u32::from_le_bytes(*crc) {
        return Err(BlockError::Corrupt("checksum does not match"));
    }
    Ok(payload)
}

fn read_footer(footer: &[u8; FOOTER]) -> Option<(u64, i64, i64)> {
    let (numbers, rest) = footer.split_first_chunk::<24>()?;
    let (crc, magic) = rest.split_first_chunk::<4>()?;
    if magic != MAGIC || crc32fast::hash(numbers) != u32::from_le_bytes(*crc) {
        return None;
    }
    let word = |at: usize| numbers.get(at..at + 8)?.try_into().ok();
    Some((
        u64::from_le_bytes(word(0)?),
        i64::from_le_bytes(word(8)?),
        i64::from_le_bytes(word(16)?),
    ))
}

fn read_index(
    index: &[u8],
    slot: &mut impl FnMut(Listed<'_>) -> Option<u32>,
) -> Option<(Vec<Place>, Vec<Column>)> {
    let mut index = Reader(index);
    let count = index.number()?;
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(place(&mut index)?);
    }
    let count = index.number()?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let key = index.text()?;
        let steps = index.float()?;
        let times = u32::try_from(index.number()?).ok()?;
        let place = place(&mut index)?;
        if let Some(slot) = slot(Listed { key, steps }) {
            columns.push(Column { slot, times, place });
        }
    }
    columns.sort_unstable_by_key(|column| column.slot);
    Some((times, columns))
}

fn place(index: &mut Reader<'_>) -> Option<Place> {
    Some(Place {
        offset: u32::try_from(index.number()?).ok()?,
        length: u32::try_from(index.number()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(series: &[(String, Vec<(i64, f64)>)]) -> Vec<u8> {
        let mut builder = Builder::default();
        for (key, samples) in series {
            let (times, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
            builder.add(key, 0.0, &times, &values).unwrap();
        }
        builder.finish().unwrap().unwrap()
    }

    fn opened(bytes: &[u8]) -> Result<(tempfile::TempDir, Block, Vec<String>), BlockError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b");
        std::fs::write(&path, bytes).unwrap();
        let mut keys = Vec::new();
        let block = Block::open(&path, |listed| {
            keys.push(listed.key.to_owned());
            Some(keys.len() as u32 - 1)
        })?;
        Ok((folder, block, keys))
    }

    #[test]
    fn a_block_gives_back_what_was_put_in() {
        let series: Vec<(String, Vec<(i64, f64)>)> = vec![
            (
                "whole".into(),
                (0..600)
                    .map(|n| (n * 1000, f64::from(n as i32 % 17)))
                    .collect(),
            ),
            (
                "constant".into(),
                (0..600).map(|n| (n * 1000, 0.5)).collect(),
            ),
            (
                "float".into(),
                (0..77).map(|n| (n * 999, 1.0 / (n as f64 + 1.0))).collect(),
            ),
            ("odd".into(), vec![(5, f64::NAN), (6, -0.0), (7, 1e300)]),
        ];
        let (_folder, block, keys) = opened(&written(&series)).unwrap();
        assert_eq!(keys, ["whole", "constant", "float", "odd"]);
        assert_eq!((block.oldest, block.newest), (0, 599_000));
        // Two series share their times.
        assert_eq!(block.times.len(), 3);
        let mut columns = Columns::default();
        for (slot, (_, samples)) in series.iter().enumerate() {
            assert!(block.read(slot as u32, &mut columns).unwrap());
            let found: Vec<(i64, u64)> = columns
                .times
                .iter()
                .copied()
                .zip(columns.values.iter().map(|v| v.to_bits()))
                .collect();
            let expected: Vec<(i64, u64)> = samples.iter().map(|s| (s.0, s.1.to_bits())).collect();
            assert_eq!(found, expected);
        }
        assert!(!block.read(9, &mut columns).unwrap());
    }

    #[test]
    fn a_flipped_bit_costs_one_column() {
        let series: Vec<(String, Vec<(i64, f64)>)> = (0..3)
            .map(|n| {
                (
                    format!("s{n}"),
                    (0..100).map(|t| (t, (t * t % (n + 5)) as f64)).collect(),
                )
            })
            .collect();
        let bytes = written(&series);
        let (_folder, block, _) = opened(&bytes).unwrap();
        let second = block.columns[1].place.offset as usize + 12;
        let mut broken = bytes;
        broken[second] ^= 1;
        let (_folder, block, _) = opened(&broken).unwrap();
        let mut columns = Columns::default();
        assert!(block.read(0, &mut columns).is_ok());
        assert!(matches!(
            block.read(1, &mut columns),
            Err(BlockError::Corrupt("checksum does not match"))
        ));
        assert!(block.read(2, &mut columns).is_ok());
    }

    proptest! {
        #[test]
        fn any_damage_is_noticed_or_harmless(at in 0usize..2000, with in any::<u8>(), cut in 0usize..2000) {
            let series: Vec<(String, Vec<(i64, f64)>)> = (0..8)
                .map(|n| (format!("s{n}"), (0..60).map(|t| (t, (t * 31 % (n + 7)) as f64)).collect()))
                .collect();
            let mut bytes = written(&series);
            let at = at % bytes.len();
            bytes[at] = with;
            bytes.truncate(bytes.len() - cut.min(bytes.len()) * usize::from(with == 7));
            if let Ok((_folder, block, keys)) = opened(&bytes) {
                let mut columns = Columns::default();
                for slot in 0..keys.len() as u32 {
                    if let Ok(true) = block.read(slot, &mut columns) {
                        let expected: Vec<f64> = series[slot as usize].1.iter().map(|s| s.1).collect();
                        prop_assert_eq!(&columns.values, &expected);
                    }
                }
            }
        }
    }
}
