//! Behind the authentication and authorization of an API server.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, PostParams};
use plimsoll_apiserver::embed;
use plimsoll_serving::auth::DelegatedAuthConfig;
use plimsoll_serving::secure_serving;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::live::{Authority, LOOPBACK, PATIENCE, config, over_tls};
use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A token of an account that may get these of the node.
async fn reader(client: &Client, name: &str, resources: &[&str], node: &str) -> String {
    let params = PostParams::default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = read(json!({"metadata": {"name": name}}));
    accounts.create(&params, &account).await.unwrap();
    let role: ClusterRole = read(json!({"metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": resources, "resourceNames": [node], "verbs": ["get"]}]}));
    Api::all(client.clone())
        .create(&params, &role)
        .await
        .unwrap();
    let binding: ClusterRoleBinding = read(json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]}));
    Api::all(client.clone())
        .create(&params, &binding)
        .await
        .unwrap();
    let asked: TokenRequest = read(json!({"spec": {"audiences": []}}));
    let answer = accounts.create_token_request(name, &params, &asked).await;
    answer.unwrap().status.unwrap().token.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_says_who_may() {
    let api = embed::Config {
        listen: LOOPBACK.parse().unwrap(),
        data_dir: None,
    };
    let api = api.build().await.unwrap().spawn();
    let node = Machine::new().node_name();
    let client = api.client();
    let scraper = reader(&client, "scraper", &["nodes/metrics"], &node).await;
    let operator = reader(&client, "operator", &["nodes/agent", "nodes/stats"], &node).await;
    let neighbour = reader(&client, "neighbour", &["nodes/*"], "another").await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, api.kubeconfig()).unwrap();
    let clients = plimsoll_client::Config::from_flag(Some(kubeconfig));
    let clients = clients.build().await.unwrap();
    let authority = Authority::new();
    let mut front = secure_serving::Config::new(LOOPBACK.parse().unwrap());
    let files = authority.issue(dir.path(), "server");
    front.serving.certificate = Some(kit::KeyPairFiles {
        cert: files.cert,
        key: files.key,
    });
    front.serving.http2 = false;
    front.authentication.delegation = DelegatedAuthConfig {
        tolerate_lookup_failure: true,
        ..DelegatedAuthConfig::default()
    };
    let front = front.build(&clients).await.unwrap();
    let running = config().behind(front).spawn(Arc::new(Machine::new()));
    let address = running.address();
    let client = authority.client(None);
    let status = async |target, token| over_tls(&client, address, target, token).await.unwrap().0;

    assert_eq!(status("/healthz", None).await, 200);
    assert_eq!(status("/readyz", None).await, 200);
    let pages = [
        "/metrics",
        "/metrics/cadvisor",
        "/api/v1.3/machine",
        "/api/v2.0/ps",
        "/debug/plan",
        "/stats/summary",
        "/containers/",
        "/nonsense",
    ];
    for target in pages {
        assert_eq!(status(target, None).await, 403, "{target}");
        assert_eq!(status(target, Some("wrong")).await, 401, "{target}");
    }
    for (target, scrapes, operates) in [
        ("/metrics", 200, 403),
        ("/metrics/cadvisor", 200, 403),
        ("/metrics/self", 200, 403),
        // Every account of a cluster may get what is below this path of an API server.
        ("/api/v1.3/machine", 403, 200),
        ("/%61pi/v1.3/machine", 403, 200),
        ("/metrics/%2e%2e/api/v1.3/machine", 403, 307),
        ("/debug/plan", 403, 200),
        ("/stats/summary", 403, 200),
        ("/containers/", 403, 200),
        ("/", 403, 307),
    ] {
        assert_eq!(status(target, Some(&scraper)).await, scrapes, "{target}");
        assert_eq!(status(target, Some(&operator)).await, operates, "{target}");
        assert_eq!(status(target, Some(&neighbour)).await, 403, "{target}");
    }
    // Who cannot be judged is not let in.
    api.drain(PATIENCE).await;
    assert_eq!(status("/healthz", None).await, 200);
    let answer = status("/stats/summary?late", Some("nobody knows")).await;
    assert!(matches!(answer, 401 | 500), "{answer}");
    running.drain(PATIENCE).await;
}
