//! Keeps one runtime connected, reports the state of the connection, and forwards its events.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::timeout;

use super::resolver::caught;
use super::{Client, Counters, Endpoint, Event, Options, RuntimeError};

/// Interval of looking for a missing socket: one failing system call each.
const ABSENT_PAUSE: Duration = Duration::from_millis(500);
/// Pause after a connection that was made and then failed; doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Intervals of health check and full refresh for a runtime without an event stream.
const PING_EVERY: Duration = Duration::from_secs(10);
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// Concurrent calls to one runtime.
const PARALLEL: usize = 8;

/// One connection to a runtime, until it fails.
#[derive(Debug)]
pub(super) struct Session {
    pub client: Client,
    pub permits: Semaphore,
    /// A call took too long: check the runtime's health.
    pub check_health: Notify,
    over: watch::Sender<bool>,
}

impl Session {
    fn new(client: Client) -> Self {
        Self {
            client,
            permits: Semaphore::new(PARALLEL),
            check_health: Notify::new(),
            over: watch::Sender::new(false),
        }
    }

    /// Ends when the connection is given up, so that nothing goes on waiting for it.
    pub async fn over(&self) {
        let mut over = self.over.subscribe();
        // An error means that the session itself is gone.
        let _ = over.wait_for(|over| *over).await;
    }
}

#[derive(Debug)]
pub(super) enum Report {
    Up(Arc<Session>),
    Down(RuntimeError),
    Event(Event),
}

pub(super) struct Connector {
    pub index: usize,
    pub endpoint: Endpoint,
    pub options: Options,
    pub counters: Arc<Counters>,
    pub reports: mpsc::UnboundedSender<(usize, Report)>,
}

impl Connector {
    /// Runs until the resolver is gone. After a panic it reconnects, with a long pause.
    pub async fn keep(self) {
        while caught(self.run()).await.is_none() {
            let broken = RuntimeError::Broken("a defect in reading its answer".into());
            if !self.report(Report::Down(broken)) {
                return;
            }
            tokio::time::sleep(LONGEST_PAUSE).await;
        }
    }

    async fn run(&self) {
        let deadline = self.endpoint.deadline();
        let mut pause = FIRST_PAUSE;
        loop {
            let connecting = timeout(deadline, Client::connect(&self.endpoint, &self.options));
            let error = match connecting.await {
                Ok(Ok(client)) => {
                    self.counters.connects.fetch_add(1, Relaxed);
                    if let Some(root) = client.docker_root() {
                        *self.counters.docker_root.lock() = Some(root.to_owned());
                    }
                    let session = Arc::new(Session::new(client));
                    if !self.report(Report::Up(Arc::clone(&session))) {
                        return;
                    }
                    let started = tokio::time::Instant::now();
                    let mut serving = std::pin::pin!(self.serve(&session, deadline));
                    let error = tokio::select! {
                        error = &mut serving => error,
                        () = self.note_version(&session, deadline) => serving.await,
                    };
                    session.over.send_replace(true);
                    // A connection that held is no reason to be wary of the next one.
                    if started.elapsed() > LONGEST_PAUSE {
                        pause = FIRST_PAUSE;
                    }
                    error
                }
                Ok(Err(error)) => error,
                Err(_) => RuntimeError::Timeout(deadline),
            };
            let wait = match &error {
                RuntimeError::Connect { .. } => {
                    pause = FIRST_PAUSE;
                    ABSENT_PAUSE
                }
                _ => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    pause / 2
                }
            };
            if !self.report(Report::Down(error)) {
                return;
            }
            tokio::time::sleep(wait).await;
            self.socket_is_there().await;
        }
    }

    /// Most machines have one runtime of the four: looking for the others must cost next to nothing.
    async fn socket_is_there(&self) {
        while !self.endpoint.socket().exists() && !self.reports.is_closed() {
            tokio::time::sleep(ABSENT_PAUSE).await;
        }
    }

    async fn note_version(&self, session: &Session, deadline: Duration) {
        // Only for show: a runtime that does not say keeps its last one.
        if let Ok(Ok(version)) = timeout(deadline, session.client.version(&self.endpoint)).await {
            *self.counters.version.lock() = version;
        }
    }

    fn report(&self, report: Report) -> bool {
        self.reports.send((self.index, report)).is_ok()
    }

    /// Serves a connected runtime; returns why the connection was given up.
    async fn serve(&self, session: &Session, deadline: Duration) -> RuntimeError {
        let events = session.client.follow(|event| {
            self.counters.events.fetch_add(1, Relaxed);
            self.report(Report::Event(event));
        });
        tokio::select! {
            ended = events => match ended {
                Err(RuntimeError::Unsupported) => self.attend_by_asking(session, deadline).await,
                Err(error) => error,
                Ok(()) => RuntimeError::Broken("event stream ended".into()),
            },
            error = self.watch_health(session, deadline) => error,
        }
    }

    async fn watch_health(&self, session: &Session, deadline: Duration) -> RuntimeError {
        loop {
            session.check_health.notified().await;
            if let Err(error) = ping(session, deadline).await {
                return error;
            }
        }
    }

    async fn attend_by_asking(&self, session: &Session, deadline: Duration) -> RuntimeError {
        let mut since_refresh = Duration::ZERO;
        loop {
            let _ = timeout(PING_EVERY, session.check_health.notified()).await;
            if let Err(error) = ping(session, deadline).await {
                return error;
            }
            since_refresh += PING_EVERY;
            if since_refresh >= REFRESH_EVERY {
                since_refresh = Duration::ZERO;
                self.report(Report::Event(Event::Refresh));
            }
        }
    }
}

async fn ping(session: &Session, deadline: Duration) -> Result<(), RuntimeError> {
    match timeout(deadline, session.client.ping()).await {
        Ok(outcome) => outcome,
        Err(_) => Err(RuntimeError::Timeout(deadline)),
    }
}
