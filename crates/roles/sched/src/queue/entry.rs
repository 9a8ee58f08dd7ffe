//! What the queue knows about a pod.

use std::time::Duration;

use super::QueueConfig;
use crate::framework::plugin::{Plugin, PluginSet};
use crate::time::Time;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Active,
    Backoff,
    /// Waits a while after something went wrong, whatever happens.
    ErrorBackoff,
    /// Waits for something to happen.
    Unschedulable,
    /// Is being scheduled.
    InFlight,
    /// Has a node and is being bound.
    Settled,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub room: Room,
    pub priority: i32,
    /// When it was added, or put back after an attempt.
    pub timestamp: Time,
    pub added: Time,
    pub first_attempt: Option<Time>,
    pub attempts: u32,
    pub unschedulable_count: u32,
    pub consecutive_errors: u32,
    /// Plugins that refused it in its last attempt.
    pub rejectors: PluginSet,
    pub pending: PluginSet,
    /// The plugin that holds it back from being queued.
    pub gated_by: Option<Plugin>,
    /// It has been held back since it came.
    pub was_gated: bool,
    pub(super) flushed: Option<Time>,
    pub(super) sequence: u64,
    pub(super) expiry: Time,
    pub(super) group: u64,
    pub(super) in_flight_since: u64,
}

impl Entry {
    pub(super) fn new(priority: i32, now: Time, sequence: u64) -> Self {
        Self {
            room: Room::InFlight,
            priority,
            timestamp: now,
            added: now,
            first_attempt: None,
            attempts: 0,
            unschedulable_count: 0,
            consecutive_errors: 0,
            rejectors: PluginSet::EMPTY,
            pending: PluginSet::EMPTY,
            gated_by: None,
            was_gated: false,
            flushed: None,
            sequence,
            expiry: Time(0),
            group: 0,
            in_flight_since: 0,
        }
    }

    /// Doubles with every attempt. `None`: no need to wait.
    pub fn backoff_expiry(&self, config: &QueueConfig) -> Option<Time> {
        let count = if self.consecutive_errors > 0 {
            self.consecutive_errors
        } else {
            self.unschedulable_count
        };
        if count == 0 || config.max_backoff.is_zero() {
            return None;
        }
        let shift = (count - 1).min(62);
        let most = config.max_backoff.as_micros() as u64;
        let first = config.initial_backoff.as_micros() as u64;
        let micros = if first > most >> shift {
            most
        } else {
            first << shift
        };
        let expiry = self.timestamp.after(Duration::from_micros(micros));
        Some(expiry.truncate_to_second())
    }

    pub fn is_backing_off(&self, config: &QueueConfig, now: Time) -> bool {
        self.backoff_expiry(config)
            .is_some_and(|expiry| expiry >= now.truncate_to_second())
    }

    /// It was put back into the queue because it had waited too long.
    pub fn was_flushed(&self) -> bool {
        self.flushed.is_some_and(|then| then >= self.timestamp)
    }

    pub(super) fn waiting_since(&self) -> Time {
        self.flushed
            .map_or(self.timestamp, |flushed| flushed.max(self.timestamp))
    }
}
