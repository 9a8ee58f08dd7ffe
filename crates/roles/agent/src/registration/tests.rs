use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::client::Body;
use parking_lot::Mutex;
use plimsoll_host::fs::FsUsage;
use plimsoll_host::{Clock, HostRoot};
use serde_json::{Value, json};

use super::object::NodeReadiness;
use super::plan::{Step, plan};
use super::{Config, Facts, Machine, node};

fn facts() -> Facts {
    Facts {
        pages: None,
        cpus: 4,
        memory: 16 << 30,
        memory_available: 8 << 30,
        swap: 0,
        hugepages: vec![(2 << 20, 512), (1 << 30, 0)],
        storage: Some(FsUsage {
            capacity: 100 << 30,
            free: 60 << 30,
            available: 50 << 30,
            inodes: Some((1000, 900)),
        }),
        threads: Some((300, 32768)),
        machine_id: "machine".to_owned(),
        system_uuid: "system".to_owned(),
        boot_id: "boot".to_owned(),
        kernel_version: "6.1.0".to_owned(),
        os_image: "Test Linux".to_owned(),
        runtime: "containerd://2.1.4".to_owned(),
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)),
    }
}

const NOON: Timestamp = Timestamp::constant(1_700_000_000, 0);

fn wanted(facts: &Facts) -> Node {
    node("box", facts, NodeReadiness::Running, NOON)
}

fn condition<'a>(node: &'a Node, kind: &str) -> (&'a str, &'a str) {
    let mut conditions = node.status.as_ref().unwrap().conditions.iter().flatten();
    let found = conditions.find(|c| c.type_ == kind).unwrap();
    (&found.status, found.reason.as_deref().unwrap())
}

#[test]
fn amounts_of_a_machine() {
    let status = wanted(&facts()).status.unwrap();
    let shown = serde_json::to_string_pretty(&json!({
        "capacity": status.capacity,
        "allocatable": status.allocatable,
        "addresses": status.addresses,
    }));
    expect![[r#"
        {
          "addresses": [
            {
              "address": "10.0.0.7",
              "type": "InternalIP"
            },
            {
              "address": "box",
              "type": "Hostname"
            }
          ],
          "allocatable": {
            "cpu": "4",
            "ephemeral-storage": "96636764160",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "1Gi",
            "memory": "15260Mi",
            "pods": "110"
          },
          "capacity": {
            "cpu": "4",
            "ephemeral-storage": "100Gi",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "1Gi",
            "memory": "16Gi",
            "pods": "110"
          }
        }"#]]
    .assert_eq(&shown.unwrap());
}

#[test]
fn pressure_shows_where_a_kubelet_would_evict() {
    let calm = wanted(&facts());
    assert_eq!(condition(&calm, "Ready"), ("True", "KubeletReady"));
    assert_eq!(
        condition(&calm, "DiskPressure"),
        ("False", "KubeletHasNoDiskPressure")
    );
    let mut pressed = facts();
    pressed.memory_available = (100 << 20) - 1;
    pressed.threads = Some((32700, 32768));
    let node = wanted(&pressed);
    assert_eq!(
        condition(&node, "MemoryPressure"),
        ("True", "KubeletHasInsufficientMemory")
    );
    assert_eq!(
        condition(&node, "PIDPressure"),
        ("True", "KubeletHasInsufficientPID")
    );
    let disks = [
        (9 << 30, Some((1000, 900)), "True"),
        (50 << 30, Some((1000, 40)), "True"),
        // No inodes are counted here.
        (50 << 30, Some((0, 0)), "False"),
        (10 << 30, None, "False"),
    ];
    for (available, inodes, expected) in disks {
        pressed.storage = Some(FsUsage {
            available,
            inodes,
            ..facts().storage.unwrap()
        });
        let node = wanted(&pressed);
        assert_eq!(condition(&node, "DiskPressure").0, expected);
    }
}

#[test]
fn what_is_told_already_is_not_told_again() {
    let registered = wanted(&facts());
    let later = NOON + SignedDuration::from_secs(200);
    let again = node("box", &facts(), NodeReadiness::Running, later);
    assert_eq!(plan(Some(&registered), again, later), []);
    let due = NOON + SignedDuration::from_secs(300);
    let again = node("box", &facts(), NodeReadiness::Running, due);
    let steps = plan(Some(&registered), again, due);
    let [Step::Status(patch)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    let ready = &patch["status"]["conditions"][3];
    assert_eq!(ready["lastHeartbeatTime"], due.to_string());
    assert_eq!(ready["lastTransitionTime"], NOON.to_string());
    assert_eq!(patch["status"].get("addresses"), None);
}

#[test]
fn only_what_is_ours_is_changed() {
    let mut current = wanted(&facts());
    let labels = current.metadata.labels.as_mut().unwrap();
    labels.insert("zone".to_owned(), "a".to_owned());
    labels.remove("kubernetes.io/os");
    let status = current.status.as_mut().unwrap();
    let foreign = k8s_openapi::apimachinery::pkg::api::resource::Quantity("8".to_owned());
    status
        .capacity
        .as_mut()
        .unwrap()
        .insert("example.com/gpu".to_owned(), foreign);
    let later = NOON + SignedDuration::from_secs(10);
    let steps = plan(
        Some(&current),
        node("box", &facts(), NodeReadiness::Stopped, later),
        later,
    );
    let [Step::Labels(labels), Step::Status(patch)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    assert_eq!(
        *labels,
        json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    );
    assert_eq!(patch["status"]["capacity"].get("example.com/gpu"), None);
    let ready = &patch["status"]["conditions"][3];
    assert_eq!(
        (&ready["type"], &ready["status"]),
        (&json!("Ready"), &json!("False"))
    );
    assert_eq!(ready["lastTransitionTime"], later.to_string());
}

#[test]
fn a_new_address_takes_the_place_of_the_old_one() {
    let current = wanted(&facts());
    let mut moved = facts();
    moved.address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));
    let steps = plan(Some(&current), wanted(&moved), NOON);
    let [Step::Status(patch)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    assert_eq!(
        patch["status"]["addresses"][0],
        json!({"$patch": "replace"})
    );
    assert_eq!(patch["status"]["addresses"][1]["address"], "10.0.0.8");
}

/// A cluster of one node and one lease.
#[derive(Debug, Default)]
struct Cluster {
    node: Option<Value>,
    lease: Option<Value>,
    registered: usize,
    heartbeats: usize,
}

impl Cluster {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        if path.ends_with("/pods") {
            let empty = json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
            return (200, empty);
        }
        let (slot, counter) = match path.contains("leases") {
            true => (&mut self.lease, &mut self.heartbeats),
            false => (&mut self.node, &mut self.registered),
        };
        let missing = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""});
        match (method, &mut *slot) {
            (&Method::GET, Some(found)) => (200, found.clone()),
            (&Method::POST, None) => {
                let mut made = body;
                made["metadata"]["uid"] = json!(format!("uid-{counter}"));
                made["metadata"]["resourceVersion"] = json!("1");
                *counter += 1;
                *slot = Some(made.clone());
                (201, made)
            }
            (&Method::PUT, Some(found)) => {
                *counter += 1;
                *found = body.clone();
                (200, body)
            }
            (&Method::PATCH, Some(found)) => {
                found["status"]["conditions"] = body["status"]["conditions"].clone();
                (200, found.clone())
            }
            _ => (404, missing),
        }
    }

    fn ready(&self) -> Option<&str> {
        self.node.as_ref()?["status"]["conditions"][3]["status"].as_str()
    }
}

fn cluster() -> (Arc<Mutex<Cluster>>, kube::Client) {
    let cluster = Arc::new(Mutex::new(Cluster::default()));
    let shared = Arc::clone(&cluster);
    let service = tower::service_fn(move |request: Request<Body>| {
        let shared = Arc::clone(&shared);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, body) = shared.lock().answer(&head.method, head.uri.path(), body);
            let body = Full::new(Bytes::from(body.to_string()));
            let response = Response::builder().status(code).body(body).unwrap();
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    (cluster, kube::Client::new(service, "default"))
}

async fn until(cluster: &Mutex<Cluster>, true_of: impl Fn(&Cluster) -> bool) {
    let wait = async {
        while !true_of(&cluster.lock()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(seen.is_ok(), "{:?}", cluster.lock());
}

#[tokio::test(start_paused = true)]
async fn a_node_is_kept_until_it_stops() {
    let temp = tempfile::tempdir().unwrap();
    let machine = Machine::new(HostRoot::new(temp.path()), &Clock::Real, None).unwrap();
    let (cluster, client) = cluster();
    let config = Config {
        name: "box".to_owned(),
    };
    let running = config.build(client, Clock::Real, machine).spawn();
    running.ready().await;
    assert_eq!(cluster.lock().ready(), Some("True"));
    let owner = cluster.lock().lease.as_ref().unwrap()["metadata"]["ownerReferences"][0].clone();
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Node"), &json!("uid-0"))
    );
    until(&cluster, |cluster| cluster.heartbeats >= 3).await;
    {
        let mut cluster = cluster.lock();
        cluster.node = None;
        cluster.lease = None;
    }
    until(&cluster, |cluster| {
        cluster.registered == 2 && cluster.lease.is_some()
    })
    .await;
    running.drain(Duration::from_secs(5)).await;
    assert_eq!(cluster.lock().ready(), Some("False"));
}
