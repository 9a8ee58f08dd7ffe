//! Opening a folder: whatever a process that was killed, a full disk or a bad one left there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use rustix::fs::{FlockOperation, flock};

use crate::block::{Block, COLUMN_BYTES, made};
use crate::journal::{self, Listener};
use crate::seal::{ASIDE, BLOCK, Folder, TEMPORARY, files, journals};
use crate::store::{Config, Error, Recovered, SeriesId, State, Tsdb, series_bytes};
use crate::trouble::Trouble;

impl Tsdb {
    /// `now` tells blocks of a clock that was wrong from those of the past.
    pub fn open(config: Config, now: i64) -> Result<(Self, Recovered), Error> {
        let mut state = State::new();
        let mut recovered = Recovered::default();
        let Some(path) = config.folder.clone() else {
            return Ok((Self::new(config, state, None), recovered));
        };
        let mut folder = hold(&path)?;
        // What was put aside has been there for a whole run for whoever wanted to look at it.
        for useless in files(&path, TEMPORARY).chain(files(&path, ASIDE)) {
            let _ = fs::remove_file(useless);
        }
        load_blocks(&mut folder, &mut state, now, &config, &mut recovered);
        replay(&config, &folder, &mut state, &mut recovered);
        if recovered != Recovered::default() {
            tracing::info!(?recovered, folder = %path.display(), "samples of before are at hand");
        }
        Ok((Self::new(config, state, Some(folder)), recovered))
    }
}

fn hold(path: &Path) -> Result<Folder, Error> {
    let failed = |source| Error::Folder {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(path).map_err(failed)?;
    let lock = File::create(path.join("lock")).map_err(failed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        if error == rustix::io::Errno::WOULDBLOCK {
            Error::Held {
                path: path.to_owned(),
            }
        } else {
            failed(error.into())
        }
    })?;
    Ok(Folder {
        path: path.to_owned(),
        _lock: lock,
        blocks_made: 0,
        journal: None,
        journal_at: i64::MIN,
        clock: None,
        trouble: Trouble::default(),
    })
}

/// Newest first: where there are more series than are worth remembering, those that ended long ago are not taken in.
fn load_blocks(
    folder: &mut Folder,
    state: &mut State,
    now: i64,
    config: &Config,
    recovered: &mut Recovered,
) {
    let mut paths: Vec<(u64, PathBuf)> = files(&folder.path, BLOCK)
        .map(|path| (made(&path), path))
        .collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    folder.blocks_made = paths.first().map_or(0, |(number, _)| *number);
    let mut room = config.index_bytes;
    for (_, path) in paths {
        let mut made = Vec::new();
        let opened = Block::open(&path, |listed| {
            let new = !state.knows(listed.key);
            if new && room == 0 {
                return None;
            }
            let slot = state.slot_of(listed.key, listed.steps);
            let more = if new { series_bytes(listed.key) } else { 0 };
            room = room.saturating_sub(more + COLUMN_BYTES);
            made.extend(new.then_some(slot));
            Some(slot)
        });
        match opened {
            Ok(block) => {
                state.touch(&made, block.newest);
                // What a clock that was ahead left must not make samples too late until it has caught up.
                if block.newest <= now {
                    state.sealed_to = state.sealed_to.max(block.newest.saturating_add(1));
                    state.newest = state.newest.max(block.newest);
                }
                state.add_block(block);
                recovered.blocks += 1;
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a block cannot be read, and is put aside");
                let _ = fs::rename(&path, path.with_extension(ASIDE));
                recovered.bad_blocks += 1;
            }
        }
    }
    state.memory_from = state.sealed_to;
}

/// Takes in what the journals have of the time after the last block.
fn replay(config: &Config, folder: &Folder, state: &mut State, recovered: &mut Recovered) {
    let mut rounds = Rounds {
        state,
        config,
        known: FxHashMap::default(),
        at: i64::MIN,
        batch: Vec::new(),
        taken: 0,
    };
    for (_, path) in journals(&folder.path) {
        let Ok(file) = fs::read(&path) else {
            continue;
        };
        rounds.known.clear();
        let whole = journal::replay(&file, &mut rounds);
        rounds.append();
        recovered.cut_off += file.len() - whole;
        // This process may write to the same file, and nobody reads beyond what is broken.
        if whole < file.len()
            && let Err(error) = cut(&path, whole)
        {
            tracing::warn!(path = %path.display(), %error, "the broken end of a journal cannot be cut off");
        }
    }
    recovered.from_journal = rounds.taken;
    // They are in their files already; those of this process go to files of its own frames, which define anew.
    state.turned.clear();
    state.journal.turn();
    state.journal_window = None;
}

fn cut(path: &Path, length: usize) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(length as u64)
}

/// Puts samples of the same time together again.
struct Rounds<'a> {
    state: &'a mut State,
    config: &'a Config,
    known: FxHashMap<u32, SeriesId>,
    at: i64,
    batch: Vec<(SeriesId, f64)>,
    taken: usize,
}

impl Rounds<'_> {
    fn append(&mut self) {
        if !self.batch.is_empty() {
            // They are as they were kept, and must not be scaled again: see `sample`.
            let appended = self.state.append(self.config, self.at, &self.batch);
            self.taken += appended.in_order + appended.late;
            self.batch.clear();
        }
    }
}

impl Listener for Rounds<'_> {
    fn series(&mut self, number: u32, steps: f64, key: &str) {
        let id = self.state.series(key, steps);
        self.known.insert(number, id);
    }

    fn sample(&mut self, number: u32, at: i64, value: f64) {
        if at != self.at {
            self.append();
            self.at = at;
        }
        if let Some(&id) = self.known.get(&number) {
            let steps = self.state.get(id).map_or(0.0, |series| series.steps);
            self.batch.push((id, crate::head::unscaled(value, steps)));
        }
    }
}
