//! Reads `/dev/kmsg`, records OOM kills as events and in persistent counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_host::kmsg::{Kmsg, Next, Start, Waker};
use plimsoll_host::oom::{OomKill, OomParser};
use plimsoll_host::{Clock, HostError, HostRoot};

use crate::events::{Detail, Event, EventStore};
use crate::oom::OomCounters;

/// How often unsaved counts are written, and how soon a broken device is tried again.
const TICK: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Counters {
    pub kills: AtomicU64,
    pub overruns: AtomicU64,
    pub missed: AtomicU64,
    pub errors: AtomicU64,
    pub save_errors: AtomicU64,
}

#[derive(Debug)]
pub struct Handle {
    waker: Waker,
    stop: Arc<std::sync::atomic::AtomicBool>,
    thread: JoinHandle<()>,
    counters: Arc<Counters>,
}

impl Handle {
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Only a panic ends it before it is stopped.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        let _ = self.thread.join();
    }
}

/// `Ok(None)`: there is no kernel log to read; the caller warns that kills are not seen.
pub fn spawn(
    root: &HostRoot,
    clock: Clock,
    events: Arc<EventStore>,
    oom: Arc<OomCounters>,
) -> Result<Option<Handle>, HostError> {
    // From the beginning: kills from before the agent was started count too, and those already counted are known by
    // their sequence numbers.
    let Some(kmsg) = Kmsg::open(root, Start::Beginning, clock)? else {
        return Ok(None);
    };
    let waker = kmsg.waker();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let counters = Arc::new(Counters::default());
    let mut watch = Watch {
        kmsg,
        parser: OomParser::default(),
        events,
        oom,
        counters: Arc::clone(&counters),
        stop: Arc::clone(&stop),
        save_failed: false,
    };
    let thread = std::thread::Builder::new()
        .name("kmsg".into())
        .spawn(move || watch.run())
        .map_err(|e| HostError::io("start a thread for", std::path::Path::new("/dev/kmsg"), e))?;
    Ok(Some(Handle {
        waker,
        stop,
        thread,
        counters,
    }))
}

struct Watch {
    kmsg: Kmsg,
    parser: OomParser,
    events: Arc<EventStore>,
    oom: Arc<OomCounters>,
    counters: Arc<Counters>,
    stop: Arc<std::sync::atomic::AtomicBool>,
    save_failed: bool,
}

impl Watch {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Acquire) {
            match self.kmsg.next(TICK) {
                Ok(Next::Record { at, record }) => {
                    if let Some(kill) = self.parser.observe(at, &record) {
                        self.record(kill);
                    }
                }
                Ok(Next::TimedOut | Next::Woken) => self.save(),
                Err(error) => {
                    self.counters.errors.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "cannot read the kernel log");
                    if !matches!(error, HostError::Malformed { .. }) {
                        std::thread::park_timeout(TICK);
                    }
                }
            }
            self.counters
                .overruns
                .store(self.kmsg.overruns(), Ordering::Relaxed);
            self.counters
                .missed
                .store(self.kmsg.missed(), Ordering::Relaxed);
        }
        self.save();
    }

    fn record(&mut self, kill: OomKill) {
        if !self.oom.add(&kill.container, kill.sequence) {
            return;
        }
        self.counters.kills.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            container = kill.container,
            cgroup = kill.victim_cgroup,
            pid = kill.pid,
            process = kill.process_name,
            "out of memory kill"
        );
        self.events.add(Event {
            container: kill.container.into(),
            at: kill.at,
            detail: Detail::Oom,
        });
        self.events.add(Event {
            container: kill.victim_cgroup.into(),
            at: kill.at,
            detail: Detail::OomKill {
                pid: i64::from(kill.pid),
                process_name: kill.process_name,
                constraint: kill.constraint.name().to_owned(),
            },
        });
    }

    fn save(&mut self) {
        match self.oom.save() {
            Ok(()) => self.save_failed = false,
            Err(error) => {
                self.counters.save_errors.fetch_add(1, Ordering::Relaxed);
                // Said once a failure, not every few seconds: a full disk stays full for a while.
                if !std::mem::replace(&mut self.save_failed, true) {
                    tracing::warn!(%error, "cannot save the oom counts; they are kept in memory and tried again");
                }
            }
        }
    }
}
