//! Through the server, as clients see it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use http::{Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::embed::{Config, Options, Running};

const DEADLINE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(options: Options) -> Running {
    let config = Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        data_dir: None,
    };
    config.build_with(options).await.unwrap().spawn()
}

async fn ask(server: &Running, method: Method, path: &str, body: Value) -> Result<Value, u16> {
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body)
        .unwrap();
    match server.client().request(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn create(server: &Running, path: &str, object: Value) -> Value {
    ask(server, Method::POST, path, object).await.unwrap()
}

async fn get(server: &Running, path: &str) -> Option<Value> {
    match ask(server, Method::GET, path, Value::Null).await {
        Ok(object) => Some(object),
        Err(404) => None,
        Err(code) => panic!("{path}: {code}"),
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let asked = tokio::time::timeout(DEADLINE, asking).await;
    assert!(asked.is_ok(), "never: {what}");
}

async fn until_gone(server: &Running, name: &str) {
    let path = format!("{MAPS}/{name}");
    until(&format!("{name} is gone"), async || {
        get(server, &path).await.is_none()
    })
    .await;
}

fn map(name: &str, owners: Value) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"],
    })
}

fn event(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Tested", "message": "m", "type": "Normal",
        "source": {"component": "test"},
    })
}

#[tokio::test]
async fn old_events_go_and_watches_are_told() {
    static NOW: AtomicI64 = AtomicI64::new(1_800_000_000);
    let options = Options {
        event_ttl: Duration::from_secs(30),
        clock: || Timestamp::from_second(NOW.load(Ordering::Relaxed)).unwrap(),
        ..Options::default()
    };
    let server = start(options).await;
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    create(&server, EVENTS, event("old")).await;
    create(&server, EVENTS, event("renewed")).await;
    let noted = json!({
        "metadata": {"name": "new-style"},
        "eventTime": "2027-01-15T08:00:00.000000Z", "action": "Test", "reason": "Tested", "type": "Normal",
        "reportingController": "example.com/test", "reportingInstance": "test-1",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    create(&server, NEW_EVENTS, noted).await;
    create(&server, MAPS, map("stays", json!([]))).await;
    let last = get(&server, EVENTS).await.unwrap();
    let version = last["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = Request::get(format!("{EVENTS}?watch=true&resourceVersion={version}"));
    let watch = watch.body(Vec::new()).unwrap();
    let mut lines = server.client().request_stream(watch).await.unwrap().lines();
    NOW.fetch_add(20, Ordering::Relaxed);
    let again = json!({"count": 2});
    let renewed = format!("{EVENTS}/renewed");
    ask(&server, Method::PATCH, &renewed, again).await.unwrap();
    NOW.fetch_add(20, Ordering::Relaxed);
    until("only the renewed one is left", async || {
        let left = get(&server, NEW_EVENTS).await.unwrap();
        left["items"].as_array().unwrap().len() == 1
    })
    .await;
    assert!(get(&server, &format!("{EVENTS}/renewed")).await.is_some());
    assert!(get(&server, &format!("{MAPS}/stays")).await.is_some());
    let mut told = Vec::new();
    while told.len() < 3 {
        let line = tokio::time::timeout(DEADLINE, lines.next()).await.unwrap();
        let line: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        let name = line["object"]["metadata"]["name"].as_str().unwrap();
        told.push(format!("{} {name}", line["type"].as_str().unwrap()));
        assert_eq!(line["object"]["reason"], "Tested");
        let version: u64 = line["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(
            version
                > last["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap()
                    .parse()
                    .unwrap()
        );
    }
    told[1..].sort();
    assert_eq!(
        told,
        ["MODIFIED renewed", "DELETED new-style", "DELETED old"]
    );
    drop(lines);
    NOW.fetch_add(40, Ordering::Relaxed);
    until("none is left", async || {
        let left = get(&server, EVENTS).await.unwrap();
        left["items"].as_array().unwrap().is_empty()
    })
    .await;
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn dependents_follow_their_owners() {
    let server = start(Options::default()).await;
    let owner_a = create(&server, MAPS, map("owner-a", json!([]))).await;
    let owner_b = create(&server, MAPS, map("owner-b", json!([]))).await;
    let wrong_name = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner-b", "uid": owner_a["metadata"]["uid"]});
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"});
    create(&server, MAPS, map("of-a", json!([owner(&owner_a)]))).await;
    let both = json!([owner(&owner_a), owner(&owner_b)]);
    create(&server, MAPS, map("of-both", both)).await;
    create(&server, MAPS, map("of-unknown", json!([unknown]))).await;
    create(&server, MAPS, map("misnamed", json!([wrong_name]))).await;
    // What names an owner that is not there under this name goes at once.
    until_gone(&server, "misnamed").await;
    assert!(get(&server, &format!("{MAPS}/of-a")).await.is_some());

    let path = format!("{MAPS}/owner-a");
    ask(&server, Method::DELETE, &path, Value::Null)
        .await
        .unwrap();
    until_gone(&server, "of-a").await;
    until("the lost owner is forgotten", async || {
        let both = get(&server, &format!("{MAPS}/of-both")).await.unwrap();
        both["metadata"]["ownerReferences"] == json!([owner(&owner_b)])
    })
    .await;
    assert!(get(&server, &format!("{MAPS}/of-unknown")).await.is_some());
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn owners_wait_for_dependents_or_free_them() {
    let server = start(Options::default()).await;
    let first = create(&server, MAPS, map("first", json!([]))).await;
    let second = create(&server, MAPS, map("second", json!([]))).await;
    let mut blocking = owner(&first);
    blocking["blockOwnerDeletion"] = true.into();
    create(&server, MAPS, map("held", json!([blocking]))).await;
    let holder = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    let held = format!("{MAPS}/held");
    ask(&server, Method::PATCH, &held, holder).await.unwrap();
    create(&server, MAPS, map("freed", json!([owner(&second)]))).await;

    let foreground = json!({"propagationPolicy": "Foreground"});
    let path = format!("{MAPS}/first");
    ask(&server, Method::DELETE, &path, foreground)
        .await
        .unwrap();
    until("the dependent is to go", async || {
        let held = get(&server, &held).await.unwrap();
        !held["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    assert!(get(&server, &path).await.is_some());
    let release = json!({"metadata": {"finalizers": null}});
    ask(&server, Method::PATCH, &held, release).await.unwrap();
    until_gone(&server, "held").await;
    until_gone(&server, "first").await;

    let orphan = json!({"propagationPolicy": "Orphan"});
    let path = format!("{MAPS}/second");
    ask(&server, Method::DELETE, &path, orphan).await.unwrap();
    until_gone(&server, "second").await;
    let freed = get(&server, &format!("{MAPS}/freed")).await.unwrap();
    assert!(freed["metadata"]["ownerReferences"].is_null(), "{freed}");
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_namespace_goes_with_what_is_in_it() {
    let server = start(Options::default()).await;
    create(
        &server,
        "/api/v1/namespaces",
        json!({"metadata": {"name": "n"}}),
    )
    .await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&server, "/api/v1/namespaces/n/configmaps", held).await;
    for n in 0..50 {
        let plain = json!({"metadata": {"name": format!("m{n}")}});
        create(&server, "/api/v1/namespaces/n/configmaps", plain).await;
    }
    let namespace = "/api/v1/namespaces/n";
    ask(&server, Method::DELETE, namespace, Value::Null)
        .await
        .unwrap();
    until("only what is held is left", async || {
        let left = get(&server, "/api/v1/namespaces/n/configmaps").await;
        left.unwrap()["items"].as_array().unwrap().len() == 1
    })
    .await;
    let release = json!({"metadata": {"finalizers": null}});
    let held = "/api/v1/namespaces/n/configmaps/held";
    ask(&server, Method::PATCH, held, release).await.unwrap();
    until("the namespace is gone", async || {
        get(&server, namespace).await.is_none()
    })
    .await;
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_definition_takes_everything_with_it() {
    let server = start(Options::default()).await;
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
    for _ in 0..3 {
        let definition = json!({
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        create(&server, DEFINITIONS, definition).await;
        let thing =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
        create(&server, THINGS, thing).await;
        let document = "/openapi/v3/apis/example.com/v1";
        assert!(get(&server, document).await.is_some());
        assert!(server.server().openapi().has("apis/example.com/v1"));
        let path = format!("{DEFINITIONS}/things.example.com");
        ask(&server, Method::DELETE, &path, Value::Null)
            .await
            .unwrap();
        until("the definition is gone", async || {
            get(&server, &path).await.is_none()
        })
        .await;
        until("nothing of it is left", async || {
            let store = server.server().store();
            !server.server().openapi().has("apis/example.com/v1")
                && !store.knows("things.example.com")
        })
        .await;
    }
    server.drain(Duration::from_secs(5)).await;
}

/// A task that panics is made anew; while it is down, health says so.
#[tokio::test]
async fn a_task_that_panics_shows() {
    let server = start(Options::default()).await;
    let probe = async |path: &str| {
        let request = Request::get(path).body(Vec::new()).unwrap();
        server.client().request_text(request).await
    };
    assert_eq!(probe("/readyz").await.unwrap(), "ok");
    let stop = server.server().shutdown();
    let task = stop.keep_restarting("shaky", || async { panic!("a defect") });
    until("it shows", async || probe("/readyz").await.is_err()).await;
    assert!(probe("/readyz/tasks").await.is_err());
    assert_eq!(probe("/livez").await.unwrap(), "ok");
    let metrics = probe("/metrics").await.unwrap();
    assert!(
        !metrics.contains("plimsoll_task_restarts_total 0\n"),
        "{metrics}"
    );
    task.abort();
    until("it is over", async || probe("/readyz").await.is_ok()).await;
}
