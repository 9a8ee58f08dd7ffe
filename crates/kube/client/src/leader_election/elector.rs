//! The election protocol as a state machine without clock or network: the caller gives it the time and the API
//! server's responses.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::config::{Config, ConfigError, JITTER};

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Since any fixed moment. The only clock that decides anything.
    pub monotonic: Duration,
    /// Written into the Lease, for people to read.
    pub wall: Timestamp,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing until then, by the monotonic clock.
    Sleep(Duration),
    /// Read the Lease, and tell.
    Get,
    /// Create it, and tell.
    Create(Box<Lease>),
    /// Replace it, provided it is still at this resource version, and tell.
    Put(Box<Lease>),
    /// It is over.
    End,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The Lease as it is now.
    Lease(Box<Lease>),
    NotFound,
    /// Somebody else changed it meanwhile.
    Conflict,
    /// Anything else, silence included.
    Failed,
}

/// What happened, for whoever wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    StartedLeading,
    StoppedLeading,
    /// Somebody is seen to hold the lease, or, if empty, nobody.
    NewLeader(String),
    /// The leader could not renew without reading first.
    SlowPath,
}

#[derive(Debug)]
pub struct Elector {
    config: Config,
    /// The Lease as last seen; what is replaced, and by its version compared.
    lease: Option<Lease>,
    /// When its spec was last seen to change.
    observed_at: Duration,
    /// When the last renewal that succeeded was sent off.
    renewed_at: Duration,
    reported: String,
    leads: bool,
    stopping: bool,
    state: State,
    notices: Vec<Transition>,
    random: fastrand::Rng,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Until the next try to acquire, to renew within a round, or until the next round.
    Waiting {
        until: Duration,
        round: Option<Round>,
    },
    Trying {
        began: Now,
        step: Step,
        round: Option<Round>,
    },
    Releasing {
        step: ReleaseStep,
        deadline: Duration,
    },
    Ended,
}

/// A leader's tries to renew once.
#[derive(Debug, Clone, Copy)]
struct Round {
    began: Duration,
    tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Without reading first.
    FastPut,
    Get,
    Create,
    Put,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReleaseStep {
    Get,
    Put,
}

impl Elector {
    pub fn new(config: Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            lease: None,
            observed_at: Duration::ZERO,
            renewed_at: Duration::ZERO,
            reported: String::new(),
            leads: false,
            stopping: false,
            state: State::Waiting {
                until: Duration::ZERO,
                round: None,
            },
            notices: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        })
    }

    /// What has happened since this was last asked.
    pub fn notices(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.notices)
    }

    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Who holds the lease, as far as is known.
    pub fn holder(&self) -> &str {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default()
    }

    pub fn observed_at(&self) -> Duration {
        self.observed_at
    }

    /// Until when it may write, whatever happened since; `None` for those who do not lead. Who is not held up gives up
    /// by then, and nobody can have taken over: what is left of the lease is for requests that are under way.
    pub fn safe_until(&self) -> Option<Duration> {
        let gives_up = self.config.retry_period + self.config.renew_deadline;
        self.leads
            .then(|| self.renewed_at + gives_up.min(self.config.lease_duration))
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Until when the answer to the pending request matters.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Trying {
                round: Some(round), ..
            } => Some(round.began + self.config.renew_deadline),
            State::Releasing { deadline, .. } => Some(deadline),
            _ => None,
        }
    }

    /// Asks it to stop: a leader gives the lease back, a candidate just leaves. A pending request should be answered
    /// first.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub fn next(&mut self, now: Now) -> Action {
        loop {
            match self.state {
                State::Ended => return Action::End,
                State::Waiting { .. } if self.stopping => self.leave(now),
                State::Waiting { until, round } => {
                    if self.round_is_over(round, now) {
                        self.leave(now);
                    } else if now.monotonic < until {
                        let until = self.deadline_of(round).map_or(until, |end| end.min(until));
                        return Action::Sleep(until);
                    } else {
                        self.try_now(now, round);
                    }
                }
                State::Trying { began, step, round } => {
                    if self.round_is_over(round, now) {
                        self.leave(now);
                        continue;
                    }
                    return match step {
                        Step::Get => Action::Get,
                        Step::Create => Action::Create(Box::new(self.created(began))),
                        Step::FastPut | Step::Put => Action::Put(Box::new(self.renewed(began))),
                    };
                }
                State::Releasing { deadline, .. } if now.monotonic >= deadline => {
                    self.state = State::Ended;
                }
                State::Releasing { step, .. } => {
                    return match step {
                        ReleaseStep::Get => Action::Get,
                        ReleaseStep::Put => Action::Put(Box::new(self.released(now))),
                    };
                }
            }
        }
    }

    /// The answer to the last action that was a request.
    pub fn answer(&mut self, now: Now, answer: Answer) {
        match self.state {
            State::Trying { began, step, round } => self.tried(now, began, step, round, answer),
            State::Releasing { step, deadline } => self.releasing(step, deadline, answer),
            State::Waiting { .. } | State::Ended => {}
        }
        self.report();
    }

    fn deadline_of(&self, round: Option<Round>) -> Option<Duration> {
        round.map(|round| round.began + self.config.renew_deadline)
    }

    fn round_is_over(&self, round: Option<Round>, now: Now) -> bool {
        let deadline = self.deadline_of(round);
        deadline.is_some_and(|deadline| now.monotonic >= deadline)
    }

    fn try_now(&mut self, now: Now, round: Option<Round>) {
        let round = match (self.leads, round) {
            (false, _) => None,
            (true, None) => Some(Round {
                began: now.monotonic,
                tries: 1,
            }),
            (true, Some(round)) => Some(Round {
                tries: round.tries + 1,
                ..round
            }),
        };
        let step = match self.is_mine() && self.is_valid(now) {
            true => Step::FastPut,
            false => Step::Get,
        };
        self.state = State::Trying {
            began: now,
            step,
            round,
        };
    }

    fn is_mine(&self) -> bool {
        self.holder() == self.config.identity
    }

    /// Has the lease changed recently enough, as far as this process has seen?
    fn is_valid(&self, now: Now) -> bool {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let lasts = Duration::from_secs(seconds.unwrap_or(0).max(0).unsigned_abs().into());
        self.observed_at + lasts > now.monotonic
    }

    fn tried(&mut self, now: Now, began: Now, step: Step, round: Option<Round>, answer: Answer) {
        let on = |step| State::Trying { began, step, round };
        match (step, answer) {
            (Step::FastPut, Answer::Lease(lease))
            | (Step::Create, Answer::Lease(lease))
            | (Step::Put, Answer::Lease(lease)) => self.won(now, began, *lease),
            (Step::FastPut, _) => self.state = on(Step::Get),
            (Step::Get, Answer::NotFound) => self.state = on(Step::Create),
            (Step::Get, Answer::Lease(lease)) => {
                self.observe(now, *lease);
                let held = !self.holder().is_empty() && self.is_valid(began);
                if self.is_mine() {
                    self.notices.push(Transition::SlowPath);
                    self.state = on(Step::Put);
                } else if !held {
                    self.state = on(Step::Put);
                } else if self.leads {
                    // Somebody else leads: going on trying would only make two of us.
                    self.report();
                    self.leave(now);
                } else {
                    self.lost_try(now, round);
                }
            }
            (Step::Get | Step::Create | Step::Put, _) => self.lost_try(now, round),
        }
    }

    fn observe(&mut self, now: Now, lease: Lease) {
        let known = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        if self.lease.is_none() || known != lease.spec.as_ref() {
            self.observed_at = now.monotonic;
        }
        self.lease = Some(lease);
    }

    fn won(&mut self, now: Now, began: Now, lease: Lease) {
        self.lease = Some(lease);
        self.observed_at = now.monotonic;
        self.renewed_at = began.monotonic;
        let mut pause = self.config.retry_period;
        if !self.leads {
            self.leads = true;
            self.notices.push(Transition::StartedLeading);
            // The first round of renewing begins at once.
            pause = Duration::ZERO;
        }
        self.state = State::Waiting {
            until: now.monotonic + pause,
            round: None,
        };
    }

    fn lost_try(&mut self, now: Now, round: Option<Round>) {
        let period = self.config.retry_period;
        let until = match round {
            // Tries of a round keep their beat; one that took long is followed at once.
            Some(round) => round.began + period * round.tries,
            None => now.monotonic + period + period.mul_f64(JITTER * self.random.f64()),
        };
        self.state = State::Waiting { until, round };
    }

    /// Stops leading, or stops wanting to.
    fn leave(&mut self, now: Now) {
        if !self.leads {
            self.state = State::Ended;
            return;
        }
        self.leads = false;
        self.notices.push(Transition::StoppedLeading);
        self.state = match self.config.release_on_stop && self.is_mine() {
            true => State::Releasing {
                step: ReleaseStep::Get,
                deadline: now.monotonic + self.config.renew_deadline,
            },
            false => State::Ended,
        };
    }

    fn releasing(&mut self, step: ReleaseStep, deadline: Duration, answer: Answer) {
        self.state = match (step, answer) {
            (ReleaseStep::Get, Answer::Lease(lease)) => {
                self.lease = Some(*lease);
                match self.is_mine() {
                    true => State::Releasing {
                        step: ReleaseStep::Put,
                        deadline,
                    },
                    false => State::Ended,
                }
            }
            (ReleaseStep::Put, Answer::Conflict) => State::Releasing {
                step: ReleaseStep::Get,
                deadline,
            },
            (ReleaseStep::Put, Answer::Lease(lease)) => {
                self.lease = Some(*lease);
                State::Ended
            }
            _ => State::Ended,
        };
    }

    fn report(&mut self) {
        if self.holder() != self.reported {
            self.reported = self.holder().to_owned();
            self.notices
                .push(Transition::NewLeader(self.reported.clone()));
        }
    }

    fn created(&self, began: Now) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                namespace: Some(self.config.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(began, began.wall, 0)),
        }
    }

    fn renewed(&self, began: Now) -> Lease {
        let lease = self.lease.clone().unwrap_or_default();
        let old = lease.spec.unwrap_or_default();
        let transitions = old.lease_transitions.unwrap_or(0);
        let spec = match self.is_mine() {
            true => {
                let acquired = old.acquire_time.map_or(began.wall, |time| time.0);
                self.spec(began, acquired, transitions)
            }
            false => self.spec(began, began.wall, transitions.saturating_add(1)),
        };
        Lease {
            metadata: lease.metadata,
            spec: Some(spec),
        }
    }

    fn released(&self, now: Now) -> Lease {
        let lease = self.lease.clone().unwrap_or_default();
        let transitions = lease.spec.and_then(|spec| spec.lease_transitions);
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            ..self.spec(now, now.wall, transitions.unwrap_or(0))
        };
        Lease {
            metadata: lease.metadata,
            spec: Some(spec),
        }
    }

    fn spec(&self, now: Now, acquired: Timestamp, transitions: i32) -> LeaseSpec {
        let seconds = self.config.lease_duration.as_secs();
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: Some(MicroTime(acquired)),
            renew_time: Some(MicroTime(now.wall)),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}
