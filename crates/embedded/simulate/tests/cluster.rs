//! A simulation on the embedded API server.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use plimsoll_apiserver::embed;
use plimsoll_simulate::{Config, RUN_SECONDS, Running, nodes};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);

struct Cluster {
    api: embed::Running,
    simulation: Running,
}

async fn simulate(api: &embed::Running, nodes: u32) -> Running {
    let config = Config {
        nodes,
        ..Config::default()
    };
    let running = config.build(api.client()).spawn();
    tokio::time::timeout(DEADLINE, running.ready())
        .await
        .unwrap();
    running
}

async fn cluster(nodes: u32) -> Cluster {
    let config = embed::Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        data_dir: None,
    };
    let api = config.build().await.unwrap().spawn();
    Cluster {
        simulation: simulate(&api, nodes).await,
        api,
    }
}

impl Cluster {
    async fn create(&self, pod: Value) -> Pod {
        let pods: Api<Pod> = Api::default_namespaced(self.api.client());
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap()
    }

    /// The pod, once it is as wanted.
    async fn pod(&self, name: &str, wanted: impl Fn(Option<&Pod>) -> bool) -> Option<Pod> {
        let pods: Api<Pod> = Api::default_namespaced(self.api.client());
        let asking = async {
            loop {
                let pod = pods.get_opt(name).await.unwrap();
                if wanted(pod.as_ref()) {
                    return pod;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let asked = tokio::time::timeout(DEADLINE, asking).await;
        asked.unwrap_or_else(|_| panic!("{name} never gets there"))
    }
}

fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "app"}, {"name": "side", "image": "helper"}]},
    });
    pod["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn pods_run_where_they_are_bound() {
    let cluster = cluster(3).await;
    let here = json!({"nodeName": "sim-0002"});
    cluster.create(pod("one", here.clone())).await;
    cluster.create(pod("two", here)).await;
    cluster.create(pod("nowhere", json!({}))).await;
    cluster
        .create(pod("elsewhere", json!({"nodeName": "sim-0009"})))
        .await;
    let mut addresses = Vec::new();
    for name in ["one", "two"] {
        let running = cluster.pod(name, |pod| phase(pod) == Some("Running")).await;
        let status = running.unwrap().status.unwrap();
        let containers = status.container_statuses.unwrap();
        assert_eq!(containers.len(), 2);
        assert!(containers.iter().all(|container| container.ready));
        assert!(status.start_time.is_some());
        let conditions = status.conditions.unwrap();
        assert!(
            conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
        );
        addresses.push(status.pod_ip.unwrap());
    }
    assert!(addresses[0] != addresses[1], "{addresses:?}");
    for name in ["nowhere", "elsewhere"] {
        cluster.pod(name, |pod| phase(pod) == Some("Pending")).await;
    }
    cluster.api.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn pods_end_when_their_work_is_done_or_they_are_deleted() {
    let cluster = cluster(1).await;
    let mut job = pod(
        "job",
        json!({"nodeName": "sim-0001", "restartPolicy": "Never"}),
    );
    job["metadata"]["annotations"] = json!({RUN_SECONDS: "1"});
    cluster.create(job).await;
    cluster
        .create(pod("service", json!({"nodeName": "sim-0001"})))
        .await;
    cluster
        .pod("service", |pod| phase(pod) == Some("Running"))
        .await;
    let done = cluster
        .pod("job", |pod| phase(pod) == Some("Succeeded"))
        .await;
    let containers = done.unwrap().status.unwrap().container_statuses.unwrap();
    let ended = containers[0]
        .state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!(
        (ended.exit_code, ended.reason.as_deref()),
        (0, Some("Completed"))
    );

    let pods: Api<Pod> = Api::default_namespaced(cluster.api.client());
    let graceful = DeleteParams::default().grace_period(3600);
    pods.delete("service", &graceful).await.unwrap();
    cluster.pod("service", |pod| pod.is_none()).await;
    cluster.api.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_next_run_may_have_fewer_nodes() {
    let cluster = cluster(3).await;
    let api: Api<Node> = Api::all(cluster.api.client());
    let first = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(first.items.len(), 3);
    assert!(first.iter().all(nodes::is_ready));
    cluster.simulation.drain(Duration::from_secs(5)).await;

    let second = simulate(&cluster.api, 1).await;
    let ready: Vec<bool> = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(nodes::is_ready)
        .collect();
    assert_eq!(ready, [true, false, false]);
    second.drain(Duration::from_secs(5)).await;

    let third = simulate(&cluster.api, 3).await;
    let again = api.list(&ListParams::default()).await.unwrap();
    assert!(again.iter().all(nodes::is_ready));
    let uids =
        |nodes: &[Node]| -> Vec<_> { nodes.iter().map(|n| n.metadata.uid.clone()).collect() };
    assert_eq!(uids(&again.items), uids(&first.items));
    third.drain(Duration::from_secs(5)).await;
    cluster.api.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn heartbeats_go_on_and_deleted_nodes_come_back() {
    let cluster = cluster(2).await;
    let client = cluster.api.client();
    let leases: Api<Lease> = Api::namespaced(client.clone(), nodes::LEASES);
    let renewed = |lease: Lease| lease.spec.unwrap().renew_time.unwrap().0;
    let first = renewed(leases.get("sim-0001").await.unwrap());
    let api: Api<Node> = Api::all(client);
    let old = api.get("sim-0002").await.unwrap().metadata.uid;
    api.delete("sim-0002", &DeleteParams::default())
        .await
        .unwrap();
    let seen = tokio::time::timeout(DEADLINE, async {
        loop {
            let back = api.get_opt("sim-0002").await.unwrap();
            let beaten = renewed(leases.get("sim-0001").await.unwrap()) > first;
            if beaten && back.is_some_and(|node| node.metadata.uid != old) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    seen.await.unwrap();
    cluster.simulation.drain(Duration::from_secs(5)).await;
    cluster.api.drain(Duration::from_secs(5)).await;
}
