//! Through a server with its controllers, as clients see it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

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

#[tokio::test]
async fn grants_end_with_their_namespace() {
    let server = start().await;
    let named = json!({"metadata": {"name": "n"}});
    let bindings = format!("{RBAC}/namespaces/n/rolebindings");
    const SECRETS: &str = "GET /api/v1/namespaces/n/secrets";
    for _ in 0..3 {
        create(&server, "/api/v1/namespaces", named.clone()).await;
        assert_eq!(status(&server, "eve", SECRETS).await, 403);
        create(&server, &bindings, bind("ClusterRole", "admin", None)).await;
        assert_eq!(status(&server, "eve", SECRETS).await, 200);
        assert_eq!(
            status(&server, "admin", "DELETE /api/v1/namespaces/n").await,
            200
        );
        until_gone(&server, "/api/v1/namespaces/n").await;
        assert_eq!(status(&server, "eve", SECRETS).await, 403);
    }
}

/// Who keeps making bindings while a namespace goes has none in the next of that name.
#[tokio::test]
async fn grants_do_not_slip_through_the_end_of_a_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let config = embed::Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        data_dir: Some(folder.path().to_owned()),
    };
    let server = config.build().await.unwrap().spawn();
    let bindings = format!("POST {RBAC}/namespaces/n/rolebindings");
    for round in 0..10 {
        create(
            &server,
            "/api/v1/namespaces",
            json!({"metadata": {"name": "n"}}),
        )
        .await;
        let making = (0..40).map(|number| {
            let mut binding = bind("ClusterRole", "admin", None);
            binding["metadata"]["name"] = format!("b{number}").into();
            ask(&server, "admin", &bindings, binding)
        });
        let deleting = async {
            tokio::task::yield_now().await;
            let (status, body) =
                ask(&server, "admin", "DELETE /api/v1/namespaces/n", Value::Null).await;
            assert_eq!(status, 200, "{body}");
            until_gone(&server, "/api/v1/namespaces/n").await;
        };
        let (made, ()) = tokio::join!(futures::future::join_all(making), deleting);
        for (status, body) in made {
            assert!(matches!(status, 201 | 403 | 404), "{body}");
        }
        let left = server
            .server()
            .store()
            .latest("rolebindings.rbac.authorization.k8s.io", "n/");
        assert!(left.is_empty(), "round {round}: {}", left.len());
    }
}

#[tokio::test]
async fn grants_end_with_their_owners() {
    let server = start().await;
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const SECRETS: &str = "GET /api/v1/namespaces/default/secrets";
    let map = create(&server, MAPS, json!({"metadata": {"name": "m"}})).await;
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let owner = Some(("v1", "ConfigMap", &map));
    create(&server, &bindings, bind("ClusterRole", "admin", owner)).await;
    assert_eq!(status(&server, "eve", SECRETS).await, 200);
    assert_eq!(
        status(&server, "admin", &format!("DELETE {MAPS}/m")).await,
        200
    );
    until_gone(&server, &format!("{bindings}/b")).await;
    assert_eq!(status(&server, "eve", SECRETS).await, 403);
}

/// What is gathered ends with its source, whoever deletes that; and what is written down follows.
#[tokio::test]
async fn gathered_rules_end_with_their_source() {
    let server = start().await;
    let roles = format!("{RBAC}/clusterroles");
    const THINGS: &str = "GET /apis/example.com/v1/namespaces/default/things";
    let review = json!({"spec": {"user": "eve", "resourceAttributes":
        {"verb": "get", "group": "example.com", "resource": "things", "namespace": "default"}}});
    let allowed = async || {
        let what = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (_, answer) = ask(&server, "admin", what, review.clone()).await;
        answer.contains("\"allowed\":true")
    };
    let owner = create(&server, &roles, json!({"metadata": {"name": "owner"}})).await;
    create(
        &server,
        &format!("{RBAC}/clusterrolebindings"),
        bind("ClusterRole", "view", None),
    )
    .await;
    assert!(!allowed().await);
    let mut source = json!({
        "metadata": {"name": "things", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get", "list"]}],
    });
    own(
        &mut source,
        ("rbac.authorization.k8s.io/v1", "ClusterRole", &owner),
    );
    create(&server, &roles, source).await;
    assert!(allowed().await);
    assert_eq!(status(&server, "eve", THINGS).await, 404);
    assert_eq!(
        status(&server, "admin", &format!("DELETE {roles}/owner")).await,
        200
    );
    until_gone(&server, &format!("{roles}/things")).await;
    assert!(!allowed().await);
    let written = async {
        while ask(&server, "admin", &format!("GET {roles}/view"), Value::Null)
            .await
            .1
            .contains("example.com")
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, written).await.is_ok());
}

/// What garbage collection deletes is no longer served, and its contents go with it.
#[tokio::test]
async fn definitions_and_namespaces_end_with_their_owners() {
    let server = start().await;
    let roles = format!("{RBAC}/clusterroles");
    let owner = create(&server, &roles, json!({"metadata": {"name": "owner"}})).await;
    let owner = ("rbac.authorization.k8s.io/v1", "ClusterRole", &owner);
    let mut namespace = json!({"metadata": {"name": "n"}});
    own(&mut namespace, owner);
    create(&server, "/api/v1/namespaces", namespace).await;
    let bindings = format!("{RBAC}/namespaces/n/rolebindings");
    create(&server, &bindings, bind("ClusterRole", "admin", None)).await;
    let mut definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    own(&mut definition, owner);
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&server, DEFINITIONS, definition).await;
    const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    create(&server, THINGS, thing).await;
    let mut service = json!({
        "metadata": {"name": "v1.other.example.com"},
        "spec": {"group": "other.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "service": {"namespace": "default", "name": "s"}},
    });
    own(&mut service, owner);
    const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    create(&server, SERVICES, service).await;
    const OTHER: &str = "/apis/other.example.com/v1/things";
    assert_eq!(status(&server, "admin", &format!("GET {OTHER}")).await, 503);
    assert_eq!(
        status(&server, "admin", &format!("DELETE {roles}/owner")).await,
        200
    );
    until_gone(&server, "/api/v1/namespaces/n").await;
    create(
        &server,
        "/api/v1/namespaces",
        json!({"metadata": {"name": "n"}}),
    )
    .await;
    assert_eq!(
        status(&server, "eve", "GET /api/v1/namespaces/n/secrets").await,
        403
    );
    until_gone(&server, &format!("{DEFINITIONS}/things.example.com")).await;
    until_gone(&server, THINGS).await;
    assert_eq!(server.server().store().count("things.example.com"), 0);
    until_gone(&server, &format!("{SERVICES}/v1.other.example.com")).await;
    until_gone(&server, OTHER).await;
}

/// Objects do not outlive their definition, to come back with the next.
#[tokio::test]
async fn objects_do_not_slip_through_the_end_of_their_definition() {
    let server = start().await;
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let path = format!("{DEFINITIONS}/things.example.com");
    for _ in 0..10 {
        let definition = json!({
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        create(&server, DEFINITIONS, definition).await;
        let making = (0..40).map(|number| {
            let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing",
                "metadata": {"name": format!("t{number}")}});
            ask(&server, "admin", "POST /apis/example.com/v1/things", thing)
        });
        let deleting = async {
            tokio::task::yield_now().await;
            let what = format!("DELETE {path}");
            let (status, body) = ask(&server, "admin", &what, Value::Null).await;
            assert_eq!(status, 200, "{body}");
            until_gone(&server, &path).await;
        };
        let (made, ()) = tokio::join!(futures::future::join_all(making), deleting);
        for (status, body) in made {
            assert!(matches!(status, 201 | 403 | 404 | 405), "{status} {body}");
        }
        let left = server.server().store().latest("things.example.com", "");
        assert!(left.is_empty(), "{}", left.len());
    }
}

/// A definition with the name of a resource of the server's own neither takes its place nor its objects.
#[tokio::test]
async fn definitions_do_not_take_what_is_built_in() {
    let server = start().await;
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let roles = format!("{RBAC}/namespaces/default/roles");
    create(&server, &roles, json!({"metadata": {"name": "r"}})).await;
    for version in ["v1", "v2"] {
        let definition = json!({
            "metadata": {
                "name": "roles.rbac.authorization.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "https://example.com"},
            },
            "spec": {
                "group": "rbac.authorization.k8s.io", "scope": "Namespaced",
                "names": {"plural": "roles", "singular": "role", "kind": "Role", "listKind": "RoleList"},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        create(&server, DEFINITIONS, definition).await;
        let odd = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "odd"}, "rules": "all"});
        let (status, body) = ask(&server, "admin", &format!("POST {roles}"), odd).await;
        assert_eq!(status, 400, "{body}");
        let path = format!("{DEFINITIONS}/roles.rbac.authorization.k8s.io");
        let (status, body) = ask(&server, "admin", &format!("DELETE {path}"), Value::Null).await;
        assert_eq!(status, 200, "{body}");
        until_gone(&server, &path).await;
        let kept = self::status(&server, "admin", &format!("GET {roles}/r")).await;
        assert_eq!(kept, 200);
    }
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

/// Who may patch or update may not create by that.
#[tokio::test]
async fn what_creates_needs_the_right_to_create() {
    let server = start().await;
    let rules = json!([
        {"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": ["patch", "update", "get"]},
        {"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "resourceNames": ["mine"], "verbs": ["create"]},
    ]);
    grant(&server, rules).await;
    for (method, group, resource, kind) in [
        ("APPLY", "/api/v1", "configmaps", "ConfigMap"),
        ("APPLY", "/apis/coordination.k8s.io/v1", "leases", "Lease"),
        ("PUT", "/apis/coordination.k8s.io/v1", "leases", "Lease"),
    ] {
        for (name, made) in [("other", 403), ("mine", 201)] {
            let version = group
                .trim_start_matches("/apis/")
                .trim_start_matches("/api/");
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
            let path = format!("{group}/namespaces/default/{resource}/{name}");
            let query = if method == "APPLY" {
                "?fieldManager=m&force=true"
            } else {
                ""
            };
            let what = format!("{method} {path}{query}");
            let (status, body) = ask(&server, "eve", &what, object).await;
            assert_eq!(status, made, "{what}: {body}");
            if status == 403 {
                let why = format!("cannot create resource \\\"{resource}\\\"");
                assert!(body.contains(&why), "{body}");
            }
        }
        let path = format!("{group}/namespaces/default/{resource}/mine");
        assert_eq!(
            status(&server, "admin", &format!("DELETE {path}")).await,
            200
        );
    }
}

/// A refusal of a short role is short.
#[tokio::test]
async fn a_small_role_makes_no_large_refusal() {
    let server = start().await;
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]);
    grant(&server, rules).await;
    let many = |letter: char| -> Vec<String> { (0..160).map(|n| format!("{letter}{n}")).collect() };
    let role = json!({"metadata": {"name": "x"}, "rules":
        [{"apiGroups": many('g'), "resources": many('r'), "verbs": many('v')}]});
    let what = format!("POST {RBAC}/namespaces/default/roles");
    let (status, body) = ask(&server, "eve", &what, role).await;
    assert_eq!(status, 403);
    assert!(body.len() < 200_000, "{}", body.len());
    assert!(body.contains(" more\""), "{body}");
}

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

/// Who writes requests for certificates does not decide about them.
#[tokio::test]
async fn approval_needs_the_signers_right() {
    let server = start().await;
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let key = rcgen::KeyPair::generate().unwrap();
    let request = |organization: &str| {
        let mut parameters = rcgen::CertificateParams::default();
        let name = &mut parameters.distinguished_name;
        name.push(rcgen::DnType::OrganizationName, organization);
        name.push(rcgen::DnType::CommonName, "mallory");
        let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
        let text = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            pem.replace("\r\n", "\n"),
        );
        json!({"metadata": {"name": organization.replace(':', "-")}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": text,
        }})
    };
    let what = format!("POST {REQUESTS}");
    let (code, body) = ask(&server, "admin", &what, request("system:masters")).await;
    assert_eq!(code, 403, "{body}");
    create(&server, REQUESTS, request("readers")).await;
    let roles = format!("{RBAC}/clusterroles");
    let rules = |more: Value| {
        let writes = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["*"], "resources":
            ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]});
        json!({"metadata": {"name": "r"}, "rules": [writes, more]})
    };
    let signer = |verb: &str| {
        json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
        "resourceNames": ["kubernetes.io/*"], "verbs": [verb]})
    };
    create(&server, &roles, rules(signer("attest"))).await;
    create(
        &server,
        &format!("{RBAC}/clusterrolebindings"),
        bind("ClusterRole", "r", None),
    )
    .await;
    for (part, verb) in [("approval", "approve"), ("status", "sign")] {
        let condition = if verb == "approve" {
            "Approved"
        } else {
            "Failed"
        };
        let change = json!({"status": {"conditions": [{"type": condition, "status": "True", "reason": "r"}]}});
        let what = format!("PATCH {REQUESTS}/readers/{part}");
        let (code, body) = ask(&server, "eve", &what, change.clone()).await;
        assert_eq!(code, 403, "{body}");
        assert!(
            body.contains(&format!("user not permitted to {verb} requests")),
            "{body}"
        );
        let granted = ask(
            &server,
            "admin",
            &format!("PUT {roles}/r"),
            rules(signer(verb)),
        )
        .await;
        assert_eq!(granted.0, 200, "{}", granted.1);
        let (code, body) = ask(&server, "eve", &what, change).await;
        assert_eq!(code, 200, "{body}");
        assert!(
            body.contains(&format!("\"type\":\"{condition}\"")),
            "{body}"
        );
    }
}
