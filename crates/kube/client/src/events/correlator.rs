//! Core events as client-go correlates them: equal events are counted, similar ones combined, and too many dropped.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::recorder::{EventNote, event_name};
use crate::expiring_cache::Expiring;
use crate::rate_limiter::TokenBucket;

const REMEMBERED: usize = 4096;
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);
/// So many that differ only in their text, each within this time of the one before, and they are told as one.
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// About one object: so many at once, then one every five minutes.
const BURST: u32 = 25;
const PER_SECOND: f64 = 1.0 / 300.0;

/// What to send.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub event: Event,
    /// The event is there already, and this is what changed; if it is not there any more, it is created whole.
    pub patch: Option<Value>,
}

#[derive(Debug)]
pub(super) struct Correlator {
    similar: Expiring<String, Similar>,
    told: Expiring<String, Told>,
    buckets: Expiring<String, TokenBucket>,
}

#[derive(Debug)]
struct Similar {
    texts: HashSet<String>,
    last: Instant,
}

#[derive(Debug, Clone)]
struct Told {
    name: String,
    count: i32,
    first: Time,
}

fn joined(parts: &[Option<&str>]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.unwrap_or_default()).collect();
    parts.join("\0")
}

impl Correlator {
    pub fn new() -> Self {
        Self {
            similar: Expiring::new(REMEMBERED),
            told: Expiring::new(REMEMBERED),
            buckets: Expiring::new(REMEMBERED),
        }
    }

    /// `None`: there have been enough about this object.
    pub fn correlate(
        &mut self,
        note: &EventNote,
        component: &str,
        host: &str,
        wall: Timestamp,
    ) -> Option<Write> {
        let now = Instant::now();
        let about = &note.about;
        let object = joined(&[
            Some(component),
            Some(host),
            Some(&about.kind),
            about.namespace.as_deref(),
            Some(&about.name),
            about.uid.as_deref(),
            Some(&about.api_version),
        ]);
        let alike = joined(&[Some(&object), Some(note.kind.text()), Some(&note.reason)]);
        let (text, key) = match self.is_one_of_many(&alike, &note.text, now) {
            true => {
                let text = format!("(combined from similar events): {}", note.text);
                (text, alike)
            }
            false => {
                let path = about.field_path.as_deref();
                let key = joined(&[Some(&alike), path, Some(&note.text)]);
                (note.text.clone(), key)
            }
        };
        let mut event = whole(note, text, component, host, wall);
        let patch = self.count(&key, &mut event);
        let bucket = match self.buckets.get(&object) {
            Some(bucket) => bucket,
            None => {
                let fresh = TokenBucket::new(PER_SECOND, BURST);
                self.buckets.insert(object.clone(), fresh, REMEMBERED_FOR);
                self.buckets.get(&object)?
            }
        };
        bucket.try_take(now).then_some(Write { event, patch })
    }

    /// Have there been so many of these that one more text would tell nobody anything?
    fn is_one_of_many(&mut self, alike: &str, text: &str, now: Instant) -> bool {
        let mut similar = Similar {
            texts: HashSet::new(),
            last: now,
        };
        if let Some(known) = self.similar.get(alike)
            && now.saturating_duration_since(known.last) <= SIMILAR_WITHIN
        {
            similar.texts = std::mem::take(&mut known.texts);
        }
        similar.texts.insert(text.to_owned());
        let many = similar.texts.len() >= SIMILAR;
        if many {
            similar.texts.remove(text);
        }
        self.similar
            .insert(alike.to_owned(), similar, REMEMBERED_FOR);
        many
    }

    /// Counts an event that was told before; then it is enough to tell what changed.
    fn count(&mut self, key: &str, event: &mut Event) -> Option<Value> {
        let mut patch = None;
        if let Some(told) = self.told.get(key) {
            event.metadata.name = Some(told.name.clone());
            event.count = Some(told.count.saturating_add(1));
            event.first_timestamp = Some(told.first.clone());
            patch = Some(json!({
                "count": event.count,
                "lastTimestamp": event.last_timestamp,
                "message": event.message,
            }));
        }
        let told = Told {
            name: event.metadata.name.clone().unwrap_or_default(),
            count: event.count.unwrap_or(1),
            first: event
                .first_timestamp
                .clone()
                .unwrap_or(Time(Timestamp::UNIX_EPOCH)),
        };
        self.told.insert(key.to_owned(), told, REMEMBERED_FOR);
        patch
    }
}

fn whole(note: &EventNote, text: String, component: &str, host: &str, wall: Timestamp) -> Event {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(&note.about.name, wall)),
            namespace: Some(note.about.event_namespace()),
            ..ObjectMeta::default()
        },
        involved_object: (&note.about).into(),
        reason: Some(note.reason.clone()),
        message: Some(text),
        source: Some(EventSource {
            component: filled(component),
            host: filled(host),
        }),
        reporting_component: filled(component),
        reporting_instance: filled(host),
        first_timestamp: Some(Time(wall)),
        last_timestamp: Some(Time(wall)),
        count: Some(1),
        type_: Some(note.kind.text().to_owned()),
        ..Event::default()
    }
}
