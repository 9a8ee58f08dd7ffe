//! What is accepted here and then not done: a client is told so, because nothing else would. `docs/not-done.md` is the
//! same list for people.
//!
//! Only a server that stands for a whole control plane tells: a real kube-apiserver alone does none of this either.

use serde_json::Value;

use crate::crd::webhook;
use crate::served::Served;

/// What will not be done about an object, as the text of a `Warning` header.
pub fn of(served: &Served, object: &Value) -> Option<String> {
    let resource = &served.resource;
    let what = match (resource.group.as_str(), resource.kind.as_str()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => return webhook::warning(object),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => "this server calls no admission webhooks",
        (
            "admissionregistration.k8s.io",
            "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding",
        ) => "this server changes no objects by policies",
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
            if object["spec"]["paramKind"].is_object() =>
        {
            "this server judges nothing by policies with parameters"
        }
        ("", "ResourceQuota") => {
            "what is deleted is not given back here, and status.hard is not filled in"
        }
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job" | "CronJob")
        | ("", "ReplicationController") => "no controller makes its pods here",
        ("autoscaling", "HorizontalPodAutoscaler") => "no controller scales anything here",
        ("policy", "PodDisruptionBudget") => "no controller counts its pods here",
        ("", "PersistentVolumeClaim") => "nobody provides volumes here",
        ("", "Service") if has_selector(object) => "nobody looks for its endpoints here",
        ("networking.k8s.io", "Ingress" | "NetworkPolicy") => "nobody acts on it here",
        ("certificates.k8s.io", "CertificateSigningRequest") => "nobody signs certificates here",
        ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration") => {
            "this server does not queue requests"
        }
        ("", "Secret") if object["type"] == "kubernetes.io/service-account-token" => {
            "nobody fills in its token here"
        }
        _ => return None,
    };
    Some(format!("{}: accepted and kept, but {what}", resource.kind))
}

fn has_selector(service: &Value) -> bool {
    let selector = service["spec"]["selector"].as_object();
    selector.is_some_and(|selector| !selector.is_empty())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, StatusCode};
    use http_body_util::Full;
    use serde_json::json;

    use super::*;
    use crate::auth::{MASTERS, User};
    use crate::embed::Config;
    use crate::resource;
    use crate::server::Trusted;

    fn said(kind: &str, object: Value) -> Option<String> {
        let all = resource::builtin().iter();
        let mut found = all.filter(|one| one.kind == kind).cloned();
        let served = Served::builtin(Arc::clone(&found.next().unwrap())).unwrap();
        of(&served, &object)
    }

    #[test]
    fn what_is_not_done_is_said() {
        assert_eq!(
            said("MutatingWebhookConfiguration", json!({})).as_deref(),
            Some(
                "MutatingWebhookConfiguration: accepted and kept, but this server calls no admission webhooks"
            )
        );
        assert!(said("Deployment", json!({})).is_some());
        assert!(said("ConfigMap", json!({})).is_none());
        assert!(said("Service", json!({"spec": {"selector": {}}})).is_none());
        assert!(said("Service", json!({"spec": {"selector": {"a": "b"}}})).is_some());
        let definition = |strategy: &str, versions: Value| json!({"spec": {"conversion": {"strategy": strategy}, "versions": versions}});
        let kind = "CustomResourceDefinition";
        assert!(said(kind, definition("Webhook", json!([{}, {}]))).is_some());
        assert!(said(kind, definition("Webhook", json!([{}]))).is_none());
        assert!(said(kind, definition("None", json!([{}, {}]))).is_none());
    }

    #[tokio::test]
    async fn only_a_whole_control_plane_says_it() {
        for (is_alone, said) in [(false, 1), (true, 0)] {
            let config = Config {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                data_dir: None,
            };
            let plane = config.build().await.unwrap();
            let running = if is_alone {
                plane.spawn_without_controllers()
            } else {
                plane.spawn()
            };
            let mut request = Request::builder()
                .method("POST")
                .uri("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations")
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from_static(
                    b"{\"metadata\":{\"name\":\"w\"}}",
                )))
                .unwrap();
            request.extensions_mut().insert(Trusted(User {
                name: "admin".to_owned(),
                groups: vec![MASTERS.to_owned()],
                ..User::default()
            }));
            let answer = running.server().handle(request).await;
            assert_eq!(answer.status(), StatusCode::CREATED);
            assert_eq!(answer.headers().get_all("warning").iter().count(), said);
            running.drain(Duration::from_secs(5)).await;
        }
    }
}
