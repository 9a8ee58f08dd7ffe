//! The whole data half, against an API server: nodes and pods that come and go, kubelets that answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use plimsoll_apimachinery::selector::Selector;
use plimsoll_apiserver::embed;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::scrape::Reason;

const SOON: Duration = Duration::from_secs(120);

/// A kubelet of pods `a` and `b`, without TLS.
async fn kubelet() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                while stream
                    .read_buf(&mut request)
                    .await
                    .is_ok_and(|read| read > 0)
                {
                    if !request.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    request.clear();
                    let page = page();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
                    if stream.write_all((head + &page).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn page() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (cpu, stamp) = (now.as_secs_f64() / 4.0, now.as_millis());
    let pods = ["a", "b"].map(|pod| {
        let whose = format!("{{container=\"main\",namespace=\"default\",pod=\"{pod}\"}}");
        format!(
            "container_cpu_usage_seconds_total{whose} {cpu} {stamp}\n\
             container_memory_working_set_bytes{whose} 2048 {stamp}\n"
        )
    });
    format!(
        "{}node_cpu_usage_seconds_total {cpu} {stamp}\nnode_memory_working_set_bytes 4096 {stamp}\n",
        pods.concat()
    )
}

async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn shown(view: &View) -> Vec<String> {
    let mut shown = Vec::new();
    let all = Selector::default();
    view.visit_nodes(&all, &mut |row| {
        let zone = row.labels.get("zone").unwrap_or_default();
        shown.push(format!("{} {zone}", row.name));
    });
    view.visit_pods(None, &all, None, None, 100, &mut |row| {
        let app = row.labels.get("app").unwrap_or_default();
        shown.push(format!("{}/{} {app}", row.namespace, row.name));
    });
    shown
}

fn pod(name: &str) -> Pod {
    let labels = json!({"app": name});
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_has_and_kubelets_tell() {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = embed::Config {
        listen,
        data_dir: None,
    };
    let api = config.build().await.unwrap().spawn();
    let client = api.client();
    let (nodes, pods): (Api<Node>, Api<Pod>) = (
        Api::all(client.clone()),
        Api::namespaced(client.clone(), "default"),
    );
    let kubelet = kubelet().await;

    let mut config = Config {
        resolution: Duration::from_millis(250),
        history: Some(Duration::from_secs(3600)),
        ..Config::default()
    };
    // No scrape is to fail because a busy machine holds it up.
    config.scrape.request_timeout = SOON;
    config.scrape.rules.plain = true;
    config.scrape.rules.use_status_port = true;
    config.scrape.trust = Trust {
        nothing: true,
        ..Trust::default()
    };
    let identity = Arc::new(kube::Config::new("https://localhost:1".parse().unwrap()));
    let source = Arc::new(move || Arc::clone(&identity));
    let collector = config.build(client, source).unwrap();
    let (view, gate, telemetry) = (collector.view(), collector.gate(), collector.telemetry());
    let history = collector.history().unwrap();
    let running = collector.spawn().unwrap();
    gate.opens(SOON).await.unwrap();
    assert!(!view.ready().nodes && shown(&view).is_empty());

    let node = json!({"metadata": {"name": "n", "labels": {"zone": "z"}}});
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": kubelet.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
    }});
    let patch = PatchParams::default();
    nodes
        .patch_status("n", &patch, &Patch::Merge(&status))
        .await
        .unwrap();
    soon("the node", || shown(&view) == ["n z"]).await;

    // A pod is shown when it runs, and no longer.
    for name in ["a", "b"] {
        pods.create(&PostParams::default(), &pod(name))
            .await
            .unwrap();
    }
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    for name in ["a", "b"] {
        let running = phase("Running");
        pods.patch_status(name, &patch, &Patch::Merge(&running))
            .await
            .unwrap();
    }
    soon("the pods", || {
        shown(&view) == ["n z", "default/a a", "default/b b"]
    })
    .await;
    let labels = json!({"metadata": {"labels": {"app": "other"}}});
    pods.patch("a", &patch, &Patch::Merge(&labels))
        .await
        .unwrap();
    soon("its new label", || {
        shown(&view) == ["n z", "default/a other", "default/b b"]
    })
    .await;
    let done = phase("Succeeded");
    pods.patch_status("b", &patch, &Patch::Merge(&done))
        .await
        .unwrap();
    soon("it ended", || shown(&view) == ["n z", "default/a other"]).await;
    soon("its history", || {
        let mut workloads = Vec::new();
        history.visit(None, &|_| true, &mut |row| {
            workloads.push(row.workload.name.to_string());
        });
        workloads.contains(&"a".to_owned())
    })
    .await;

    nodes.delete("n", &DeleteParams::default()).await.unwrap();
    soon("the node went", || shown(&view).is_empty()).await;
    // It was there for a moment before its address was.
    let failures = telemetry
        .failures()
        .filter(|(reason, _)| *reason != Reason::Address);
    assert_eq!(failures.map(|(_, count)| count).sum::<u64>(), 0);
    running.drain(SOON).await;
    api.drain(SOON).await;
}
