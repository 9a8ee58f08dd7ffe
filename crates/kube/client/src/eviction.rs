//! Evictions by the eviction API.

use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::json;

/// Asks that a pod goes; disruption budgets are respected. The UID makes sure that a new pod of the same name stays.
///
/// The request is written out here: kube's own spells `deleteOptions` in a way that servers pass over, and the UID with it.
pub async fn evict(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> kube::Result<()> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let request = Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    let asked = client.request_status::<serde_json::Value>(request).await;
    asked.map(|_| ())
}
