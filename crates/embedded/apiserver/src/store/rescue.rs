//! Whether the file holds what it should, and what to do if not.
//!
//! Before a store is used it is gone through as a whole, without changing a byte: the library verifies its structure,
//! each record its checksum, and the roll says what there must be. What is found damaged is made anew from what can be
//! vouched for, and the damaged file stays beside it. Where that would drop something, somebody has to ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use plimsoll_client::shutdown::panic_text;
use redb::Database;

use super::overlay::Overlay;
use super::persist::{self, Contents, PersistError};
use super::record::{self, Kept, Seal};
use super::roll::{self, Lines, Listed, Roll};

/// What became of a store that was found damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescue {
    /// What was wrong.
    pub damage: String,
    /// The damaged file.
    pub aside: PathBuf,
    /// Objects that are not there any more.
    pub dropped: Dropped,
}

/// Objects that nobody can vouch for, as a person would name them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped {
    pub names: Vec<String>,
    /// There may have been others, whose names are lost.
    pub more: bool,
}

/// So many names are told in a message.
const NAMED: usize = 20;

impl Dropped {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.more
    }
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.names[..self.names.len().min(NAMED)];
        f.write_str(&shown.join(", "))?;
        match (self.names.len() - shown.len(), self.more) {
            (0, false) => Ok(()),
            (0, true) if shown.is_empty() => f.write_str("objects whose names are lost"),
            (0, true) => f.write_str(" and others whose names are lost"),
            (more, _) => write!(f, " and {more} more"),
        }
    }
}

/// What a store was found to hold.
pub(super) struct Examined {
    pub contents: Contents,
    pub rescue: Option<Rescue>,
}

/// A file that was gone through.
struct Findings {
    contents: Contents,
    /// Rows whose records are not what they should be.
    flawed: Vec<String>,
    /// Why it cannot be opened as it is, although all that is in it was found.
    unusable: Option<String>,
}

/// Goes through the store, and mends it if that may be.
pub(super) fn examine(path: &Path, restore: bool) -> Result<Examined, PersistError> {
    let roll_path = roll::path(path);
    let unread = |error: io::Error| PersistError::Read(format!("{}: {error}", roll_path.display()));
    let listed = roll::read(&roll_path).map_err(unread)?;
    let is_empty = path.metadata().map_or(0, |file| file.len()) == 0;
    let found = match is_empty {
        true => Ok(Findings {
            contents: Contents::default(),
            flawed: Vec::new(),
            unusable: None,
        }),
        false => go_through(path),
    };
    let damage = match &found {
        Err(error) => Some(error.clone()),
        Ok(findings) => findings.trouble(listed.as_ref()),
    };
    let Some(damage) = damage else {
        let contents = found.map_err(PersistError::Read)?.contents;
        if let Some(flaws) = listed
            .as_ref()
            .map(|listed| listed.flaws)
            .filter(|n| *n > 0)
        {
            tracing::warn!(flaws, "the store's roll was damaged; it is written anew");
        }
        let mut roll = Roll::open(&roll_path, listed.as_ref().map_or(0, |listed| listed.lines));
        let is_current =
            listed.is_some_and(|listed| listed.flaws == 0 && listed.revision == contents.revision);
        if !is_current || roll.is_stale(contents.records.len()) {
            write_roll(&mut roll, &contents);
        }
        return Ok(Examined {
            contents,
            rescue: None,
        });
    };
    let file = std::fs::read(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Err(PersistError::Read(format!("{}: {error}", path.display()))),
    })?;
    let (contents, dropped) = vouched_for(&file, found.ok(), listed.as_ref());
    if !dropped.is_empty() && !restore {
        return Err(PersistError::Damaged {
            file: path.to_owned(),
            damage,
            dropped,
        });
    }
    let failed = |error: String| PersistError::Write(format!("{}: {error}", path.display()));
    let aside = replace(path, &contents).map_err(failed)?;
    write_roll(&mut Roll::open(&roll_path, 0), &contents);
    tracing::error!(
        damage,
        aside = %aside.display(),
        dropped = dropped.names.join(", "),
        and_more = dropped.more,
        "the store was damaged, and was made anew from what can be vouched for"
    );
    Ok(Examined {
        contents,
        rescue: Some(Rescue {
            damage,
            aside,
            dropped,
        }),
    })
}

fn write_roll(roll: &mut Roll, contents: &Contents) {
    let mut lines = Lines::default();
    for record in &contents.records {
        lines.put(&record.row, record.seal);
    }
    lines.reached(contents.revision);
    if let Err(error) = roll.rewrite(&lines) {
        tracing::warn!(%error, "cannot write the store's roll");
    }
}

/// Reads the whole file without changing it. What the library makes of a damaged file must not end the process, so all
/// checksums of its structure are verified before anything is looked up in it.
fn go_through(path: &Path) -> Result<Findings, String> {
    let (contents, flawed) = tried(path, Overlay::doubting, persist::read)?;
    let unusable = tried(path, Overlay::new, |_| Ok(())).err();
    Ok(Findings {
        contents,
        flawed,
        unusable,
    })
}

/// Opens a file on trial, and does something with it.
fn tried<T>(
    path: &Path,
    on: impl FnOnce(File) -> io::Result<Overlay>,
    work: impl FnOnce(&Database) -> Result<T, redb::Error>,
) -> Result<T, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let overlay = on(file).map_err(|error| error.to_string())?;
    let open = || {
        let mut builder = Database::builder();
        builder.set_cache_size(persist::CACHE);
        builder.create_with_backend(overlay)
    };
    let database = caught(open)?.map_err(|error| error.to_string())?;
    let done = caught(|| work(&database));
    match &done {
        // After a panic its locks are of no use, not even to close it.
        Err(_) => std::mem::forget(database),
        Ok(_) => caught(|| drop(database))?,
    }
    done?.map_err(|error| error.to_string())
}

/// The library's panic as an error.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(work));
    outcome.map_err(|panic| format!("the store's library panicked: {}", panic_text(&*panic)))
}

impl Findings {
    /// What speaks against the store.
    fn trouble(&self, listed: Option<&Listed>) -> Option<String> {
        if let Some(row) = self.flawed.first() {
            let count = self.flawed.len();
            let row = record::spoken(row);
            return Some(format!(
                "{count} records do not have their checksums, {row} first"
            ));
        }
        if let Some(unusable) = &self.unusable {
            return Some(unusable.clone());
        }
        let listed = listed?;
        let revision = self.contents.revision;
        if listed.revision > revision {
            let reached = listed.revision;
            return Some(format!(
                "it ends at revision {revision} and had reached {reached}"
            ));
        }
        // What the roll does not say any more, it does not deny.
        if listed.flaws > 0 {
            return None;
        }
        let is_behind = listed.revision < revision;
        let there: BTreeMap<&str, Seal> = self.contents.seals().collect();
        let wrong = there.iter().find(|(row, seal)| {
            seal.revision <= listed.revision && listed.rows.get(**row) != Some(*seal)
        });
        let missing = listed
            .rows
            .keys()
            .find(|row| !there.contains_key(row.as_str()));
        let missing = missing.filter(|_| !is_behind).map(String::as_str);
        let row = wrong.map(|(row, _)| *row).or(missing)?;
        Some(format!("{} is not as it was written", record::spoken(row)))
    }
}

/// What of a damaged store is certainly as it was written, and what is not.
fn vouched_for(
    file: &[u8],
    found: Option<Findings>,
    listed: Option<&Listed>,
) -> (Contents, Dropped) {
    let (readable, flawed) = match found {
        Some(findings) => (Some(findings.contents), findings.flawed),
        None => (None, Vec::new()),
    };
    let known = readable.as_ref().map_or(1, |contents| contents.revision);
    let is_unreadable = readable.is_none();
    let Some(listed) = listed else {
        // Nobody says what there must be: only what the library finds is known to be there.
        let kept: Vec<Kept> = readable
            .map(|contents| contents.records)
            .unwrap_or_default();
        let have: BTreeSet<&str> = kept.iter().map(|record| record.row.as_str()).collect();
        let all = record::find(file).map(|record| record.row.to_owned());
        let lost: BTreeSet<String> = all.chain(flawed).collect();
        let names = lost.iter().filter(|row| !have.contains(row.as_str()));
        let names = names.map(|row| record::spoken(row)).collect();
        let newest = record::find(file).map(|record| record.seal.revision).max();
        let contents = Contents {
            revision: known.max(newest.unwrap_or(1)),
            records: kept,
            ..Contents::default()
        };
        return (contents, Dropped { names, more: true });
    };
    let mut wanted = listed.rows.clone();
    let mut kept: BTreeMap<String, Kept> = BTreeMap::new();
    // What was written after the roll, the library alone can tell.
    for record in readable.into_iter().flat_map(|contents| contents.records) {
        if record.seal.revision > listed.revision {
            wanted.insert(record.row.clone(), record.seal);
            kept.insert(record.row.clone(), record);
        }
    }
    for record in record::find(file) {
        if wanted.get(record.row) == Some(&record.seal) && !kept.contains_key(record.row) {
            kept.insert(record.row.to_owned(), record.into());
        }
    }
    // The roll may lag behind. What it does not know, only the library can tell; where that cannot read the file, there may
    // have been more.
    let unlisted = record::find(file).filter(|record| record.seal.revision > listed.revision);
    let unlisted: BTreeSet<String> = unlisted.map(|record| record.row.to_owned()).collect();
    let newest = record::find(file).map(|record| record.seal.revision).max();
    let newest = newest.unwrap_or_default();
    let lost: BTreeSet<&String> = wanted.keys().chain(&flawed).chain(&unlisted).collect();
    let lost = lost.into_iter().filter(|row| !kept.contains_key(*row));
    let names = lost.map(|row| record::spoken(row)).collect();
    let contents = Contents {
        revision: known.max(listed.revision).max(newest),
        records: kept.into_values().collect(),
        ..Contents::default()
    };
    let more = listed.flaws > 0 || is_unreadable;
    (contents, Dropped { names, more })
}

/// Puts a new file in place of the damaged one, and says where that is now.
fn replace(path: &Path, contents: &Contents) -> Result<PathBuf, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let fresh = path.with_extension("redb.new");
    if let Err(error) = std::fs::remove_file(&fresh)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error.to_string());
    }
    let database = (persist::file(&fresh).open)()?;
    persist::write_all(&database, contents).map_err(|error| text(&error))?;
    drop(database);
    let aside = free_name(path);
    match std::fs::hard_link(path, &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(text(&error)),
        _ => {}
    }
    std::fs::rename(&fresh, path).map_err(|error| text(&error))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| text(&error))?;
    Ok(aside)
}

fn free_name(path: &Path) -> PathBuf {
    let names = (1_u32..).map(|number| path.with_extension(format!("redb.damaged-{number}")));
    let mut free = names.filter(|name| !name.exists());
    free.next()
        .unwrap_or_else(|| path.with_extension("redb.damaged"))
}
