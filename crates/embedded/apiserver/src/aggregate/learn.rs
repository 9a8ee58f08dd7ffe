//! What another server says about its resources. That it says so is the proof that it can be reached.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use serde_json::{Map, Value, json};

use super::RemoteSpec;
use super::backend::Backend;
use super::resolve::Address;
use crate::auth::{MASTERS, User, front_proxy};

/// Its part of aggregated discovery: an `APIVersionDiscovery`.
pub type Said = Value;

const WITHIN: Duration = Duration::from_secs(5);
/// Longer documents are not believed to be lists of resources.
const LONGEST: usize = 4 << 20;
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// Asks one server for its resources. `Ok(None)`: it answers, but not with a list. The error is for people to read.
pub async fn ask(
    backend: &Backend,
    spec: &RemoteSpec,
    address: &Address,
) -> Result<Option<Said>, String> {
    let path = spec.path();
    let url = format!("https://{address}{path}");
    let answer = get(backend, address, &path, "application/json").await;
    let (_, body) =
        answer.map_err(|why| format!("failing or missing response from {url}: {why}"))?;
    let legacy = serde_json::from_slice::<Value>(&body).ok();
    // Servers that know aggregated discovery say a little more in it.
    let aggregated = get(backend, address, "/apis", AGGREGATED).await.ok();
    let aggregated = aggregated
        .filter(|(kind, _)| kind.contains("as=APIGroupDiscoveryList"))
        .and_then(|(_, body)| serde_json::from_slice::<Value>(&body).ok());
    let own = aggregated.and_then(|all| part_of(&all, spec));
    Ok(own.or_else(|| legacy.and_then(|list| from_list(&list, &spec.version))))
}

/// Content type and body of a good answer.
async fn get(
    backend: &Backend,
    address: &Address,
    path: &str,
    accept: &'static str,
) -> Result<(String, Bytes), String> {
    let url = format!("https://{address}{path}");
    let of_get = |why: String| format!("Get \"{url}\": {why}");
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::new(body);
    *request.uri_mut() = url.parse().map_err(|_| of_get("invalid URL".to_owned()))?;
    let headers = request.headers_mut();
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    // Whoever asks for itself must not be refused.
    let user = User {
        name: "system:kube-aggregator".to_owned(),
        groups: vec![MASTERS.to_owned()],
        ..User::default()
    };
    front_proxy::identify(headers, &user);
    let attempt = async {
        let response = backend.send(request).await;
        let (head, body) = response
            .map_err(|error| of_get(error.to_string()))?
            .into_parts();
        let good = head.status >= StatusCode::OK && head.status < StatusCode::MULTIPLE_CHOICES;
        if !good {
            let code = head.status.as_u16();
            return Err(format!("bad status from {url}: {code}"));
        }
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|error| of_get(error.to_string()))?.to_bytes();
        let kind = head.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        Ok((kind.to_owned(), body))
    };
    match tokio::time::timeout(WITHIN, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(of_get("context deadline exceeded".to_owned())),
    }
}

/// One version out of a whole document of aggregated discovery.
fn part_of(document: &Value, spec: &RemoteSpec) -> Option<Said> {
    let groups = document["items"].as_array()?;
    let group = groups
        .iter()
        .find(|group| group["metadata"]["name"] == spec.group.as_str())?;
    let versions = group["versions"].as_array()?;
    let version = versions
        .iter()
        .find(|version| version["version"] == spec.version.as_str())?;
    let mut version = version.clone();
    version["freshness"] = "Current".into();
    Some(version)
}

/// An `APIResourceList` as a version of aggregated discovery.
fn from_list(list: &Value, version: &str) -> Option<Said> {
    let mut resources: Vec<Value> = Vec::new();
    for entry in list["resources"].as_array()? {
        let name = entry["name"].as_str()?;
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let kind = json!({
            "group": text("group"),
            "version": text("version"),
            "kind": text("kind"),
        });
        let Some((parent, subresource)) = name.split_once('/') else {
            let mut resource = Map::new();
            resource.insert("resource".into(), name.into());
            resource.insert("responseKind".into(), kind);
            let namespaced = entry["namespaced"] == true;
            let scope = if namespaced { "Namespaced" } else { "Cluster" };
            resource.insert("scope".into(), scope.into());
            resource.insert("singularResource".into(), text("singularName").into());
            for field in ["verbs", "shortNames", "categories"] {
                if entry[field].is_array() {
                    resource.insert(field.into(), entry[field].clone());
                }
            }
            resources.push(resource.into());
            continue;
        };
        let part = json!({
            "subresource": subresource,
            "responseKind": kind,
            "verbs": entry["verbs"],
        });
        let of = resources.iter_mut().find(|one| one["resource"] == parent);
        match of {
            Some(of) if of["subresources"].is_array() => {
                if let Some(parts) = of["subresources"].as_array_mut() {
                    parts.push(part);
                }
            }
            Some(of) => of["subresources"] = json!([part]),
            // A subresource of nothing: the resource is there for its sake.
            None => resources.push(json!({"resource": parent, "subresources": [part]})),
        }
    }
    Some(json!({"version": version, "resources": resources, "freshness": "Current"}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_becomes_a_version() {
        let list = json!({
            "kind": "APIResourceList",
            "groupVersion": "agg.io/v1",
            "resources": [
                {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
                 "verbs": ["get", "list"], "shortNames": ["th"], "categories": ["all"]},
                {"name": "things/status", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": ["get"]},
                {"name": "things/scale", "singularName": "", "namespaced": true, "kind": "Scale",
                 "group": "autoscaling", "version": "v1", "verbs": ["get"]},
            ],
        });
        let expected = json!({
            "version": "v1",
            "resources": [{
                "resource": "things",
                "responseKind": {"group": "", "version": "", "kind": "Thing"},
                "scope": "Namespaced",
                "singularResource": "thing",
                "verbs": ["get", "list"],
                "shortNames": ["th"],
                "categories": ["all"],
                "subresources": [
                    {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Thing"},
                     "verbs": ["get"]},
                    {"subresource": "scale",
                     "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get"]},
                ],
            }],
            "freshness": "Current",
        });
        assert_eq!(from_list(&list, "v1"), Some(expected));
        assert_eq!(from_list(&json!({"kind": "Status"}), "v1"), None);
    }
}
