//! Writes objects that others also write: read, merge, write, and retry on a conflict.

use std::time::Duration;

use kube::api::{Api, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

pub const MANAGER: &str = "plimsoll-agent";
const ATTEMPTS: u32 = 5;
/// Advice to log if there is no answer.
pub const ADVICE: &str = "is the API server running?";

/// An owner reference: the object is deleted with the node.
pub fn owner(name: &str, node_uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

pub fn objects(
    client: kube::Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Sets the current node as owner. An object owned by an earlier Node of the same name would be deleted by the garbage
/// collector.
pub fn owned(present: &Value, merged: Option<Value>, name: &str, node_uid: &str) -> Option<Value> {
    let owners = present["metadata"]["ownerReferences"].as_array();
    let stale =
        |one: &Value| one["kind"] == "Node" && one["name"] == name && one["uid"] != node_uid;
    match owners.and_then(|owners| owners.iter().position(stale)) {
        Some(place) if !node_uid.is_empty() => {
            let mut owned = merged.unwrap_or_else(|| present.clone());
            owned["metadata"]["ownerReferences"][place]["uid"] = node_uid.into();
            Some(owned)
        }
        _ => merged,
    }
}

/// An object that must be in the cluster.
pub trait DesiredObject {
    /// The object to create; `None`: nothing is created.
    fn object(&self) -> Option<Value>;
    /// Our fields as wanted, fields of others unchanged; `None`: no change.
    fn merged(&self, present: &Value) -> Option<Value>;
}

/// True: something was written.
pub async fn upsert(
    api: &Api<DynamicObject>,
    name: &str,
    wanted: &impl DesiredObject,
) -> Result<bool, kube::Error> {
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let mut attempt = 0;
    loop {
        let written = match api.get_opt(name).await? {
            None => match wanted.object() {
                Some(object) => api.create(&params, &dynamic(object)?).await,
                None => return Ok(false),
            },
            Some(present) => {
                let present = serde_json::to_value(present).map_err(kube::Error::SerdeError)?;
                match wanted.merged(&present) {
                    Some(merged) => api.replace(name, &params, &dynamic(merged)?).await,
                    None => return Ok(false),
                }
            }
        };
        attempt += 1;
        match written {
            // It came into being, changed or went meanwhile.
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
            }
            other => return other.map(|_| true),
        }
    }
}

/// An object that is looked for may be missing; that one which is to be made is not found means that its kind is not
/// defined.
pub fn is_undefined(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn dynamic(value: Value) -> Result<DynamicObject, kube::Error> {
    serde_json::from_value(value).map_err(kube::Error::SerdeError)
}
