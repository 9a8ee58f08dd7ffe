//! Everything of a running cluster that scheduling looks at, listed once: the same kinds that are watched.

use plimsoll_golang::url;
use plimsoll_sched::Features;
use plimsoll_sched::framework::Profile;
use serde_json::Value;

use crate::follow::Kind;

const PAGE: usize = 1000;
/// No plugin looks at them, but pods that are added get their priority by them.
const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

#[derive(Debug, thiserror::Error)]
#[error("cannot list {kind} objects")]
pub struct SnapshotError {
    pub kind: &'static str,
    #[source]
    pub source: Box<kube::Error>,
}

/// Objects of each kind that these profiles need, with their `kind`. A kind that the server does not have has no
/// objects.
pub async fn read(
    client: &kube::Client,
    profiles: &[Profile],
    features: &Features,
) -> Result<Vec<Value>, SnapshotError> {
    let mut objects = Vec::new();
    let needed = Kind::ALL
        .iter()
        .filter(|kind| kind.is_needed_by(profiles, features));
    let sources = needed.map(|kind| (kind.object_kind(), kind.paths()));
    let classes = ("PriorityClass", [PRIORITY_CLASSES].as_slice());
    for (kind, paths) in sources.chain([classes]) {
        let listed = list_first(client, paths, kind, &mut objects).await;
        listed.map_err(|source| SnapshotError {
            kind,
            source: Box::new(source),
        })?;
    }
    Ok(objects)
}

/// From the first path that the server has.
async fn list_first(
    client: &kube::Client,
    paths: &[&str],
    kind: &str,
    objects: &mut Vec<Value>,
) -> Result<(), kube::Error> {
    for path in paths {
        match list(client, path, kind, objects).await {
            // What is always there cannot be missing.
            Err(kube::Error::Api(status)) if status.code == 404 && path.starts_with("/apis/") => {}
            other => return other,
        }
    }
    Ok(())
}

async fn list(
    client: &kube::Client,
    path: &str,
    kind: &str,
    objects: &mut Vec<Value>,
) -> Result<(), kube::Error> {
    let mut next = String::new();
    loop {
        let token = url::query_escape(&next);
        let request = http::Request::get(format!("{path}?limit={PAGE}&continue={token}"))
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let mut page: Value = client.request(request).await?;
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            for mut item in items {
                item["kind"] = Value::String(kind.to_owned());
                objects.push(item);
            }
        }
        next = match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => token.to_owned(),
            _ => return Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sched::framework::Plugin;
    use plimsoll_sched::model::Names;
    use serde_json::json;

    use super::*;

    /// A server with an object of each kind, in pages of one, but for the paths that it does not have.
    fn server(missing: &'static [&'static str]) -> kube::Client {
        let service = tower::service_fn(
            move |request: http::Request<kube::client::Body>| async move {
                let path = request.uri().path().to_owned();
                let query = request.uri().query().unwrap_or_default();
                let (status, body) = if missing.iter().any(|gone| path.starts_with(gone)) {
                    let body = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                    "message": "the server could not find the requested resource"});
                    (404, body)
                } else if query.ends_with("continue=") {
                    (
                        200,
                        json!({"metadata": {"continue": "a+b"}, "items": [{"metadata": {"name": "a"}}]}),
                    )
                } else {
                    assert!(query.ends_with("continue=a%2Bb"), "{query}");
                    (
                        200,
                        json!({"metadata": {}, "items": [{"metadata": {"name": "b"}}]}),
                    )
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                http::Response::builder().status(status).body(body)
            },
        );
        kube::Client::new(service, "default")
    }

    fn kinds(objects: &[Value]) -> Vec<&str> {
        objects
            .iter()
            .filter_map(|one| one["kind"].as_str())
            .collect()
    }

    fn profile() -> Profile {
        Profile::standard(Names::default().intern("default-scheduler"))
    }

    #[tokio::test]
    async fn every_kind_that_the_profiles_look_at_is_read() {
        let mut profile = profile().with_gangs();
        profile.filter.push(Plugin::LoadAwareScheduling);
        let features = Features {
            taint_rules: true,
            ..Features::default()
        };
        let client = server(&[
            "/apis/resource.k8s.io/v1beta2",
            "/apis/scheduling.k8s.io/v1beta1",
        ]);
        let objects = read(&client, &[profile], &features).await.unwrap();
        let read = kinds(&objects);
        for kind in plimsoll_sched::sandbox::KINDS
            .iter()
            .chain(&["PriorityClass"])
        {
            let times = read.iter().filter(|one| *one == kind).count();
            assert_eq!(times, 2, "{kind}");
        }
    }

    #[tokio::test]
    async fn what_is_not_looked_at_is_not_read_and_what_is_not_there_is_empty() {
        let client = server(&["/apis/"]);
        let objects = read(&client, &[profile()], &Features::default())
            .await
            .unwrap();
        let read = kinds(&objects);
        assert!(read.contains(&"Node") && !read.contains(&"ReplicaSet"));
        let none = server(&[]);
        let objects = super::read(&none, &[profile()], &Features::default())
            .await
            .unwrap();
        assert!(!kinds(&objects).contains(&"NodeMetric"));
        let error = super::read(
            &server(&["/api/v1/pods"]),
            &[profile()],
            &Features::default(),
        )
        .await;
        assert_eq!(error.unwrap_err().to_string(), "cannot list Pod objects");
    }
}
