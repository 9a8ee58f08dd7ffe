//! Into rooms and out of them.

use std::collections::BTreeSet;

use super::{Gate, Queue, Room};
use crate::cluster::PodId;
use crate::plugins::priority_sort;
use crate::time::Time;

impl Queue {
    /// Into a room, unless a plugin holds the pod back from being queued.
    pub(super) fn enter(&mut self, id: PodId, room: Room, event: &str, now: Time, gate: Gate<'_>) {
        self.leave_room(id);
        let queued = matches!(room, Room::Active | Room::Backoff | Room::ErrorBackoff);
        let gated_by = if queued {
            gate(id)
        } else {
            self.get(id).and_then(|entry| entry.gated_by)
        };
        self.change(id, |entry| {
            entry.gated_by = gated_by;
            entry.was_gated |= gated_by.is_some();
            if let Some(plugin) = gated_by {
                entry.rejectors.insert(plugin);
            } else if queued && entry.first_attempt.is_none() {
                entry.first_attempt = Some(now);
            }
        });
        let room = if gated_by.is_some() {
            Room::Unschedulable
        } else {
            room
        };
        self.insert(id, room);
        self.counters.count(room, event);
    }

    pub(super) fn insert(&mut self, id: PodId, room: Room) {
        let config = self.config.clone();
        let Some(Some(entry)) = self.entries.get_mut(id.index()) else {
            return;
        };
        entry.room = room;
        let rank = priority_sort::rank(entry.priority, entry.timestamp);
        let sequence = entry.sequence;
        match room {
            Room::Active => {
                self.active.insert((rank, sequence, id));
            }
            Room::Backoff => {
                let expiry = entry.backoff_expiry(&config).unwrap_or_default();
                entry.expiry = expiry;
                self.backoff.insert((expiry, rank, sequence, id));
            }
            Room::ErrorBackoff => {
                let expiry = entry.backoff_expiry(&config).unwrap_or_default();
                entry.expiry = expiry;
                self.error_backoff.insert((expiry, rank, sequence, id));
            }
            Room::Unschedulable => {
                let set = entry.rejectors.union(entry.pending);
                entry.group = set.bits();
                let (_, pods) = self
                    .unschedulable
                    .entry(set.bits())
                    .or_insert_with(|| (set, BTreeSet::new()));
                pods.insert(id);
            }
            Room::InFlight | Room::Settled => {}
        }
    }

    pub(super) fn leave_room(&mut self, id: PodId) {
        let Some(entry) = self.get(id) else {
            return;
        };
        let rank = priority_sort::rank(entry.priority, entry.timestamp);
        let (sequence, expiry, group) = (entry.sequence, entry.expiry, entry.group);
        match entry.room {
            Room::Active => {
                self.active.remove(&(rank, sequence, id));
            }
            Room::Backoff => {
                self.backoff.remove(&(expiry, rank, sequence, id));
            }
            Room::ErrorBackoff => {
                self.error_backoff.remove(&(expiry, rank, sequence, id));
            }
            Room::Unschedulable => {
                if let Some((_, pods)) = self.unschedulable.get_mut(&group) {
                    pods.remove(&id);
                    if pods.is_empty() {
                        self.unschedulable.remove(&group);
                    }
                }
            }
            Room::InFlight | Room::Settled => {}
        }
    }
}
