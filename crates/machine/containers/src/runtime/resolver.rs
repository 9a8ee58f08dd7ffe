//! The asynchronous shell around the [`QueryScheduler`]: makes its calls, feeds it the results, delivers its replies.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::{Clock, Timestamp};
use plimsoll_waiting::{Repeated, Times};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::queries::{Call, QueryScheduler};
use super::session::{Connector, Report, Session};
use super::{Counters, Endpoint, InspectResult, ListResult, Options, RuntimeError};
use crate::discovery::{RuntimeQueries, Wake};
use crate::identity_join::{Incarnation, Query, Reply};
use crate::{CgroupPath, Identity, Namespace};

/// Deadline for an exit code; discovery waits a little longer.
const EXIT_DEADLINE: Duration = Duration::from_millis(250);
const EXIT_PAUSE: Duration = Duration::from_millis(40);
/// Queries taken at once, so that the hundreds of the first walk become one list call.
const BATCH: usize = 4096;
/// A list call may take this many times the deadline of an inspect call.
const LIST_DEADLINE_FACTOR: u32 = 3;

/// Usual sockets of runtimes; the last ones are where koordlet's manifest mounts them.
const USUAL: [&str; 12] = [
    "/var/run/docker.sock",
    "/var/run/podman/podman.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/var/run/crio/crio.sock",
    "/run/crio/crio.sock",
    "/host-var-run/docker.sock",
    "/host-var-run/podman/podman.sock",
    "/host-run/podman/podman.sock",
    "/host-run/containerd/containerd.sock",
    "/host-var-run/crio/crio.sock",
    "/host-run/crio/crio.sock",
];
/// If no runtime has answered by then, a warning is logged.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Discovery's end of the resolver.
#[derive(Debug)]
pub(crate) struct ResolverHandle {
    queries: mpsc::UnboundedSender<Query>,
    reachable: Arc<AtomicBool>,
}

impl RuntimeQueries for ResolverHandle {
    fn reachable(&self) -> bool {
        self.reachable.load(Ordering::Acquire)
    }

    fn query(&self, query: Query) {
        // Fails only when the resolver was shut down; containers keep their paths then.
        let _ = self.queries.send(query);
    }
}

struct Done {
    runtime: usize,
    /// The session that was queried; late answers of an earlier one are dropped.
    session: Arc<Session>,
    result: Outcome,
}

enum Outcome {
    Inspected(CgroupPath, Incarnation, Result<InspectResult, RuntimeError>),
    Listed(Result<ListResult, RuntimeError>),
    Ended(CgroupPath, Incarnation, Option<i32>),
}

struct Runtime {
    endpoint: Endpoint,
    counters: Arc<Counters>,
    session: Option<Arc<Session>>,
    has_answered: bool,
    /// Of the connection, and of calls on it.
    down: Repeated,
    calls: Repeated,
    trouble: String,
}

pub(crate) struct Resolver {
    scheduler: QueryScheduler,
    runtimes: Vec<Runtime>,
    options: Options,
    hierarchies: Hierarchies,
    clock: Clock,
    queries: mpsc::UnboundedReceiver<Query>,
    reachable: Arc<AtomicBool>,
    replies: Sender<Reply>,
    wake: Wake,
    done: mpsc::UnboundedSender<Done>,
    finished: mpsc::UnboundedReceiver<Done>,
    /// No runtime answers.
    nobody: Repeated,
}

impl Resolver {
    pub fn new(
        endpoints: Vec<Endpoint>,
        counters: &[Arc<Counters>],
        options: Options,
        hierarchies: Hierarchies,
        clock: Clock,
        replies: Sender<Reply>,
        wake: Wake,
    ) -> (Self, ResolverHandle) {
        let (query_sender, queries) = mpsc::unbounded_channel();
        let (done, finished) = mpsc::unbounded_channel();
        let reachable = Arc::new(AtomicBool::new(!endpoints.is_empty()));
        let runtimes: Vec<Runtime> = endpoints
            .into_iter()
            .zip(counters)
            .map(|(endpoint, counters)| Runtime {
                endpoint,
                counters: Arc::clone(counters),
                session: None,
                has_answered: false,
                down: Repeated::default(),
                calls: Repeated::default(),
                trouble: String::new(),
            })
            .collect();
        let clerk = ResolverHandle {
            queries: query_sender,
            reachable: Arc::clone(&reachable),
        };
        let resolver = Self {
            scheduler: QueryScheduler::new(runtimes.len()),
            runtimes,
            options,
            hierarchies,
            clock,
            queries,
            reachable,
            replies,
            wake,
            done,
            finished,
            nobody: Repeated::default(),
        };
        (resolver, clerk)
    }

    /// Runs until `stop`, or until discovery is gone.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut links = JoinSet::new();
        let mut calls = JoinSet::new();
        let (reports, mut reported) = mpsc::unbounded_channel();
        for (index, runtime) in self.runtimes.iter().enumerate() {
            let link = Connector {
                index,
                endpoint: runtime.endpoint.clone(),
                options: self.options.clone(),
                counters: Arc::clone(&runtime.counters),
                reports: reports.clone(),
            };
            links.spawn(link.keep());
        }
        tokio::pin!(stop);
        let mut batch = Vec::new();
        let patience = tokio::time::Instant::now() + PATIENCE;
        let mut looks = tokio::time::interval_at(patience, LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = self.scheduler.next_due();
            let now = self.clock.monotonic();
            let pause = due.map_or(Duration::from_secs(3600), |due| due.saturating_sub(now));
            tokio::select! {
                () = &mut stop => return,
                taken = self.queries.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        return;
                    }
                    let now = self.clock.monotonic();
                    for query in batch.drain(..) {
                        self.scheduler.query(query, now);
                    }
                }
                Some((runtime, report)) = reported.recv() => self.reported(runtime, report),
                Some(done) = self.finished.recv() => self.finished(done),
                // Keeps the set from growing; what the calls bring comes by their channel.
                Some(_) = calls.join_next() => continue,
                _ = looks.tick() => {
                    self.tell_who_is_missing();
                    continue;
                }
                () = tokio::time::sleep(pause) => {}
            }
            self.turn(&mut calls);
        }
    }

    /// A socket that is not there tells nothing by itself: it is looked whether it is time to say so again.
    fn tell_who_is_missing(&mut self) {
        for runtime in &mut self.runtimes {
            if let Some(said) = runtime.down.look() {
                runtime.say_down(said);
            }
        }
        if self.runtimes.is_empty() || self.runtimes.iter().any(|one| one.session.is_some()) {
            self.nobody.well();
            return;
        }
        let said = match self.nobody.is_failing() {
            true => self.nobody.look(),
            false => self.nobody.failed(),
        };
        if let Some(said) = said {
            let sockets: Vec<String> = self
                .runtimes
                .iter()
                .map(|runtime| runtime.endpoint.socket().display().to_string())
                .collect();
            let (sockets, seconds) = (sockets.join(", "), said.lasted.as_secs());
            tracing::warn!(
                sockets,
                seconds,
                "no container runtime answers: containers have no names and no pods; is one running, and is its socket \
                 one of these? see --containerd, --cri, --docker and --podman"
            );
        }
    }

    /// Lets the scheduler act on what it was told.
    fn turn(&mut self, calls: &mut JoinSet<()>) {
        let now = self.clock.monotonic();
        let runtimes = &self.runtimes;
        self.scheduler.tick(now, &|runtime, path| {
            let session = runtimes.get(runtime).and_then(|r| r.session.as_ref());
            session.is_some_and(|session| session.client.could_own(path))
        });
        for call in self.scheduler.take_calls() {
            self.call(call, calls);
        }
        self.reachable
            .store(self.scheduler.reachable(), Ordering::Release);
        let replies = self.scheduler.take_replies();
        if replies.is_empty() {
            return;
        }
        for answer in replies {
            // Fails when discovery is gone, and then this loop ends by itself.
            let _ = self.replies.send(answer);
        }
        self.wake.wake();
    }

    fn reported(&mut self, index: usize, report: Report) {
        let now = self.clock.monotonic();
        let runtime = &mut self.runtimes[index];
        match report {
            Report::Up(session) => {
                runtime.session = Some(session);
                runtime.counters.up.store(true, Ordering::Relaxed);
                runtime.is_up();
                self.scheduler.up(index);
            }
            Report::Down(error) => {
                runtime.session = None;
                runtime.counters.up.store(false, Ordering::Relaxed);
                if !matches!(error, RuntimeError::Connect { .. }) {
                    runtime.counters.count(&error);
                }
                runtime.is_down(&error);
                self.scheduler.down(index, now);
            }
            Report::Event(event) => self.scheduler.event(index, event, now),
        }
    }

    fn finished(&mut self, done: Done) {
        let now = self.clock.monotonic();
        let runtime = &mut self.runtimes[done.runtime];
        let current = runtime
            .session
            .as_ref()
            .is_some_and(|session| Arc::ptr_eq(session, &done.session));
        if !current {
            return;
        }
        match done.result {
            Outcome::Inspected(path, incarnation, mut seen) => {
                runtime.judge(&seen, &done.session);
                if let Ok(InspectResult::CgroupTree(found) | InspectResult::Starting(found)) =
                    &mut seen
                {
                    self.place(found, &path);
                }
                self.scheduler
                    .inspected(done.runtime, &path, incarnation, seen, now);
            }
            Outcome::Listed(listing) => {
                runtime.judge(&listing, &done.session);
                runtime.counters.lists.fetch_add(1, Ordering::Relaxed);
                let paths = |id: &str| self.scheduler.paths_of(id);
                let listing = listing.map(|listing| place_all(listing, &paths, &self.hierarchies));
                self.scheduler.listed(done.runtime, listing, now);
            }
            Outcome::Ended(path, incarnation, code) => {
                self.scheduler.ended(path, incarnation, code)
            }
        }
    }

    fn place(&self, identity: &mut Identity, path: &str) {
        place(identity, path, &self.hierarchies);
    }

    fn call(&self, call: Call, calls: &mut JoinSet<()>) {
        let index = match &call {
            Call::Inspect { runtime, .. } | Call::List { runtime } | Call::Exit { runtime, .. } => {
                *runtime
            }
        };
        let runtime = &self.runtimes[index];
        // Calls go only to runtimes that are up; one that went down this very moment was told to it already.
        let Some(session) = runtime.session.clone() else {
            return;
        };
        runtime.counters.calls.fetch_add(1, Ordering::Relaxed);
        let deadline = runtime.endpoint.deadline();
        let done = self.done.clone();
        calls.spawn(async move {
            let asked = Arc::clone(&session);
            let result = match call {
                Call::Inspect {
                    path,
                    incarnation,
                    id,
                    ..
                } => {
                    let seen = bounded(&asked, deadline, asked.client.inspect(&id)).await;
                    Outcome::Inspected(path, incarnation, seen)
                }
                Call::List { .. } => {
                    let deadline = deadline * LIST_DEADLINE_FACTOR;
                    Outcome::Listed(bounded(&asked, deadline, asked.client.list()).await)
                }
                Call::Exit {
                    path,
                    incarnation,
                    id,
                    ..
                } => {
                    let code = timeout(EXIT_DEADLINE, exit_code(&asked, &id));
                    let code = caught(code).await.and_then(Result::ok).flatten();
                    Outcome::Ended(path, incarnation, code)
                }
            };
            let _ = done.send(Done {
                runtime: index,
                session,
                result,
            });
        });
    }
}

/// Makes one call, within the limit of concurrent calls; cancelled at its deadline or when the session ends.
async fn bounded<T>(
    session: &Session,
    deadline: Duration,
    call: impl Future<Output = Result<T, RuntimeError>>,
) -> Result<T, RuntimeError> {
    let Ok(_permit) = session.permits.acquire().await else {
        return Err(RuntimeError::Broken("shutting down".into()));
    };
    tokio::select! {
        outcome = caught(timeout(deadline, call)) => match outcome {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(RuntimeError::Timeout(deadline)),
            None => Err(RuntimeError::Broken("a defect in reading its answer".into())),
        },
        () = session.over() => Err(RuntimeError::Broken("runtime went away".into())),
    }
}

/// Every call must have a result; `None`: it panicked.
pub(super) async fn caught<T>(call: impl Future<Output = T>) -> Option<T> {
    let outcome = AssertUnwindSafe(call).catch_unwind().await;
    outcome
        .inspect_err(|_| {
            tracing::error!("asking a runtime panicked; this is a bug, please report it");
        })
        .ok()
}

/// Polls for the exit code: a runtime removes the cgroup first and writes the exit code after.
async fn exit_code(session: &Session, id: &str) -> Option<i32> {
    loop {
        match session.client.exit_code(id).await {
            Ok(None) => tokio::time::sleep(EXIT_PAUSE).await,
            Ok(code) => return code,
            Err(_) => return None,
        }
    }
}

impl Runtime {
    fn is_up(&mut self) {
        let over = self.down.well();
        if std::mem::replace(&mut self.has_answered, true) && over.is_none() {
            return;
        }
        let (runtime, socket) = (self.endpoint.kind(), self.endpoint.socket().display());
        tracing::info!(runtime, %socket, "runtime answers");
    }

    fn is_down(&mut self, error: &RuntimeError) {
        let (runtime, socket) = (self.endpoint.kind(), self.endpoint.socket());
        // Most machines have one of the runtimes; that the others are absent from their usual places is no news. One
        // that is there later and fails then is, and so is one that is absent from where it was said to be.
        let usual = USUAL.iter().any(|place| socket == Path::new(place));
        if !self.has_answered
            && usual
            && matches!(error, RuntimeError::Connect { .. })
            && !socket.exists()
        {
            let socket = socket.display();
            tracing::debug!(runtime, %socket, %error, "runtime is not there");
            return;
        }
        self.trouble = error.to_string();
        if let Some(said) = self.down.failed() {
            self.say_down(said);
        }
    }

    fn say_down(&self, said: Times) {
        let (runtime, socket) = (self.endpoint.kind(), self.endpoint.socket().display());
        let (error, times, seconds) = (&self.trouble, said.times, said.lasted.as_secs());
        match self.has_answered {
            false => {
                tracing::warn!(runtime, %socket, error, times, seconds, "runtime does not answer, its containers stay unnamed until it does; is it running, and is this its socket?");
            }
            true => {
                tracing::warn!(runtime, %socket, error, times, seconds, "runtime lost, its new containers stay unnamed until it is back");
            }
        }
    }

    fn judge<T>(&mut self, outcome: &Result<T, RuntimeError>, session: &Session) {
        match outcome {
            Ok(_) => {
                if let Some(over) = self.calls.well() {
                    let (runtime, failures) = (self.endpoint.kind(), over.failures);
                    tracing::info!(runtime, failures, "runtime calls succeed again");
                }
            }
            Err(error) => {
                self.counters.count(error);
                if matches!(error, RuntimeError::Timeout(_) | RuntimeError::Broken(_)) {
                    session.check_health.notify_one();
                }
                let runtime = self.endpoint.kind();
                match self.calls.failed() {
                    Some(said) => {
                        let times = said.times;
                        tracing::warn!(runtime, %error, times, "runtime call failed");
                    }
                    None => tracing::debug!(runtime, %error, "runtime call failed"),
                }
            }
        }
    }
}

fn place_all(
    listing: ListResult,
    paths: &dyn Fn(&str) -> Vec<CgroupPath>,
    hierarchies: &Hierarchies,
) -> ListResult {
    match listing {
        ListResult::Full(mut all) => {
            for seen in &mut all {
                if let InspectResult::CgroupTree(found) | InspectResult::Starting(found) = seen
                    && let Some(path) = paths(&found.id).first()
                {
                    place(found, path, hierarchies);
                }
            }
            ListResult::Full(all)
        }
        ids => ids,
    }
}

/// Adds what only the cgroup of a container tells. containerd keeps no start time, so the cgroup's age stands for it, and
/// the cgroup's path is its second alias.
fn place(identity: &mut Identity, path: &str, hierarchies: &Hierarchies) {
    if identity.namespace != Namespace::Containerd {
        return;
    }
    identity.aliases = vec![identity.id.clone(), path.to_owned()];
    identity.started = identity.started.or_else(|| cgroup_age(path, hierarchies));
}

/// When a cgroup was made: the earliest change of its directories or of a file in them that nobody writes. A directory
/// alone will not do, because it also changes when something is made inside it.
fn cgroup_age(path: &str, hierarchies: &Hierarchies) -> Option<Timestamp> {
    let untouched = match hierarchies.is_v2() {
        true => "cgroup.events",
        false => "cgroup.clone_children",
    };
    let mut earliest: Option<i64> = None;
    for tree in hierarchies.trees() {
        let dir = tree.join(path.trim_start_matches('/'));
        for file in [dir.join(untouched), dir] {
            let Ok(meta) = std::fs::metadata(&file) else {
                continue;
            };
            let nanos = meta.mtime().saturating_mul(1_000_000_000);
            let nanos = nanos.saturating_add(meta.mtime_nsec());
            earliest = Some(earliest.map_or(nanos, |e| e.min(nanos)));
        }
    }
    earliest.map(Timestamp)
}
