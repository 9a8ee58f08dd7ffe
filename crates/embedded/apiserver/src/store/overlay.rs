//! A file that can be tried out: what is written to it stays in memory and is forgotten.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};

/// Where the library notes in its file that it was not closed in order. It then goes through all of it.
const FLAGS_AT: u64 = 9;
const NOT_CLOSED: u8 = 2;
/// What was written is kept in pieces of this size.
const PIECE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    changed: Mutex<Changed>,
}

#[derive(Debug)]
struct Changed {
    length: u64,
    /// What of the file itself is still there.
    of_file: u64,
    pieces: BTreeMap<u64, Box<[u8]>>,
}

impl Overlay {
    /// As if the file had not been closed in order: so all checksums of its structure are verified.
    pub(super) fn doubting(file: File) -> io::Result<Self> {
        let overlay = Self::new(file)?;
        let mut flags = [0];
        overlay.read(FLAGS_AT, &mut flags)?;
        overlay.write(FLAGS_AT, &[flags[0] | NOT_CLOSED])?;
        Ok(overlay)
    }

    pub(super) fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let changed = Mutex::new(Changed {
            length,
            of_file: length,
            pieces: BTreeMap::new(),
        });
        Ok(Self { file, changed })
    }

    fn piece(&self, number: u64, of_file: u64) -> io::Result<Box<[u8]>> {
        let mut piece = vec![0; PIECE as usize].into_boxed_slice();
        let start = number * PIECE;
        let there = of_file.saturating_sub(start).min(PIECE);
        let there = usize::try_from(there).unwrap_or_default();
        self.file.read_exact_at(&mut piece[..there], start)?;
        Ok(piece)
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changed.lock().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = self.changed.lock();
        let end = offset.checked_add(out.len() as u64);
        let end = end.filter(|end| *end <= changed.length);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let there = changed.of_file.saturating_sub(offset).min(out.len() as u64);
        let (of_file, beyond) = out.split_at_mut(usize::try_from(there).unwrap_or_default());
        self.file.read_exact_at(of_file, offset)?;
        beyond.fill(0);
        for (number, piece) in changed.pieces.range(offset / PIECE..end.div_ceil(PIECE)) {
            let start = number * PIECE;
            let (from, to) = (start.max(offset), (start + PIECE).min(end));
            let place = (from - offset) as usize..(to - offset) as usize;
            let part = (from - start) as usize..(to - start) as usize;
            out[place].copy_from_slice(&piece[part]);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut changed = self.changed.lock();
        changed.length = length;
        changed.of_file = changed.of_file.min(length);
        changed.pieces.split_off(&length.div_ceil(PIECE));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changed = self.changed.lock();
        let end = offset.saturating_add(data.len() as u64);
        if end > changed.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for number in offset / PIECE..end.div_ceil(PIECE) {
            let mut piece = match changed.pieces.remove(&number) {
                Some(piece) => piece,
                None => self.piece(number, changed.of_file)?,
            };
            let start = number * PIECE;
            let (from, to) = (start.max(offset), (start + PIECE).min(end));
            let place = (from - offset) as usize..(to - offset) as usize;
            let part = (from - start) as usize..(to - start) as usize;
            piece[part].copy_from_slice(&data[place]);
            changed.pieces.insert(number, piece);
        }
        Ok(())
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let before: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        std::fs::write(&path, &before).unwrap();
        let overlay = Overlay::doubting(File::open(&path).unwrap()).unwrap();
        let mut model = before.clone();
        model[9] |= NOT_CLOSED;
        overlay.set_len(20_000).unwrap();
        model.resize(20_000, 0);
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let at = random.usize(..model.len());
            let length = random.usize(..(model.len() - at).min(9_000) + 1);
            let data = vec![random.u8(..); length];
            overlay.write(at as u64, &data).unwrap();
            model[at..at + length].copy_from_slice(&data);
            let at = random.usize(..model.len());
            let mut read = vec![0; random.usize(..model.len() - at + 1)];
            overlay.read(at as u64, &mut read).unwrap();
            assert_eq!(read, model[at..at + read.len()]);
        }
        overlay.read(19_999, &mut [0; 2]).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
