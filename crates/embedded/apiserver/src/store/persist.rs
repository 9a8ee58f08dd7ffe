//! The file behind the store: every acknowledged write is in it. A thread of its own gathers what arrives while the
//! disk is busy into one commit, so many writers share one flush; then it shows readers what was written. When the disk
//! refuses, the writes under way are given up, and the file is opened again until it can be written.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use redb::{
    Database, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError, WriteTransaction,
};
use tokio::sync::oneshot;

use super::Shared;
use super::moments::{Moment, Passing};
use super::record::{self, Kept, Record, Seal};
use super::rescue::{self, Dropped, Examined, Rescue, caught};
use super::roll::{self, Lines, Roll};
use super::write::{Durable, Plan};

/// `shelf NUL key` to a record.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// How objects were kept before they had checksums: with their revisions.
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
pub(super) const CACHE: usize = 4 << 20;

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
    #[error(
        "the store {} is damaged: {damage}. Nothing was changed. To start without what cannot be vouched for, and keep \
         the damaged file beside, run once with --restore. It would drop: {dropped}",
        file.display()
    )]
    Damaged {
        file: PathBuf,
        damage: String,
        dropped: Dropped,
    },
}

/// How to come by the database, again if need be.
pub(super) struct Opener {
    pub path: PathBuf,
    /// Held while the store is in use: nobody else looks at the file and mends it meanwhile.
    pub lock: Option<File>,
    pub open: Box<dyn Fn() -> Result<Database, String> + Send>,
    /// What it takes on disk.
    pub size: Box<dyn Fn() -> u64 + Send>,
}

#[derive(Debug)]
pub(super) struct Journal {
    orders: mpsc::Sender<Order>,
}

/// What the file holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub revision: u64,
    pub records: Vec<Kept>,
    pub moments: Vec<Moment>,
    pub last: Option<Moment>,
}

impl Default for Contents {
    /// As in etcd, the first write is revision 2: 0 and 1 mean something else to clients.
    fn default() -> Self {
        Self {
            revision: 1,
            records: Vec::new(),
            moments: Vec::new(),
            last: None,
        }
    }
}

impl Contents {
    pub(super) fn seals(&self) -> impl Iterator<Item = (&str, Seal)> {
        let records = self.records.iter();
        records.map(|record| (record.row.as_str(), record.seal))
    }
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
        path: path.to_owned(),
        lock: None,
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

/// Goes through the file, then opens it for writing.
pub(super) fn open(
    opener: &mut Opener,
    restore: bool,
) -> Result<(Database, Contents, Option<Rescue>), PersistError> {
    opener.lock = Some(lock(&opener.path)?);
    let Examined { contents, rescue } = rescue::examine(&opener.path, restore)?;
    let opened = caught(|| {
        let database = (opener.open)()?;
        prepare(&database, &contents).map_err(|error| error.to_string())?;
        Ok(database)
    });
    let database = opened.flatten().map_err(PersistError::Open)?;
    Ok((database, contents, rescue))
}

pub(super) fn lock(store: &Path) -> Result<File, PersistError> {
    let path = store.with_extension("lock");
    let failed =
        |error: &dyn std::fmt::Display| PersistError::Open(format!("{}: {error}", path.display()));
    let file = open_own(&path).map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed(&"the store is already open")),
        Err(TryLockError::Error(error)) => Err(failed(&error)),
    }
}

/// Makes the tables. What was kept in the old way gets checksums.
fn prepare(database: &Database, contents: &Contents) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(COUNTERS)?;
    transaction.open_table(MOMENTS)?;
    transaction.open_table(RECORDS)?;
    let is_old = transaction.delete_table(OBJECTS)?;
    if is_old {
        put_all(&transaction, &contents.records)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Fills a new file.
pub(super) fn write_all(database: &Database, contents: &Contents) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    put_all(&transaction, &contents.records)?;
    let mut counters = transaction.open_table(COUNTERS)?;
    counters.insert(REVISION, contents.revision)?;
    drop(counters);
    transaction.commit()?;
    Ok(())
}

fn put_all(transaction: &WriteTransaction, records: &[Kept]) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(RECORDS)?;
    for kept in records {
        let record = Record::new(&kept.row, kept.seal.revision, &kept.body);
        put(&mut table, &record)?;
    }
    Ok(())
}

fn put(table: &mut Table<'_, &str, &[u8]>, record: &Record<'_>) -> Result<(), redb::Error> {
    let mut place = table.insert_reserve(record.row, record.size())?;
    record.write(place.as_mut());
    Ok(())
}

/// What is in the file, and the rows whose records do not have their checksums.
pub(super) fn read(database: &Database) -> Result<(Contents, Vec<String>), redb::Error> {
    let mut contents = Contents::default();
    let mut flawed = Vec::new();
    let transaction = database.begin_read()?;
    if let Some(counters) = there(transaction.open_table(COUNTERS))? {
        let counter = |name| Ok::<_, redb::Error>(counters.get(name)?.map(|value| value.value()));
        contents.revision = counter(REVISION)?.unwrap_or(contents.revision);
        let written = counter(WRITTEN)?;
        contents.last = written.and_then(|millis| moment(contents.revision, millis));
    }
    if let Some(moments) = there(transaction.open_table(MOMENTS))? {
        for row in moments.iter()? {
            let (revision, millis) = row?;
            let moment = moment(revision.value(), millis.value());
            contents.moments.extend(moment);
        }
    }
    if let Some(records) = there(transaction.open_table(RECORDS))? {
        for entry in records.iter()? {
            let (row, value) = entry?;
            match Record::read(value.value()).filter(|record| record.row == row.value()) {
                Some(record) => contents.records.push(record.into()),
                None => flawed.push(row.value().to_owned()),
            }
        }
    }
    if let Some(objects) = there(transaction.open_table(OBJECTS))? {
        for entry in objects.iter()? {
            let (row, value) = entry?;
            let (revision, body) = value.value();
            let record = Record::new(row.value(), revision, body);
            contents.records.push(record.into());
        }
    }
    Ok((contents, flawed))
}

/// `None`: there is no such table yet.
fn there<T>(opened: Result<T, TableError>) -> Result<Option<T>, redb::Error> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
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
        let roll = roll::path(&opener.path);
        let lines = roll::read(&roll).ok().flatten();
        let keeper = Keeper {
            roll: Roll::open(&roll, lines.map_or(0, |listed| listed.lines)),
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
    roll: Roll,
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
    /// What the roll is to say of it.
    lines: Lines,
}

impl Batch {
    fn new(plans: Vec<Plan>, at: Timestamp) -> Self {
        let lines = Lines::default();
        Self { plans, at, lines }
    }

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
        // Before others may have it.
        self.close();
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
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.tidy_up(TIDY_TIMES);
                    self.tidy_roll();
                }
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
        let mut batch = Batch::new(plans, at);
        let outcome = match &self.database {
            Some(database) => caught(|| commit(database, &mut batch, &passing))
                .and_then(|outcome| outcome.map_err(|error| error.to_string())),
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
    fn show(&mut self, batch: &Batch) {
        self.roll.append(&batch.lines);
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
        self.close();
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
        let reopened = caught(|| {
            let database = (self.opener.open)()?;
            self.resolve(&database).map_err(|error| error.to_string())?;
            probe(&database, self.needed).map_err(|error| error.to_string())?;
            Ok(database)
        });
        match reopened.flatten() {
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

    /// Lets go of the file, whatever state the library is in.
    fn close(&mut self) {
        let database = self.database.take();
        if let Err(error) = caught(|| drop(database)) {
            tracing::warn!(error, "the store's file was not closed in order");
        }
    }

    /// Writes the roll anew where it lags behind, or says too much.
    fn tidy_roll(&mut self) {
        let objects = self.shared.state.lock().objects();
        let Some(database) = self
            .database
            .as_ref()
            .filter(|_| self.roll.is_stale(objects))
        else {
            return;
        };
        let rewritten = caught(|| list(database).map_err(|error| error.to_string()));
        let rewritten = rewritten.flatten().and_then(|lines| {
            let rewritten = self.roll.rewrite(&lines);
            rewritten.map_err(|error| error.to_string())
        });
        if let Err(error) = rewritten {
            tracing::warn!(error, "cannot write the store's roll");
        }
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
        let compacted = caught(|| database.compact().map_err(|error| error.to_string()));
        if let Err(error) = compacted.flatten() {
            tracing::warn!(error, "cannot make the store's file smaller");
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

fn commit(database: &Database, batch: &mut Batch, passing: &Passing) -> Result<(), redb::Error> {
    let Some(revision) = batch.revision() else {
        return Ok(());
    };
    let transaction = database.begin_write()?;
    {
        let mut records = transaction.open_table(RECORDS)?;
        for plan in &batch.plans {
            let (shelf, key) = &plan.place;
            let row = record::row(shelf, key);
            let revision = plan.object.revision;
            match plan.deleted {
                None => {
                    let body = plan.object.bytes();
                    let record = Record::new(&row, revision, &body);
                    put(&mut records, &record)?;
                    batch.lines.put(&row, record.seal);
                }
                Some(_) => {
                    records.remove(row.as_str())?;
                    batch.lines.delete(&row, revision);
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

/// All that is in the file, for the roll.
fn list(database: &Database) -> Result<Lines, redb::Error> {
    let (contents, _) = read(database)?;
    let mut lines = Lines::default();
    for (row, seal) in contents.seals() {
        lines.put(row, seal);
    }
    lines.reached(contents.revision);
    Ok(lines)
}
