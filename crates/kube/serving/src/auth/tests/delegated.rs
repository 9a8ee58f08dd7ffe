//! What the cluster tells about whom to believe.

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::fake;

fn config_map(proxies: &Authority, clients: &Authority) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system",
        "resourceVersion": "1"},
    "data": {
        "client-ca-file": clients.pem(),
        "requestheader-client-ca-file": proxies.pem(),
        "requestheader-allowed-names": "[\"front-proxy\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
    }})
}

fn serving(map: Value) -> (kube::Client, Arc<Mutex<Value>>) {
    let map = Arc::new(Mutex::new(map));
    let served = Arc::clone(&map);
    let (client, _) = fake::client(move |asked| match served.lock().clone() {
        Value::Null => fake::failure(404, "NotFound"),
        map if asked.path.contains("fieldSelector") => {
            let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
                "metadata": {"resourceVersion": "1"}, "items": [map]});
            (200, list)
        }
        map => (200, map),
    });
    (client, map)
}

#[tokio::test]
async fn the_cluster_tells_whom_to_believe() {
    let (proxies, clients) = (Authority::new(), Authority::new());
    let (client, map) = serving(config_map(&proxies, &clients));
    let found = DelegatedAuth::lookup(&client, DelegatedAuthConfig::default());
    let found = found.await.unwrap();
    let proxy = proxies.peer("front-proxy", "o");
    proxy.verified_by(&found.front_proxy.trust).unwrap();
    let jane = clients.peer("jane", "devs");
    jane.verified_by(&found.client_ca).unwrap();
    let rules = found.front_proxy.rules();
    assert_eq!(rules.allowed_names, ["front-proxy"]);
    assert!(rules.uid_headers.is_empty());

    // The next one is seen without asking.
    let next = Authority::new();
    *map.lock() = config_map(&next, &clients);
    let (stopper, shutdown) = plimsoll_client::shutdown::channel();
    found.spawn(client, shutdown);
    let told = async {
        while proxy.verified_by(&found.front_proxy.trust).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, told).await.unwrap();
    stopper.stop();
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let (proxies, clients) = (Authority::new(), Authority::new());
    let good = config_map(&proxies, &clients);
    for (key, value) in [
        ("requestheader-client-ca-file", ""),
        ("requestheader-client-ca-file", "no PEM"),
        ("requestheader-allowed-names", "front-proxy"),
        ("client-ca-file", "no PEM"),
    ] {
        let mut map = good.clone();
        map["data"][key] = json!(value);
        let (client, _) = serving(map);
        let config = DelegatedAuthConfig::default();
        let error = DelegatedAuth::lookup(&client, config).await.unwrap_err();
        assert!(error.to_string().contains(key), "{key}: {error}");
    }
    let (client, _) = serving(Value::Null);
    let config = DelegatedAuthConfig::default();
    let error = DelegatedAuth::lookup(&client, config).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("ConfigMap kube-system/extension-apiserver-authentication"),
        "{text}"
    );
    assert!(!text.contains("bind the role"), "{text}");
    let (forbidden, _) = crate::fake::client(|_| crate::fake::failure(403, "user u cannot get it"));
    let error = DelegatedAuth::lookup(&forbidden, DelegatedAuthConfig::default()).await;
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("bind the role extension-apiserver-authentication-reader"),
        "{text}"
    );
    let lenient = DelegatedAuthConfig {
        tolerate_lookup_failure: true,
        ..DelegatedAuthConfig::default()
    };
    let found = DelegatedAuth::lookup(&client, lenient).await.unwrap();
    assert!(found.client_ca.is_empty() && found.front_proxy.trust.is_empty());
}

#[tokio::test]
async fn files_come_before_the_cluster() {
    let (proxies, clients, ours) = (Authority::new(), Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.crt");
    std::fs::write(&path, ours.pem()).unwrap();
    let (client, _) = serving(config_map(&proxies, &clients));
    let config = DelegatedAuthConfig {
        client_ca_file: Some(path.clone()),
        ..DelegatedAuthConfig::default()
    };
    let found = DelegatedAuth::lookup(&client, config).await.unwrap();
    let jane = ours.peer("jane", "devs");
    jane.verified_by(&found.client_ca).unwrap();
    assert!(!found.front_proxy.trust.is_empty());
    let (_stopper, shutdown) = plimsoll_client::shutdown::channel();
    found.spawn(client, shutdown);
    let told = async {
        // The watch may begin after the first change: each one is a new chance to be seen.
        while jane.verified_by(&found.client_ca).is_ok() {
            std::fs::write(&path, clients.pem()).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, told).await.unwrap();
    clients
        .peer("joe", "ops")
        .verified_by(&found.client_ca)
        .unwrap();
}
