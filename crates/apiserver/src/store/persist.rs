//! The file behind the store: every acknowledged write is in it. A thread of its own gathers what arrives while the
//! disk is busy into one commit, so many writers share one flush; then it shows readers what was written. When the disk
//! refuses, the writes under way are given up, and the file is opened again until it can be written.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use super::Shared;
use super::moments::{Moment, Passing};
use super::write::{Durable, Plan};

/// `shelf NUL key` to revision and JSON.
const OBJECTS: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
/// Revisions and the milliseconds at which they were reached.
const MOMENTS: TableDefinition<'_, u64, u64> = TableDefinition::new("moments");
/// Where it is tried out whether there is room.
const PROBE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("probe");

const REVISION: &str = "revision";
/// When that revision was written, in milliseconds.
const WRITTEN: &str = "written";

/// For the pages on the way to what is written. What is read is in memory anyway, and must not be there twice.
const CACHE: usize = 4 << 20;

/// One commit takes at most this many writes.
const BATCH: usize = 2_000;
/// So many of them are shown to readers at a time: readers wait no longer than that.
const SHOWN: usize = 100;

/// How often a disk that refused is tried again.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// There is room again when this much more can be written, at least.
const PROBE_BYTES: usize = 64 << 10;
const MAX_PROBE_BYTES: usize = 4 << 20;

/// When nothing was written for so long, there is time to tidy the file up.
const IDLE: Duration = Duration::from_secs(5);
/// Smaller files are not worth it.
const TIDY_FROM: u64 = 32 << 20;
/// A file of more than so many times what is in it is tidied up.
const TIDY_TIMES: u64 = 4;
/// … and of so many times even while there is much to do, but not more often than this.
const BUSY_TIDY_TIMES: u64 = 8;
const BUSY_TIDY_EVERY: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("cannot open the store: {0}")]
    Open(String),
    #[error("cannot read the store: {0}")]
    Read(String),
    #[error("cannot write the store: {0}")]
    Write(String),
    #[error("the store holds something that is no object: {0}")]
    Corrupt(String),
}

/// How to come by the database, again if need be.
pub(super) struct Opener {
    pub open: Box<dyn Fn() -> Result<Database, String> + Send>,
    /// What it takes on disk.
    pub size: Box<dyn Fn() -> u64 + Send>,
}

#[derive(Debug)]
pub(super) struct Journal {
    orders: mpsc::Sender<Order>,
}

#[derive(Debug)]
pub(super) struct Contents {
    pub revision: u64,
    pub records: Vec<Record>,
    pub moments: Vec<Moment>,
    pub last: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub shelf: String,
    pub key: String,
    pub revision: u64,
    pub bytes: Bytes,
}

#[derive(Debug)]
struct Order {
    /// `None`: nothing to write, only to be told when all before it is done.
    plan: Option<Plan>,
    done: oneshot::Sender<bool>,
}

pub(super) fn file(path: &Path) -> Opener {
    let (opened, measured) = (path.to_owned(), path.to_owned());
    Opener {
        open: Box::new(move || {
            let explain = |error: &dyn std::fmt::Display| format!("{}: {error}", opened.display());
            let own = open_own(&opened).map_err(|error| explain(&error))?;
            Database::builder()
                .set_cache_size(CACHE)
                .create_file(own)
                .map_err(|error| explain(&error))
        }),
        size: Box::new(move || measured.metadata().map_or(0, |file| file.len())),
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

pub(super) fn open(opener: &Opener) -> Result<(Database, Contents), PersistError> {
    let database = (opener.open)().map_err(PersistError::Open)?;
    let contents = read(&database).map_err(|error| PersistError::Read(error.to_string()))?;
    Ok((database, contents))
}

fn read(database: &Database) -> Result<Contents, redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(COUNTERS)?;
    transaction.open_table(MOMENTS)?;
    transaction.commit()?;
    let transaction = database.begin_read()?;
    let counters = transaction.open_table(COUNTERS)?;
    let counter = |name| Ok::<_, redb::Error>(counters.get(name)?.map(|value| value.value()));
    // As in etcd, the first write is revision 2: 0 and 1 mean something else to clients.
    let revision = counter(REVISION)?.unwrap_or(1);
    let mut contents = Contents {
        revision,
        records: Vec::new(),
        moments: Vec::new(),
        last: counter(WRITTEN)?.and_then(|millis| moment(revision, millis)),
    };
    for row in transaction.open_table(MOMENTS)?.iter()? {
        let (revision, millis) = row?;
        let moment = moment(revision.value(), millis.value());
        contents.moments.extend(moment);
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

fn moment(revision: u64, millis: u64) -> Option<Moment> {
    let at = Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()?;
    Some(Moment { revision, at })
}

fn millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).unwrap_or(0)
}

impl Journal {
    pub(super) fn spawn(
        opener: Opener,
        database: Database,
        shared: Arc<Shared>,
    ) -> Result<Self, PersistError> {
        let (orders, queue) = mpsc::channel();
        let keeper = Keeper {
            opener,
            database: Some(database),
            shared,
            queue,
            doubtful: None,
            tried: Instant::now(),
            needed: 0,
            tidied: None,
        };
        thread::Builder::new()
            .name("store-journal".into())
            .spawn(move || keeper.run())
            .map_err(|error| PersistError::Open(error.to_string()))?;
        Ok(Self { orders })
    }

    /// To be called with the state locked, so that plans arrive in the order of their revisions. `None`: the thread has
    /// ended.
    pub(super) fn begin(&self, plan: Plan) -> Option<Durable> {
        self.send(Some(plan))
    }

    pub(super) fn flush(&self) -> Option<Durable> {
        self.send(None)
    }

    fn send(&self, plan: Option<Plan>) -> Option<Durable> {
        let (done, durable) = Durable::pending();
        let sent = self.orders.send(Order { plan, done });
        sent.is_ok().then_some(durable)
    }
}

/// The thread that owns the file.
struct Keeper {
    opener: Opener,
    /// `None`: the disk refused, and has not been seen to work since.
    database: Option<Database>,
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Order>,
    /// A commit that failed, while it is not known whether it came to be all the same.
    doubtful: Option<Batch>,
    /// When a file that could not be written was last tried.
    tried: Instant,
    /// What has to fit for the disk to be said to work again.
    needed: usize,
    /// When the file was last tidied up, and what it took afterwards.
    tidied: Option<(Instant, u64)>,
}

/// What is committed together.
struct Batch {
    plans: Vec<Plan>,
    at: Timestamp,
}

impl Batch {
    fn revision(&self) -> Option<u64> {
        self.plans.last().map(|plan| plan.object.revision)
    }

    fn bytes(&self) -> usize {
        let weights = self.plans.iter().map(|plan| plan.object.size());
        weights.sum()
    }
}

impl Drop for Keeper {
    /// However the thread ends: nobody waits for what will not be.
    fn drop(&mut self) {
        *self.shared.trouble.lock() = Some("the journal has ended".to_owned());
        self.give_up(Vec::new());
    }
}

impl Keeper {
    fn run(mut self) {
        loop {
            let patience = if self.database.is_some() {
                IDLE
            } else {
                TRY_EVERY
            };
            match self.queue.recv_timeout(patience) {
                Ok(first) => {
                    let mut orders = vec![first];
                    orders.extend(self.queue.try_iter().take(BATCH - 1));
                    self.keep(orders);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if self.database.is_none() => {
                    self.reopen();
                }
                Err(mpsc::RecvTimeoutError::Timeout) => self.tidy_up(TIDY_TIMES),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn keep(&mut self, orders: Vec<Order>) {
        if self.database.is_none() && (self.tried.elapsed() < TRY_EVERY || !self.reopen()) {
            return self.give_up(orders.into_iter().map(|order| order.done).collect());
        }
        let mut done = Vec::with_capacity(orders.len());
        let mut plans = Vec::with_capacity(orders.len());
        for order in orders {
            done.push(order.done);
            plans.extend(order.plan);
        }
        let (passing, at) = {
            let moments = &self.shared.state.lock().moments;
            let at = moments.not_before(self.shared.now());
            (moments.passing(at), at)
        };
        let batch = Batch { plans, at };
        let outcome = match &self.database {
            Some(database) => commit(database, &batch, &passing).map_err(|error| error.to_string()),
            None => Err("the store is closed".to_owned()),
        };
        match outcome {
            Ok(()) => {
                self.show(&batch);
                answer(done, true);
                if self.may_tidy_up_while_busy() {
                    self.tidy_up(BUSY_TIDY_TIMES);
                }
            }
            Err(error) => self.fail(batch, done, error),
        }
    }

    /// What was committed is shown to readers, then told to who waits.
    fn show(&self, batch: &Batch) {
        for plans in batch.plans.chunks(SHOWN) {
            let mut state = self.shared.state.lock();
            self.shared.publish(&mut state, plans, batch.at);
        }
        self.shared.tell_settled();
    }

    /// After an error a database can no longer be used; opened again, it says whether the commit came to be.
    fn fail(&mut self, batch: Batch, done: Vec<oneshot::Sender<bool>>, error: String) {
        tracing::error!(
            error,
            writes = batch.plans.len(),
            "cannot write to the store; nothing is written until it works again"
        );
        *self.shared.trouble.lock() = Some(error);
        self.database = None;
        self.needed = batch.bytes();
        let revision = batch.revision();
        self.doubtful = Some(batch);
        self.reopen();
        let shown = self.shared.state.lock().revision;
        if revision.is_some_and(|revision| shown >= revision) {
            answer(done, true);
        } else {
            self.give_up(done);
        }
    }

    /// Says no to these and to all that have built on them.
    fn give_up(&mut self, done: Vec<oneshot::Sender<bool>>) {
        let more: Vec<Order> = {
            // Nobody plans on top of these meanwhile.
            let mut state = self.shared.state.lock();
            let more = self.queue.try_iter().collect();
            self.shared.give_up(&mut state);
            more
        };
        answer(done, false);
        answer(more.into_iter().map(|order| order.done).collect(), false);
        self.shared.tell_settled();
    }

    /// True: the file can be written.
    fn reopen(&mut self) -> bool {
        self.tried = Instant::now();
        let reopened = (self.opener.open)().and_then(|database| {
            self.resolve(&database).map_err(|error| error.to_string())?;
            probe(&database, self.needed).map_err(|error| error.to_string())?;
            Ok(database)
        });
        match reopened {
            Ok(database) => {
                self.database = Some(database);
                *self.shared.trouble.lock() = None;
                tracing::warn!("the store can be written again");
                true
            }
            Err(error) => {
                tracing::debug!(error, "the store cannot be written yet");
                *self.shared.trouble.lock() = Some(error);
                false
            }
        }
    }

    /// Finds out what became of a commit that failed.
    fn resolve(&mut self, database: &Database) -> Result<(), redb::Error> {
        if self.doubtful.is_none() {
            return Ok(());
        }
        let transaction = database.begin_read()?;
        let counters = transaction.open_table(COUNTERS)?;
        let kept = counters.get(REVISION)?.map(|revision| revision.value());
        if let Some(batch) = self.doubtful.take()
            && batch.revision().is_some()
            && batch.revision() == kept
        {
            self.show(&batch);
            // Those who have come since have built on what was before.
            self.give_up(Vec::new());
        }
        Ok(())
    }

    fn may_tidy_up_while_busy(&self) -> bool {
        let since = self.tidied.map(|(when, _)| when);
        since.is_none_or(|when| when.elapsed() > BUSY_TIDY_EVERY)
    }

    /// Gives back what the file takes beyond what is in it, if that is much.
    fn tidy_up(&mut self, times: u64) {
        let size = (self.opener.size)();
        let after_last = self.tidied.map_or(0, |(_, size)| size);
        if size < TIDY_FROM.max(after_last.saturating_mul(2)) {
            return;
        }
        let live = self.shared.state.lock().live_bytes();
        if size / times < live {
            return;
        }
        let Some(database) = &mut self.database else {
            return;
        };
        if let Err(error) = database.compact() {
            tracing::warn!(%error, "cannot make the store's file smaller");
        }
        self.tidied = Some((Instant::now(), (self.opener.size)()));
    }
}

/// Nobody waits when the client has gone; the write stands or falls all the same.
fn answer(done: Vec<oneshot::Sender<bool>>, kept: bool) {
    for done in done {
        let _ = done.send(kept);
    }
}

fn commit(database: &Database, batch: &Batch, passing: &Passing) -> Result<(), redb::Error> {
    let Some(revision) = batch.revision() else {
        return Ok(());
    };
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for plan in &batch.plans {
            let (shelf, key) = &plan.place;
            let row = format!("{shelf}\0{key}");
            match plan.deleted {
                None => {
                    let bytes = plan.object.bytes();
                    let value = (plan.object.revision, bytes.as_ref().as_ref());
                    objects.insert(row.as_str(), value)?;
                }
                Some(_) => {
                    objects.remove(row.as_str())?;
                }
            }
        }
        let mut counters = transaction.open_table(COUNTERS)?;
        counters.insert(REVISION, revision)?;
        counters.insert(WRITTEN, millis(batch.at))?;
        let mut moments = transaction.open_table(MOMENTS)?;
        if let Some(kept) = passing.kept {
            moments.insert(kept.revision, millis(kept.at))?;
        }
        if let Some(dropped) = passing.dropped {
            moments.remove(dropped.revision)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Whether there is room for what did not fit.
fn probe(database: &Database, bytes: usize) -> Result<(), redb::Error> {
    let filler = vec![1; bytes.clamp(PROBE_BYTES, MAX_PROBE_BYTES)];
    let transaction = database.begin_write()?;
    transaction
        .open_table(PROBE)?
        .insert(0, filler.as_slice())?;
    transaction.commit()?;
    let transaction = database.begin_write()?;
    transaction.delete_table(PROBE)?;
    transaction.commit()?;
    Ok(())
}
