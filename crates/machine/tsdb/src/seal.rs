//! Upkeep: the journal is written, what is complete becomes a block, what is too old goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::block::{Block, BlockError, Builder};
use crate::head::Part;
use crate::journal;
use crate::retention::{self, Weighed};
use crate::store::{Maintained, Sample, State, Tsdb, millis};
use crate::trouble::Trouble;

pub const BLOCK: &str = "block";
pub const JOURNAL: &str = "journal";
pub const TEMPORARY: &str = "tmp";
/// Blocks that cannot be read.
pub const ASIDE: &str = "bad";

/// The folder's files, apart from what is read of them. One thread at a time does upkeep.
#[derive(Debug)]
pub struct Folder {
    pub path: PathBuf,
    /// Held for as long as the folder is used.
    pub _lock: File,
    /// Makes names of blocks differ.
    pub blocks_made: u64,
    /// The journal that is written to, and its window.
    pub journal: Option<(i64, File)>,
    pub journal_at: i64,
    /// When upkeep was last, and since when the clock has not jumped.
    pub clock: Option<(i64, i64)>,
    /// Of what goes wrong, when to say so.
    pub trouble: Trouble,
}

impl Folder {
    /// Whether the clock has gone on for a while as clocks do: one that is a day ahead for a minute must not cost all
    /// that was kept.
    fn is_clock_steady(&mut self, now: i64, for_so_long: i64) -> bool {
        let since = match self.clock {
            Some((last, since)) if (0..=for_so_long).contains(&now.saturating_sub(last)) => since,
            _ => now,
        };
        self.clock = Some((now, since));
        now.saturating_sub(since) >= for_so_long
    }

    /// A disk that stays full is named again at growing intervals, and once it has room again.
    fn tell(&mut self, now: i64, problem: Option<&str>, wrote: bool) {
        let folder = self.path.display();
        match problem {
            Some(problem) => {
                if let Some(said) = self.trouble.failed(now) {
                    let times = said.times;
                    tracing::warn!(%folder, problem, times, "samples cannot be kept as they should; make room on the disk, or give another folder");
                }
            }
            // Only what was written shows that there is room.
            None if wrote => {
                if let Some(over) = self.trouble.well(now) {
                    let (failures, seconds) = (over.failures, over.lasted.as_secs());
                    tracing::info!(%folder, failures, seconds, "samples are kept again as they should");
                }
            }
            None => {}
        }
    }

    pub fn journal_path(&self, window: i64) -> PathBuf {
        self.path.join(format!("{window:013}.{JOURNAL}"))
    }

    fn write_journal(&mut self, window: i64, entries: &[u8]) -> io::Result<()> {
        let file = match &mut self.journal {
            Some((open, file)) if *open == window => file,
            _ => {
                let path = self.journal_path(window);
                let file = OpenOptions::new().create(true).append(true).open(path)?;
                &mut self.journal.insert((window, file)).1
            }
        };
        let frame = journal::frame(entries);
        let before = file.metadata()?.len();
        file.write_all(&frame).inspect_err(|_| {
            // Half a frame would hide those after it.
            let _ = file.set_len(before);
        })
    }

    /// On disk for certain, under its name, or not at all.
    fn write_block(&mut self, bytes: &[u8]) -> io::Result<PathBuf> {
        self.blocks_made += 1;
        let path = self.path.join(format!("{:013}.{BLOCK}", self.blocks_made));
        let temporary = path.with_extension(TEMPORARY);
        let written = (|| {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.path)?.sync_all()
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        Ok(path)
    }

    fn remove_journals(&mut self, unneeded: impl Fn(i64) -> bool) {
        for (found, path) in journals(&self.path) {
            if unneeded(found) {
                let _ = fs::remove_file(path);
                if self
                    .journal
                    .as_ref()
                    .is_some_and(|(open, _)| *open == found)
                {
                    self.journal = None;
                }
            }
        }
    }
}

/// The journals of a folder, oldest first, with their windows.
pub fn journals(folder: &Path) -> Vec<(i64, PathBuf)> {
    let mut found: Vec<(i64, PathBuf)> = files(folder, JOURNAL)
        .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
        .collect();
    found.sort();
    found
}

pub fn files(folder: &Path, extension: &'static str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(move |path| path.extension().is_some_and(|found| found == extension))
}

/// The disk is, or what we may use of it.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Samples joined into a block, and how many there are.
fn joined(parts: &[Part], from: i64, before: i64) -> Result<(Option<Vec<u8>>, usize), BlockError> {
    let mut builder = Builder::default();
    let (mut scratch, mut times, mut values) = (Vec::<Sample>::new(), Vec::new(), Vec::new());
    let mut count = 0;
    for part in parts {
        part.columns(from, before, &mut scratch, &mut times, &mut values);
        count += times.len();
        builder.add(&part.key, part.steps, &times, &values)?;
    }
    Ok((builder.finish()?, count))
}

impl Tsdb {
    /// To be called every few seconds.
    pub fn maintain(&self, now: i64) -> Maintained {
        let mut folder = self.folder.lock();
        let mut done = Maintained::default();
        let mut wrote = false;
        self.notice_time(now, &mut done);
        if let Some(folder) = &mut *folder {
            if now.wrapping_sub(folder.journal_at).unsigned_abs()
                >= self.config.journal_every.as_millis() as u64
            {
                folder.journal_at = now;
                wrote = self.flush(folder, &mut done);
            }
            self.seal_retired(folder, &mut done);
            let window = millis(self.config.window);
            let complete = (now - millis(self.config.late)).div_euclid(window) * window;
            self.seal(folder, complete, &mut done);
            if self.state.read().memory_bytes() > self.config.memory_bytes {
                let all = self.state.read().newest.saturating_add(1);
                self.seal(folder, all, &mut done);
            }
            let keep_for = match folder.is_clock_steady(now, window) {
                true => millis(self.config.keep_for),
                false => i64::MAX,
            };
            self.remove_blocks(now, keep_for, &mut done);
        }
        self.forget(now, folder.is_some(), &mut done);
        if let Some(folder) = &mut *folder {
            folder.tell(
                now,
                done.problem.as_deref(),
                wrote || done.sealed_samples > 0,
            );
        }
        done
    }

    /// A clock that was set back must not make every sample too late until it has caught up.
    fn notice_time(&self, now: i64, done: &mut Maintained) {
        let late = millis(self.config.late);
        let mut state = self.state.write();
        if state.newest != i64::MIN && now < state.newest.saturating_sub(late) {
            state.retire(now - late);
            done.clock_went_back = true;
            tracing::warn!(
                "the clock was set back; samples taken before are kept, but lie in the future"
            );
        }
    }

    /// Writes what the journal still lacks. For an orderly end.
    pub fn close(&self) -> Result<(), String> {
        let mut done = Maintained::default();
        if let Some(folder) = &mut *self.folder.lock() {
            self.flush(folder, &mut done);
        }
        done.problem.map_or(Ok(()), Err)
    }

    /// Whether something was written.
    fn flush(&self, folder: &mut Folder, done: &mut Maintained) -> bool {
        let pending = {
            let mut state = self.state.write();
            let mut pending = std::mem::take(&mut state.turned);
            let entries = state.journal.take();
            if let Some(window) = state.journal_window.filter(|_| !entries.is_empty()) {
                pending.push((window, entries));
            }
            pending
        };
        let mut wrote = false;
        for (window, entries) in pending {
            wrote = true;
            if let Err(error) = folder.write_journal(window, &entries) {
                done.problem = Some(format!("the journal cannot be written: {error}"));
                // The file lacks definitions and differences now: later entries would not make sense in it.
                let mut state = self.state.write();
                state.journal.turn();
                folder.journal = None;
            }
        }
        wrote
    }

    fn seal_retired(&self, folder: &mut Folder, done: &mut Maintained) {
        let (retired, window) = {
            let mut state = self.state.write();
            (std::mem::take(&mut state.retired), state.journal_window)
        };
        for retired in &retired {
            // Memory has them no more: what cannot be written is lost.
            match self.write(folder, &retired.parts, retired.from, i64::MAX) {
                Ok(count) => done.sealed_samples += count,
                Err(error) => done.problem = Some(error),
            }
        }
        if !retired.is_empty() {
            folder.remove_journals(|found| Some(found) != window);
        }
    }

    /// Puts everything before `before` that is only in memory into a block.
    fn seal(&self, folder: &mut Folder, before: i64, done: &mut Maintained) {
        let (parts, from) = {
            let mut state = self.state.write();
            if before <= state.sealed_to || state.newest == i64::MIN {
                return;
            }
            let from = state.sealed_to;
            let parts: Vec<Part> = state
                .all_series()
                .filter_map(|(_, series)| series.part(before))
                .collect();
            // What comes from now on for that time is too late.
            state.sealed_to = before;
            (parts, from)
        };
        match self.write(folder, &parts, from, before) {
            Ok(count) => {
                done.sealed_samples += count;
                let window = before.div_euclid(millis(self.config.window));
                // Entries of a journal may be of the window after.
                let pending = self.state.read().journal_window;
                let needed = pending.map_or(window, |pending| pending.min(window));
                folder.remove_journals(|found| found < needed);
            }
            Err(error) => {
                self.state.write().sealed_to = from;
                done.problem = Some(error);
            }
        }
    }

    /// Writes a block; the oldest ones make room where there is none. Says how many samples it has.
    fn write(
        &self,
        folder: &mut Folder,
        parts: &[Part],
        from: i64,
        before: i64,
    ) -> Result<usize, String> {
        let (bytes, count) = joined(parts, from, before).map_err(|error| error.to_string())?;
        let Some(bytes) = bytes else {
            return Ok(0);
        };
        let path = loop {
            match folder.write_block(&bytes) {
                Ok(path) => break path,
                Err(error) if is_full(&error) && self.remove_oldest() => {}
                Err(error) => return Err(format!("a block cannot be written: {error}")),
            }
        };
        let mut state = self.state.write();
        let block = Block::open(&path, |listed| {
            Some(state.slot_of(listed.key, listed.steps))
        })
        .map_err(|error| format!("{} cannot be read back: {error}", path.display()))?;
        state.add_block(block);
        Ok(count)
    }

    fn remove_oldest(&self) -> bool {
        let mut state = self.state.write();
        if state.blocks.is_empty() {
            return false;
        }
        let block = state.blocks.remove(0);
        fs::remove_file(&block.path).is_ok()
    }

    fn remove_blocks(&self, now: i64, keep_for: i64, done: &mut Maintained) {
        let mut state = self.state.write();
        let weighed: Vec<Weighed> = state
            .blocks
            .iter()
            .map(|block| Weighed {
                newest: block.newest,
                bytes: block.bytes,
            })
            .collect();
        for position in retention::to_remove(&weighed, now, keep_for, self.config.keep_bytes)
            .into_iter()
            .rev()
        {
            let block = state.blocks.remove(position);
            let _ = fs::remove_file(&block.path);
            done.removed_blocks += 1;
        }
    }

    /// Drops from memory what is sealed and old enough, and whatever there is no room for.
    fn forget(&self, now: i64, on_disk: bool, done: &mut Maintained) {
        let window = millis(self.config.window);
        let mut state = self.state.write();
        let cut = if on_disk {
            let old = (now - millis(self.config.keep_in_memory)).div_euclid(window) * window;
            old.min(state.sealed_to)
        } else {
            now - millis(self.config.keep_for)
        };
        state.forget_before(cut);
        while state.memory_bytes() > self.config.memory_bytes {
            // Sealing was tried, and failed, or there is no disk: the oldest chunks go.
            let Some(oldest) = state.oldest_chunk_end() else {
                break;
            };
            let cut = oldest + 1;
            let sealed = cut <= state.sealed_to;
            let lost = state.forget_before(cut);
            if !sealed {
                done.lost_samples += lost;
                state.sealed_to = state.sealed_to.max(cut);
            }
        }
        let unused_since = now - millis(self.config.keep_for);
        state.sweep(unused_since);
        // To below the limit, so that it is not met again at once.
        let limit = self.config.index_bytes;
        if state.index_bytes() > limit {
            done.forgotten_series = state.forget_ended(limit / 4 * 3);
            tracing::info!(
                series = done.forgotten_series,
                "more series have ended than are worth remembering; the oldest of them are forgotten"
            );
        }
    }
}

impl State {
    pub fn add_block(&mut self, block: Block) {
        let place = self
            .blocks
            .partition_point(|one| one.oldest <= block.oldest);
        self.blocks.insert(place, block);
    }

    /// Says how many samples that were.
    fn forget_before(&mut self, cut: i64) -> usize {
        if cut <= self.memory_from {
            return 0;
        }
        self.memory_from = cut;
        self.all_series()
            .map(|(_, series)| series.forget(cut))
            .sum()
    }

    fn oldest_chunk_end(&mut self) -> Option<i64> {
        self.all_series()
            .filter_map(|(_, series)| series.oldest_chunk_end())
            .min()
    }
}
