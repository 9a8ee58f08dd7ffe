//! What the original lacks, and servers beside each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::{Value, json};

use super::world::{Client, World, until};
use super::{MASTERS, NODES, PODS, items, kubelet};
use crate::api::Verbosity;
use crate::audit::{Audit, Log, LogConfig, Policy};

/// With a node and two pods that have figures.
async fn with_figures(world: &World) -> Client {
    let (kubelet, _) = kubelet().await;
    world.join(kubelet).await;
    world.run("a").await;
    world.run("b").await;
    let root = world.client("root", MASTERS, true);
    until("figures", async || has_figures(&root).await).await;
    root
}

async fn has_figures(client: &Client) -> bool {
    items(&client.get(NODES).await.body).len() == 1
        && items(&client.get(PODS).await.body).len() == 2
}

/// `None`: nobody is there any more.
async fn has_figures_if_there(client: &Client) -> Option<bool> {
    let nodes = client.get_if_there(NODES).await?;
    let pods = client.get_if_there(PODS).await?;
    Some(items(&nodes.body).len() == 1 && items(&pods.body).len() == 2)
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Without what is different each time.
fn timeless(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            for key in ["creationTimestamp", "timestamp", "window", "usage"] {
                map.remove(key);
            }
            for inner in map.values_mut() {
                *inner = timeless(inner.take());
            }
        }
        Value::Array(list) => {
            for inner in list {
                *inner = timeless(inner.take());
            }
        }
        _ => {}
    }
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_is_the_same_under_another_name() {
    let world = World::new(|config| config.announced.v1 = true).await;
    let root = with_figures(&world).await;
    let namespaced = "namespaces/default/pods";
    for path in [
        "nodes",
        "nodes/n",
        "nodes/unknown",
        "pods",
        namespaced,
        &format!("{namespaced}/a"),
        "pods?labelSelector=x",
        "pods?fieldSelector=spec.nodeName%3Dn",
        "nodes?watch=true",
        "nothing",
    ] {
        let [old, new] = ["v1beta1", "v1"].map(|version| {
            let path = format!("/apis/metrics.k8s.io/{version}/{path}");
            let root = root.clone();
            async move { root.get(&path).await }
        });
        let (old, new) = (old.await, new.await);
        assert_eq!(old.status, new.status, "{path}");
        let renamed = new
            .body
            .replace("metrics.k8s.io/v1\"", "metrics.k8s.io/v1beta1\"");
        assert_eq!(
            timeless(parsed(&old.body)),
            timeless(parsed(&renamed)),
            "{path}"
        );
    }
    let group = parsed(&root.get("/apis/metrics.k8s.io").await.body);
    let versions: Vec<&str> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| version["version"].as_str().unwrap())
        .collect();
    assert_eq!(versions, ["v1", "v1beta1"]);
    let resources = parsed(&root.get("/apis/metrics.k8s.io/v1").await.body);
    assert_eq!(resources["groupVersion"], "metrics.k8s.io/v1");
    assert_eq!(resources["resources"].as_array().unwrap().len(), 2);
    let described = parsed(&root.get("/openapi/v3/apis/metrics.k8s.io/v1").await.body);
    assert!(described["paths"]["/apis/metrics.k8s.io/v1/nodes"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_is_there_for_those_who_know_of_it() {
    let world = World::new(|_| {}).await;
    let root = with_figures(&world).await;
    let group = parsed(&root.get("/apis/metrics.k8s.io").await.body);
    assert_eq!(group["versions"].as_array().unwrap().len(), 1);
    assert_eq!(group["preferredVersion"]["version"], "v1beta1");
    let nodes = root.get("/apis/metrics.k8s.io/v1/nodes").await;
    assert_eq!(items(&nodes.body).len(), 1);
    assert_eq!(parsed(&nodes.body)["apiVersion"], "metrics.k8s.io/v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn swap_is_shown_to_whoever_asked_for_it() {
    let world = World::with(|_, collector| collector.swap = true).await;
    let root = with_figures(&world).await;
    let node = parsed(&root.get(&format!("{NODES}/n")).await.body);
    assert_eq!(node["usage"]["swap"], "3Ki");
    let pods = parsed(&root.get(PODS).await.body);
    for pod in pods["items"].as_array().unwrap() {
        assert_eq!(pod["containers"][0]["usage"]["swap"], "1Ki", "{pod}");
    }
    let world = World::new(|_| {}).await;
    let root = with_figures(&world).await;
    let node = parsed(&root.get(&format!("{NODES}/n")).await.body);
    let names: Vec<&String> = node["usage"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["cpu", "memory"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_much_is_logged_is_changed_while_it_runs() {
    let level = Arc::new(AtomicU32::new(0));
    let set = Arc::clone(&level);
    let verbosity = Verbosity::new(move |to| set.store(to, Ordering::Relaxed));
    let world = World::new(|config| config.verbosity = Some(verbosity)).await;
    let path = "/debug/flags/v";
    for http2 in [false, true] {
        let root = world.client("root", MASTERS, http2);
        let reply = root.put(path, "7").await;
        let text = "successfully set klog.logging.verbosity to 7\n";
        assert_eq!((reply.status, reply.body.as_str()), (200, text));
        assert_eq!(reply.headers["content-type"], "text/plain");
        assert_eq!(level.swap(0, Ordering::Relaxed), 7);
        let reply = root.put(path, "loud").await;
        let text = "strconv.ParseUint: parsing \"loud\": invalid syntax\n";
        assert_eq!((reply.status, reply.body.as_str()), (400, text));
        assert_eq!(root.put(path, &"1".repeat(5000)).await.status, 400);
        assert_eq!(root.get(path).await.status, 406);
    }
    // Not for everybody.
    let bob = world.client("bob", "dev", false);
    assert_eq!(bob.put(path, "9").await.status, 403);
    assert_eq!(level.load(Ordering::Relaxed), 0);
}

/// Replicas know nothing of each other: each is complete by itself, and one that ends says so first.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_ends_and_nobody_misses_it() {
    let delay = std::time::Duration::from_secs(2);
    let world = World::new(|config| config.shutdown_delay = delay).await;
    let root = with_figures(&world).await;
    let (second, collecting) = world.replica().await;
    let also = world.client_of(second.local_addr(), "root", MASTERS, true);
    until("figures of the second", async || has_figures(&also).await).await;
    let [one, other] = [&root, &also].map(|client| async { client.get(PODS).await.body });
    let names =
        |text: &str| -> Vec<String> { items(text).into_iter().map(|(name, _)| name).collect() };
    assert_eq!(names(&one.await), names(&other.await));

    let stop = Arc::new(AtomicBool::new(false));
    let load = {
        // Whoever is not ready gets no more requests, as a service has it.
        let (clients, stop) = ([root.clone(), also.clone()], Arc::clone(&stop));
        tokio::spawn(async move {
            let mut answered = [0_usize; 2];
            while !stop.load(Ordering::Relaxed) {
                for (client, answered) in clients.iter().zip(&mut answered) {
                    let asked = std::time::Instant::now();
                    let ready = client.get_if_there("/readyz").await;
                    if ready.is_none_or(|reply| reply.status != 200) {
                        continue;
                    }
                    match has_figures_if_there(client).await {
                        Some(has) => assert!(has),
                        // It goes on answering for as long as it was told to, and this machine was slower than that.
                        None => {
                            assert!(asked.elapsed() >= delay, "gone right after it was ready");
                            continue;
                        }
                    }
                    *answered += 1;
                }
            }
            answered
        })
    };
    second.drain(std::time::Duration::from_secs(10)).await;
    collecting.drain(std::time::Duration::from_secs(10)).await;
    assert!(also.get_if_there("/readyz").await.is_none());
    let before = items(&root.get(NODES).await.body);
    until("the first goes on", async || {
        items(&root.get(NODES).await.body)[0].1 > before[0].1
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let answered = load.await.unwrap();
    assert!(answered[0] > 0, "{answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asked_for_what_is_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n\
                  - {level: None, nonResourceURLs: [/version]}\n\
                  - {level: Metadata, omitStages: [RequestReceived]}\n";
    let log = Log::open(LogConfig {
        path: path.clone(),
        longest: 0,
        backups: 0,
        kept_for: std::time::Duration::ZERO,
        compress: false,
    });
    let audit = Audit::new(Policy::parse(policy).unwrap(), log.unwrap());
    let world = World::new(|config| config.audit = Some(audit)).await;
    let root = world.client("root", MASTERS, true);
    root.get("/version").await;
    let reply = root.get(&format!("{PODS}?limit=1")).await;
    // Only whole lines: one may just be written.
    let lines = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(parsed).collect::<Vec<Value>>()
    };
    // It is written after the answer was sent, so the next request has to wait for it.
    until("it is written down", async || lines().len() == 1).await;
    let bob = world.client("bob", "dev", false);
    bob.get(&format!("{NODES}/n")).await;
    until("both are written down", async || lines().len() == 2).await;
    let mut lines = lines();
    for line in &mut lines {
        for key in ["requestReceivedTimestamp", "stageTimestamp"] {
            let time = line[key].take();
            assert_eq!(
                time.as_str().unwrap().len(),
                "2026-11-16T19:00:00.000000Z".len()
            );
        }
        line["user"]["extra"].take();
    }
    assert_eq!(
        lines[0],
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
            "auditID": reply.headers["audit-id"].to_str().unwrap(),
            "stage": "ResponseComplete", "requestURI": format!("{PODS}?limit=1"), "verb": "list",
            "user": {"username": "root", "groups": [MASTERS, "system:authenticated"], "extra": null},
            "sourceIPs": ["127.0.0.1"],
            "objectRef": {"resource": "pods", "apiGroup": "metrics.k8s.io", "apiVersion": "v1beta1"},
            "responseStatus": {"metadata": {}, "code": 200},
            "requestReceivedTimestamp": null, "stageTimestamp": null,
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        })
    );
    assert_eq!(lines[1]["user"]["username"], "bob");
    assert_eq!(lines[1]["objectRef"]["name"], "n");
    assert_eq!(
        lines[1]["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(lines[1]["responseStatus"]["code"], 403);
    assert_eq!(lines[1]["responseStatus"]["reason"], "Forbidden");
    let page = root.get("/metrics").await.body;
    assert!(page.contains("\napiserver_audit_event_total 2\n"), "{page}");
}
