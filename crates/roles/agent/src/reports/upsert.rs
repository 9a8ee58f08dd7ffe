//! Objects that others write to as well: read, merge, write, and again if somebody was faster.

use std::time::Duration;

use kube::api::{Api, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

pub const MANAGER: &str = "plimsoll-agent";
const ATTEMPTS: u32 = 5;
/// What to do where nobody answers.
pub const ADVICE: &str = "is the API server running?";

/// The node takes the object with it.
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

/// An object with the node's present identity for its owner: one that names the node as it was before it was deleted and
/// came back would be swept away with that.
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

/// Something that is to be in the cluster.
pub trait DesiredObject {
    /// Where there is none yet; `None`: then there need be none.
    fn object(&self) -> Option<Value>;
    /// What is ours as wanted, what others wrote as it was; `None`: it already is so.
    fn merged(&self, present: &Value) -> Option<Value>;
}

/// True: something was written.
pub async fn keep(
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
