//! Figures for metrics.

use std::collections::BTreeMap;

use super::Room;

/// How often pods came into a room, and why.
#[derive(Debug, Default, Clone)]
pub struct Counters(BTreeMap<(&'static str, String), u64>);

impl Counters {
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, u64)> {
        self.0
            .iter()
            .map(|((queue, event), number)| (*queue, event.as_str(), *number))
    }

    pub(super) fn count(&mut self, room: Room, event: &str) {
        let queue = match room {
            Room::Active => "active",
            Room::Backoff | Room::ErrorBackoff => "backoff",
            Room::Unschedulable => "unschedulable",
            Room::InFlight | Room::Settled => return,
        };
        match self
            .0
            .iter_mut()
            .find(|((other, name), _)| *other == queue && name == event)
        {
            Some((_, number)) => *number += 1,
            None => {
                self.0.insert((queue, event.to_owned()), 1);
            }
        }
    }
}
