//! Counters of the server, for `/metrics/self`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::exposition::number::Number;
use crate::exposition::{Kind, Text};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub struct Counters {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    in_flight: AtomicU64,
    bytes: AtomicU64,
    streams_dropped: AtomicU64,
    /// What the server's sockets count.
    pub sockets: Arc<plimsoll_serving::Counters>,
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
    pub fn new(sockets: Arc<plimsoll_serving::Counters>) -> Self {
        Self {
            sockets,
            ..Self::default()
        }
    }

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

    pub fn answered(&self, class: &'static str, status: u16) {
        *self.requests.lock().entry((class, status)).or_insert(0) += 1;
    }

    pub fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn stream_dropped(&self) {
        self.streams_dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub fn reload_failed(&self) {
        self.sockets.reload_failed();
    }

    pub fn panics(&self) -> u64 {
        self.sockets.panics()
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub fn open_connections(&self) -> u64 {
        self.sockets.open_connections()
    }

    pub fn requests(&self, class: &str, status: u16) -> u64 {
        let requests = self.all_requests().into_iter();
        let of = requests.filter(|((c, s), _)| *c == class && *s == status);
        of.map(|(_, count)| count).sum()
    }

    /// Those that never reached a handler count as well.
    fn all_requests(&self) -> BTreeMap<(&'static str, u16), u64> {
        let mut requests = self.requests.lock().clone();
        for (status, count) in [
            (400, self.sockets.malformed_requests()),
            (431, self.sockets.heads_too_large()),
        ] {
            if count > 0 {
                *requests.entry(("malformed", status)).or_insert(0) += count;
            }
        }
        requests
    }

    /// As families of a page.
    pub fn families(&self) -> Text {
        let mut text = Text::default();
        text.family(
            "plimsoll_http_requests_total",
            Kind::Counter,
            "Requests answered, by what was asked and how it ended.",
        );
        for ((class, status), count) in self.all_requests() {
            let status = status.to_string();
            let labels = [("code", status.as_str()), ("handler", class)];
            text.series(&labels, Number::Whole(count), None);
        }
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, kind, help, value) in [
            (
                "plimsoll_http_requests_in_flight",
                Kind::Gauge,
                "Requests being answered.",
                of(&self.in_flight),
            ),
            (
                "plimsoll_http_response_bytes_total",
                Kind::Counter,
                "Bytes of answers handed to connections.",
                of(&self.bytes),
            ),
            (
                "plimsoll_http_connections_total",
                Kind::Counter,
                "Connections accepted.",
                self.sockets.connections(),
            ),
            (
                "plimsoll_http_connections_open",
                Kind::Gauge,
                "Connections open.",
                self.sockets.open_connections(),
            ),
            (
                "plimsoll_http_panics_total",
                Kind::Counter,
                "Requests that ended in a defect of this program.",
                self.sockets.panics(),
            ),
            (
                "plimsoll_http_tls_handshake_failures_total",
                Kind::Counter,
                "Connections whose TLS handshake failed or took too long.",
                self.sockets.handshake_failures(),
            ),
            (
                "plimsoll_http_event_streams_dropped_total",
                Kind::Counter,
                "Event streams ended because the client did not keep up.",
                of(&self.streams_dropped),
            ),
            (
                "plimsoll_http_reload_failures_total",
                Kind::Counter,
                "Changed certificates or tokens that could not be loaded.",
                self.sockets.reload_failures(),
            ),
            (
                "plimsoll_http_connection_limit_hits_total",
                Kind::Counter,
                "Times every connection was taken and idle ones were asked to leave.",
                self.sockets.times_crowded(),
            ),
        ] {
            text.single(name, kind, help, Number::Whole(value));
        }
        text
    }
}
