//! What an API server sees of the events told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::fake;
use crate::fake::Log;

const A_WHILE: Duration = Duration::from_secs(5);

fn pod(name: &str) -> Reference {
    Reference {
        namespace: Some("shop".to_owned()),
        uid: Some("u-1".to_owned()),
        ..Reference::new("v1", "Pod", name)
    }
}

/// An API server that takes everything.
fn recorder(style: EventApi) -> (Recorder, RecorderTask, Log) {
    let (client, log) = fake::client(|asked| (201, asked.body.clone()));
    let mut config = Config::new(style, "plimsoll");
    config.host = "node-1".to_owned();
    let (recorder, recording) = config.spawn(client);
    (recorder, recording, log)
}

fn sent(log: &Log) -> Vec<(String, Value)> {
    let log = log.lock();
    let sent = log.iter().map(|a| (a.method.to_string(), a.body.clone()));
    sent.collect()
}

#[tokio::test]
async fn the_same_again_is_counted() {
    let (recorder, recording, log) = recorder(EventApi::Core);
    for _ in 0..3 {
        recorder.warning(&pod("p"), "BackOff", "", "restarting failed container");
    }
    assert!(recording.drain(A_WHILE).await);
    let log = log.lock();
    let methods: Vec<&str> = log.iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "PATCH"]);
    let first = &log[0].body;
    assert!(log[0].path.starts_with("/api/v1/namespaces/shop/events?"));
    assert_eq!(first["count"], 1);
    assert_eq!(first["type"], "Warning");
    assert_eq!(first["firstTimestamp"], first["lastTimestamp"]);
    assert_eq!(
        first["source"],
        json!({"component": "plimsoll", "host": "node-1"})
    );
    assert_eq!(first["reportingComponent"], "plimsoll");
    assert_eq!(
        first["involvedObject"],
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "shop", "uid": "u-1"})
    );
    let name = first["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("p.") && name.len() > 12, "{name}");
    for (index, patch) in log[1..].iter().enumerate() {
        assert!(patch.path.contains(name), "{}", patch.path);
        assert_eq!(patch.body["count"], index + 2);
        let keys: Vec<&String> = patch.body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["count", "lastTimestamp", "message"]);
    }
}

#[tokio::test]
async fn many_alike_are_told_as_one() {
    let (recorder, recording, log) = recorder(EventApi::Core);
    for index in 0..13 {
        recorder.normal(&pod("p"), "Pulling", "", format!("pulling image {index}"));
    }
    recorder.normal(&pod("p"), "Created", "", "another reason is another matter");
    assert!(recording.drain(A_WHILE).await);
    let sent = sent(&log);
    assert_eq!(sent.len(), 14);
    for (index, (method, body)) in sent[..9].iter().enumerate() {
        assert_eq!(method, "POST");
        assert_eq!(body["message"], format!("pulling image {index}"));
    }
    let combined = "(combined from similar events): pulling image";
    assert_eq!(sent[9].0, "POST");
    assert_eq!(sent[9].1["message"], format!("{combined} 9"));
    for (index, (method, body)) in sent[10..13].iter().enumerate() {
        assert_eq!(method, "PATCH");
        assert_eq!(body["message"], format!("{combined} {}", index + 10));
        assert_eq!(body["count"], index + 2);
    }
    assert_eq!(sent[13].0, "POST");
}

#[tokio::test(start_paused = true)]
async fn enough_is_enough_for_each_object() {
    let (recorder, recording, log) = recorder(EventApi::Core);
    let flood = |object: &str| {
        for index in 0..60 {
            recorder.normal(&pod(object), "Odd", "", format!("{}", index % 3));
        }
    };
    flood("a");
    flood("b");
    let told = |log: &Log| log.lock().len();
    while told(&log) < 50 {
        tokio::task::yield_now().await;
    }
    // One more every five minutes; and after ten, what was alike is alike no more.
    tokio::time::sleep(Duration::from_secs(601)).await;
    flood("a");
    assert!(recording.drain(A_WHILE).await);
    assert_eq!(told(&log), 52);
}

#[tokio::test]
async fn an_event_that_is_gone_is_created_again() {
    let (client, log) = fake::client(|asked| match asked.method.as_str() {
        "PATCH" => fake::failure(404, "NotFound"),
        _ => (201, asked.body.clone()),
    });
    let (recorder, recording) = Config::new(EventApi::Core, "plimsoll").spawn(client);
    for _ in 0..2 {
        recorder.normal(&pod("p"), "Odd", "", "x");
    }
    assert!(recording.drain(A_WHILE).await);
    let sent = sent(&log);
    let methods: Vec<&str> = sent.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
    assert_eq!(sent[2].1["count"], 2);
    assert_eq!(sent[2].1["metadata"]["name"], sent[0].1["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_may_be_away_for_a_while() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let (client, log) = fake::client_async(move |asked| {
        let tried = count.fetch_add(1, Ordering::Relaxed);
        async move {
            if tried < 3 {
                std::future::pending::<()>().await;
            }
            (201, asked.body)
        }
    });
    let (recorder, recording) = Config::new(EventApi::Core, "plimsoll").spawn(client);
    recorder.normal(&pod("p"), "Odd", "", "x");
    assert!(recording.drain(Duration::from_secs(180)).await);
    assert_eq!(log.lock().len(), 4);
    assert_eq!(recorder.failed(), 0);
}

#[tokio::test]
async fn what_is_refused_is_not_repeated() {
    let (client, log) = fake::client(|_| fake::failure(403, "Forbidden"));
    let (recorder, recording) = Config::new(EventApi::Core, "plimsoll").spawn(client);
    recorder.normal(&pod("p"), "Odd", "", "x");
    assert!(recording.drain(A_WHILE).await);
    assert_eq!((log.lock().len(), recorder.failed()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_full_queue() {
    let (client, _) = fake::client_async(|_| std::future::pending());
    let (recorder, recording) = Config::new(EventApi::Core, "plimsoll").spawn(client);
    for index in 0..1500 {
        recorder.normal(&pod(&format!("p{index}")), "Odd", "", "x");
    }
    assert_eq!(recorder.dropped(), 500);
    assert!(!recording.drain(A_WHILE).await);
    recorder.normal(&pod("p"), "Odd", "", "after the end");
    assert_eq!(recorder.dropped(), 501);
}

#[tokio::test(start_paused = true)]
async fn a_series_is_told_at_its_beginning_and_its_end() {
    let (recorder, recording, log) = recorder(EventApi::Series);
    let tell = |text: &str| recorder.warning(&pod("p"), "FailedScheduling", "Scheduling", text);
    tell("0/3 nodes are available");
    tokio::time::sleep(A_WHILE).await;
    for _ in 0..5 {
        tell("0/4 nodes are available");
    }
    tokio::time::sleep(A_WHILE).await;
    {
        let log = log.lock();
        assert_eq!(log.len(), 2);
        assert!(
            log[0]
                .path
                .starts_with("/apis/events.k8s.io/v1/namespaces/shop/events?")
        );
        let event = &log[0].body;
        assert_eq!(event["note"], "0/3 nodes are available");
        assert_eq!(event["action"], "Scheduling");
        assert_eq!(event["reportingController"], "plimsoll");
        assert_eq!(event["reportingInstance"], "node-1");
        assert_eq!(event["regarding"]["name"], "p");
        assert!(event["eventTime"].as_str().unwrap().ends_with('Z'));
        assert_eq!(log[1].method, "PATCH");
        assert_eq!(log[1].body["series"]["count"], 2);
    }
    // Six minutes of silence, and the sum is told.
    tokio::time::sleep(Duration::from_secs(430)).await;
    assert_eq!(log.lock().len(), 3);
    assert_eq!(log.lock()[2].body["series"]["count"], 6);
    // Then it is a new story.
    tell("0/3 nodes are available");
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(log.lock()[3].method, "POST");
    drop(recording);
}

#[tokio::test(start_paused = true)]
async fn a_long_series_is_told_now_and_then() {
    let (recorder, recording, log) = recorder(EventApi::Series);
    for _ in 0..40 {
        recorder.normal(&pod("p"), "Odd", "Trying", "x");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let counts = |log: &Log| {
        let log = log.lock();
        let counts = log
            .iter()
            .map(|asked| asked.body["series"]["count"].as_u64());
        counts.collect::<Vec<_>>()
    };
    let so_far = counts(&log);
    assert_eq!(so_far[..2], [None, Some(2)]);
    assert_eq!(so_far.len(), 3);
    assert!((30..=33).contains(&so_far[2].unwrap()), "{so_far:?}");
    recorder.normal(&pod("p"), "Odd", "Trying", "x");
    // The last words tell what was not told yet.
    assert!(recording.drain(A_WHILE).await);
    assert_eq!(counts(&log)[3], Some(41));
}

#[tokio::test(start_paused = true)]
async fn the_second_may_overtake_the_first() {
    let arrived = Arc::new(AtomicBool::new(false));
    let there = Arc::clone(&arrived);
    let (client, log) = fake::client_async(move |asked| {
        let there = Arc::clone(&there);
        async move {
            if asked.body["series"].is_null() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                there.store(true, Ordering::Relaxed);
                return (201, asked.body);
            }
            match (asked.method.as_str(), there.load(Ordering::Relaxed)) {
                ("PATCH", true) => (200, asked.body),
                ("PATCH", false) => fake::failure(404, "NotFound"),
                _ => fake::failure(409, "AlreadyExists"),
            }
        }
    });
    let (recorder, recording) = Config::new(EventApi::Series, "plimsoll").spawn(client);
    for _ in 0..2 {
        recorder.normal(&pod("p"), "Odd", "Trying", "x");
    }
    assert!(recording.drain(Duration::from_secs(60)).await);
    let last = log.lock().last().cloned().unwrap();
    assert_eq!((last.method.as_str(), recorder.failed()), ("PATCH", 0));
}

#[tokio::test]
async fn names_and_notes_are_what_an_api_server_takes() {
    let (recorder, recording, log) = recorder(EventApi::Series);
    let node = Reference::new("v1", "Node", "Upper_Case");
    recorder.normal(&node, "Odd", "Trying", "ä".repeat(2000));
    assert!(recording.drain(A_WHILE).await);
    let event = log.lock()[0].body.clone();
    assert_eq!(event["metadata"]["namespace"], "default");
    let name = event["metadata"]["name"].as_str().unwrap();
    assert!(uuid::Uuid::parse_str(name).is_ok(), "{name}");
    let note = event["note"].as_str().unwrap();
    assert!(
        note.len() <= 1024 && note.ends_with("ä..."),
        "{}",
        note.len()
    );
}

/// Nobody will ever ask it to stop, so it goes on.
#[tokio::test]
async fn events_are_sent_though_the_recording_is_dropped() {
    for style in [EventApi::Core, EventApi::Series] {
        let (recorder, recording, log) = recorder(style);
        drop(recording);
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            recorder.normal(&pod(name), "Odd", "Trying", "x");
            let sent = async {
                while log.lock().len() <= index {
                    tokio::task::yield_now().await;
                }
            };
            let sent = tokio::time::timeout(A_WHILE, sent).await;
            assert!(sent.is_ok(), "{style:?} {name}: {}", recorder.dropped());
        }
    }
}

#[tokio::test]
async fn what_is_recorded_before_the_task_starts_is_sent() {
    let (client, log) = fake::client(|asked| (201, asked.body.clone()));
    let (recorder, built) = Config::new(EventApi::Series, "plimsoll").build(client);
    recorder.normal(&pod("p"), "Odd", "Trying", "x");
    tokio::task::yield_now().await;
    assert!(log.lock().is_empty());
    assert!(built.spawn().drain(A_WHILE).await);
    assert_eq!(log.lock().len(), 1);
}
