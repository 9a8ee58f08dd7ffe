//! The thread that protects: one step an interval, and requests of people in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_actuate::{Actuator, Counters, Durations, Filter, Mode, Now, State, Status};
use plimsoll_host::Clock;
use plimsoll_plan::{Asker, Bases, Eviction, Note, Plan};
use plimsoll_qos::{GateStatus, Metrics};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::control::{Answer, Request};
use super::protector::{Protector, Step};

/// How long a person waits for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// What is undone stays so for this time, unless somebody says otherwise.
const UNDONE_FOR: Duration = Duration::from_secs(3600);
/// Messages between two steps.
const MOST_MESSAGES: usize = 64;
/// Notes of one step that are logged.
const MOST_NOTES: usize = 200;
/// Journal lines in one answer.
const MOST_LINES: usize = 10_000;

enum Message {
    Ask(Request, oneshot::Sender<Answer>),
    Evicted {
        eviction: Box<Eviction>,
        asked: bool,
    },
    EvictionFailed(Arc<str>),
    Stop,
}

/// What pages show of the last step.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    pub mode: Mode,
    pub gate: GateStatus,
    pub metrics: Metrics,
    pub counters: Counters,
    /// Another agent changes what we write, so we only observe.
    pub second_agent: bool,
    pub steps: u64,
    /// How long writes took.
    pub durations: Durations,
}

/// A handle for those who look and step in; clones are the same.
#[derive(Debug, Clone)]
pub struct Protection {
    messages: Sender<Message>,
    shown: Arc<Mutex<Shown>>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ask(request, _) => request.fmt(f),
            Self::Evicted { eviction, .. } => eviction.fmt(f),
            Self::EvictionFailed(uid) => f.debug_tuple("EvictionFailed").field(uid).finish(),
            Self::Stop => f.write_str("Stop"),
        }
    }
}

impl Protection {
    pub async fn ask(&self, request: Request) -> Answer {
        let (reply, answer) = oneshot::channel();
        let gone = || Answer::Error("protection has stopped; see the agent's log".into());
        if self.messages.send(Message::Ask(request, reply)).is_err() {
            return gone();
        }
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => gone(),
            Err(_) => Answer::Error("no answer within 10 s; the kernel may block a write".into()),
        }
    }

    /// The journal tells it. `asked`: somebody else evicts the pod.
    pub fn evicted(&self, eviction: &Eviction, asked: bool) {
        let eviction = Box::new(eviction.clone());
        // After the end nobody keeps a journal.
        let _ = self.messages.send(Message::Evicted { eviction, asked });
    }

    /// The strategies may ask for it again.
    pub fn eviction_failed(&self, uid: &Arc<str>) {
        // After the end nobody asks again.
        let _ = self.messages.send(Message::EvictionFailed(Arc::clone(uid)));
    }

    pub fn shown(&self) -> Shown {
        self.shown.lock().clone()
    }
}

#[derive(Debug)]
pub struct Handle {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends after the step that is under way. What is written stays, unless the agent was told otherwise.
    pub fn stop(mut self) {
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the thread. Evictions go to `evictions`, where a task carries them out.
pub fn spawn(
    protector: Protector,
    every: Duration,
    restore_on_exit: bool,
    clock: Clock,
    evictions: mpsc::Sender<Eviction>,
) -> std::io::Result<(Handle, Protection)> {
    let (messages, inbox) = channel();
    let shown = Arc::new(Mutex::new(Shown {
        durations: protector.actuator.durations().clone(),
        ..Shown::default()
    }));
    let protection = Protection {
        messages: messages.clone(),
        shown: Arc::clone(&shown),
    };
    let mut worker = Worker {
        protector,
        clock,
        shown,
        evictions,
        last: Step::default(),
        plans: Vec::new(),
        noted: BTreeSet::new(),
    };
    let thread = std::thread::Builder::new()
        .name("protect".into())
        .spawn(move || {
            worker.run(&inbox, every);
            if restore_on_exit {
                worker.give_back();
            }
        })?;
    let handle = Handle {
        messages,
        thread: Some(thread),
    };
    Ok((handle, protection))
}

/// Writes that block are carried out by another thread; they are waited for this long.
const SLOW_WRITES: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for values that are on their way, and adds what comes of them.
pub fn finish_writes(
    actuator: &mut Actuator,
    clock: &Clock,
    bases: &dyn Bases,
    applied: &mut plimsoll_actuate::Applied,
) {
    let deadline = clock.monotonic().saturating_add(SLOW_WRITES);
    while applied.writing > 0 && clock.monotonic() < deadline {
        std::thread::sleep(LOOK_EVERY);
        let turn = actuator.turn(Now::of(clock), bases);
        applied.restored += turn.restored;
        applied.refused += turn.refused;
        applied.writing = turn.writing;
    }
}

struct Worker {
    protector: Protector,
    clock: Clock,
    shown: Arc<Mutex<Shown>>,
    evictions: mpsc::Sender<Eviction>,
    last: Step,
    plans: Vec<Plan>,
    /// Notes that have been logged and still hold.
    noted: BTreeSet<(&'static str, Box<str>, Box<str>)>,
}

impl Worker {
    fn run(&mut self, inbox: &Receiver<Message>, every: Duration) {
        let mut next = self.clock.monotonic();
        loop {
            let now = self.clock.monotonic();
            if now >= next {
                self.step();
                // What a stall has missed is not made up for.
                next = next.saturating_add(every).max(self.clock.monotonic());
            }
            // People are answered between two steps, however long steps take.
            let patience = next.saturating_sub(self.clock.monotonic());
            let first = match inbox.recv_timeout(patience) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for message in first
                .into_iter()
                .chain(inbox.try_iter().take(MOST_MESSAGES))
            {
                if !self.handle(message) {
                    return;
                }
            }
        }
    }

    /// `false`: it is time to end.
    fn handle(&mut self, message: Message) -> bool {
        match message {
            // Who asked may have gone: then nothing is done any more, either.
            Message::Ask(_, reply) if reply.is_closed() => {}
            Message::Ask(request, reply) => {
                let _ = reply.send(self.answer(request));
            }
            Message::Evicted { eviction, asked } => {
                let now = self.now();
                let actuator = &mut self.protector.actuator;
                actuator.note_eviction(&eviction, asked, now);
            }
            Message::EvictionFailed(uid) => {
                let now = self.clock.monotonic();
                self.protector.eviction_failed(&uid, now);
            }
            Message::Stop => return false,
        }
        true
    }

    fn now(&self) -> Now {
        Now::of(&self.clock)
    }

    fn step(&mut self) {
        let mut step = self.protector.step(self.now());
        self.plans = std::mem::take(&mut step.planned.plans);
        for eviction in step.evictions.drain(..) {
            let uid = Arc::clone(&eviction.uid);
            // A full queue means that evictions are under way; the strategies may ask again.
            if self.evictions.try_send(eviction).is_err() {
                let now = self.clock.monotonic();
                self.protector.eviction_failed(&uid, now);
            }
        }
        self.log_notes(&step.planned.notes);
        let actuator = &self.protector.actuator;
        let mut shown = self.shown.lock();
        shown.mode = actuator.effective_mode();
        shown.gate.clone_from(&step.planned.gate);
        shown.metrics = std::mem::take(&mut step.planned.metrics);
        shown.counters = actuator.counters();
        shown.second_agent = actuator.second_agent().is_some();
        shown.steps += 1;
        drop(shown);
        if step.applied.second_agent {
            tracing::error!(
                "another agent changes the same kernel files; protection only observes now. Stop one of them, \
                 then run: plimsoll qos mode enforce"
            );
        }
        self.last = step;
    }

    /// What is wrong with a policy or an annotation is logged when it comes up, not each second.
    fn log_notes(&mut self, notes: &[Note]) {
        let now: BTreeSet<_> = notes
            .iter()
            .take(MOST_NOTES)
            .map(|note| (note.code, note.about.clone(), note.text.clone()))
            .collect();
        for (code, about, text) in now.difference(&self.noted) {
            tracing::warn!(code, about = &**about, "{text}");
        }
        self.noted = now;
    }

    /// Gives the number of values that the kernel refused.
    fn give_back(&mut self) -> u64 {
        let now = self.now();
        let bases = self.protector.bases().clone();
        let actuator = &mut self.protector.actuator;
        let mut applied = actuator.restore(&Filter::All, now, &bases);
        finish_writes(actuator, &self.clock, &bases, &mut applied);
        let (restored, refused) = (applied.restored, applied.refused);
        tracing::info!(
            restored,
            refused,
            "protection is off, values are given back"
        );
        refused
    }

    fn status(&self) -> Status {
        self.protector.actuator.status(self.protector.bases())
    }

    fn answer(&mut self, request: Request) -> Answer {
        let now = self.now();
        let until = |seconds: Option<u64>| {
            seconds.map(|seconds| {
                now.wall
                    .plus(Duration::from_secs(seconds.min(10 * 365 * 86_400)))
            })
        };
        let done = |text: String| Answer::Ok(json!({ "done": text }));
        match request {
            Request::Status => self.whole(),
            Request::Plan => to_answer(&self.plans),
            Request::Diff => {
                let differs = |one: &plimsoll_actuate::TargetStatus| one.state != State::Applied;
                let targets: Vec<_> = self.status().targets.into_iter().filter(differs).collect();
                to_answer(&targets)
            }
            Request::Journal { after, most } => {
                to_answer(&self.protector.actuator.journal(after, most.min(MOST_LINES)))
            }
            Request::Hold { what, .. } | Request::Undo { what, .. } if what.trim().is_empty() => {
                Answer::Error("name a cgroup or a file; see: plimsoll qos status".into())
            }
            Request::Hold { what, seconds } => {
                self.protector.actuator.hold(&what, until(seconds), now);
                done(format!("{what} is left alone"))
            }
            Request::Release { what } => match self.protector.actuator.release_hold(&what, now) {
                true => done(format!("{what} is protected again")),
                false => Answer::Error(format!(
                    "there is no hold of {what}; see: plimsoll qos status"
                )),
            },
            Request::Restore => {
                self.protector.actuator.set_mode(Mode::Observe, now);
                let refused = self.give_back();
                if refused > 0 {
                    return Answer::Error(format!(
                        "the agent only observes now, but the kernel refused {refused} values; see: plimsoll qos journal"
                    ));
                }
                done("everything is given back; the agent only observes until it is told: plimsoll qos mode enforce".into())
            }
            Request::Undo { what, seconds } => self.undo(&what, seconds, now),
            Request::Mode { mode } => match mode.parse() {
                Ok(mode) => {
                    self.protector.actuator.forget_second_agent();
                    self.protector.actuator.set_mode(mode, now);
                    done(format!(
                        "the mode is {} until the agent is started again",
                        mode.as_str()
                    ))
                }
                Err(error) => Answer::Error(error.to_string()),
            },
        }
    }

    fn undo(&mut self, what: &str, seconds: Option<u64>, now: Now) -> Answer {
        let status = self.status();
        let asker = asker_named(what);
        let targets: Vec<_> = status
            .targets
            .into_iter()
            .filter(|one| match asker {
                Some(_) => one.asker == asker,
                None => {
                    let below = Filter::Cgroup(what.to_owned());
                    one.file == what || below.matches(&one.target, None)
                }
            })
            .collect();
        if targets.is_empty() {
            return Answer::Error(format!(
                "nothing of {what} is changed; name an asker, a cgroup or a file of: plimsoll qos status"
            ));
        }
        let hold = seconds.map_or(UNDONE_FOR, Duration::from_secs);
        let bases = self.protector.bases().clone();
        let mut restored = 0;
        for one in &targets {
            let filter = Filter::Target(one.target.clone());
            let actuator = &mut self.protector.actuator;
            restored += actuator.restore(&filter, now, &bases).restored;
            if !one.file.is_empty() {
                actuator.hold(&one.file, Some(now.wall.plus(hold)), now);
            }
        }
        let files = targets.len();
        Answer::Ok(json!({
            "done": format!("{files} files are left alone for {} s, {restored} values were given back", hold.as_secs()),
        }))
    }

    fn whole(&self) -> Answer {
        let gate = &self.last.planned.gate;
        let waiting: Vec<_> = gate
            .waiting
            .iter()
            .map(|wait| {
                json!({
                    "for": wait.source.as_str(),
                    "ageSeconds": wait.age.map(|age| age.as_secs()),
                })
            })
            .collect();
        let held: Vec<_> = gate
            .held
            .iter()
            .map(|(asker, since)| json!({"asker": asker, "seconds": since.as_secs()}))
            .collect();
        let notes: Vec<_> = self
            .last
            .planned
            .notes
            .iter()
            .map(|note| json!({"code": note.code, "about": note.about, "text": note.text}))
            .collect();
        match serde_json::to_value(self.status()) {
            Ok(Value::Object(mut status)) => {
                let gate = json!({"open": gate.open, "waiting": waiting, "held": held});
                status.insert("gate".into(), gate);
                status.insert("notes".into(), notes.into());
                // Two statuses with the same number of writes say something only if it was looked in between.
                status.insert("steps".into(), self.shown.lock().steps.into());
                Answer::Ok(Value::Object(status))
            }
            Ok(other) => Answer::Ok(other),
            Err(error) => Answer::Error(error.to_string()),
        }
    }
}

/// As the journal spells it, `cpu-suppress`, or as the status does, `cpuSuppress`.
fn asker_named(name: &str) -> Option<Asker> {
    let plain = |name: &str| name.replace('-', "").to_ascii_lowercase();
    let wanted = plain(name);
    let mut all = Asker::ALL.into_iter();
    all.find(|asker| plain(asker.as_str()) == wanted)
}

fn to_answer<T: serde::Serialize>(value: &T) -> Answer {
    match serde_json::to_value(value) {
        Ok(value) => Answer::Ok(value),
        Err(error) => Answer::Error(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn askers_in_both_spellings() {
        for (name, expected) in [
            ("cpu-suppress", Some(Asker::CpuSuppress)),
            ("cpuSuppress", Some(Asker::CpuSuppress)),
            ("blkIo", Some(Asker::BlkIo)),
            ("/kubepods", None),
            ("", None),
        ] {
            assert_eq!(asker_named(name), expected, "{name}");
        }
    }
}
