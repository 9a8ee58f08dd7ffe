//! The task that starts scrapes, and what each of them does.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use plimsoll_client::shutdown::Shutdown;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::client::{Buffers, Client};
use super::complaints::Complaints;
use super::connection::Connection;
use super::fault::Fault;
use super::fleet::{Fleet, Job, Outcome, Ticket};
use super::identity::{Identity, IdentityError, Source, Trust};
use super::target::Rules;
use super::telemetry::Telemetry;
use crate::decode::decode;
use crate::metadata::NodeChange;
use crate::store::Store;

/// Who has not answered by then makes room for others, and goes on waiting beside them.
const HOLD: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Config {
    pub rules: Rules,
    pub trust: Trust,
    pub request_timeout: Duration,
    /// How many are asked at once.
    pub concurrency: usize,
    /// The largest page that is read, in bytes.
    pub page_limit: usize,
    pub user_agent: String,
}

#[derive(Debug)]
pub(crate) struct Scraper {
    rules: Rules,
    resolution: Duration,
    client: Client,
    store: Store,
    telemetry: Telemetry,
    fleet: Mutex<Fleet>,
    /// Somebody is due sooner than the starter knows.
    sooner: Notify,
    healthy: Semaphore,
    /// Those who failed the last time wait for each other only.
    doubtful: Semaphore,
    complaints: Complaints,
}

impl Scraper {
    pub fn new(
        config: Config,
        source: Source,
        store: Store,
        telemetry: Telemetry,
    ) -> Result<Self, IdentityError> {
        let resolution = store.settings().resolution;
        let concurrency = config.concurrency.max(1);
        Ok(Self {
            rules: config.rules,
            resolution,
            client: Client {
                identity: Arc::new(Identity::new(config.trust, source)?),
                user_agent: config.user_agent,
                timeout: config.request_timeout,
                limit: config.page_limit,
                buffers: Buffers::default(),
            },
            store,
            telemetry,
            fleet: Mutex::new(Fleet::new(resolution, Instant::now())),
            sooner: Notify::new(),
            healthy: Semaphore::new(concurrency),
            doubtful: Semaphore::new(concurrency),
            complaints: Complaints::default(),
        })
    }

    /// Runs until told to stop; scrapes that are on their way then are given up.
    pub async fn run(self, mut changes: UnboundedReceiver<NodeChange>, shutdown: Shutdown) {
        let this = Arc::new(self);
        this.client.identity.spawn_reload(shutdown.clone());
        let mut scrapes = JoinSet::new();
        let mut upkeep = tokio::time::interval(this.resolution.min(Duration::from_secs(1)));
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = Instant::now();
        loop {
            let due = this.fleet.lock().next_due();
            tokio::select! {
                () = shutdown.begins() => return,
                Some(change) = changes.recv() => this.change(change),
                () = this.sooner.notified() => {}
                () = at(due) => {}
                _ = upkeep.tick() => this.upkeep(&mut round),
            }
            let now = Instant::now();
            loop {
                let Some(job) = this.fleet.lock().take_due(now) else {
                    break;
                };
                scrapes.spawn(Arc::clone(&this).scrape(job));
            }
            while let Some(ended) = scrapes.try_join_next() {
                // Its node has its next turn; see `Turn`.
                if ended.is_err_and(|error| error.is_panic()) {
                    tracing::error!("a scrape panicked; this is a bug, please report it");
                }
            }
        }
    }

    fn change(&self, change: NodeChange) {
        let now = Instant::now();
        match change {
            NodeChange::Put(node) => {
                let target = self.rules.target(&node);
                let mut fleet = self.fleet.lock();
                fleet.put(node.name, target, node.ready, now);
            }
            NodeChange::Gone(name) => {
                let mut fleet = self.fleet.lock();
                fleet.remove(&name);
                self.telemetry.forget(&name);
            }
        }
    }

    fn upkeep(&self, round: &mut Instant) {
        let now = Instant::now();
        let behind = self.fleet.lock().behind_since(now);
        self.telemetry.turn(now, behind);
        if now.saturating_duration_since(*round) >= self.resolution {
            *round = now;
            let slowest = self.fleet.lock().slowest();
            self.telemetry.round(slowest);
            self.store.sweep(now);
        }
    }

    async fn scrape(self: Arc<Self>, mut job: Job) {
        // Whatever happens to this task, the node gets its next turn.
        let mut turn = Turn {
            scraper: &self,
            ticket: Some(job.ticket()),
        };
        let lane = match job.doubtful {
            true => &self.doubtful,
            false => &self.healthy,
        };
        let Ok(permit) = lane.acquire().await else {
            return;
        };
        let (began, asked_at) = (Instant::now(), since_epoch());
        let mut connection = job.connection.take();
        let asked = {
            let mut asked = std::pin::pin!(self.ask(&job, &mut connection, asked_at));
            tokio::select! {
                asked = &mut asked => asked,
                () = tokio::time::sleep(HOLD) => {
                    drop(permit);
                    asked.await
                }
            }
        };
        let now = Instant::now();
        let outcome = match &asked {
            Ok((true, _)) => Outcome::Rate,
            Ok((false, _)) => Outcome::NoRate,
            Err(fault) => {
                self.store.failed(&job.name, now);
                self.complaints.hear(&job.name, job.ready, fault, now);
                Outcome::Failed
            }
        };
        let told = asked
            .map(|(_, unlabelled)| unlabelled)
            .map_err(|fault| fault.reason());
        let took = now.saturating_duration_since(began);
        let at = since_epoch().as_secs_f64();
        // Nothing is counted of a node that went meanwhile.
        turn.end(outcome, connection, now, || {
            self.telemetry.ended(&job.name, took, at, told);
        });
    }

    /// Whether there is a rate now, and how many series belonged to nobody.
    async fn ask(
        &self,
        job: &Job,
        connection: &mut Option<Connection>,
        asked_at: Duration,
    ) -> Result<(bool, u64), Fault> {
        let target = (*job.target).as_ref().map_err(Clone::clone)?;
        let body = self.client.fetch(target, connection).await?;
        // Times are told in milliseconds: a page without them is as exact as one with.
        let asked_at = i64::try_from(asked_at.as_millis()).unwrap_or(i64::MAX);
        let asked_at = asked_at.saturating_mul(1_000_000);
        let reading = self.store.settings().reading();
        let read = decode(body.bytes(), asked_at, reading).map(|page| {
            let rate = self.store.publish(&job.name, &page, Instant::now());
            (rate, page.unlabelled)
        });
        self.client.buffers.give(body.buffer);
        Ok(read?)
    }
}

/// A scrape that has not ended.
struct Turn<'a> {
    scraper: &'a Scraper,
    ticket: Option<Ticket>,
}

impl Turn<'_> {
    /// Calls `known` if the node is still there.
    fn end(
        &mut self,
        outcome: Outcome,
        connection: Option<Connection>,
        now: Instant,
        known: impl FnOnce(),
    ) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut fleet = self.scraper.fleet.lock();
        let before = fleet.next_due();
        if fleet.ended(ticket, outcome, connection, now) {
            known();
        }
        if fleet.next_due() != before {
            self.scraper.sooner.notify_one();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end(Outcome::Failed, None, Instant::now(), || {});
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
