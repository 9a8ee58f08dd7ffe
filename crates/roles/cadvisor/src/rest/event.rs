//! Events as JSON.

use serde::Serialize;

use super::json::Time;
use plimsoll_observe::events::{Detail, Event};

#[derive(Debug, Serialize)]
pub struct EventShape<'a> {
    container_name: &'a str,
    timestamp: Time,
    event_type: &'static str,
    event_data: Data<'a>,
}

#[derive(Debug, Default, Serialize)]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    oom: Option<Kill<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_deletion: Option<Deletion>,
}

#[derive(Debug, Serialize)]
struct Kill<'a> {
    pid: i64,
    process_name: &'a str,
    constraint: &'a str,
}

#[derive(Debug, Serialize)]
struct Deletion {
    exit_code: i32,
}

impl<'a> From<&'a Event> for EventShape<'a> {
    fn from(event: &'a Event) -> Self {
        let mut data = Data::default();
        match &event.detail {
            Detail::OomKill {
                pid,
                process_name,
                constraint,
            } => {
                data.oom = Some(Kill {
                    pid: *pid,
                    process_name,
                    constraint,
                });
            }
            Detail::ContainerDeletion { exit_code } => {
                data.container_deletion = Some(Deletion {
                    exit_code: *exit_code,
                });
            }
            Detail::Oom | Detail::ContainerCreation => {}
        }
        Self {
            container_name: &event.container,
            timestamp: event.at.into(),
            event_type: event.kind().name(),
            event_data: data,
        }
    }
}

pub fn list(events: &[Event]) -> Vec<EventShape<'_>> {
    events.iter().map(EventShape::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::json;
    use plimsoll_host::Timestamp;

    #[test]
    fn every_kind() {
        let at = Timestamp(1_794_778_068_234_182_341);
        let event = |container: &str, detail| Event {
            container: container.into(),
            at,
            detail,
        };
        let events = [
            event(
                "/rigoom",
                Detail::OomKill {
                    pid: 23308,
                    process_name: "python3".to_owned(),
                    constraint: "CONSTRAINT_MEMCG".to_owned(),
                },
            ),
            event("/rigoom", Detail::Oom),
            event("/a", Detail::ContainerDeletion { exit_code: -1 }),
            event("/a", Detail::ContainerCreation),
        ];
        let text = String::from_utf8(json::to_vec(&list(&events)).unwrap()).unwrap();
        // The first two are what the original says of a real kill.
        let expected = concat!(
            r#"[{"container_name":"/rigoom","timestamp":"2026-11-15T21:27:48.234182341Z","event_type":"oomKill","#,
            r#""event_data":{"oom":{"pid":23308,"process_name":"python3","constraint":"CONSTRAINT_MEMCG"}}},"#,
            r#"{"container_name":"/rigoom","timestamp":"2026-11-15T21:27:48.234182341Z","event_type":"oom","#,
            r#""event_data":{}},"#,
            r#"{"container_name":"/a","timestamp":"2026-11-15T21:27:48.234182341Z","#,
            r#""event_type":"containerDeletion","event_data":{"container_deletion":{"exit_code":-1}}},"#,
            r#"{"container_name":"/a","timestamp":"2026-11-15T21:27:48.234182341Z","#,
            r#""event_type":"containerCreation","event_data":{}}]"#,
        );
        assert_eq!(text, expected);
    }
}
