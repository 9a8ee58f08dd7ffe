//! The asynchronous shell around the [`Desk`]: makes its calls, feeds it what comes back, posts its answers.

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

use super::desk::{Call, Desk};
use super::link::{Link, Report, Session};
use super::{Counters, Endpoint, Listing, Options, RuntimeError, Seen};
use crate::discovery::{Registrar, Wake};
use crate::herald::{Answer, Ask, Life};
use crate::{CgroupPath, Identity, Namespace};

/// A runtime has this long to say how a container ended; discovery waits a little longer.
const EXIT_DEADLINE: Duration = Duration::from_millis(250);
const EXIT_PAUSE: Duration = Duration::from_millis(40);
/// Questions taken at once, so that the first walk's hundreds become one listing.
const BATCH: usize = 4096;
/// A listing of everything may take longer than one question.
const LIST_DEADLINE_FACTOR: u32 = 3;

/// Where runtimes are as a rule.
const USUAL: [&str; 6] = [
    "/var/run/docker.sock",
    "/var/run/podman/podman.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/var/run/crio/crio.sock",
    "/run/crio/crio.sock",
];
/// If no runtime answers by then, that is said.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Discovery's end of the resolver.
#[derive(Debug)]
pub(crate) struct Clerk {
    asks: mpsc::UnboundedSender<Ask>,
    reachable: Arc<AtomicBool>,
}

impl Registrar for Clerk {
    fn reachable(&self) -> bool {
        self.reachable.load(Ordering::Acquire)
    }

    fn ask(&self, ask: Ask) {
        // Fails only when the resolver was shut down; containers keep their paths then.
        let _ = self.asks.send(ask);
    }
}

struct Done {
    runtime: usize,
    /// The session that was asked; what an earlier one says late is not taken.
    session: Arc<Session>,
    result: Outcome,
}

enum Outcome {
    Inspected(CgroupPath, Life, Result<Seen, RuntimeError>),
    Listed(Result<Listing, RuntimeError>),
    Ended(CgroupPath, Life, Option<i32>),
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
    desk: Desk,
    runtimes: Vec<Runtime>,
    options: Options,
    hierarchies: Hierarchies,
    clock: Clock,
    asks: mpsc::UnboundedReceiver<Ask>,
    reachable: Arc<AtomicBool>,
    answers: Sender<Answer>,
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
        answers: Sender<Answer>,
        wake: Wake,
    ) -> (Self, Clerk) {
        let (ask_sender, asks) = mpsc::unbounded_channel();
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
        let clerk = Clerk {
            asks: ask_sender,
            reachable: Arc::clone(&reachable),
        };
        let resolver = Self {
            desk: Desk::new(runtimes.len()),
            runtimes,
            options,
            hierarchies,
            clock,
            asks,
            reachable,
            answers,
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
            let link = Link {
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
            let due = self.desk.next_due();
            let now = self.clock.monotonic();
            let pause = due.map_or(Duration::from_secs(3600), |due| due.saturating_sub(now));
            tokio::select! {
                () = &mut stop => return,
                taken = self.asks.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        return;
                    }
                    let now = self.clock.monotonic();
                    for ask in batch.drain(..) {
                        self.desk.ask(ask, now);
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

    /// Lets the desk act on what it was told.
    fn turn(&mut self, calls: &mut JoinSet<()>) {
        let now = self.clock.monotonic();
        let runtimes = &self.runtimes;
        self.desk.tick(now, &|runtime, path| {
            let session = runtimes.get(runtime).and_then(|r| r.session.as_ref());
            session.is_some_and(|session| session.client.may_own(path))
        });
        for call in self.desk.take_calls() {
            self.call(call, calls);
        }
        self.reachable
            .store(self.desk.reachable(), Ordering::Release);
        let answers = self.desk.take_answers();
        if answers.is_empty() {
            return;
        }
        for answer in answers {
            // Fails when discovery is gone, and then this loop ends by itself.
            let _ = self.answers.send(answer);
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
                self.desk.up(index);
            }
            Report::Down(error) => {
                runtime.session = None;
                runtime.counters.up.store(false, Ordering::Relaxed);
                if !matches!(error, RuntimeError::Connect { .. }) {
                    runtime.counters.count(&error);
                }
                runtime.is_down(&error);
                self.desk.down(index, now);
            }
            Report::Event(event) => self.desk.event(index, event, now),
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
            Outcome::Inspected(path, life, mut seen) => {
                runtime.judge(&seen, &done.session);
                if let Ok(Seen::Known(found) | Seen::Starting(found)) = &mut seen {
                    self.place(found, &path);
                }
                self.desk.inspected(done.runtime, &path, life, seen, now);
            }
            Outcome::Listed(listing) => {
                runtime.judge(&listing, &done.session);
                runtime.counters.lists.fetch_add(1, Ordering::Relaxed);
                let paths = |id: &str| self.desk.paths_of(id);
                let listing = listing.map(|listing| place_all(listing, &paths, &self.hierarchies));
                self.desk.listed(done.runtime, listing, now);
            }
            Outcome::Ended(path, life, code) => self.desk.ended(path, life, code),
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
        // The desk asks only runtimes that are up; one that went down this very moment was told to it already.
        let Some(session) = runtime.session.clone() else {
            return;
        };
        runtime.counters.calls.fetch_add(1, Ordering::Relaxed);
        let deadline = runtime.endpoint.deadline();
        let done = self.done.clone();
        calls.spawn(async move {
            let asked = Arc::clone(&session);
            let result = match call {
                Call::Inspect { path, life, id, .. } => {
                    let seen = bounded(&asked, deadline, asked.client.inspect(&id)).await;
                    Outcome::Inspected(path, life, seen)
                }
                Call::List { .. } => {
                    let deadline = deadline * LIST_DEADLINE_FACTOR;
                    Outcome::Listed(bounded(&asked, deadline, asked.client.list()).await)
                }
                Call::Exit { path, life, id, .. } => {
                    let code = timeout(EXIT_DEADLINE, exit_code(&asked, &id));
                    let code = caught(code).await.and_then(Result::ok).flatten();
                    Outcome::Ended(path, life, code)
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

/// Makes one call among few, gives it up at its deadline or when the runtime is given up.
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

/// The desk waits for an end of every call: `None` is one that panicked.
pub(super) async fn caught<T>(call: impl Future<Output = T>) -> Option<T> {
    let outcome = AssertUnwindSafe(call).catch_unwind().await;
    outcome
        .inspect_err(|_| {
            tracing::error!("asking a runtime panicked; this is a bug, please report it");
        })
        .ok()
}

/// A runtime removes the cgroup first and writes down the exit code after: it is asked until it has done so.
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
                    session.suspect.notify_one();
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
    listing: Listing,
    paths: &dyn Fn(&str) -> Vec<CgroupPath>,
    hierarchies: &Hierarchies,
) -> Listing {
    match listing {
        Listing::Full(mut all) => {
            for seen in &mut all {
                if let Seen::Known(found) | Seen::Starting(found) = seen
                    && let Some(path) = paths(&found.id).first()
                {
                    place(found, path, hierarchies);
                }
            }
            Listing::Full(all)
        }
        ids => ids,
    }
}

/// Adds what only the place of a container says. containerd keeps no start time, so the cgroup's age stands for it, and
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
