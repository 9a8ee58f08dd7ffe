//! A candidate at work: the state machine driven against a real Lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::config::{Config, ConfigError};
use super::elector::{Action, Answer, Elector, Notice, Now};
use crate::events::{Recorder, Reference};
use crate::shutdown::{self, Shutdown};

/// For the work of a leader that has lost to end by itself.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// How long a candidate that is asked to stop waits for an answer: it may just have won.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// How a candidacy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Asked to stop before it ever led.
    NeverLed,
    /// Asked to stop while it led; the work is done and the lease given back.
    Stopped,
    /// The lease could not be renewed, or somebody else holds it.
    Lost,
    /// The work ended in a panic; the lease was given back for others to try.
    Crashed,
}

pub struct Candidate {
    config: Config,
    elector: Elector,
    leases: Api<Lease>,
    recorder: Option<Recorder>,
    leadership: Leadership,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("elector", &self.elector)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Checks the parameters; asks nobody yet.
    pub fn build(
        self,
        client: kube::Client,
        recorder: Option<Recorder>,
    ) -> Result<Candidate, ConfigError> {
        Ok(Candidate {
            elector: Elector::new(self.clone(), fastrand::u64(..))?,
            leases: Api::namespaced(client, &self.namespace),
            recorder,
            leadership: Leadership(Arc::new(Shared {
                name: self.name.clone(),
                lease_duration: self.lease_duration,
                began: Instant::now(),
                seen: Mutex::default(),
                holder: watch::channel(String::new()).0,
                slow_paths: AtomicU64::new(0),
            })),
            config: self,
        })
    }
}

/// What is known about who leads; clones tell the same.
#[derive(Debug, Clone)]
pub struct Leadership(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    lease_duration: Duration,
    began: Instant,
    seen: Mutex<Seen>,
    holder: watch::Sender<String>,
    slow_paths: AtomicU64,
}

#[derive(Debug, Default)]
struct Seen {
    safe_until: Option<Duration>,
    observed_at: Duration,
}

impl Leadership {
    /// True only while nobody else can have taken over, however long this process was paused.
    pub fn is_leader(&self) -> bool {
        let safe_until = self.0.seen.lock().safe_until;
        safe_until.is_some_and(|until| self.0.began.elapsed() < until)
    }

    /// Who was last seen to hold the lease; empty: nobody.
    pub fn leader(&self) -> String {
        self.0.holder.borrow().clone()
    }

    /// Tells each change of who holds the lease.
    pub fn watch(&self) -> watch::Receiver<String> {
        self.0.holder.subscribe()
    }

    /// Of the Lease: the `name` label of `leader_election_master_status` (1 for the leader, else 0) and of
    /// `leader_election_slowpath_total`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How often the leader had to read the Lease before it could renew it.
    pub fn slow_paths(&self) -> u64 {
        self.0.slow_paths.load(Ordering::Relaxed)
    }

    /// The health check `leaderElection`: a leader that has not renewed for this much longer than it should have has
    /// hung, and had better be restarted.
    pub fn check(&self, tolerance: Duration) -> Result<(), String> {
        let seen = self.0.seen.lock();
        let age = self.0.began.elapsed().saturating_sub(seen.observed_at);
        if seen.safe_until.is_some() && age > self.0.lease_duration + tolerance {
            let name = &self.0.name;
            return Err(format!(
                "failed election to renew leadership on lease {name}"
            ));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Standing,
    Leading,
    Over,
}

impl Candidate {
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Stands for election until told to stop, or until it has led and lost. Once it leads, `work` runs; its argument
    /// says when to end, and if it does not, it is cut off. Asked to stop, the lease is kept until the work has ended,
    /// or has had as long as a renewal may take.
    pub async fn run<L, W>(mut self, shutdown: Shutdown, work: L) -> Ended
    where
        L: FnOnce(Shutdown) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let (phase, mut phases) = watch::channel(Phase::Standing);
        let (stop_election, election_stops) = shutdown::channel();
        let patience = self.config.renew_deadline;
        let duties = async move {
            let won = tokio::select! {
                won = phases.wait_for(|phase| *phase == Phase::Leading) => won.is_ok(),
                () = shutdown.begins() => false,
            };
            if !won {
                stop_election.stop();
                return Ended::NeverLed;
            }
            let (stop_work, work_stops) = shutdown::channel();
            let work = tokio::spawn(work(work_stops));
            let cut_off = work.abort_handle();
            let mut done = work.map(|ended| ended.is_ok()).shared();
            let crashed = async {
                if done.clone().await {
                    // The work is done, the lease is still ours to keep.
                    std::future::pending::<()>().await;
                }
            };
            let ended = tokio::select! {
                _ = phases.wait_for(|phase| *phase == Phase::Over) => Ended::Lost,
                () = shutdown.begins() => Ended::Stopped,
                () = crashed => Ended::Crashed,
            };
            stop_work.stop();
            let patience = match ended {
                Ended::Stopped => patience,
                // Somebody else may lead any moment.
                _ => LAST_MOMENT,
            };
            let _ = tokio::time::timeout(patience, &mut done).await;
            cut_off.abort();
            stop_election.stop();
            ended
        };
        let (ended, ()) = tokio::join!(duties, self.stand(election_stops, phase));
        tracing::info!(
            lease = self.config.name,
            ?ended,
            "no longer standing for election"
        );
        ended
    }

    async fn stand(&mut self, stop: Shutdown, phase: watch::Sender<Phase>) {
        let (lease, identity) = (&self.config.name, &self.config.identity);
        tracing::info!(lease, identity, "standing for election");
        loop {
            if stop.has_begun() {
                self.elector.stop();
            }
            let action = self.elector.next(self.now());
            self.tell(&phase);
            let answer = match action {
                Action::End => return,
                Action::Sleep(until) => {
                    let until = self.leadership.0.began + until;
                    tokio::select! {
                        () = tokio::time::sleep_until(until) => {}
                        () = stop.begins() => {}
                    }
                    continue;
                }
                Action::Get => self.ask(self.leases.get(&self.config.name), &stop).await,
                Action::Create(lease) => {
                    let params = PostParams::default();
                    self.ask(self.leases.create(&params, &lease), &stop).await
                }
                Action::Put(lease) => {
                    let params = PostParams::default();
                    let put = self.leases.replace(&self.config.name, &params, &lease);
                    self.ask(put, &stop).await
                }
            };
            self.elector.answer(self.now(), answer);
            self.tell(&phase);
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.leadership.0.began.elapsed(),
            wall: Timestamp::now(),
        }
    }

    async fn ask(
        &self,
        request: impl Future<Output = Result<Lease, kube::Error>>,
        stop: &Shutdown,
    ) -> Answer {
        let mut within = self.config.request_timeout();
        if let Some(deadline) = self.elector.deadline() {
            within = within.min(deadline.saturating_sub(self.now().monotonic));
        }
        let leads = self.elector.leads();
        let cut_short = async {
            stop.begins().await;
            if leads {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(LAST_ANSWER).await;
        };
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(within, request) => outcome,
            () = cut_short => return Answer::Failed,
        };
        match outcome {
            Ok(Ok(lease)) => Answer::Lease(Box::new(lease)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Answer::NotFound,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Answer::Conflict,
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = self.config.name, "leader election request failed");
                Answer::Failed
            }
            Err(_) => {
                tracing::warn!(
                    ?within,
                    lease = self.config.name,
                    "leader election request timed out"
                );
                Answer::Failed
            }
        }
    }

    /// Publishes what the elector knows, and says what happened.
    fn tell(&mut self, phase: &watch::Sender<Phase>) {
        let shared = &self.leadership.0;
        {
            let mut seen = shared.seen.lock();
            seen.safe_until = self.elector.safe_until();
            seen.observed_at = self.elector.observed_at();
        }
        for notice in self.elector.notices() {
            match notice {
                Notice::StartedLeading => {
                    tracing::info!(lease = self.config.name, "became leader");
                    self.record("became leader");
                    phase.send_replace(Phase::Leading);
                }
                Notice::StoppedLeading => {
                    tracing::info!(lease = self.config.name, "stopped leading");
                    self.record("stopped leading");
                    phase.send_replace(Phase::Over);
                }
                Notice::NewLeader(holder) => {
                    tracing::info!(lease = self.config.name, holder, "new leader");
                    shared.holder.send_replace(holder);
                }
                Notice::SlowPath => {
                    shared.slow_paths.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn record(&self, what: &str) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        let mut lease = Reference::new("coordination.k8s.io/v1", "Lease", &self.config.name);
        lease.namespace = Some(self.config.namespace.clone());
        let message = format!("{} {what}", self.config.identity);
        recorder.normal(&lease, "LeaderElection", "", message);
    }
}
