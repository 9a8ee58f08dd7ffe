//! Through a server with its controllers, as clients see it.

mod answers;
mod ends;
mod rights;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};

use super::*;
use crate::embed::{self, Running};

const DEADLINE: Duration = Duration::from_secs(60);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn start() -> Running {
    let config = embed::Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        data_dir: None,
    };
    config.build().await.unwrap().spawn()
}

/// Status and body of the answer. `who` is `admin`, or somebody whom the administrator acts as.
async fn ask(server: &Running, who: &str, what: &str, body: Value) -> (u16, String) {
    let (method, path) = what.split_once(' ').unwrap();
    let (method, kind) = match method {
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "PATCH" => ("PATCH", "application/merge-patch+json"),
        method => (method, "application/json"),
    };
    let token = &server.credentials().admin_token;
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", kind);
    if who != "admin" {
        request = request.header("impersonate-user", who);
    }
    let body = match body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let answer = server
        .server()
        .handle(request.body(Full::new(body)).unwrap());
    let answer = answer.await;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn status(server: &Running, who: &str, what: &str) -> u16 {
    ask(server, who, what, Value::Null).await.0
}

async fn create(server: &Running, path: &str, object: Value) -> Value {
    let (status, body) = ask(server, "admin", &format!("POST {path}"), object).await;
    assert_eq!(status, 201, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

async fn until_gone(server: &Running, path: &str) {
    let asking = async {
        while status(server, "admin", &format!("GET {path}")).await != 404 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let asked = tokio::time::timeout(DEADLINE, asking).await;
    assert!(asked.is_ok(), "never gone: {path}");
}

fn bind(kind: &str, role: &str, owner: Option<(&str, &str, &Value)>) -> Value {
    let mut binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    });
    if let Some(owner) = owner {
        own(&mut binding, owner);
    }
    binding
}

/// `version`, `kind` and the owner itself.
fn own(object: &mut Value, (version, kind, owner): (&str, &str, &Value)) {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": version, "kind": kind,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
}

async fn grant(server: &Running, rules: Value) {
    let roles = format!("{RBAC}/namespaces/default/roles");
    create(
        server,
        &roles,
        json!({"metadata": {"name": "r"}, "rules": rules}),
    )
    .await;
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    create(server, &bindings, bind("Role", "r", None)).await;
}
