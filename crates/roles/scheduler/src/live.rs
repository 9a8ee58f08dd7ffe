//! The scheduler at work: built, spawned, drained; one configuration after the other, led by one process at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_client::events;
use plimsoll_client::events::{Recorder, RecorderTask};
use plimsoll_client::file_watcher::{LOOK_EVERY, Watcher};
use plimsoll_client::leader_election;
use plimsoll_client::leader_election::Leadership;
use plimsoll_client::reflector::{CacheSync, SyncTimeout};
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Shutdown, ShutdownTrigger};
use plimsoll_client::{ClientMetrics, Clients};
use plimsoll_golang::url;
use plimsoll_metrics::Exposition;
use plimsoll_sched::model::Names;
use plimsoll_sched::queue::QueueConfig;
use plimsoll_sched::{Config as CoreConfig, Scheduler};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::actions::{self, Executor};
use crate::config::{self, ConfigError, Configuration};
use crate::driver::{self, Driver, Finished, Inputs, Inquiry};
use crate::explain::{self, Report};
use crate::extender::{ExtenderError, Extenders};
use crate::follow::{Books, follow};
use crate::gates::Gates;
use crate::journal::Journal;
use crate::metrics::pods::{PodList, PodResources};
use crate::metrics::{CoreFigures, Metrics};

/// For events that are queued when it stops.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// For the core to answer a question; it may be in the middle of something.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const QUESTIONS: usize = 16;
/// Pods read at a time for a page about all of them.
const PODS_AT_ONCE: usize = 500;
const LIVING: &str = "status.phase!=Succeeded,status.phase!=Failed";

#[derive(Debug, Clone)]
pub struct Options {
    pub configuration: Configuration,
    /// Where it came from, to be looked at again when it changes.
    pub file: Option<PathBuf>,
    /// Nobody waits longer than that for something to happen.
    pub max_unschedulable: Duration,
    /// Cycles that are remembered.
    pub remember: usize,
    /// Decides between nodes that are equally good; `None`: by chance.
    pub seed: Option<u64>,
    pub gates: Gates,
}

impl Options {
    pub fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            file: None,
            max_unschedulable: Duration::from_secs(300),
            remember: 2048,
            seed: None,
            gates: Gates::default(),
        }
    }
}

/// Who talks to the API server for what.
#[derive(Clone)]
pub struct Connections {
    pub main: kube::Client,
    pub events: kube::Client,
    pub election: kube::Client,
    /// What they asked, where that is counted.
    pub traffic: Option<ClientMetrics>,
    /// Makes the connections of a leader; without, it writes by the others.
    pub clients: Option<Clients>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    /// All by one.
    pub fn one(client: kube::Client) -> Self {
        Self {
            main: client.clone(),
            events: client.clone(),
            election: client,
            traffic: None,
            clients: None,
        }
    }

    /// Each for itself, so that a flood of events starves neither bindings nor the lease.
    pub fn of(clients: &Clients, election: &config::LeaderElection) -> Self {
        let renew = election.renew_deadline.duration() / 2;
        let within = renew.max(Duration::from_secs(1));
        Self {
            main: clients.client(),
            events: clients.client_for("events", None, Duration::from_secs(60)),
            election: clients.client_for("leader-election", None, within),
            traffic: Some(clients.traffic()),
            clients: Some(clients.clone()),
        }
    }

    /// What decisions are written by, and what tells of them. Who is elected may only while it leads.
    fn writers(&self, leadership: Option<&Leadership>) -> (kube::Client, kube::Client) {
        let Some(leadership) = leadership else {
            return (self.main.clone(), self.events.clone());
        };
        let main = match &self.clients {
            Some(clients) => clients.writer(leadership),
            None => leadership.guard(self.main.clone()),
        };
        (main, leadership.guard(self.events.clone()))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Extender(#[from] ExtenderError),
    #[error(transparent)]
    Election(#[from] leader_election::ConfigError),
}

/// Why nothing can be said about a pod.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    SyncTimeout(#[from] SyncTimeout),
}

/// Why it ended although nobody asked it to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("leaderelection lost")]
    Lost,
    #[error("the work ended in a panic, see the log")]
    Crashed,
    #[error(transparent)]
    Broken(#[from] shutdown::Failure),
}

/// Checked, not started.
pub struct Ready {
    options: Options,
    connections: Connections,
    candidate: Option<leader_election::LeaderElector>,
    recorders: FxHashMap<Box<str>, Recorder>,
    /// For decisions, and for events about them.
    writers: (kube::Client, kube::Client),
    /// They send when it is spawned: of the election, and of the work.
    events: Vec<events::Built>,
    work_events: Vec<events::Built>,
    shared: Shared,
    inquiries: mpsc::Receiver<Inquiry>,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What others may ask of a scheduler. Clones ask the same.
#[derive(Clone)]
pub struct Shared {
    inquiries: mpsc::Sender<Inquiry>,
    gate: Arc<Mutex<Option<CacheSync>>>,
    configuration: Arc<Mutex<Configuration>>,
    metrics: Metrics,
    client: kube::Client,
    traffic: Option<ClientMetrics>,
    gates: Gates,
    leadership: Option<Leadership>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Running {
    stopper: ShutdownTrigger,
    task: JoinHandle<Result<(), Failure>>,
    shared: Shared,
}

impl Options {
    /// Checks everything and starts nothing.
    pub fn build(self, connections: Connections) -> Result<Ready, BuildError> {
        let mut names = Names::default();
        self.configuration.build(&mut names)?;
        Extenders::build(&self.configuration.extenders)?;
        let profiles = self.configuration.profiles.iter();
        let profiles: Vec<Arc<str>> = profiles
            .map(|profile| Arc::from(profile.scheduler_name.as_str()))
            .collect();
        let mut events = Vec::new();
        let election = &self.configuration.leader_election;
        let candidate = match election.leader_elect {
            false => None,
            true => {
                let config = leader_election::Config {
                    lease_duration: election.lease_duration.duration(),
                    renew_deadline: election.renew_deadline.duration(),
                    retry_period: election.retry_period.duration(),
                    ..leader_election::Config::new(
                        &election.resource_namespace,
                        &election.resource_name,
                        leader_election::new_identity(),
                    )
                };
                let style = events::EventApi::Core;
                let (recorder, built) = events::Config::new(style, "default-scheduler")
                    .build(connections.events.clone());
                events.push(built);
                Some(config.build(connections.election.clone(), Some(recorder))?)
            }
        };
        let leadership = candidate
            .as_ref()
            .map(leader_election::LeaderElector::leadership);
        let (writer, event_writer) = connections.writers(leadership.as_ref());
        let mut recorders = FxHashMap::default();
        let mut work_events = Vec::new();
        for name in &profiles {
            let (recorder, built) = recorder(name).build(event_writer.clone());
            recorders.insert(Box::from(&**name), recorder);
            work_events.push(built);
        }
        let (asks, inquiries) = mpsc::channel(QUESTIONS);
        let shared = Shared {
            inquiries: asks,
            gate: Arc::default(),
            configuration: Arc::new(Mutex::new(self.configuration.clone())),
            metrics: Metrics::new(profiles, self.gates.clone()),
            client: connections.main.clone(),
            traffic: connections.traffic.clone(),
            gates: self.gates.clone(),
            leadership,
        };
        Ok(Ready {
            options: self,
            connections,
            writers: (writer, event_writer),
            candidate,
            recorders,
            events,
            work_events,
            shared,
            inquiries,
        })
    }
}

impl Options {
    /// Reads the cluster once and says what is to be said about a pod; nothing is decided, and nothing written.
    pub async fn explain(
        self,
        client: kube::Client,
        namespace: &str,
        name: &str,
        within: Duration,
    ) -> Result<Option<Report>, LookUpError> {
        let mut names = Names::default();
        let (mut profiles, _) = self.configuration.build(&mut names)?;
        let features = self.gates.features();
        profiles.iter_mut().for_each(|one| one.switch(&features));
        let (_stop, round) = shutdown::channel();
        let gate = CacheSync::default();
        let mut changes = follow(&client, &profiles, &features, &gate, &round);
        let core = CoreConfig {
            profiles,
            queue: QueueConfig::default(),
            seed: 0,
        };
        let mut core = Scheduler::new(core, names).with_features(features);
        let mut books = Books::default();
        let reading = async {
            while !gate.is_open() {
                let Some((kind, change)) = changes.recv().await else {
                    return;
                };
                books.take(kind, change, &mut core, driver::now());
            }
        };
        if tokio::time::timeout(within, reading).await.is_err() {
            let missing = gate.missing();
            return Err(SyncTimeout { within, missing }.into());
        }
        let journal = Journal::new(0);
        Ok(explain::report(
            &mut core,
            &journal,
            namespace,
            name,
            driver::now(),
        ))
    }
}

impl Ready {
    pub fn shared(&self) -> Shared {
        self.shared.clone()
    }

    pub fn spawn(self) -> Running {
        let (stopper, shutdown) = shutdown::channel();
        let shared = self.shared.clone();
        let task = tokio::spawn(self.run(shutdown));
        Running {
            stopper,
            task,
            shared,
        }
    }

    async fn run(self, shutdown: Shutdown) -> Result<(), Failure> {
        let (leads, leading) = watch::channel(self.candidate.is_none());
        let (reloads, reload) = watch::channel(0_u64);
        let (stop_work, work_stops) = shutdown.part();
        let fresh: Arc<Mutex<Option<Configuration>>> = Arc::default();
        if let Some(file) = self.options.file.clone() {
            let task = watch_file(file, Arc::clone(&fresh), reloads);
            let ends = shutdown.clone();
            shutdown.keep("following the configuration", async move {
                tokio::select! {
                    () = ends.begins() => {}
                    () = task => {}
                }
            });
        }
        let of_election: Vec<_> = self.events.into_iter().map(events::Built::spawn).collect();
        let recordings = self.work_events.into_iter().map(events::Built::spawn);
        let recordings: Recordings = Arc::new(Mutex::new(recordings.collect()));
        let (done, is_done) = oneshot::channel();
        let work = Work {
            options: self.options,
            connections: self.connections,
            writers: self.writers,
            recorders: self.recorders,
            recordings: Arc::clone(&recordings),
            shared: self.shared,
            leading,
            reload,
            fresh,
            shutdown: work_stops.clone(),
        };
        let work = work_stops.keep("scheduling", async move {
            let recordings = Arc::clone(&work.recordings);
            work.run(self.inquiries).await;
            // While the lease is still ours.
            let recordings = std::mem::take(&mut *recordings.lock());
            drain_all(recordings).await;
            let _ = done.send(());
        });
        let outcome = match self.candidate {
            None => {
                // Its sender must outlive the work.
                let _leads = leads;
                shutdown.begins().await;
                stop_work.stop();
                let _ = is_done.await;
                Ok(())
            }
            Some(candidate) => {
                let duty = Duty {
                    leads,
                    stop: stop_work,
                    is_done,
                };
                match candidate.run(shutdown, move |stop| duty.lead(stop)).await {
                    leader_election::ElectionResult::Lost => Err(Failure::Lost),
                    leader_election::ElectionResult::Crashed => Err(Failure::Crashed),
                    leader_election::ElectionResult::NeverLed
                    | leader_election::ElectionResult::Stopped => Ok(()),
                }
            }
        };
        work.abort();
        let left = std::mem::take(&mut *recordings.lock());
        drain_all(left).await;
        drain_all(of_election).await;
        outcome
    }
}

async fn drain_all(recordings: Vec<RecorderTask>) {
    let last_words = recordings.into_iter().map(|one| one.drain(LAST_WORDS));
    futures::future::join_all(last_words).await;
}

/// The tasks that send events: those of profiles that a new configuration adds come to them.
type Recordings = Arc<Mutex<Vec<RecorderTask>>>;

/// What a leader does: lets the work decide, and when it has to stop, waits for the last writes.
struct Duty {
    leads: watch::Sender<bool>,
    stop: ShutdownTrigger,
    is_done: oneshot::Receiver<()>,
}

impl Duty {
    async fn lead(self, stop: Shutdown) {
        self.leads.send_replace(true);
        stop.begins().await;
        self.leads.send_replace(false);
        self.stop.stop();
        let _ = self.is_done.await;
    }
}

struct Work {
    options: Options,
    connections: Connections,
    writers: (kube::Client, kube::Client),
    recorders: FxHashMap<Box<str>, Recorder>,
    recordings: Recordings,
    shared: Shared,
    leading: watch::Receiver<bool>,
    reload: watch::Receiver<u64>,
    fresh: Arc<Mutex<Option<Configuration>>>,
    shutdown: Shutdown,
}

impl Work {
    async fn run(mut self, mut inquiries: mpsc::Receiver<Inquiry>) {
        if self.options.configuration.delay_cache_until_active {
            let leads = self.leading.wait_for(|leading| *leading);
            tokio::select! {
                () = self.shutdown.begins() => return,
                _ = leads => {}
            }
        }
        loop {
            // Its end stops the watches of this round.
            let (stop_round, round) = self.shutdown.part();
            let Some((driver, inputs)) = self.round(&round) else {
                return;
            };
            let (gate, until) = (inputs.gate.clone(), round.clone());
            round.keep_restarting("telling what is missing", move || {
                tell_what_is_missing(gate.clone(), until.clone())
            });
            let finished = driver.run(inputs, &mut inquiries).await;
            stop_round.stop();
            if finished == Finished::Stopped {
                return;
            }
            if let Some(fresh) = self.fresh.lock().take() {
                tracing::info!("taking the new configuration");
                *self.shared.configuration.lock() = fresh.clone();
                self.options.configuration = fresh;
            }
        }
    }

    /// A core of the configuration as it is now, and everything that it is told.
    fn round(&mut self, round: &Shutdown) -> Option<(Driver, Inputs)> {
        let configuration = &self.options.configuration;
        let mut names = Names::default();
        // It was tried before it was taken.
        let (mut profiles, rules) = configuration.build(&mut names).ok()?;
        let features = self.options.gates.features();
        profiles.iter_mut().for_each(|one| one.switch(&features));
        let extenders = Arc::new(Extenders::build(&configuration.extenders).ok()?);
        let seconds = |value: i64| Duration::from_secs(u64::try_from(value).unwrap_or(0));
        for profile in &configuration.profiles {
            let name: Box<str> = profile.scheduler_name.as_str().into();
            self.recorders.entry(name).or_insert_with_key(|name| {
                let (recorder, recording) = recorder(name).spawn(self.writers.1.clone());
                self.recordings.lock().push(recording);
                recorder
            });
        }
        let names_of_profiles = configuration.profiles.iter();
        let names_of_profiles: Vec<Arc<str>> = names_of_profiles
            .map(|profile| Arc::from(profile.scheduler_name.as_str()))
            .collect();
        for (name, profile) in names_of_profiles.iter().zip(&profiles) {
            self.shared.metrics.expect(name, profile);
        }
        self.shared.metrics.set_profiles(names_of_profiles);
        let gate = CacheSync::default();
        let changes = follow(&self.connections.main, &profiles, &features, &gate, round);
        *self.shared.gate.lock() = Some(gate.clone());
        let core = CoreConfig {
            profiles,
            queue: QueueConfig {
                initial_backoff: seconds(configuration.pod_initial_backoff_seconds),
                max_backoff: seconds(configuration.pod_max_backoff_seconds),
                max_unschedulable: self.options.max_unschedulable,
            },
            seed: self.options.seed.unwrap_or_else(|| fastrand::u64(..)),
        };
        let core = Scheduler::new(core, names)
            .with_features(features)
            .with_parallelism(threads(configuration.parallelism).into())
            .with_extenders(rules);
        let (executor, ends) = Executor::new(
            self.writers.0.clone(),
            self.recorders.clone(),
            self.shared.leadership.clone(),
        );
        let driver = Driver::new(
            core,
            executor,
            extenders,
            self.shared.metrics.clone(),
            Journal::new(self.options.remember),
        );
        let inputs = Inputs {
            changes,
            ends,
            gate,
            leading: self.leading.clone(),
            reload: self.reload.clone(),
            shutdown: self.shutdown.clone(),
        };
        Some((driver, inputs))
    }
}

/// As many as are asked for, and no more than can run at once.
fn threads(asked: i32) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    usize::try_from(asked).unwrap_or(1).clamp(1, cores)
}

/// Tells of a profile's decisions. When there are thousands at once, they are told of a little later.
fn recorder(profile: &str) -> events::Config {
    let mut config = events::Config::new(events::EventApi::Series, profile);
    config.queued = 16_384;
    config
}

async fn tell_what_is_missing(gate: CacheSync, round: Shutdown) {
    tokio::select! {
        () = round.begins() => {}
        () = gate.opens_at_last() => tracing::info!("everything is known"),
    }
}

/// Takes a changed file if it makes sense, and says so if it does not.
async fn watch_file(
    file: PathBuf,
    fresh: Arc<Mutex<Option<Configuration>>>,
    reloads: watch::Sender<u64>,
) {
    let watcher = Watcher::new(vec![file.clone()], LOOK_EVERY);
    loop {
        watcher.changed().await;
        // Small, local, and read once a change.
        let read = std::fs::read_to_string(&file);
        let parsed = read
            .map_err(|error| error.to_string())
            .and_then(|text| tried(&text));
        match parsed {
            Ok(configuration) => {
                *fresh.lock() = Some(configuration);
                reloads.send_modify(|number| *number += 1);
            }
            Err(error) => {
                let file = file.display();
                tracing::warn!(%file, error, "the new configuration makes no sense, keeping the old");
            }
        }
    }
}

/// A configuration that can be used.
fn tried(text: &str) -> Result<Configuration, String> {
    let configuration = config::parse(text).map_err(|error| error.to_string())?;
    configuration
        .build(&mut Names::default())
        .map_err(|error| error.to_string())?;
    Extenders::build(&configuration.extenders).map_err(|error| error.to_string())?;
    Ok(configuration)
}

impl Shared {
    /// Everything has been told once, and by the newest configuration.
    pub fn is_synced(&self) -> Result<(), String> {
        match &*self.gate.lock() {
            Some(gate) if gate.is_open() => Ok(()),
            Some(gate) => Err(format!(
                "handlers are not fully synchronized, waiting for {}",
                gate.missing().join(", ")
            )),
            None => Err("handlers are not fully synchronized".to_owned()),
        }
    }

    pub fn configuration(&self) -> Configuration {
        self.configuration.lock().clone()
    }

    /// Why a pod is where it is. `None`: nobody knows of it, or nobody answers.
    pub async fn explain(&self, namespace: &str, name: &str) -> Option<Report> {
        let (answer, answered) = oneshot::channel();
        let inquiry = Inquiry::Explain {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            answer,
        };
        self.inquiries.send(inquiry).await.ok()?;
        let answered = tokio::time::timeout(ANSWER_WITHIN, answered).await;
        answered.ok()?.ok()?
    }

    /// The page of metrics.
    pub async fn metrics(&self) -> String {
        let figures = async {
            let (answer, answered) = oneshot::channel();
            self.inquiries.send(Inquiry::Figures(answer)).await.ok()?;
            answered.await.ok()
        };
        let figures: Option<CoreFigures> = tokio::time::timeout(ANSWER_WITHIN, figures)
            .await
            .unwrap_or_default();
        let mut page = Exposition::default();
        if let Some(traffic) = &self.traffic {
            traffic.write(&mut page);
        }
        let own = self
            .metrics
            .render(figures.as_ref(), self.leadership.as_ref());
        own + &page.finish()
    }

    /// Fails for who stands for election and gets no answer to go on with.
    pub fn stands(&self) -> Result<(), String> {
        self.leadership.as_ref().map_or(Ok(()), Leadership::stands)
    }

    /// Whether several may run, and one of them leads.
    pub fn is_elected(&self) -> bool {
        self.leadership.is_some()
    }

    pub fn gates(&self) -> &Gates {
        &self.gates
    }

    /// What pods ask for and may take, read for this page alone.
    pub async fn pod_resources(&self) -> Result<String, String> {
        let mut page = PodResources::default();
        let mut token = String::new();
        loop {
            let path = format!(
                "/api/v1/pods?limit={PODS_AT_ONCE}&continue={}&fieldSelector={}",
                url::query_escape(&token),
                url::query_escape(LIVING)
            );
            let answer = actions::get(&self.client, &path).await?;
            let list: PodList =
                serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
            page.add(&list);
            token = list.metadata.token;
            if token.is_empty() {
                return Ok(page.finish());
            }
        }
    }

    /// Whether this one decides.
    pub fn leads(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::is_leader)
    }
}

impl Running {
    pub fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Ends when the scheduler does: asked to, or because it must not go on. It is drained all the same.
    pub async fn finished(&mut self) -> Result<(), Failure> {
        let failure = self.stopper.failure();
        tokio::select! {
            biased;
            failure = failure => Err(failure.into()),
            ended = &mut self.task => ended.unwrap_or(Err(Failure::Crashed)),
        }
    }

    /// Lets what has been decided be written, and gives the lease back.
    pub async fn drain(self, within: Duration) {
        self.stopper.stop();
        // It may have been seen to its end before.
        if !self.task.is_finished() && tokio::time::timeout(within, self.task).await.is_err() {
            tracing::warn!("the scheduler did not end in time");
        }
    }
}
