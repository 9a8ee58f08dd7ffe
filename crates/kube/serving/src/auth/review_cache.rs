//! Reviews by the API server (TokenReview, SubjectAccessReview) and a cache of their results.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;

use plimsoll_client::expiring_cache::Expiring;
use plimsoll_client::explain;
use plimsoll_metrics::{CounterVec, Exposition, HistogramVec};

/// Seconds.
const REVIEW_TIMES: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
const CACHE_TIMES: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// For one question, all attempts together.
const WITHIN: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGER: f64 = 1.5;
const JITTER: f64 = 0.2;
const ATTEMPTS: usize = 5;

/// The API server gave no answer; clones share it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReviewError {
    #[error("{}", in_its_words(.0))]
    Failed(Arc<kube::Error>),
    #[error("the API server did not answer within {} s", WITHIN.as_secs())]
    Timeout,
    #[error("the question was dropped")]
    Dropped,
    #[error("the API server's answer is both yes and no")]
    Contradiction,
}

impl ReviewError {
    /// For the log: whoever asked for something learns less.
    pub(super) fn explained(&self) -> String {
        match self {
            Self::Failed(error) => explain(error),
            other => other.to_string(),
        }
    }
}

/// What the API server said, without our words around it.
fn in_its_words(error: &kube::Error) -> String {
    match error {
        // Whose credentials are not accepted is for the log.
        kube::Error::Api(status) if status.code == 401 => "Unauthorized".to_owned(),
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Questions to the API server, by how they were answered.
#[derive(Debug)]
pub(super) struct Attempts {
    total: CounterVec<1>,
    took: HistogramVec<1>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            total: CounterVec::new(["code"]),
            took: HistogramVec::new(["code"], REVIEW_TIMES),
        }
    }
}

impl Attempts {
    fn answered<T>(&self, answer: &Result<T, kube::Error>, took: Duration) {
        let refused;
        let code = match answer {
            Ok(_) => "201",
            Err(kube::Error::Api(status)) => {
                refused = status.code.to_string();
                &refused
            }
            Err(_) => "<error>",
        };
        self.total.count([code]);
        self.took.observe([code], took.as_secs_f64());
    }

    /// `what` is `authn` or `authz`.
    pub fn write(&self, page: &mut Exposition, what: &str) {
        self.took.write(
            page,
            &format!("apiserver_delegated_{what}_request_duration_seconds"),
            "[ALPHA] Time that the API server took to answer a review, by status.",
        );
        self.total.write(
            page,
            &format!("apiserver_delegated_{what}_request_total"),
            "[ALPHA] Reviews that the API server was asked for, by status.",
        );
    }
}

/// Asks until there is an answer, as often and as long as is reasonable.
pub(super) async fn persistently<T, F>(
    attempts: &Attempts,
    mut ask: impl FnMut() -> F,
) -> Result<T, ReviewError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut ask = async || {
        let began = Instant::now();
        let answer = ask().await;
        attempts.answered(&answer, began.elapsed());
        answer
    };
    let asking = async {
        let mut wait = FIRST_WAIT;
        for _ in 1..ATTEMPTS {
            match ask().await {
                Err(error) if is_passing(&error) => {}
                outcome => return outcome,
            }
            tokio::time::sleep(wait.mul_f64(1.0 + JITTER * fastrand::f64())).await;
            wait = wait.mul_f64(LONGER);
        }
        ask().await
    };
    match tokio::time::timeout(WITHIN, asking).await {
        Ok(outcome) => outcome.map_err(|error| ReviewError::Failed(Arc::new(error))),
        Err(_) => Err(ReviewError::Timeout),
    }
}

/// May it go better next time? A server that refuses connections is down, and asking again only delays the refusal.
fn is_passing(error: &kube::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match error {
        kube::Error::Api(status) => {
            let waits = status.details.as_ref().map(|d| d.retry_after_seconds);
            matches!(status.code, 429 | 500 | 504) || waits.is_some_and(|seconds| seconds > 0)
        }
        other => {
            let mut cause: Option<&(dyn Error + 'static)> = Some(other);
            while let Some(error) = cause {
                if let Some(io) = error.downcast_ref::<std::io::Error>()
                    && matches!(
                        io.kind(),
                        ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof
                    )
                {
                    return true;
                }
                cause = error.source();
            }
            false
        }
    }
}

/// Questions by their digest: what is remembered of a token must not be the token.
pub(super) type Digest = [u8; 32];

type Flight<V> = Shared<BoxFuture<'static, Result<V, ReviewError>>>;

/// Answers, remembered for a while. However many want to know the same thing at once, it is asked once.
#[derive(Debug)]
pub(super) struct Answers<V: Clone> {
    pub usage: CacheUsage,
    remembered: Mutex<Expiring<Digest, V>>,
    being_asked: Mutex<HashMap<Digest, Flight<V>>>,
    secret: hmac::Key,
}

impl<V: Clone + Send + Sync + 'static> Answers<V> {
    pub fn new(capacity: usize) -> Self {
        let random = SystemRandom::new();
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        // Without randomness there would be no TLS either; then the digest only has to tell questions apart.
        let secret = secret.unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, &[]));
        Self {
            usage: CacheUsage::default(),
            remembered: Mutex::new(Expiring::new(capacity)),
            being_asked: Mutex::default(),
            secret,
        }
    }

    /// Parts are told apart: `["ab", "c"]` is not `["a", "bc"]`.
    pub fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.secret);
        for part in parts {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    /// The remembered answer, or the one to `ask`, which is remembered for as long as `lasts` says. The question is
    /// pursued even if whoever asked it first goes away: others may be waiting for the same answer.
    pub async fn answer(
        self: &Arc<Self>,
        digest: Digest,
        ask: impl Future<Output = Result<V, ReviewError>> + Send + 'static,
        lasts: impl FnOnce(&V) -> Option<Duration> + Send + 'static,
    ) -> Result<V, ReviewError> {
        let began = Instant::now();
        if let Some(known) = self.remembered.lock().get(&digest) {
            self.usage.had("hit", began);
            return Ok(known.clone());
        }
        let flight = {
            let mut being_asked = self.being_asked.lock();
            let flight = being_asked.entry(digest).or_insert_with(|| {
                let asked = Asked {
                    answers: Arc::clone(self),
                    digest,
                };
                let task = tokio::spawn(async move {
                    let usage = &asked.answers.usage;
                    usage.in_flight.fetch_add(1, Ordering::Relaxed);
                    let answer = ask.await;
                    usage.in_flight.fetch_sub(1, Ordering::Relaxed);
                    let outcome = if answer.is_ok() { "ok" } else { "error" };
                    usage.fetches.count([outcome]);
                    if let Ok(value) = &answer
                        && let Some(lasts) = lasts(value)
                    {
                        let mut remembered = asked.answers.remembered.lock();
                        remembered.insert(digest, value.clone(), lasts);
                    }
                    answer
                });
                let outcome = task.map(|ended| ended.unwrap_or(Err(ReviewError::Dropped)));
                outcome.boxed().shared()
            });
            flight.clone()
        };
        let waiting = Waiting::new(&self.usage.blocked);
        let answer = flight.await;
        drop(waiting);
        self.usage.had("miss", began);
        answer
    }
}

/// How much remembering helps.
#[derive(Debug)]
pub(super) struct CacheUsage {
    requests: CounterVec<1>,
    took: HistogramVec<1>,
    fetches: CounterVec<1>,
    in_flight: AtomicI64,
    blocked: AtomicI64,
}

impl Default for CacheUsage {
    fn default() -> Self {
        Self {
            requests: CounterVec::new(["status"]),
            took: HistogramVec::new(["status"], CACHE_TIMES),
            fetches: CounterVec::new(["status"]),
            in_flight: AtomicI64::new(0),
            blocked: AtomicI64::new(0),
        }
    }
}

impl CacheUsage {
    fn had(&self, status: &str, began: Instant) {
        self.requests.count([status]);
        let took = began.elapsed().as_secs_f64();
        self.took.observe([status], took);
    }

    pub fn write(&self, page: &mut Exposition) {
        let name = "authentication_token_cache_active_fetch_count";
        page.family(
            name,
            "gauge",
            "[ALPHA] Reviews of tokens under way, and requests that wait for them.",
        );
        for (status, gauge) in [("blocked", &self.blocked), ("in_flight", &self.in_flight)] {
            let count = gauge.load(Ordering::Relaxed) as f64;
            page.sample(name, &[("status", status)], count);
        }
        self.fetches.write(
            page,
            "authentication_token_cache_fetch_total",
            "[ALPHA] Reviews of tokens that have ended.",
        );
        self.took.write(
            page,
            "authentication_token_cache_request_duration_seconds",
            "[ALPHA] Time that it took to know whose a token is.",
        );
        self.requests.write(
            page,
            "authentication_token_cache_request_total",
            "[ALPHA] Tokens, by whether it was known whose they are.",
        );
    }
}

/// Counts as long as it lives.
struct Waiting<'a>(&'a AtomicI64);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicI64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question that is being asked as long as this lives.
struct Asked<V: Clone> {
    answers: Arc<Answers<V>>,
    digest: Digest,
}

impl<V: Clone> Drop for Asked<V> {
    fn drop(&mut self) {
        self.answers.being_asked.lock().remove(&self.digest);
    }
}
