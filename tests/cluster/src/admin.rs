//! What an administrator does to a cluster: JSON goes out, JSON comes back.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use crate::client::{Request, Server};

/// Sends JSON as the administrator. What is there already may stay.
pub fn send(
    server: &Server,
    method: &str,
    path: &str,
    media: &str,
    body: &Value,
) -> Result<(u16, Value)> {
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![
            (
                "Authorization".to_owned(),
                format!("Bearer {}", server.admin_token),
            ),
            ("Content-Type".to_owned(), media.to_owned()),
        ],
        body: (!body.is_null()).then(|| body.to_string().into_bytes()),
    };
    let exchange = server.send(&request)?;
    let status = exchange.status;
    let answer = exchange.body()?;
    let answer = serde_json::from_slice(&answer).unwrap_or_default();
    Ok((status, answer))
}

pub fn create(server: &Server, path: &str, object: &Value) -> Result<()> {
    let (status, answer) = send(server, "POST", path, "application/json", object)?;
    ensure!(
        matches!(status, 201 | 409),
        "POST {path}: {status} {answer}"
    );
    Ok(())
}

pub fn patch(server: &Server, path: &str, change: &Value) -> Result<()> {
    let media = "application/merge-patch+json";
    let (status, answer) = send(server, "PATCH", path, media, change)?;
    ensure!(status == 200, "PATCH {path}: {status} {answer}");
    Ok(())
}

pub fn get(server: &Server, path: &str) -> Result<Value> {
    let (status, answer) = send(server, "GET", path, "application/json", &Value::Null)?;
    ensure!(status == 200, "GET {path}: {status} {answer}");
    Ok(answer)
}

/// How long a real API server's own caches may lag behind what it has just stored.
const CACHES: Duration = Duration::from_secs(60);
/// What it answers meanwhile.
const LAGGING: [&str; 3] = [
    "no PriorityClass with name",
    "pod rejected: RuntimeClass",
    "not yet ready to handle request",
];

/// Creates an object, again on what a real API server answers while its own caches lag: every client of it has to.
pub fn create_retrying(server: &Server, path: &str, object: &Value) -> Result<Value> {
    let mut answer_is_lost = false;
    poll::until(&format!("POST {path}"), CACHES, || {
        let sent = send(server, "POST", path, "application/json", object);
        let (status, answer) = sent.inspect_err(|_| answer_is_lost = true)?;
        if status == 201 {
            return Ok(Some(answer));
        }
        // Whose answer was lost may have been stored.
        if status == 409 && answer_is_lost {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            return get(server, &format!("{path}/{name}")).map(Some);
        }
        let text = answer["message"].as_str().unwrap_or_default();
        if status == 403 && LAGGING.iter().any(|lagging| text.contains(lagging)) {
            return Ok(None);
        }
        Err(poll::fatal(anyhow!("{status} {answer}")))
    })
}

/// One thing that somebody should be allowed to do. An empty namespace means all of them.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
}

/// Waits until the server allows all of this to the owner of the token: roles and bindings reach its authorizer through
/// caches of its own.
pub fn wait_allowed(server: &Server, token: &str, wanted: &[Access<'_>]) -> Result<()> {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let mut as_owner = server.clone();
    as_owner.admin_token = token.to_owned();
    for access in wanted {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": access.verb,
                "group": access.group,
                "resource": access.resource,
                "namespace": access.namespace,
            }},
        });
        poll::until(&format!("{access:?} is allowed"), CACHES, || {
            let (status, answer) = send(&as_owner, "POST", path, "application/json", &review)?;
            ensure!(status == 201, "{status} {answer}");
            Ok((answer["status"]["allowed"] == true).then_some(()))
        })?;
    }
    Ok(())
}
