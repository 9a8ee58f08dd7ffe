//! Events of `events.k8s.io`: repetitions of an event become a series, which is written when it begins, at intervals,
//! and when it ends.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::object_reference::Reference;
use super::recorder::{EventNote, Kind, event_name};

/// A series to which nothing was added for so long is over.
pub(super) const OVER_AFTER: Duration = Duration::from_secs(360);
/// One that goes on is told again after so long, or the API server would forget it.
pub(super) const TOLD_EVERY: Duration = Duration::from_secs(1800);
const LONGEST_NOTE: usize = 1024;
/// Beyond this, the oldest are forgotten: they would only be created anew.
const REMEMBERED: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    kind: Kind,
    action: String,
    reason: String,
    about: Reference,
    related: Option<Reference>,
}

#[derive(Debug)]
struct Known {
    event: Event,
    last: Instant,
    told: Instant,
}

#[derive(Debug)]
pub(super) struct Series {
    known: HashMap<Key, Known>,
    controller: String,
    instance: String,
}

impl Series {
    pub fn new(controller: String, instance: String) -> Self {
        Self {
            known: HashMap::new(),
            controller,
            instance,
        }
    }

    /// What to send now, if anything: with a series, what is there is to be patched.
    pub fn add(&mut self, note: &EventNote, wall: Timestamp) -> Option<Event> {
        let now = Instant::now();
        let key = Key {
            kind: note.kind,
            action: note.action.clone(),
            reason: note.reason.clone(),
            about: note.about.clone(),
            related: note.related.clone(),
        };
        if let Some(known) = self.known.get_mut(&key) {
            known.last = now;
            match &mut known.event.series {
                Some(series) => {
                    series.count = series.count.saturating_add(1);
                    series.last_observed_time = MicroTime(wall);
                    return None;
                }
                none => {
                    *none = Some(EventSeries {
                        count: 2,
                        last_observed_time: MicroTime(wall),
                    });
                    known.told = now;
                    return Some(known.event.clone());
                }
            }
        }
        if self.known.len() >= REMEMBERED {
            self.forget_oldest();
        }
        let event = self.whole(note, wall);
        let known = Known {
            event: event.clone(),
            last: now,
            told: now,
        };
        self.known.insert(key, known);
        Some(event)
    }

    /// Series to be told again: those that are over, for the last time, and those that go on for long.
    pub fn due(&mut self) -> Vec<Event> {
        let now = Instant::now();
        let mut due = Vec::new();
        self.known.retain(|_, known| {
            let over = now.saturating_duration_since(known.last) >= OVER_AFTER;
            let long = now.saturating_duration_since(known.told) >= TOLD_EVERY;
            if known.event.series.is_some() && (over || long) {
                due.push(known.event.clone());
                known.told = now;
            }
            !over
        });
        due
    }

    /// Everything that was counted and not yet told.
    pub fn last_words(&mut self) -> Vec<Event> {
        let all = std::mem::take(&mut self.known).into_values();
        all.map(|known| known.event)
            .filter(|event| event.series.as_ref().is_some_and(|series| series.count > 2))
            .collect()
    }

    fn forget_oldest(&mut self) {
        let mut ages: Vec<Instant> = self.known.values().map(|known| known.last).collect();
        let (_, &mut limit, _) = ages.select_nth_unstable(REMEMBERED / 8);
        self.known.retain(|_, known| known.last > limit);
    }

    fn whole(&self, note: &EventNote, wall: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(&note.about.name, wall)),
                namespace: Some(note.about.event_namespace()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(wall)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(note.action.clone()),
            reason: Some(note.reason.clone()),
            regarding: Some((&note.about).into()),
            related: note.related.as_ref().map(Into::into),
            note: Some(limited(&note.text)),
            type_: Some(note.kind.text().to_owned()),
            ..Event::default()
        }
    }
}

/// The API server refuses longer ones.
fn limited(text: &str) -> String {
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST_NOTE - 3);
    format!("{}...", &text[..end])
}
