//! Through the server, as clients see it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use http::{Method, Request};

use super::*;
use crate::embed::{Config, Running};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

const DEADLINE: Duration = Duration::from_secs(60);

async fn start(dir: Option<&Path>) -> Running {
    let config = Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        data_dir: dir.map(Path::to_owned),
    };
    // Tasks of a server that was here before hold its file until they have ended.
    let built = async {
        loop {
            match config.clone().build().await {
                Ok(built) => return built,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let built = tokio::time::timeout(DEADLINE, built).await;
    built.expect("the server does not start").spawn()
}

async fn ask(server: &Running, method: Method, path: &str, body: Value) -> Value {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body)
        .unwrap();
    server.client().request(request).await.unwrap()
}

fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object",
                    "properties": {"size": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "self.size > 1"}],
                }}}},
            }],
        },
    })
}

async fn define(server: &Running, plural: &str, kind: &str) {
    ask(server, Method::POST, PATH, definition(plural, kind)).await;
}

fn served(server: &Running, plural: &str) -> Option<Arc<Definition>> {
    let catalogue = server.server().catalogue();
    let name = format!("{plural}.example.com");
    let mut all = catalogue.definitions().iter();
    all.find(|one| one.name == name).cloned()
}

fn is_same(one: &Option<Arc<Definition>>, other: &Option<Arc<Definition>>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return false;
    };
    Arc::ptr_eq(one, other)
}

fn is_read(definition: &Option<Arc<Definition>>) -> bool {
    definition.as_ref().unwrap().versions[0].is_read()
}

#[tokio::test]
async fn a_write_concerns_nothing_but_the_definition_itself() {
    let server = start(None).await;
    define(&server, "tools", "Tool").await;
    define(&server, "gears", "Gear").await;
    let (tools, gears) = (served(&server, "tools"), served(&server, "gears"));
    define(&server, "wheels", "Wheel").await;
    assert!(is_same(&tools, &served(&server, "tools")));
    // What is not in the spec changes nothing either.
    let path = format!("{PATH}/tools.example.com");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    ask(&server, Method::PATCH, &path, label).await;
    assert!(is_same(&tools, &served(&server, "tools")));
    let scope = json!({"spec": {"names": {"shortNames": ["to"]}}});
    ask(&server, Method::PATCH, &path, scope).await;
    assert!(!is_same(&tools, &served(&server, "tools")));
    assert!(is_same(&gears, &served(&server, "gears")));
    // Nobody needs a schema before there is an object.
    assert!(!is_read(&gears));
    let objects = "/apis/example.com/v1/namespaces/default/gears";
    let gear = json!({"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "spec": {"size": 2}});
    ask(&server, Method::POST, objects, gear).await;
    assert!(is_read(&gears));
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_is_found_at_the_start_is_served_unread() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(Some(dir.path())).await;
    define(&server, "tools", "Tool").await;
    server.drain(Duration::from_secs(5)).await;
    let server = start(Some(dir.path())).await;
    assert!(!is_read(&served(&server, "tools")));
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_start_leaves_names_with_who_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(Some(dir.path())).await;
    define(&server, "tools", "Tool").await;
    // It comes before the other by name.
    define(&server, "hammers", "Tool").await;
    let path = format!("{PATH}/hammers.example.com");
    let before = ask(&server, Method::GET, &path, Value::Null).await;
    let conditions = before["status"]["conditions"].as_array().unwrap();
    let mut refused = conditions.iter().filter(|one| one["status"] == "False");
    assert!(refused.any(|one| one["type"] == "NamesAccepted"));
    server.drain(Duration::from_secs(5)).await;
    let server = start(Some(dir.path())).await;
    let after = ask(&server, Method::GET, &path, Value::Null).await;
    assert_eq!(after["status"], before["status"]);
    assert!(served(&server, "hammers").is_none());
    assert!(served(&server, "tools").is_some());
    // It still waits for the name.
    let tools = format!("{PATH}/tools.example.com");
    ask(&server, Method::DELETE, &tools, Value::Null).await;
    let waiting = async {
        while served(&server, "hammers").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waiting).await;
    assert!(waited.is_ok(), "the name is never given");
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn names_that_are_free_again_go_to_who_waits_for_them() {
    let server = start(None).await;
    define(&server, "tools", "Tool").await;
    define(&server, "hammers", "Tool").await;
    assert!(served(&server, "hammers").is_none());
    let path = format!("{PATH}/tools.example.com");
    ask(&server, Method::DELETE, &path, Value::Null).await;
    let waiting = async {
        while served(&server, "hammers").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waiting).await;
    assert!(waited.is_ok(), "the name is never given");
    assert!(served(&server, "tools").is_none());
    server.drain(Duration::from_secs(5)).await;
}
