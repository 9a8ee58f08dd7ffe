//! Copies of what an API server tells, in good order and in bad.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::store::store;
use super::typed::{Copy, Task};
use super::*;
use crate::{fake, shutdown};

/// A pod of which only the node is of interest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct SlimPod {
    metadata: ObjectMeta,
    spec: SlimSpec,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    node_name: Option<String>,
}

impl k8s_openapi::Resource for SlimPod {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Pod";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "pods";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for SlimPod {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn pod_json(name: &str, version: u64, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string()},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "box"}]}})
}

fn pod(name: &str, version: u64, node: &str) -> SlimPod {
    serde_json::from_value(pod_json(name, version, node)).unwrap()
}

type Told = Arc<Mutex<Vec<String>>>;

fn note(told: &Told) -> impl FnMut(Change<SlimPod>) + Send + 'static {
    let told = Arc::clone(told);
    move |change| {
        let node = |pod: &SlimPod| pod.spec.node_name.clone().unwrap_or_default();
        let name = |pod: &SlimPod| pod.metadata.name.clone().unwrap();
        told.lock().push(match change {
            Change::Added(new) => format!("+{}@{}", name(&new), node(&new)),
            Change::Updated { old, new } => {
                format!("{}:{}>{}", name(&new), node(&old), node(&new))
            }
            Change::Deleted(old) => format!("-{}@{}", name(&old), node(&old)),
        });
    }
}

async fn run(
    events: Vec<Result<Event<SlimPod>, watcher::Error>>,
) -> (Reader<SlimPod>, Told, CacheSync, ReflectorStatus) {
    run_if_defined(events, None).await
}

async fn run_if_defined(
    events: Vec<Result<Event<SlimPod>, watcher::Error>>,
    absence: Option<MissingKind>,
) -> (Reader<SlimPod>, Told, CacheSync, ReflectorStatus) {
    let (writer, reader) = store();
    let (told, gate, rounds) = (
        Told::default(),
        CacheSync::default(),
        ReflectorStatus::default(),
    );
    let task = Task {
        name: "pods".to_owned(),
        sink: Copy {
            writer,
            handler: Some(Box::new(note(&told))),
            fresh: Default::default(),
        },
        ticket: gate.register("pods"),
        rounds: rounds.clone(),
        answered: None,
        absence,
    };
    task.run(stream::iter(events)).await;
    (reader, told, gate, rounds)
}

#[tokio::test]
async fn changes_are_told_in_order_with_what_was_before() {
    let (reader, told, gate, _) = run(vec![
        Ok(Event::Init),
        Ok(Event::InitApply(pod("b", 1, "x"))),
        Ok(Event::InitApply(pod("a", 2, "x"))),
        Ok(Event::InitDone),
        Ok(Event::Apply(pod("a", 3, "y"))),
        Ok(Event::Apply(pod("c", 4, "z"))),
        Ok(Event::Delete(pod("b", 5, "x"))),
        Ok(Event::Delete(pod("b", 5, "x"))),
    ])
    .await;
    assert!(gate.is_open());
    assert_eq!(*told.lock(), ["+a@x", "+b@x", "a:x>y", "+c@z", "-b@x"]);
    let names: Vec<_> = reader
        .snapshot()
        .iter()
        .map(|p| p.metadata.name.clone().unwrap())
        .collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(
        reader.get("n", "a").unwrap().spec.node_name.as_deref(),
        Some("y")
    );
    assert_eq!(reader.get("other", "a"), None);
    assert_eq!(reader.len(), 2);
}

#[tokio::test]
async fn a_second_list_tells_only_what_is_different() {
    let (reader, told, _, rounds) = run(vec![
        Ok(Event::Init),
        Ok(Event::InitApply(pod("same", 1, "x"))),
        Ok(Event::InitApply(pod("moved", 2, "x"))),
        Ok(Event::InitApply(pod("gone", 3, "x"))),
        Ok(Event::InitDone),
        // A list that breaks off changes nothing.
        Ok(Event::Init),
        Ok(Event::InitApply(pod("never", 9, "x"))),
        Ok(Event::Init),
        Ok(Event::InitApply(pod("moved", 5, "y"))),
        Ok(Event::InitApply(pod("new", 6, "x"))),
        Ok(Event::InitApply(pod("same", 1, "x"))),
        Ok(Event::InitDone),
    ])
    .await;
    assert_eq!(told.lock()[3..], ["-gone@x", "moved:x>y", "+new@x"]);
    assert_eq!((reader.len(), rounds.lists()), (3, 2));
}

#[test]
fn snapshots_are_shared_until_something_changes() {
    let (mut writer, reader) = store();
    writer.apply(pod("a", 1, "x"));
    let first = reader.snapshot();
    assert!(Arc::ptr_eq(&first, &reader.clone().snapshot()));
    writer.apply(pod("b", 2, "x"));
    let second = reader.snapshot();
    assert_eq!(
        (first.len(), second.len()),
        (1, 2),
        "one who looks keeps what he saw"
    );
    assert!(writer.delete(&pod("none", 1, "x")).is_none());
    assert!(Arc::ptr_eq(&second, &reader.snapshot()));
}

#[test]
fn readers_never_see_half() {
    let (mut writer, reader) = store::<SlimPod>();
    let seen = reader.clone();
    let watching = std::thread::spawn(move || {
        let mut last = 0;
        while last < 200 {
            let pods = seen.snapshot();
            let versions: Vec<_> = pods
                .iter()
                .map(|p| p.metadata.resource_version.clone())
                .collect();
            assert!(
                versions.windows(2).all(|pair| pair[0] == pair[1]),
                "{versions:?}"
            );
            if let Some(Some(version)) = versions.first() {
                last = version.parse().unwrap();
            }
        }
    });
    for version in 1..=200 {
        let pods = (0..50).map(|i| pod(&format!("p{i}"), version, "x"));
        let fresh = pods.map(|p| (Key::of(&p), Arc::new(p))).collect();
        writer.replace(fresh);
    }
    watching.join().unwrap();
    assert_eq!(reader.snapshot().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn the_gate_names_what_is_missing() {
    let gate = CacheSync::default();
    gate.opens(Duration::ZERO).await.unwrap();
    let (pods, nodes) = (gate.register("pods"), gate.register("nodes"));
    let claims = gate.register("claims");
    let volumes = gate.register("volumes");
    nodes.trouble("refused".to_owned());
    volumes.trouble("refused".to_owned());
    claims.trouble("soon over".to_owned());
    claims.ready();
    let error = gate.opens(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "not ready after 30 s: still missing pods, nodes, volumes (refused)"
    );
    let waiting = {
        let gate = gate.clone();
        tokio::spawn(async move { gate.opens(Duration::from_secs(30)).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    pods.ready();
    nodes.ready();
    volumes.ready();
    waiting.await.unwrap().unwrap();
    assert!(gate.missing().is_empty());
}

/// Against the protocol: list, watch, a version that expired, a server that fails.
#[tokio::test(start_paused = true)]
async fn an_api_server_with_a_short_memory() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let list = |version: u64, pods: Vec<Value>| {
        let version = version.to_string();
        (
            200,
            json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": version},
            "items": pods}),
        )
    };
    let (client, log) = fake::client_async(move |request| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        async move {
            let watch = request.path.contains("watch=true");
            match (nth, watch) {
                (0, false) => fake::failure(403, "pods is forbidden"),
                (1, false) => list(10, vec![pod_json("a", 5, "x")]),
                (2, true) => (
                    200,
                    json!({"type": "MODIFIED", "object": pod_json("a", 11, "y")}),
                ),
                (3, true) => {
                    let (_, status) = fake::failure(410, "Expired");
                    (200, json!({"type": "ERROR", "object": status}))
                }
                (4, false) => list(20, vec![pod_json("b", 15, "z")]),
                (_, true) => std::future::pending().await,
                other => panic!("{other:?} {request:?}"),
            }
        }
    });
    let (told, gate) = (Told::default(), CacheSync::default());
    let (_stopper, shutdown) = shutdown::channel();
    let reflector = Reflector::<SlimPod>::all("pods", client).on_change(note(&told));
    let (reader, rounds) = reflector.spawn(&gate, shutdown);
    assert_eq!(gate.missing(), ["pods"]);
    gate.opens(Duration::from_secs(10)).await.unwrap();
    assert_eq!((rounds.failures(), rounds.stale_for()), (1, Duration::ZERO));
    let settled = async {
        while reader.get("n", "b").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settled)
        .await
        .unwrap();
    assert_eq!(*told.lock(), ["+a@x", "a:x>y", "-a@y", "+b@z"]);
    assert_eq!((rounds.lists(), rounds.failures()), (2, 1));
    let log = log.lock();
    assert!(
        log[2].path.contains("resourceVersion=10"),
        "{}",
        log[2].path
    );
    assert!(
        log[3].path.contains("resourceVersion=11"),
        "{}",
        log[3].path
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_not_kept_current_is_known_to_be_old() {
    let (client, _) = fake::client(|_| fake::failure(500, "InternalError"));
    let gate = CacheSync::default();
    let (stopper, shutdown) = shutdown::channel();
    let (_, rounds) = Reflector::<SlimPod>::all("pods", client).spawn(&gate, shutdown);
    let error = gate.opens(Duration::from_secs(120)).await.unwrap_err();
    let missing = "pods (InternalError; look into the API server's log; it is asked again later)";
    assert_eq!(error.missing, [missing]);
    assert!(rounds.stale_for() > Duration::from_secs(110));
    // At 0.8 s, doubling to 30 s, it is not asked many times.
    assert!(
        (4..15).contains(&rounds.failures()),
        "{}",
        rounds.failures()
    );
    stopper.stop();
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_task_panics_is_a_failure_of_its_role() {
    let (client, _) = fake::client(|_| {
        let metadata = json!({"resourceVersion": "1"});
        let items = [pod_json("a", 1, "x")];
        (
            200,
            json!({"kind": "PodList", "metadata": metadata, "items": items}),
        )
    });
    let (stopper, shutdown) = shutdown::channel();
    Reflector::<SlimPod>::all("pods", client)
        .on_change(|_| panic!("a bug"))
        .spawn(&CacheSync::default(), shutdown);
    let failure = tokio::time::timeout(Duration::from_secs(60), stopper.failure()).await;
    let expected = "the task `following pods` panicked: a bug";
    assert_eq!(failure.unwrap().to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_defined_is_told_apart_from_trouble() {
    let refused = |code: u16| {
        let (_, status) = fake::failure(code, "no");
        let status = serde_json::from_value(status).unwrap();
        Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))
    };
    let absence = MissingKind::new("apply them");
    let (_, _, gate, rounds) = run_if_defined(vec![refused(403)], Some(absence.clone())).await;
    assert!(!absence.is_told() && rounds.failures() == 1);
    let events = vec![refused(404), refused(404)];
    let (_, _, _, rounds) = run_if_defined(events, Some(absence.clone())).await;
    assert!(absence.is_told() && rounds.failures() == 2);
    assert!(!gate.is_open());
}
