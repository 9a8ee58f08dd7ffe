//! What the server has done, for `/metrics/self`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use plimsoll_observe::exposition::number::Number;
use plimsoll_observe::exposition::{Kind, Text};

#[derive(Debug, Default)]
pub struct Counters {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    in_flight: AtomicU64,
    bytes: AtomicU64,
    connections: AtomicU64,
    connections_open: AtomicU64,
    panics: AtomicU64,
    handshake_failures: AtomicU64,
    streams_dropped: AtomicU64,
    reload_failures: AtomicU64,
    crowded: AtomicU64,
}

/// Counts as long as it lives.
#[derive(Debug)]
pub struct Gauge {
    counters: Arc<Counters>,
    of: fn(&Counters) -> &AtomicU64,
}

impl Drop for Gauge {
    fn drop(&mut self) {
        (self.of)(&self.counters).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    fn gauge(self: &Arc<Self>, of: fn(&Counters) -> &AtomicU64) -> Gauge {
        of(self).fetch_add(1, Ordering::Relaxed);
        Gauge {
            counters: Arc::clone(self),
            of,
        }
    }

    pub fn request(self: &Arc<Self>) -> Gauge {
        self.gauge(|c| &c.in_flight)
    }

    pub fn connection(self: &Arc<Self>) -> Gauge {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.gauge(|c| &c.connections_open)
    }

    pub fn answered(&self, class: &'static str, status: u16) {
        *self.requests.lock().entry((class, status)).or_insert(0) += 1;
    }

    pub fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub fn handshake_failed(&self) {
        self.handshake_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stream_dropped(&self) {
        self.streams_dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub fn reload_failed(&self) {
        self.reload_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Every place was taken, and idle connections were asked to leave.
    pub fn crowded(&self) {
        if self.crowded.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "every connection is taken: idle ones are being closed to let others in"
            );
        }
    }

    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub fn open_connections(&self) -> u64 {
        self.connections_open.load(Ordering::Relaxed)
    }

    pub fn requests(&self, class: &str, status: u16) -> u64 {
        let requests = self.requests.lock();
        let of = requests
            .iter()
            .filter(|((c, s), _)| *c == class && *s == status);
        of.map(|(_, count)| count).sum()
    }

    /// As families of a page.
    pub fn render(&self) -> Vec<u8> {
        let mut text = Text::default();
        text.family(
            "plimsoll_http_requests_total",
            Kind::Counter,
            "Requests answered, by what was asked and how it ended.",
        );
        for ((class, status), count) in self.requests.lock().iter() {
            let status = status.to_string();
            let labels = [("code", status.as_str()), ("handler", class)];
            text.series(&labels, Number::Whole(*count), None);
        }
        let of = |counter: &AtomicU64| Number::Whole(counter.load(Ordering::Relaxed));
        for (name, kind, help, value) in [
            (
                "plimsoll_http_requests_in_flight",
                Kind::Gauge,
                "Requests being answered.",
                &self.in_flight,
            ),
            (
                "plimsoll_http_response_bytes_total",
                Kind::Counter,
                "Bytes of answers handed to connections.",
                &self.bytes,
            ),
            (
                "plimsoll_http_connections_total",
                Kind::Counter,
                "Connections accepted.",
                &self.connections,
            ),
            (
                "plimsoll_http_connections_open",
                Kind::Gauge,
                "Connections open.",
                &self.connections_open,
            ),
            (
                "plimsoll_http_panics_total",
                Kind::Counter,
                "Requests that ended in a defect of this program.",
                &self.panics,
            ),
            (
                "plimsoll_http_tls_handshake_failures_total",
                Kind::Counter,
                "Connections whose TLS handshake failed or took too long.",
                &self.handshake_failures,
            ),
            (
                "plimsoll_http_event_streams_dropped_total",
                Kind::Counter,
                "Event streams ended because the client did not keep up.",
                &self.streams_dropped,
            ),
            (
                "plimsoll_http_reload_failures_total",
                Kind::Counter,
                "Changed certificates or tokens that could not be loaded.",
                &self.reload_failures,
            ),
            (
                "plimsoll_http_crowded_total",
                Kind::Counter,
                "Times every connection was taken and idle ones were asked to leave.",
                &self.crowded,
            ),
        ] {
            text.single(name, kind, help, of(value));
        }
        text.into_bytes()
    }
}
