//! What must hold when things go wrong: no pod lost, none bound twice, none beyond capacity.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use plimsoll_apiserver::embed;

use plimsoll_scheduler::config::Configuration;
use plimsoll_scheduler::live::{Connections, Options};
use serde_json::{Value, json};

use crate::support::{Cluster, api_server, pod, start};

/// How many pods each node has.
async fn by_node(cluster: &Cluster) -> BTreeMap<String, usize> {
    let list = cluster.get("/api/v1/namespaces/default/pods").await;
    let mut nodes = BTreeMap::new();
    for pod in list["items"].as_array().unwrap() {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *nodes.entry(node.to_owned()).or_insert(0) += 1;
        }
    }
    nodes
}

async fn told_of(cluster: &Cluster) -> BTreeMap<String, usize> {
    let list = cluster.get("/api/v1/namespaces/default/events").await;
    let mut told = BTreeMap::new();
    for event in list["items"].as_array().unwrap() {
        if event["reason"] == "Scheduled" {
            let name = event["involvedObject"]["name"].as_str().unwrap();
            *told.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    told
}

/// By the standard lease: on a busy machine, a leader with a short one loses it, and ends. It is handed over by a drain,
/// so nobody waits for it to expire.
fn elected() -> Configuration {
    let mut configuration = Configuration::default();
    configuration.leader_election.retry_period = Duration::from_millis(200).into();
    configuration
}

#[tokio::test(flavor = "multi_thread")]
async fn two_on_one_lease() {
    let api = api_server().await;
    let first = start(api.client(), elected(), None);
    let second = start(api.client(), elected(), None);
    let cluster = Cluster {
        scheduler: first,
        api,
    };
    for index in 0..5 {
        cluster.node(&format!("n{index}"), "4", json!({})).await;
    }
    for index in 0..10 {
        cluster.pod(pod(&format!("p{index}"), "1")).await;
    }
    for index in 0..10 {
        cluster.bound(&format!("p{index}")).await;
    }
    let lease = cluster
        .get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler")
        .await;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    assert!(holder.contains('_'), "{holder}");
    // Whichever leads stops and gives the lease back; the other goes on.
    cluster
        .eventually("one of them leads", async |cluster| {
            let leads = cluster.scheduler.shared().leads();
            (leads != second.shared().leads()).then_some(())
        })
        .await;
    let Cluster { api, scheduler } = cluster;
    let (leader, other) = match scheduler.shared().leads() {
        true => (scheduler, second),
        false => (second, scheduler),
    };
    leader.drain(Duration::from_secs(10)).await;
    let cluster = Cluster {
        api,
        scheduler: other,
    };
    for index in 10..20 {
        cluster.pod(pod(&format!("p{index}"), "1")).await;
    }
    for index in 10..20 {
        cluster.bound(&format!("p{index}")).await;
    }
    assert_eq!(
        by_node(&cluster).await.into_values().collect::<Vec<_>>(),
        [4; 5]
    );
    cluster
        .eventually("all are told of, once", async |cluster| {
            let told = told_of(cluster).await;
            assert!(told.values().all(|number| *number == 1), "{told:?}");
            (told.len() == 20).then_some(())
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_away_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let serve = async |listen: SocketAddr| {
        // The files of the one before are let go when its last connection has ended.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let config = embed::Config {
                listen,
                data_dir: Some(folder.path().join("data")),
            };
            match config.build().await {
                Ok(plane) => return plane.spawn(),
                Err(error) => {
                    assert!(tokio::time::Instant::now() < deadline, "{error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    };
    let api = serve("127.0.0.1:0".parse().unwrap()).await;
    let address = api.local_addr();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, api.kubeconfig()).unwrap();
    let clients = plimsoll_client::Config::from_flag(Some(kubeconfig))
        .build()
        .await
        .unwrap();
    let mut configuration = Configuration::default();
    configuration.leader_election.leader_elect = false;
    configuration.check().unwrap();
    let connections = Connections::of(&clients, &configuration.leader_election);
    let scheduler = Options::new(configuration)
        .build(connections)
        .unwrap()
        .spawn();
    let cluster = Cluster { api, scheduler };
    cluster.node("n1", "4", json!({})).await;
    cluster.pod(pod("before", "1")).await;
    cluster.bound("before").await;
    let Cluster { api, scheduler } = cluster;
    api.drain(Duration::from_secs(1)).await;
    let api = serve(address).await;
    let cluster = Cluster { api, scheduler };
    for index in 0..3 {
        cluster.pod(pod(&format!("after{index}"), "1")).await;
    }
    for index in 0..3 {
        cluster.bound(&format!("after{index}")).await;
    }
    assert_eq!(by_node(&cluster).await["n1"], 4);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_pods() {
    const PODS: usize = 2000;
    let cluster = Cluster::start().await;
    for index in 0..20 {
        cluster.node(&format!("n{index}"), "4", json!({})).await;
    }
    // Room for half of them.
    {
        let pods = (0..PODS).map(|index| cluster.pod(pod(&format!("p{index}"), "80m")));
        let mut making = futures::stream::iter(pods).buffer_unordered(32);
        while making.next().await.is_some() {}
    }
    cluster
        .eventually(
            "half of them are bound, the others told why not",
            async |cluster| {
                let nodes = by_node(cluster).await;
                assert!(nodes.values().all(|pods| *pods <= 50), "{nodes:?}");
                (nodes.values().sum::<usize>() == PODS / 2).then_some(())
            },
        )
        .await;
    // Those that wait are not forgotten.
    cluster.node("more", "400", json!({})).await;
    cluster
        .patch(
            "/api/v1/nodes/more/status",
            json!({"status": {"allocatable": {"pods": "5000"}}}),
        )
        .await;
    cluster
        .eventually("the others are bound, too", async |cluster| {
            let nodes = by_node(cluster).await;
            (nodes.values().sum::<usize>() == PODS).then_some(())
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go() {
    let cluster = Cluster::start().await;
    let unschedulable = |on: bool| json!({"spec": {"unschedulable": on}});
    for index in 0..5 {
        cluster.node(&format!("n{index}"), "4", json!({})).await;
    }
    for index in 0..20 {
        cluster.pod(pod(&format!("p{index}"), "1")).await;
        let node: Value = format!("n{}", index % 5).into();
        let path = format!("/api/v1/nodes/{}", node.as_str().unwrap());
        cluster.patch(&path, unschedulable(index % 2 == 0)).await;
    }
    for index in 0..5 {
        cluster
            .patch(&format!("/api/v1/nodes/n{index}"), unschedulable(false))
            .await;
    }
    for index in 0..20 {
        cluster.bound(&format!("p{index}")).await;
    }
    assert_eq!(
        by_node(&cluster).await.into_values().collect::<Vec<_>>(),
        [4; 5]
    );
    cluster.stop().await;
}

/// Gone and made anew again and again, while pods are on their way to them.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_deleted_and_made_again() {
    let cluster = Cluster::start().await;
    for index in 0..5 {
        cluster.node(&format!("n{index}"), "4", json!({})).await;
    }
    for index in 0..20 {
        cluster.pod(pod(&format!("p{index}"), "1")).await;
        let node = format!("n{}", index % 5);
        cluster.delete(&format!("/api/v1/nodes/{node}")).await;
        cluster.node(&node, "4", json!({})).await;
        let nodes = by_node(&cluster).await;
        assert!(nodes.values().all(|pods| *pods <= 4), "{nodes:?}");
    }
    for index in 0..20 {
        cluster.bound(&format!("p{index}")).await;
    }
    assert_eq!(
        by_node(&cluster).await.into_values().collect::<Vec<_>>(),
        [4; 5]
    );
    let told = told_of(&cluster).await;
    assert!(told.values().all(|number| *number == 1), "{told:?}");
    cluster.stop().await;
}
