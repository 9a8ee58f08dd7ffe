//! One signal that tells everything to stop; the way back tells that something has failed.
//!
//! A role's tasks hold its [`Shutdown`]. Those that must work until the end are started by [`Shutdown::keep`]: if one of
//! them panics or ends too early, whoever holds the [`ShutdownTrigger`] learns it and ends the role, or starts it again.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backoff::Backoff;

/// Makes the two ends of the signal.
pub fn channel() -> (ShutdownTrigger, Shutdown) {
    with_way_back(WayBack {
        failure: watch::Sender::new(None),
        restarts: Arc::default(),
        down: Arc::default(),
    })
}

fn with_way_back(back: WayBack) -> (ShutdownTrigger, Shutdown) {
    let stopping = watch::Sender::new(false);
    let shutdown = Shutdown {
        stopping: stopping.subscribe(),
        back: back.clone(),
    };
    (ShutdownTrigger { stopping, back }, shutdown)
}

/// What tasks tell whoever holds the stopper.
#[derive(Debug, Clone)]
struct WayBack {
    /// The first.
    failure: watch::Sender<Option<Failure>>,
    /// Tasks that began anew.
    restarts: Arc<AtomicU64>,
    /// Tasks that are about to.
    down: Arc<Mutex<Vec<&'static str>>>,
}

/// A task does not work while this lives.
#[derive(Debug)]
struct Down<'a> {
    tasks: &'a Mutex<Vec<&'static str>>,
    task: &'static str,
}

impl<'a> Down<'a> {
    fn new(tasks: &'a Mutex<Vec<&'static str>>, task: &'static str) -> Self {
        tasks.lock().push(task);
        Self { tasks, task }
    }
}

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let mut tasks = self.tasks.lock();
        if let Some(at) = tasks.iter().position(|task| *task == self.task) {
            tasks.swap_remove(at);
        }
    }
}

/// Gives the signal, at the latest when it is dropped: whoever waits for it must not wait for ever.
#[derive(Debug)]
pub struct ShutdownTrigger {
    stopping: watch::Sender<bool>,
    back: WayBack,
}

impl ShutdownTrigger {
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub fn shutdown(&self) -> Shutdown {
        Shutdown {
            stopping: self.stopping.subscribe(),
            back: self.back.clone(),
        }
    }

    /// Waits for the first failure of a task that must not fail.
    pub fn failure(&self) -> impl Future<Output = Failure> + Send + use<> {
        let mut failures = self.back.failure.subscribe();
        async move {
            let failure = failures.wait_for(Option::is_some).await;
            let failure = failure.ok().and_then(|failure| failure.clone());
            match failure {
                Some(failure) => failure,
                // Everybody who could fail has gone.
                None => std::future::pending().await,
            }
        }
    }

    /// Tasks that panicked and have not begun anew yet.
    pub fn tasks_down(&self) -> Vec<&'static str> {
        self.back.down.lock().clone()
    }

    /// How often tasks began anew after a panic.
    pub fn task_restarts(&self) -> u64 {
        self.back.restarts.load(Ordering::Relaxed)
    }
}

/// Waits for the signal; clones wait for the same one.
#[derive(Debug, Clone)]
pub struct Shutdown {
    stopping: watch::Receiver<bool>,
    back: WayBack,
}

impl Shutdown {
    /// Returns when stopping begins, at once if it already has.
    pub async fn begins(&self) {
        // A stopper that is gone without a word has stopped too.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }

    pub fn has_begun(&self) -> bool {
        *self.stopping.borrow() || self.stopping.has_changed().is_err()
    }

    /// A signal of its own for a part of the work. Failures of the part count as failures of the whole.
    pub fn part(&self) -> (ShutdownTrigger, Shutdown) {
        with_way_back(self.back.clone())
    }

    /// Starts a task that must work until stopping begins: its panic and its early end are failures of the role.
    pub fn keep<F>(&self, task: impl Into<String>, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.kept(task.into(), work))
    }

    /// As [`Self::keep`], for whoever spawns or polls the task by other means.
    pub fn kept<F, T>(&self, task: T, work: F) -> impl Future<Output = ()> + use<F, T>
    where
        F: Future<Output = ()>,
        T: Into<String>,
    {
        let (shutdown, task) = (self.clone(), task.into());
        async move {
            let cause = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(()) if shutdown.has_begun() => return,
                Ok(()) => Cause::Ended,
                Err(panic) => Cause::Panicked(panic_text(&*panic).to_owned()),
            };
            shutdown.fail(Failure { task, cause });
        }
    }

    /// Starts a task that begins anew, with back-off, whenever it panics, until stopping begins. Fit for work that takes
    /// all it knows from a store.
    pub fn keep_restarting<W, F>(&self, task: &'static str, work: W) -> JoinHandle<()>
    where
        W: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.clone();
        tokio::spawn(async move {
            let mut backoff = Backoff::default();
            // The future is made inside, so that a panic while it is made is caught, too.
            while let Err(panic) = AssertUnwindSafe(async { work().await })
                .catch_unwind()
                .await
            {
                shutdown.back.restarts.fetch_add(1, Ordering::Relaxed);
                let _down = Down::new(&shutdown.back.down, task);
                let (cause, wait) = (panic_text(&*panic), backoff.next_wait());
                tracing::error!(task, cause, again_in = ?wait, "a task panicked; this is a bug, please report it");
                tokio::select! {
                    () = shutdown.begins() => return,
                    () = tokio::time::sleep(wait) => {}
                }
            }
        })
    }

    /// Tells whoever holds the stopper. The first failure counts.
    pub fn fail(&self, failure: Failure) {
        tracing::error!(%failure, "the role cannot go on; this is a bug, please report it");
        self.back.failure.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(failure);
            is_first
        });
    }
}

/// A task that should have worked until the end did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub task: String,
    pub cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// With this message.
    Panicked(String),
    Ended,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Panicked(text) => write!(f, "the task `{}` panicked: {text}", self.task),
            Cause::Ended => write!(f, "the task `{}` ended too early", self.task),
        }
    }
}

impl std::error::Error for Failure {}

/// The message that a panic was raised with.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[tokio::test]
    async fn everybody_hears_it_early_or_late() {
        let (stopper, shutdown) = channel();
        assert!(!shutdown.has_begun());
        let early = shutdown.clone();
        let waiting = tokio::spawn(async move { early.begins().await });
        stopper.stop();
        waiting.await.unwrap();
        stopper.shutdown().begins().await;
        assert!(shutdown.has_begun());
    }

    #[tokio::test]
    async fn a_lost_stopper_counts_as_stopped() {
        let (stopper, shutdown) = channel();
        drop(stopper);
        shutdown.begins().await;
        assert!(shutdown.has_begun());
    }

    fn failure_of(task: &str, cause: Cause) -> Failure {
        let task = task.to_owned();
        Failure { task, cause }
    }

    #[tokio::test]
    async fn a_panic_is_told() {
        let (stopper, shutdown) = channel();
        shutdown.keep("well", std::future::pending());
        shutdown.keep("bad", async { panic!("no {}", "way") });
        let expected = failure_of("bad", Cause::Panicked("no way".to_owned()));
        assert_eq!(stopper.failure().await, expected);
        // Later failures do not replace the first, and late listeners learn it as well.
        shutdown.keep("other", async {}).await.unwrap();
        assert_eq!(stopper.failure().await, expected);
    }

    #[tokio::test]
    async fn an_early_end_is_a_failure_and_a_late_one_is_not() {
        let (stopper, shutdown) = channel();
        let until = shutdown.clone();
        let orderly = shutdown.keep("orderly", async move { until.begins().await });
        let (part, round) = shutdown.part();
        stopper.stop();
        orderly.await.unwrap();
        assert!(stopper.failure().now_or_never().is_none());
        // A part ends by its own signal, and its failures are those of the whole.
        assert!(!round.has_begun());
        round.keep("early", async {}).await.unwrap();
        assert_eq!(stopper.failure().await, failure_of("early", Cause::Ended));
        part.stop();
        assert!(round.has_begun());
    }

    #[tokio::test]
    async fn whoever_is_aborted_has_not_failed() {
        let (stopper, shutdown) = channel();
        let task = shutdown.keep("cut off", std::future::pending());
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(stopper.failure().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_panics_begins_anew() {
        let (stopper, shutdown) = channel();
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let task = shutdown.keep_restarting("shaky", move || {
            let tried = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(tried > 2, "not yet") }
        });
        task.await.unwrap();
        assert_eq!(tries.load(Ordering::Relaxed), 4);
        assert_eq!(stopper.task_restarts(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_panics_for_ever_still_stops() {
        let (stopper, shutdown) = channel();
        let task = shutdown.keep_restarting("broken", || async { panic!("always") });
        while stopper.task_restarts() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(stopper.tasks_down(), ["broken"]);
        stopper.stop();
        task.await.unwrap();
        assert!(stopper.tasks_down().is_empty());
    }
}
