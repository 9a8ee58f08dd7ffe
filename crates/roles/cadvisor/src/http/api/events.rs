//! Events: past ones as a list, new ones as a stream of lines.

use std::sync::{Arc, Weak};

use crate::rest::{EventShape, event_list, json as text};
use http::StatusCode;
use plimsoll_observe::events::{Event, EventStore, EventType, Query as Wanted};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};

use super::{Answer, Call, json, request};
use crate::http::body::{Body, Chunk};
use crate::http::response::{self, Failure};
use crate::http::service::ServerState;
use crate::http::url::Query;

/// Events queued for a client before its stream is dropped.
const BEHIND: usize = 1024;
const DEFAULT_MOST: usize = 10;

/// One listener at the event store for all streams: a client that goes away leaves nothing behind there, and one that
/// does not read holds up nobody.
#[derive(Debug)]
pub struct EventHub {
    sender: broadcast::Sender<Arc<Event>>,
}

impl EventHub {
    pub fn listen(store: &EventStore) -> Arc<Self> {
        let hub = Arc::new(Self {
            sender: broadcast::Sender::new(BEHIND),
        });
        let weak: Weak<Self> = Arc::downgrade(&hub);
        let everything = Wanted {
            types: EventType::ALL.to_vec(),
            container: "/".to_owned(),
            subcontainers: true,
            start: None,
            end: None,
            most: None,
        };
        store.subscribe(everything, move |event| {
            let Some(hub) = weak.upgrade() else {
                return false;
            };
            // Nobody listening is no reason to stop.
            let _ = hub.sender.send(Arc::new(event.clone()));
            true
        });
        hub
    }
}

pub async fn answer(shared: &Arc<ServerState>, call: &Call) -> Answer {
    let wanted = wanted(&call.query, call.container())?;
    if call.query.flag("stream") != Some(true) {
        return json(shared, move |shared, out| {
            let found = shared.backend.observer().events.query(&wanted);
            Ok(text::write(&event_list(&found), out)?)
        })
        .await;
    }
    if wanted.start.is_some() || wanted.end.is_some() {
        return Err(Failure::internal(
            "for a call to watch, request.StartTime and request.EndTime must be uninitialized",
        ));
    }
    Ok(response::stream(stream(shared, wanted)?))
}

fn wanted(query: &Query, container: String) -> Result<Wanted, Failure> {
    let all = query.flag("all_events") == Some(true);
    let mut types = EventType::ALL.to_vec();
    types.retain(|kind| {
        let option = match kind {
            EventType::Oom => "oom_events",
            EventType::OomKill => "oom_kill_events",
            EventType::ContainerCreation => "creation_events",
            EventType::ContainerDeletion => "deletion_events",
        };
        all || query.flag(option) == Some(true)
    });
    let most = match query.get("max_events").map(str::parse::<i64>) {
        Some(Ok(-1)) => None,
        // The original dies of this.
        Some(Ok(n)) if n < -1 => {
            return Err(Failure::bad(format!(
                "invalid 'max_events' option: only -1 and larger values allowed, not {n}"
            )));
        }
        Some(Ok(n)) => Some(usize::try_from(n).unwrap_or(usize::MAX)),
        Some(Err(_)) | None => Some(DEFAULT_MOST),
    };
    // What is no moment counts as not said.
    let moment = |option| {
        query
            .get(option)
            .and_then(|text| request::moment(text).ok())
    };
    Ok(Wanted {
        types,
        container,
        subcontainers: query.flag("subcontainers") == Some(true),
        start: moment("start_time"),
        end: moment("end_time"),
        most,
    })
}

fn stream(shared: &Arc<ServerState>, wanted: Wanted) -> Result<Body, Failure> {
    let Ok(place) = Arc::clone(&shared.streams).try_acquire_owned() else {
        return Err(Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many event streams",
        ));
    };
    let mut events = shared.hub.sender.subscribe();
    let draining = shared.draining.clone();
    let counters = Arc::clone(&shared.counters);
    let (out, body) = mpsc::channel(16);
    tokio::spawn(async move {
        let _place = place;
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = draining.begins() => {
                    let _ = out.send(Chunk::End).await;
                    return;
                }
                () = out.closed() => return,
            };
            let event = match event {
                Ok(event) => event,
                Err(RecvError::Lagged(missed)) => {
                    tracing::info!(missed, "event stream dropped, the client did not keep up");
                    counters.stream_dropped();
                    return;
                }
                Err(RecvError::Closed) => return,
            };
            if !wanted.matches(&event) {
                continue;
            }
            let Ok(mut line) = text::to_vec(&EventShape::from(&*event)) else {
                continue;
            };
            line.push(b'\n');
            // Waiting here fills the line behind us, which ends the stream above.
            if out.send(Chunk::Data(line.into())).await.is_err() {
                return;
            }
        }
    });
    Ok(Body::endless(body))
}
