//! Whether this process leads. Everything that writes asks before each write.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use plimsoll_clock::BootInstant;
use plimsoll_waiting::Waiting;
use tokio::sync::watch;
use tower::{BoxError, Service};

use super::config::Config;

/// What is known about who leads; clones tell the same.
#[derive(Debug, Clone)]
pub struct Leadership(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    name: String,
    lease_duration: Duration,
    started: BootInstant,
    seen: watch::Sender<Seen>,
    pub holder: watch::Sender<String>,
    slow_paths: AtomicU64,
    lost: Mutex<Option<String>>,
    /// For an answer about the Lease.
    pub waiting: Waiting,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    pub safe_until: Option<Duration>,
    pub observed_at: Duration,
}

/// Nothing is written by those who do not lead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process does not hold the lease {0} any more; nothing is written, whoever holds it goes on"
)]
pub struct NotLeading(String);

impl NotLeading {
    /// Whether that is why a request was not made, or was cut off.
    pub fn is_cause_of(error: &kube::Error) -> bool {
        let mut cause = Some(error as &(dyn std::error::Error + 'static));
        while let Some(error) = cause {
            if error.is::<Self>() {
                return true;
            }
            // What is inside an I/O error is not its source.
            let inside = error.downcast_ref::<std::io::Error>();
            if inside.is_some_and(|error| error.get_ref().is_some_and(|inside| inside.is::<Self>()))
            {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl Leadership {
    pub(super) fn new(config: &Config) -> Self {
        let lease = format!("the lease {}/{}", config.namespace, config.name);
        Self(Arc::new(Shared {
            name: config.name.clone(),
            lease_duration: config.lease_duration,
            started: BootInstant::now(),
            seen: watch::channel(Seen::default()).0,
            holder: watch::channel(String::new()).0,
            slow_paths: AtomicU64::new(0),
            lost: Mutex::default(),
            waiting: Waiting::new(
                lease,
                "is the API server running, and is its address right?",
            ),
        }))
    }

    /// True only while nobody else can have taken over, however long this process was paused or the machine slept.
    pub fn is_leader(&self) -> bool {
        !self.left().is_zero()
    }

    /// How long this process may go on to write if nothing is renewed.
    fn left(&self) -> Duration {
        let safe_until = self.0.seen.borrow().safe_until;
        safe_until.map_or(Duration::ZERO, |until| until.saturating_sub(self.now()))
    }

    /// Does something that only a leader may. It is asked anew before each step, and cut off when leading ends.
    pub async fn while_leading<F: Future>(&self, work: F) -> Result<F::Output, NotLeading> {
        let mut work = pin!(work);
        let mut over = pin!(self.is_over());
        std::future::poll_fn(|context| {
            if !self.is_leader() || over.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(NotLeading(self.0.name.clone())));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    async fn is_over(&self) {
        let mut changes = self.0.seen.subscribe();
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                // Its sender is ours.
                _ = changes.changed() => {}
            }
        }
    }

    /// A client that writes only while this process leads; it reads whenever it is asked to.
    pub fn guard(&self, client: kube::Client) -> kube::Client {
        let namespace = client.default_namespace().to_owned();
        let guarded = Guarded {
            leadership: self.clone(),
            client,
        };
        kube::Client::new(guarded, namespace)
    }

    /// What connections ask before each write to the network; the error says why not.
    pub fn permit(&self) -> crate::Permit {
        let this = self.clone();
        Arc::new(move || match this.is_leader() {
            true => Ok(()),
            false => Err(NotLeading(this.0.name.clone()).into()),
        })
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

    /// Why it leads no more although nobody asked it to stop.
    pub fn why_lost(&self) -> String {
        let lost = self.0.lost.lock().clone();
        lost.unwrap_or_else(|| "it does not lead".to_owned())
    }

    /// Fails for who stands for election and gets no answer to go on with.
    pub fn stands(&self) -> Result<(), String> {
        match self.0.waiting.trouble() {
            Some(trouble) if !self.is_leader() => Err(trouble),
            _ => Ok(()),
        }
    }

    /// The health check `leaderElection`: a leader that has not renewed for this much longer than it should have has
    /// hung, and had better be restarted.
    pub fn check(&self, tolerance: Duration) -> Result<(), String> {
        let seen = *self.0.seen.borrow();
        let age = self.now().saturating_sub(seen.observed_at);
        if seen.safe_until.is_some() && age > self.0.lease_duration + tolerance {
            let name = &self.0.name;
            return Err(format!(
                "failed election to renew leadership on lease {name}"
            ));
        }
        Ok(())
    }

    /// Since the election began, by a clock that stops for nothing.
    pub(super) fn now(&self) -> Duration {
        self.0.started.elapsed()
    }

    pub(super) fn saw(&self, seen: Seen) {
        self.0.seen.send_replace(seen);
    }

    pub(super) fn took_slow_path(&self) {
        self.0.slow_paths.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self, why: String) {
        *self.0.lost.lock() = Some(why);
    }
}

/// Sends what may be sent.
#[derive(Clone)]
struct Guarded {
    leadership: Leadership,
    client: kube::Client,
}

impl Service<Request<Body>> for Guarded {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        async move {
            let reads = matches!(*request.method(), Method::GET | Method::HEAD);
            let answer = this.client.send(request);
            let answer = match reads {
                true => answer.await,
                false => this.leadership.while_leading(answer).await?,
            };
            Ok(answer?)
        }
        .boxed()
    }
}
