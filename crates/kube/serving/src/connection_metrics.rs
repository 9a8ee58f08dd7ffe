//! Counters of connections. Responses are counted by the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_client::workqueue_metrics::WorkqueueMetrics;

#[derive(Debug)]
pub struct Counters {
    /// Taking certificates that have changed.
    pub reloading: WorkqueueMetrics,
    connections: AtomicU64,
    open: AtomicU64,
    handshake_failures: AtomicU64,
    reload_failures: AtomicU64,
    crowded: AtomicU64,
    malformed: AtomicU64,
    too_large: AtomicU64,
    panics: AtomicU64,
    refused: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            reloading: WorkqueueMetrics::new("DynamicServingCertificateController"),
            connections: AtomicU64::default(),
            open: AtomicU64::default(),
            handshake_failures: AtomicU64::default(),
            reload_failures: AtomicU64::default(),
            crowded: AtomicU64::default(),
            malformed: AtomicU64::default(),
            too_large: AtomicU64::default(),
            panics: AtomicU64::default(),
            refused: AtomicU64::default(),
        }
    }
}

/// Counts as open as long as it lives.
#[derive(Debug)]
pub(super) struct Open(Arc<Counters>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed)
}

impl Counters {
    pub(super) fn connection(self: &Arc<Self>) -> Open {
        add(&self.connections);
        add(&self.open);
        Open(Arc::clone(self))
    }

    pub(super) fn handshake_failed(&self) {
        add(&self.handshake_failures);
    }

    pub fn reload_failed(&self) {
        add(&self.reload_failures);
    }

    pub(super) fn malformed(&self) {
        add(&self.malformed);
    }

    pub(super) fn too_large(&self) {
        add(&self.too_large);
    }

    pub(super) fn panicked(&self) {
        add(&self.panics);
    }

    pub(super) fn refused(&self) {
        add(&self.refused);
    }

    pub(super) fn crowded(&self) {
        if add(&self.crowded) == 0 {
            tracing::warn!(
                "every connection is taken: idle ones are being closed to let others in"
            );
        }
    }

    /// Connections accepted.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn open_connections(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections whose TLS handshake failed or took too long.
    pub fn handshake_failures(&self) -> u64 {
        self.handshake_failures.load(Ordering::Relaxed)
    }

    /// Changed certificates or other secrets that could not be loaded.
    pub fn reload_failures(&self) -> u64 {
        self.reload_failures.load(Ordering::Relaxed)
    }

    /// Times every place was taken and idle connections were asked to leave.
    pub fn times_crowded(&self) -> u64 {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Requests that reached no service: no HTTP at all, or sent to nobody. Their status is 400.
    pub fn malformed_requests(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Requests that reached no service because of too long a head. Their status is 431.
    pub fn heads_too_large(&self) -> u64 {
        self.too_large.load(Ordering::Relaxed)
    }

    /// Requests that ended in a panic. Their status is 500, or their answer was cut short.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Requests refused because their users have as much as they may have. Their status is 429.
    pub fn refused_for_others(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}
