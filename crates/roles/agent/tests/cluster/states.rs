use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use plimsoll_agent::states::{Access, AddressType, ClusterStateCell, Config, PodSource};
use serde_json::json;

use crate::world::{Cluster, DEADLINE, FakeKubelet, NODE, seen};

fn config(pods: PodSource) -> Config {
    Config {
        pods,
        volumes: true,
        kubelet_settings: true,
        ..Config::new(NODE)
    }
}

#[tokio::test]
async fn what_the_cluster_says_is_on_the_board() {
    let cluster = Cluster::start().await;
    let cluster_state = ClusterStateCell::default();
    // At once, before anybody has said anything.
    assert_eq!(
        cluster_state.current().node_slo.sections["cpuBurstStrategy"]["cpuBurstPercent"],
        1000
    );
    let states = config(PodSource::ApiServer)
        .build(cluster.client(), cluster_state.clone())
        .spawn();
    cluster
        .put_node(json!({"node.koordinator.sh/reservation": "{}"}))
        .await;
    let known = seen(&cluster_state, "the node", |known| {
        let node = known.node.as_deref();
        node.is_some_and(|node| node.capacity.contains_key("cpu"))
    })
    .await;
    assert_eq!(known.node.unwrap().capacity["cpu"].milli(), 10_000);
    // The definitions come late; so do the objects.
    let missed = async {
        let failed = || {
            let mut rounds = states.rounds().iter();
            rounds.any(|(kind, rounds)| *kind == "nodeslos" && rounds.failures() > 0)
        };
        while !failed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, missed).await.unwrap();
    cluster.define().await;
    cluster
        .put_slo("NodeSLO", json!({"resourceUsedThresholdWithBE": {"enable": true}, "hostApplications": [{"name": "db", "qos": "LS"}]}))
        .await;
    let known = seen(&cluster_state, "the policy", |known| {
        known.node_slo.sections["resourceUsedThresholdWithBE"]["enable"] == true
    })
    .await;
    assert_eq!(
        known.node_slo.sections["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"],
        65
    );
    assert_eq!(
        &*known.node_slo.host_applications[0].cgroups[0],
        "host-latency-sensitive/db"
    );
    assert!(known.collect_policy.is_none());
    cluster
        .put_slo(
            "NodeMetric",
            json!({"metricCollectPolicy": {"reportIntervalSeconds": 30}}),
        )
        .await;
    let known = seen(&cluster_state, "what to collect", |known| {
        known.collect_policy.is_some()
    })
    .await;
    assert_eq!(
        known.collect_policy.unwrap().report_interval_seconds,
        Some(30)
    );
    cluster
        .slo("NodeSLO")
        .delete(NODE, &DeleteParams::default())
        .await
        .unwrap();
    seen(&cluster_state, "the built-in policy", |known| {
        known.node_slo.host_applications.is_empty()
    })
    .await;
    states.drain(DEADLINE).await;
    cluster.drain().await;
}

#[tokio::test]
async fn pods_and_their_volumes_from_the_api_server() {
    let cluster = Cluster::start().await;
    cluster.put_node(json!({})).await;
    let cluster_state = ClusterStateCell::default();
    let states = config(PodSource::ApiServer)
        .build(cluster.client(), cluster_state.clone())
        .spawn();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for (name, node) in [("ours", NODE), ("theirs", "n2")] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "BE"}},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        });
        pods.create(
            &PostParams::default(),
            &serde_json::from_value(pod).unwrap(),
        )
        .await
        .unwrap();
    }
    let known = seen(&cluster_state, "a pod", |known| {
        known.pods.as_deref().is_some_and(|pods| !pods.is_empty())
    })
    .await;
    let found = known.pods.unwrap();
    assert_eq!((found.len(), &*found[0].name), (1, "ours"));
    assert_eq!(found[0].requests["cpu"].milli(), 1000);
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv-7"},
    });
    claims
        .create(
            &PostParams::default(),
            &serde_json::from_value(claim).unwrap(),
        )
        .await
        .unwrap();
    // A change of the pods makes it look again.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    pods.patch("ours", &PatchParams::default(), &Patch::Merge(labels))
        .await
        .unwrap();
    let known = seen(&cluster_state, "the volume", |known| {
        !known.volumes.is_empty()
    })
    .await;
    let volume = known.volumes.get(&("default".into(), "data".into()));
    assert_eq!(volume.map(|volume| &**volume), Some("pv-7"));
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("ours", &at_once).await.unwrap();
    seen(&cluster_state, "no pods and no volumes", |known| {
        known.pods.as_deref().is_some_and(<[_]>::is_empty) && known.volumes.is_empty()
    })
    .await;
    states.drain(DEADLINE).await;
    cluster.drain().await;
}

pub async fn by_kubelet(
    kubelet: &FakeKubelet,
    every: Duration,
    api: &str,
) -> (Config, kube::Client) {
    let source = kube::Config::new(api.parse().unwrap());
    let clients = plimsoll_client::Config::new(plimsoll_client::Source::Given(Box::new(source)));
    let clients = clients.build().await.unwrap();
    let client = clients.client();
    let access = Access {
        clients,
        plain_port: Some(kubelet.port()),
        address: Some("127.0.0.1".to_owned()),
        address_type: AddressType::default(),
        timeout: Duration::from_secs(3),
    };
    let access = Box::new(access);
    (config(PodSource::Kubelet { access, every }), client)
}

#[tokio::test]
async fn a_kubelet_that_goes_away_leaves_its_pods_behind() {
    let kubelet = FakeKubelet::start().await;
    let cluster_state = ClusterStateCell::default();
    // There is no API server at all.
    let (config, client) =
        by_kubelet(&kubelet, Duration::from_millis(20), "http://127.0.0.1:1").await;
    let states = config.build(client, cluster_state.clone()).spawn();
    let counters = states.counters();
    let failed = async |at_least: u64| {
        let failing = async {
            while counters.pod_list_failures.get() < at_least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, failing).await.unwrap();
    };
    failed(2).await;
    assert!(cluster_state.current().pods.is_none());
    kubelet.tell(&["a", "b"]);
    let two = |known: &plimsoll_agent::states::ClusterState| {
        known.pods.as_deref().is_some_and(|pods| pods.len() == 2)
    };
    seen(&cluster_state, "two pods", two).await;
    *kubelet.pods.lock() = None;
    let before = counters.pod_list_failures.get();
    failed(before + 3).await;
    assert!(two(&cluster_state.current()));
    // An empty list is what a kubelet says that has just started.
    let asked = *kubelet.asked.lock();
    kubelet.tell(&[]);
    let asking = async {
        while *kubelet.asked.lock() < asked + 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap();
    assert!(two(&cluster_state.current()));
    states.drain(DEADLINE).await;
}

#[tokio::test]
async fn a_bell_makes_it_look_at_once() {
    let kubelet = FakeKubelet::start().await;
    kubelet.tell(&["a"]);
    let cluster_state = ClusterStateCell::default();
    let (config, client) =
        by_kubelet(&kubelet, Duration::from_secs(3600), "http://127.0.0.1:1").await;
    let pod_hint = config.pod_hint.clone();
    let states = config.build(client, cluster_state.clone()).spawn();
    seen(&cluster_state, "the first pod", |known| {
        known.pods.is_some()
    })
    .await;
    let settings = seen(&cluster_state, "its settings", |known| {
        known.kubelet.is_some()
    })
    .await;
    assert_eq!(settings.kubelet.unwrap().cpu_manager_policy, "static");
    kubelet.tell(&["a", "b"]);
    pod_hint.notify();
    seen(&cluster_state, "the second pod", |known| {
        known.pods.as_deref().is_some_and(|pods| pods.len() == 2)
    })
    .await;
    states.drain(DEADLINE).await;
}
