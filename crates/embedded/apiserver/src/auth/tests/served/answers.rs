//! What answers say they are.

use std::collections::BTreeSet;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::*;

/// A document in which no member is there twice.
struct Unrepeated;

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        document.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unrepeated {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, Self)) = members.next_entry::<String, Self>()? {
            if let Some(name) = names.replace(name) {
                return Err(A::Error::custom(format!("{name} is there twice")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while let Some(Self) = items.next_element()? {}
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
}

/// Kinds that are never stored, too, say once what they are.
#[tokio::test]
async fn answers_say_once_what_they_are() {
    let server = start().await;
    const PODS: &str = "/api/v1/namespaces/default/pods";
    create(
        &server,
        "/api/v1/namespaces/default/serviceaccounts",
        json!({"metadata": {"name": "sa"}}),
    )
    .await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, PODS, pod).await;
    let access = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let asked = json!({"spec": {"user": "eve", "resourceAttributes": access}});
    for (path, object, kind) in [
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"spec": {"resourceAttributes": access}}),
            "SelfSubjectAccessReview",
        ),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            asked.clone(),
            "SubjectAccessReview",
        ),
        (
            "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
            asked.clone(),
            "LocalSubjectAccessReview",
        ),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            json!({"spec": {"namespace": "default"}}),
            "SelfSubjectRulesReview",
        ),
        (
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json!({}),
            "SelfSubjectReview",
        ),
        (
            "/apis/authentication.k8s.io/v1/tokenreviews",
            json!({"spec": {"token": "x"}}),
            "TokenReview",
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts/sa/token",
            json!({}),
            "TokenRequest",
        ),
        (
            "/api/v1/namespaces/default/pods/p/binding",
            json!({"metadata": {"name": "p"}, "target": {"name": "n"}}),
            "Status",
        ),
        (
            "/api/v1/namespaces/default/pods/p/eviction",
            json!({"metadata": {"name": "p"}}),
            "Status",
        ),
    ] {
        for said in [false, true] {
            let mut object = object.clone();
            if said && path.starts_with("/apis") {
                let version = path.trim_start_matches("/apis/").split('/').take(2);
                object["apiVersion"] = version.collect::<Vec<_>>().join("/").into();
                object["kind"] = kind.into();
            }
            let (_, body) = ask(&server, "admin", &format!("POST {path}"), object).await;
            let parsed = serde_json::from_str::<Unrepeated>(&body);
            assert!(parsed.is_ok(), "{:?} {body}", parsed.err());
            let value: Value = serde_json::from_str(&body).unwrap();
            let is_refused = value["code"].as_u64() > Some(201);
            assert!(value["kind"] == kind || is_refused, "{body}");
            assert!(value["apiVersion"].is_string(), "{body}");
        }
    }
}
