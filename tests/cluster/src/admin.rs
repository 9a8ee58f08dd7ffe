//! What an administrator does to a cluster: JSON goes out, JSON comes back.

use anyhow::{Result, ensure};
use serde_json::Value;

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
