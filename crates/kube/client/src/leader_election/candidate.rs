//! Runs the election's state machine against a real Lease.

use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use tokio::sync::watch;

use super::config::{Config, ConfigError};
use super::elector::{Action, Answer, Elector, Now, Transition};
use super::leadership::{Leadership, Seen};
use crate::events::{Recorder, Reference};
use crate::explain;
use crate::shutdown;
use crate::shutdown::Shutdown;

/// For the work of a leader that has lost to end by itself.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// How long a candidate that is asked to stop waits for an answer: it may just have won.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// How a candidacy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionResult {
    /// Asked to stop before it ever led.
    NeverLed,
    /// Asked to stop while it led; the work is done and the lease given back.
    Stopped,
    /// The lease could not be renewed, or somebody else holds it.
    Lost,
    /// The work ended in a panic; the lease was given back for others to try.
    Crashed,
}

pub struct LeaderElector {
    config: Config,
    elector: Elector,
    leases: Api<Lease>,
    recorder: Option<Recorder>,
    leadership: Leadership,
}

impl std::fmt::Debug for LeaderElector {
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
    ) -> Result<LeaderElector, ConfigError> {
        Ok(LeaderElector {
            elector: Elector::new(self.clone(), fastrand::u64(..))?,
            leases: Api::namespaced(client, &self.namespace),
            recorder,
            leadership: Leadership::new(&self),
            config: self,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Standing,
    Leading,
    Over,
}

impl LeaderElector {
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Stands for election until told to stop, or until it has led and lost. Once it leads, `work` runs; its argument
    /// says when to end, and if it does not, it is cut off. Asked to stop, the lease is kept until the work has ended,
    /// or has had as long as a renewal may take.
    pub async fn run<L, W>(mut self, shutdown: Shutdown, work: L) -> ElectionResult
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
                return ElectionResult::NeverLed;
            }
            // What fails in the work is a failure of the role.
            let (stop_work, work_stops) = shutdown.part();
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
                _ = phases.wait_for(|phase| *phase == Phase::Over) => ElectionResult::Lost,
                () = shutdown.begins() => ElectionResult::Stopped,
                () = crashed => ElectionResult::Crashed,
            };
            stop_work.stop();
            let patience = match ended {
                ElectionResult::Stopped => patience,
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
                    let pause = until.saturating_sub(self.leadership.now());
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = stop.begins() => {}
                    }
                    continue;
                }
                Action::Get => {
                    let get = self.leases.get(&self.config.name);
                    self.ask(get, false, &stop).await
                }
                Action::Create(lease) => {
                    let params = PostParams::default();
                    self.ask(self.leases.create(&params, &lease), true, &stop)
                        .await
                }
                Action::Put(lease) => {
                    let params = PostParams::default();
                    let put = self.leases.replace(&self.config.name, &params, &lease);
                    self.ask(put, false, &stop).await
                }
            };
            self.elector.answer(self.now(), answer);
            self.tell(&phase);
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.leadership.now(),
            wall: Timestamp::now(),
        }
    }

    async fn ask(
        &self,
        request: impl Future<Output = Result<Lease, kube::Error>>,
        creates: bool,
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
        let waiting = &self.leadership.0.waiting;
        let outcome = tokio::select! {
            outcome = waiting.during(tokio::time::timeout(within, request)) => outcome,
            () = cut_short => return Answer::Failed,
        };
        let error = match outcome {
            Ok(Ok(lease)) => {
                waiting.over();
                return Answer::Lease(Box::new(lease));
            }
            Ok(Err(error)) => error,
            // The request says where it went, if it is the first to lose its patience.
            Err(elapsed) => kube::Error::Service(Box::new(elapsed)),
        };
        match &error {
            // One that is to be created is missing as well; there, its namespace is.
            kube::Error::Api(status) if status.code == 404 && !creates => return Answer::NotFound,
            kube::Error::Api(status) if status.code == 409 => {
                waiting.over();
                return Answer::Conflict;
            }
            _ => waiting.failed(explain(&error)),
        }
        Answer::Failed
    }

    /// Publishes what the elector knows, and says what happened.
    fn tell(&mut self, phase: &watch::Sender<Phase>) {
        self.leadership.saw(Seen {
            safe_until: self.elector.safe_until(),
            observed_at: self.elector.observed_at(),
        });
        for notice in self.elector.notices() {
            match notice {
                Transition::StartedLeading => {
                    tracing::info!(lease = self.config.name, "became leader");
                    self.record("became leader");
                    phase.send_replace(Phase::Leading);
                }
                Transition::StoppedLeading => {
                    match self.elector.is_stopping() {
                        true => tracing::info!(lease = self.config.name, "stopped leading"),
                        false => {
                            let reason = self.why_lost();
                            tracing::warn!(lease = self.config.name, reason, "stopped leading");
                            self.leadership.lost(reason);
                        }
                    }
                    self.record("stopped leading");
                    phase.send_replace(Phase::Over);
                }
                Transition::NewLeader(holder) => {
                    tracing::info!(lease = self.config.name, holder, "new leader");
                    self.leadership.0.holder.send_replace(holder);
                }
                Transition::SlowPath => {
                    self.leadership.took_slow_path();
                }
            }
        }
    }

    fn why_lost(&self) -> String {
        let Config {
            namespace, name, ..
        } = &self.config;
        let holder = self.elector.holder();
        if !holder.is_empty() && holder != self.config.identity {
            return format!("{holder} holds the lease {namespace}/{name} now");
        }
        match self.leadership.0.waiting.trouble() {
            Some(trouble) => {
                let within = self.config.renew_deadline.as_secs_f64();
                format!(
                    "the lease {namespace}/{name} could not be renewed within {within} s: {trouble}"
                )
            }
            None => format!(
                "the lease {namespace}/{name} was not renewed in time, and no request failed: was this process or its machine paused?"
            ),
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
