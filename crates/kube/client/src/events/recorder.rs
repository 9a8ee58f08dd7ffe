//! The recorder's queue, and the task that empties it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::correlator::Correlator;
use super::object_reference::Reference;
use super::series::{OVER_AFTER, Series};
use super::sink::{Message, Sender};

/// Series events that are being sent at once.
const AT_ONCE: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Normal,
    Warning,
}

impl Kind {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub struct EventNote {
    pub kind: Kind,
    pub about: Reference,
    /// Only in a series.
    pub related: Option<Reference>,
    /// Short, in camel case: programs look for it.
    pub reason: String,
    /// What was done or tried. Only in a series, and there it must not be empty.
    pub action: String,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventApi {
    /// `v1` events.
    Core,
    /// `events.k8s.io/v1` events.
    Series,
}

#[derive(Debug, Clone)]
pub struct Config {
    pub style: EventApi,
    /// Who tells: `default-scheduler`.
    pub component: String,
    /// Where: the node's name for those who tell from one, else empty. In a series, the host by default.
    pub host: String,
    /// Events that wait to be sent; more are lost.
    pub queued: usize,
}

impl Config {
    pub fn new(style: EventApi, component: impl Into<String>) -> Self {
        Self {
            style,
            component: component.into(),
            host: String::new(),
            queued: 1000,
        }
    }

    /// Events can be recorded at once; they are sent when [`Built::spawn`] is called.
    pub fn build(self, client: kube::Client) -> (Recorder, Built) {
        let (queue, queued) = mpsc::channel(self.queued);
        let counters = Arc::new(Counters::default());
        let built = Built {
            sender: Sender::new(client, Arc::clone(&counters)),
            config: self,
            queued,
        };
        (Recorder { queue, counters }, built)
    }

    /// Builds, and starts the task that sends. Must be called within a tokio runtime.
    pub fn spawn(self, client: kube::Client) -> (Recorder, RecorderTask) {
        let (recorder, built) = self.build(client);
        (recorder, built.spawn())
    }
}

/// A queue of events that nobody sends yet.
pub struct Built {
    config: Config,
    queued: mpsc::Receiver<EventNote>,
    sender: Sender,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Built")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Built {
    /// Starts the task that sends. Must be called within a tokio runtime.
    pub fn spawn(self) -> RecorderTask {
        let (stop, stopped) = oneshot::channel();
        let (queued, sender) = (self.queued, self.sender);
        let stopped = Some(stopped);
        let task = match self.config.style {
            EventApi::Core => tokio::spawn(run_core(self.config, queued, stopped, sender)),
            EventApi::Series => tokio::spawn(run_series(self.config, queued, stopped, sender)),
        };
        RecorderTask { stop, task }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    dropped: AtomicU64,
    pub failed: AtomicU64,
}

/// Takes events; clones take them for the same queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<EventNote>,
    counters: Arc<Counters>,
}

impl Recorder {
    /// Never waits: when the queue is full the event is lost, and counted.
    pub fn record(&self, note: EventNote) {
        if self.queue.try_send(note).is_err()
            && self.counters.dropped.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("too many events at once: some are not recorded");
        }
    }

    pub fn normal(&self, about: &Reference, reason: &str, action: &str, text: impl Into<String>) {
        self.simple(Kind::Normal, about, reason, action, text.into());
    }

    pub fn warning(&self, about: &Reference, reason: &str, action: &str, text: impl Into<String>) {
        self.simple(Kind::Warning, about, reason, action, text.into());
    }

    fn simple(&self, kind: Kind, about: &Reference, reason: &str, action: &str, text: String) {
        self.record(EventNote {
            kind,
            about: about.clone(),
            related: None,
            reason: reason.to_owned(),
            action: action.to_owned(),
            text,
        });
    }

    /// Events lost because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.counters.dropped.load(Ordering::Relaxed)
    }

    /// Events that the API server did not take.
    pub fn failed(&self) -> u64 {
        self.counters.failed.load(Ordering::Relaxed)
    }
}

/// The task that sends. Dropped without [`Self::drain`], it goes on as long as there is a [`Recorder`].
#[derive(Debug)]
pub struct RecorderTask {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RecorderTask {
    /// Sends what is queued, and ends. False: the time was up before that.
    pub async fn drain(mut self, within: Duration) -> bool {
        let _ = self.stop.send(());
        if tokio::time::timeout(within, &mut self.task).await.is_ok() {
            return true;
        }
        self.task.abort();
        let _ = self.task.await;
        false
    }
}

/// `NAME.HEX`, unlike any other of the object; something else where that would be no name.
pub(super) fn event_name(object: &str, wall: Timestamp) -> String {
    let name = format!("{object}.{:x}", wall.as_nanosecond());
    let label = |label: &str| {
        let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = label.as_bytes();
        let inside = bytes.iter().all(|&c| edge(c) || c == b'-');
        inside
            && bytes.first().copied().is_some_and(edge)
            && bytes.last().copied().is_some_and(edge)
    };
    match name.len() <= 253 && name.split('.').all(label) {
        true => name,
        false => uuid::Uuid::new_v4().to_string(),
    }
}

/// Told once, if at all; then there is nothing left to wait for.
type Stopped = Option<oneshot::Receiver<()>>;

/// The next one, until there can be none; those queued when it is told to stop still come.
async fn next_note(
    queue: &mut mpsc::Receiver<EventNote>,
    stopped: &mut Stopped,
) -> Option<EventNote> {
    loop {
        let stop = async {
            match stopped.as_mut() {
                Some(stopped) => stopped.await.is_ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            note = queue.recv() => return note,
            is_told = stop => {
                // Dropped rather than sent: nobody will ever ask to stop.
                *stopped = None;
                if is_told {
                    queue.close();
                }
            }
        }
    }
}

async fn run_core(
    config: Config,
    mut queue: mpsc::Receiver<EventNote>,
    mut stopped: Stopped,
    sender: Sender,
) {
    let mut correlator = Correlator::new();
    while let Some(note) = next_note(&mut queue, &mut stopped).await {
        let now = Timestamp::now();
        let write = correlator.correlate(&note, &config.component, &config.host, now);
        if let Some(write) = write {
            // In order, one after the other: a count must not go back.
            sender.send(Message::Core(write)).await;
        }
    }
}

async fn run_series(
    config: Config,
    mut queue: mpsc::Receiver<EventNote>,
    mut stopped: Stopped,
    sender: Sender,
) {
    let instance = match config.host.is_empty() {
        true => {
            let host = rustix::system::uname();
            format!("{}-{}", config.component, host.nodename().to_string_lossy())
        }
        false => config.host,
    };
    let mut series = Series::new(config.component, instance);
    let mut sending = FuturesUnordered::new();
    let mut look = tokio::time::interval(OVER_AFTER / 6);
    loop {
        tokio::select! {
            Some(()) = sending.next() => {}
            _ = look.tick() => {
                for event in series.due() {
                    sending.push(sender.send(Message::Series(event)));
                }
            }
            note = next_note(&mut queue, &mut stopped), if sending.len() < AT_ONCE => match note {
                Some(note) => {
                    if let Some(event) = series.add(&note, Timestamp::now()) {
                        sending.push(sender.send(Message::Series(event)));
                    }
                }
                None => break,
            },
        }
    }
    for event in series.last_words() {
        sending.push(sender.send(Message::Series(event)));
    }
    while sending.next().await.is_some() {}
}
