//! The file behind the store: every acknowledged write is in it. A thread of its own gathers what arrives while the
//! disk is busy into one commit, so many writers share one flush.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use super::Stored;

/// `shelf NUL key` to revision and JSON.
const OBJECTS: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// Writes that were visible to others but not yet on disk when the process died had revisions too; new ones must not
/// be mistaken for them.
const REVISION_LEAP: u64 = 100_000;

/// For the pages on the way to what is written. What is read is in memory anyway, and must not be there twice.
const CACHE: usize = 4 << 20;

/// One commit takes at most this many writes.
const BATCH: usize = 2_000;

#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("cannot open the store: {0}")]
    Open(String),
    #[error("cannot read the store: {0}")]
    Read(String),
    #[error("the store holds something that is no object: {0}")]
    Corrupt(String),
}

#[derive(Debug)]
pub(super) struct Journal {
    writes: mpsc::Sender<Write>,
}

#[derive(Debug)]
pub(super) struct Contents {
    pub next_revision: u64,
    pub records: Vec<Record>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub shelf: String,
    pub key: String,
    pub revision: u64,
    pub bytes: Bytes,
}

#[derive(Debug)]
struct Write {
    /// `None`: nothing to write, only to be told when all before it is done.
    row: Option<(String, Option<Bytes>)>,
    revision: u64,
    done: oneshot::Sender<bool>,
}

/// The promise that a write is, or will be, on disk.
#[derive(Debug)]
#[must_use = "an answer before the write is durable is a lie"]
pub struct Durable(Option<oneshot::Receiver<bool>>);

impl Durable {
    pub(super) fn already() -> Self {
        Self(None)
    }

    /// `false`: the disk refused.
    pub async fn wait(self) -> bool {
        match self.0 {
            None => true,
            Some(done) => done.await.unwrap_or(false),
        }
    }
}

/// Secrets are among the objects: the file is its owner's alone, whoever may look into the folder.
fn open_own(file: &Path) -> io::Result<File> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(file)?;
    opened.set_permissions(Permissions::from_mode(0o600))?;
    Ok(opened)
}

impl Journal {
    pub(super) fn open(file: &Path) -> Result<(Self, Contents), PersistError> {
        let open = |error: &dyn std::fmt::Display| {
            PersistError::Open(format!("{}: {error}", file.display()))
        };
        let own = open_own(file).map_err(|error| open(&error))?;
        let database = Database::builder()
            .set_cache_size(CACHE)
            .create_file(own)
            .map_err(|error| open(&error))?;
        let contents = read(&database).map_err(|error| PersistError::Read(error.to_string()))?;
        let (writes, queue) = mpsc::channel();
        thread::Builder::new()
            .name("store-journal".into())
            .spawn(move || write_all(&database, &queue))
            .map_err(|error| open(&error))?;
        Ok((Self { writes }, contents))
    }

    pub(super) fn put(&self, shelf: &str, stored: &Stored) -> Durable {
        let row = format!("{shelf}\0{}", stored.key);
        self.send(Some((row, Some(stored.bytes.clone()))), stored.revision)
    }

    pub(super) fn delete(&self, shelf: &str, key: &str, revision: u64) -> Durable {
        self.send(Some((format!("{shelf}\0{key}"), None)), revision)
    }

    pub(super) fn flush(&self) -> Durable {
        self.send(None, 0)
    }

    fn send(&self, row: Option<(String, Option<Bytes>)>, revision: u64) -> Durable {
        let (done, wait) = oneshot::channel();
        // If the thread is gone, the receiver says so.
        let _ = self.writes.send(Write {
            row,
            revision,
            done,
        });
        Durable(Some(wait))
    }
}

fn read(database: &Database) -> Result<Contents, redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(COUNTERS)?;
    transaction.commit()?;
    let transaction = database.begin_read()?;
    let mut contents = Contents {
        next_revision: 1,
        records: Vec::new(),
    };
    if let Some(last) = transaction.open_table(COUNTERS)?.get("revision")? {
        contents.next_revision = last.value() + REVISION_LEAP;
    }
    for row in transaction.open_table(OBJECTS)?.iter()? {
        let (row, value) = row?;
        let (shelf, key) = row.value().split_once('\0').unwrap_or_default();
        let (revision, bytes) = value.value();
        contents.records.push(Record {
            shelf: shelf.to_owned(),
            key: key.to_owned(),
            revision,
            bytes: Bytes::copy_from_slice(bytes),
        });
    }
    Ok(contents)
}

fn write_all(database: &Database, queue: &mpsc::Receiver<Write>) {
    while let Ok(first) = queue.recv() {
        let mut batch = vec![first];
        batch.extend(queue.try_iter().take(BATCH - 1));
        let outcome = commit(database, &batch);
        if let Err(error) = &outcome {
            tracing::error!(%error, writes = batch.len(), "cannot write to the store");
        }
        for write in batch {
            // Nobody waits when the client has gone; the write stands all the same.
            let _ = write.done.send(outcome.is_ok());
        }
    }
}

fn commit(database: &Database, batch: &[Write]) -> Result<(), redb::Error> {
    let Some(revision) = batch
        .iter()
        .map(|write| write.revision)
        .max()
        .filter(|r| *r > 0)
    else {
        return Ok(());
    };
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for write in batch {
            match &write.row {
                None => {}
                Some((row, Some(bytes))) => {
                    objects.insert(row.as_str(), (write.revision, bytes.as_ref()))?;
                }
                Some((row, None)) => {
                    objects.remove(row.as_str())?;
                }
            }
        }
        transaction
            .open_table(COUNTERS)?
            .insert("revision", revision)?;
    }
    transaction.commit()?;
    Ok(())
}
