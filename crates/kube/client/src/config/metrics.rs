//! Metrics of requests to the API server, with client-go's names and bounds.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;

use plimsoll_metrics::{CounterVec, Exposition, HistogramVec};

/// Seconds.
const TIMES: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
/// Bytes.
const SIZES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
const BY_HOST_AND_VERB: [&str; 2] = ["host", "verb"];

/// Clones count the same.
#[derive(Debug, Clone)]
pub struct ClientMetrics(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    requests: CounterVec<3>,
    durations: HistogramVec<2>,
    sent: HistogramVec<2>,
    received: HistogramVec<2>,
    held_back: HistogramVec<2>,
    /// Clients with connections of their own, and those that share them.
    transports: [AtomicU64; 2],
}

impl Default for ClientMetrics {
    fn default() -> Self {
        Self(Arc::new(Counts {
            requests: CounterVec::new(["code", "host", "method"]),
            durations: HistogramVec::new(BY_HOST_AND_VERB, TIMES),
            sent: HistogramVec::new(BY_HOST_AND_VERB, SIZES),
            received: HistogramVec::new(BY_HOST_AND_VERB, SIZES),
            held_back: HistogramVec::new(BY_HOST_AND_VERB, TIMES),
            transports: Default::default(),
        }))
    }
}

impl ClientMetrics {
    pub fn write(&self, page: &mut Exposition) {
        let counts = &*self.0;
        counts.held_back.write(
            page,
            "rest_client_rate_limiter_duration_seconds",
            "[ALPHA] Time that requests to the API server were held back to keep to a rate.",
        );
        counts.durations.write(
            page,
            "rest_client_request_duration_seconds",
            "[ALPHA] Time that requests to the API server took.",
        );
        counts.sent.write(
            page,
            "rest_client_request_size_bytes",
            "[ALPHA] Bytes sent with requests to the API server.",
        );
        counts.requests.write(
            page,
            "rest_client_requests_total",
            "[ALPHA] Requests to the API server, by the status of the answer.",
        );
        counts.received.write(
            page,
            "rest_client_response_size_bytes",
            "[ALPHA] Bytes of the API server's answers.",
        );
        let [made, shared] = counts
            .transports
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed) as f64);
        let name = "rest_client_transport_cache_entries";
        page.family(
            name,
            "gauge",
            "[ALPHA] Sets of connections to the API server.",
        );
        page.sample(name, &[], made);
        let name = "rest_client_transport_create_calls_total";
        page.family(
            name,
            "counter",
            "[ALPHA] Clients that were made, by whether they share connections.",
        );
        page.sample(name, &[("result", "hit")], shared);
        page.sample(name, &[("result", "miss")], made);
    }

    pub(super) fn made(&self) {
        self.0.transports[0].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn shared(&self) {
        self.0.transports[1].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn held_back(&self, host: &str, method: &Method, waited: Duration) {
        let waited = waited.as_secs_f64();
        self.0.held_back.observe([host, method.as_str()], waited);
    }

    /// A request is sent; `endless`: its answer is to go on.
    pub(super) fn begin(
        &self,
        host: &str,
        method: &Method,
        size: u64,
        endless: bool,
    ) -> RequestTimer {
        self.0.sent.observe([host, method.as_str()], size as f64);
        RequestTimer {
            traffic: self.clone(),
            host: host.into(),
            method: method.clone(),
            endless,
            began: Instant::now(),
            received: 0,
        }
    }
}

/// A request until its answer is there to the last byte.
#[derive(Debug)]
pub(super) struct RequestTimer {
    traffic: ClientMetrics,
    host: Box<str>,
    method: Method,
    endless: bool,
    began: Instant,
    received: u64,
}

impl RequestTimer {
    /// `None`: there was no answer.
    pub fn answered(&self, status: Option<u16>) {
        let status = status.map(|status| status.to_string());
        let code = status.as_deref().unwrap_or("<error>");
        let counts = &self.traffic.0;
        let method = self.method.as_str();
        counts.requests.count([code, &self.host, method]);
        if self.endless {
            self.observe_time();
        }
    }

    fn observe_time(&self) {
        let took = self.began.elapsed().as_secs_f64();
        let whose = [&*self.host, self.method.as_str()];
        self.traffic.0.durations.observe(whose, took);
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        if self.endless {
            return;
        }
        self.observe_time();
        let whose = [&*self.host, self.method.as_str()];
        let received = self.received as f64;
        self.traffic.0.received.observe(whose, received);
    }
}

/// An answer's body, counted.
#[derive(Debug)]
pub struct Counted {
    body: Body,
    exchange: RequestTimer,
}

impl Counted {
    pub(super) fn new(body: Body, exchange: RequestTimer) -> Self {
        Self { body, exchange }
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.exchange.received += data.len() as u64;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
