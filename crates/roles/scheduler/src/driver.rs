//! The task that owns the core: it tells it what happens, lets it decide, and has its decisions carried out.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_client::reflector::CacheSync;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_sched::action::{Action, ActionId, ActionKind, ActionResult};
use plimsoll_sched::extender::{About, Answer, Question};
use plimsoll_sched::framework::stopwatch::Point;
use plimsoll_sched::{Cycle, Outcome, Scheduler, Time};
use plimsoll_waiting::ByKey;
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::actions::{Done, Ended, Executor};
use crate::explain::{self, Report};
use crate::extender::Extenders;
use crate::follow::{Books, Changes};
use crate::journal::Journal;
use crate::metrics::{CoreFigures, Metrics};
use crate::owed::Owed;

/// Writes under way at once. As long as there are so many, nobody is scheduled.
const AT_ONCE: usize = 48;
/// How long the core may think before others on this thread have their turn.
const TURN: Duration = Duration::from_millis(1);
/// Attempts to be remembered before those of pods that are gone are forgotten.
const MOST_ATTEMPTS: usize = 4096;
/// Changes taken before the core decides again.
const BATCH: usize = 256;
/// Measurements kept before they are counted.
const MOST_MEASURED: usize = 4096;

/// What others want to know of the core.
#[derive(Debug)]
pub enum Inquiry {
    /// Why a pod is where it is, or is not.
    Explain {
        namespace: String,
        name: String,
        answer: oneshot::Sender<Option<Report>>,
    },
    Figures(oneshot::Sender<CoreFigures>),
}

/// How a run of the driver ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    Stopped,
    /// A new configuration is there.
    Reload,
}

/// What the driver listens to.
#[derive(Debug)]
pub struct Inputs {
    pub changes: Changes,
    pub ends: mpsc::UnboundedReceiver<Ended>,
    /// Everything has been told once.
    pub gate: CacheSync,
    /// Whether to decide, or only to listen.
    pub leading: watch::Receiver<bool>,
    /// Changes when there is a new configuration.
    pub reload: watch::Receiver<u64>,
    pub shutdown: Shutdown,
}

/// An attempt that found a node and is being bound.
#[derive(Debug)]
struct Attempt {
    began: Instant,
    profile: Arc<str>,
    attempts: u32,
    waited: Duration,
    was_flushed: bool,
}

/// Evictions for one pod.
#[derive(Debug)]
struct Evicting {
    began: Instant,
    running: usize,
    failed: bool,
}

#[derive(Debug)]
pub struct Driver {
    core: Scheduler,
    books: Books,
    executor: Executor,
    extenders: Arc<Extenders>,
    metrics: Metrics,
    journal: Journal,
    attempts: FxHashMap<Arc<str>, Attempt>,
    /// By the pod that others have to go for.
    evicting: FxHashMap<Arc<str>, Evicting>,
    /// For whom an eviction is.
    evictions: FxHashMap<ActionId, Arc<str>>,
    answers: mpsc::UnboundedSender<Answer>,
    answered: mpsc::UnboundedReceiver<Answer>,
    /// Of writes, by what answered them; what is said has names of objects in it.
    failures: ByKey<(Done, Option<u16>)>,
}

/// Different failures of writes that are remembered.
const FAILURES: usize = 256;

/// For the core to measure itself with.
fn nanos() -> u64 {
    static STARTED: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    STARTED.elapsed().as_nanos() as u64
}

pub fn now() -> Time {
    Time(Timestamp::now().as_microsecond())
}

impl Driver {
    pub fn new(
        mut core: Scheduler,
        executor: Executor,
        extenders: Arc<Extenders>,
        metrics: Metrics,
        journal: Journal,
    ) -> Self {
        core.record_scores(true);
        core.lend_clock(nanos);
        let mut books = Books::default();
        if extenders.want_nodes() {
            books.keep_nodes();
        }
        let (answers, answered) = mpsc::unbounded_channel();
        Self {
            core,
            books,
            executor,
            extenders,
            metrics,
            journal,
            attempts: FxHashMap::default(),
            evicting: FxHashMap::default(),
            evictions: FxHashMap::default(),
            answers,
            answered,
            failures: ByKey::new(FAILURES),
        }
    }

    /// Until told to stop; writes under way are then waited for, by whoever drops the time for that.
    pub async fn run(
        mut self,
        mut inputs: Inputs,
        inquiries: &mut mpsc::Receiver<Inquiry>,
    ) -> Finished {
        let mut changes = Vec::with_capacity(BATCH);
        let mut ends = Vec::with_capacity(AT_ONCE);
        let mut ready = false;
        inputs.reload.mark_unchanged();
        loop {
            self.take_waiting(&mut inputs);
            ready = ready || inputs.gate.is_open();
            let reloading = inputs.reload.has_changed().unwrap_or(false);
            if reloading && self.executor.load() == 0 {
                return Finished::Reload;
            }
            let decides = ready && !reloading && *inputs.leading.borrow();
            if decides && self.decide() {
                tokio::task::yield_now().await;
                continue;
            }
            // With too much under way, only the end of something helps.
            let waits = decides && self.executor.load() < AT_ONCE;
            let wake = self.core.next_wakeup().filter(|_| waits);
            let pause = wake.map_or(Duration::from_secs(30), |wake| wake.since(now()));
            tokio::select! {
                biased;
                () = inputs.shutdown.begins() => break,
                _ = inputs.ends.recv_many(&mut ends, AT_ONCE) => {
                    for ended in ends.drain(..) {
                        self.ended(ended);
                    }
                }
                taken = inputs.changes.recv_many(&mut changes, BATCH) => {
                    if taken == 0 {
                        break;
                    }
                    let now = now();
                    for (kind, change) in changes.drain(..) {
                        self.books.take(kind, change, &mut self.core, now);
                    }
                    self.start_waiting_actions();
                    self.note_measured();
                }
                Some(answer) = self.answered.recv() => self.answer(answer),
                Some(inquiry) = inquiries.recv() => self.inquire(inquiry),
                changed = inputs.leading.changed() => if changed.is_err() {
                    break;
                },
                Ok(()) = inputs.reload.changed(), if !reloading => inputs.reload.mark_changed(),
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.finish(inputs.ends).await;
        Finished::Stopped
    }

    /// What has been decided is carried out, but nothing new is.
    async fn finish(&mut self, mut ends: mpsc::UnboundedReceiver<Ended>) {
        while self.executor.load() > 0 {
            let Some(ended) = ends.recv().await else {
                return;
            };
            self.ended(ended);
        }
    }

    /// Takes what has come in since, without waiting.
    fn take_waiting(&mut self, inputs: &mut Inputs) {
        while let Ok(ended) = inputs.ends.try_recv() {
            self.ended(ended);
        }
        let now = now();
        let mut taken = 0;
        while taken < BATCH
            && let Ok((kind, change)) = inputs.changes.try_recv()
        {
            self.books.take(kind, change, &mut self.core, now);
            taken += 1;
        }
        if taken > 0 {
            self.start_waiting_actions();
            self.note_measured();
        }
    }

    /// Runs cycles for a while. False: there was nothing to do, or too much is under way.
    fn decide(&mut self) -> bool {
        let began = Instant::now();
        let mut at = began;
        let mut worked = false;
        while self.executor.load() < AT_ONCE && at.duration_since(began) < TURN {
            let Some(cycle) = self.core.step(now()) else {
                break;
            };
            worked = true;
            let ended = Instant::now();
            self.take(cycle, at, ended);
            at = ended;
        }
        self.start_waiting_actions();
        self.note_measured();
        worked
    }

    /// Before there is too much of it.
    fn note_measured(&mut self) {
        if self.core.has_measured() > MOST_MEASURED {
            self.metrics.measured(&self.core.take_measured());
        }
    }

    fn take(&mut self, cycle: Cycle, began: Instant, ended: Instant) {
        if let Outcome::Asking(question) = cycle.outcome {
            self.ask(question);
            return;
        }
        let profile = self.profile_of(&cycle);
        let took = ended.duration_since(began);
        self.metrics.cycle(&cycle, &profile, took);
        match &cycle.outcome {
            Outcome::Scheduled { .. } => {
                let attempt = Attempt {
                    began,
                    profile,
                    attempts: cycle.attempts,
                    waited: cycle.waited,
                    was_flushed: cycle.was_flushed,
                };
                self.attempts.insert(Arc::clone(&cycle.pod.uid), attempt);
                if self.attempts.len() > MOST_ATTEMPTS {
                    let pods = &self.core.cluster().pods;
                    self.attempts.retain(|uid, _| pods.find(uid).is_some());
                }
            }
            Outcome::Unschedulable { message } => {
                tracing::debug!(
                    namespace = &*cycle.pod.namespace,
                    pod = &*cycle.pod.name,
                    message,
                    "unschedulable"
                );
            }
            Outcome::Error { message } => {
                tracing::warn!(
                    namespace = &*cycle.pod.namespace,
                    pod = &*cycle.pod.name,
                    message,
                    "cannot schedule a pod"
                );
            }
            Outcome::Skipped | Outcome::Asking(_) => {}
        }
        let actions = self
            .journal
            .add(cycle, &self.core.cluster().names, Timestamp::now());
        self.start(actions);
    }

    fn profile_of(&self, cycle: &Cycle) -> Arc<str> {
        self.metrics.profile(cycle.profile)
    }

    fn start(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let ActionKind::Evict { preemptor, .. } = &action.kind {
                let evicting = self.evicting.entry(Arc::clone(&preemptor.uid));
                let evicting = evicting.or_insert_with(|| Evicting {
                    began: Instant::now(),
                    running: 0,
                    failed: false,
                });
                evicting.running += 1;
                let preemptor = Arc::clone(&preemptor.uid);
                self.evictions.insert(action.id, preemptor);
            }
            let binder = match &action.kind {
                ActionKind::Bind { pod, .. } => self
                    .extenders
                    .binder()
                    .filter(|(index, _)| self.core.concerns(*index, &pod.uid))
                    .map(|(_, extender)| extender),
                _ => None,
            };
            self.executor
                .start(action, &self.core.cluster().names, binder);
        }
    }

    fn start_waiting_actions(&mut self) {
        let actions = self.core.take_actions();
        if !actions.is_empty() {
            self.start(actions);
        }
        for given_up in self.core.take_given_up() {
            if let Some(attempt) = self.attempts.remove(&given_up.uid) {
                let took = attempt.began.elapsed();
                match given_up.is_refused {
                    true => self.metrics.refused(&attempt.profile, took),
                    false => self.metrics.failed(&attempt.profile, took),
                }
            }
        }
    }

    fn ended(&mut self, ended: Ended) {
        self.executor.ended(&ended);
        let is_done = ended.result == ActionResult::Done;
        match ended.what {
            Done::Volume if !is_done => self.metrics.volume_not_bound(),
            Done::NewClaim => self.metrics.claim_made(is_done),
            _ => {}
        }
        let pod = self
            .core
            .binds(ended.id)
            .or_else(|| self.core.prepares(ended.id));
        let attempt = pod.and_then(|uid| self.attempts.get(&uid));
        if let Some(attempt) = attempt {
            let point = match ended.what {
                Done::Bind => Point::Bind,
                _ => Point::PreBind,
            };
            let profile = Arc::clone(&attempt.profile);
            self.metrics.written(point, is_done, &profile, ended.took);
        }
        if ended.what == Done::Bind
            && let Some(uid) = self.core.binds(ended.id)
            && let Some(attempt) = self.attempts.remove(&uid)
        {
            if is_done {
                if attempt.was_flushed {
                    self.metrics.bound_after_flush();
                }
                self.metrics.bound(
                    &attempt.profile,
                    attempt.attempts,
                    attempt.began.elapsed(),
                    attempt.waited + attempt.began.elapsed(),
                );
            } else {
                self.metrics
                    .failed(&attempt.profile, attempt.began.elapsed());
            }
        }
        if let ActionResult::Failed(error) = &ended.result {
            match self.failures.failed(&(ended.what, ended.status)) {
                Some(said) => {
                    let times = said.times;
                    tracing::warn!(what = ?ended.what, error, times, "a write failed");
                }
                None => tracing::debug!(what = ?ended.what, error, "a write failed"),
            }
        }
        let actions = self.core.finished(ended.id, ended.result, now());
        self.start(actions);
        self.start_waiting_actions();
        self.eviction_ended(ended.id, is_done);
    }

    /// After what follows from it has been started: the last of several evictions waits for the others.
    fn eviction_ended(&mut self, id: ActionId, is_done: bool) {
        let Some(preemptor) = self.evictions.remove(&id) else {
            return;
        };
        let Some(evicting) = self.evicting.get_mut(&preemptor) else {
            return;
        };
        evicting.running = evicting.running.saturating_sub(1);
        evicting.failed |= !is_done;
        if evicting.running == 0 {
            let (failed, took) = (evicting.failed, evicting.began.elapsed());
            self.metrics.evicted(!failed, took);
            self.evicting.remove(&preemptor);
        }
    }

    /// Has extenders asked; the core waits for the answer.
    fn ask(&mut self, question: Box<Question>) {
        let (extenders, answers) = (Arc::clone(&self.extenders), self.answers.clone());
        let nodes = match &question.about {
            About::Nodes(names) => self.books.raw_nodes(names, &self.core.cluster().names),
            About::Victims(_) => Vec::new(),
        };
        let client = self.executor.client();
        // The core waits for an answer, whatever becomes of those who are asked.
        let owed = Owed::new(answers, Answer::failed("the question was cut off"));
        tokio::spawn(async move {
            owed.settle(extenders.ask(&client, *question, nodes).await);
        });
    }

    fn answer(&mut self, answer: Answer) {
        let began = Instant::now();
        if let Some(cycle) = self.core.answer(answer, now()) {
            self.take(cycle, began, Instant::now());
        }
        self.start_waiting_actions();
    }

    fn inquire(&mut self, inquiry: Inquiry) {
        // Whoever asked may have gone.
        match inquiry {
            Inquiry::Explain {
                namespace,
                name,
                answer,
            } => {
                let report =
                    explain::report(&mut self.core, &self.journal, &namespace, &name, now());
                let _ = answer.send(report);
            }
            Inquiry::Figures(answer) => {
                self.metrics.measured(&self.core.take_measured());
                let mut figures = CoreFigures::of(&self.core);
                figures.writes = self.executor.load();
                let _ = answer.send(figures);
            }
        }
    }
}
