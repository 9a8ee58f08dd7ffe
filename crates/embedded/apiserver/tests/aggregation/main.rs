//! Requests through the embedded API server to a server of ours behind it.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod world;

use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use plimsoll_apiserver::aggregate::RemoteSpec;
use plimsoll_apiserver::aggregate::backend::Backend;
use serde_json::{Value, json};

use world::{Aggregated, Authority, GROUP, PATIENCE, THINGS, World, send, text};

const NAME: &str = "things.default.svc";

async fn aggregated(world: &World) -> Aggregated {
    let authority = Authority::new();
    let aggregated = Aggregated::start(world, &authority, NAME).await;
    let port = aggregated.serving.local_addr().port();
    let proof = json!({"caBundle": authority.bundle()});
    world.register(GROUP, "things", port, proof).await;
    let condition = world.condition(GROUP, "Passed").await;
    assert_eq!(condition["status"], "True");
    assert_eq!(condition["message"], "all checks passed");
    aggregated
}

async fn let_alice_list_things(world: &World) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "metadata": {"name": "things"},
        "rules": [{"apiGroups": [GROUP], "resources": ["things"], "verbs": ["list", "create"]}],
    });
    world.create(&format!("{rbac}/roles"), role).await;
    let binding = json!({
        "metadata": {"name": "things"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "things"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    world.create(&format!("{rbac}/rolebindings"), binding).await;
}

#[tokio::test]
async fn requests_arrive_as_their_user() {
    let world = World::start().await;
    let aggregated = aggregated(&world).await;
    let_alice_list_things(&world).await;

    // Whatever the client says about itself is replaced.
    let forged = [
        ("x-remote-user", "mallory"),
        ("x-remote-group", "wheel"),
        ("x-remote-uid", "0"),
        ("x-remote-extra-scopes", "all"),
        ("x-kept", "1"),
        ("connection", "x-dropped"),
        ("x-dropped", "1"),
    ];
    let answer = world.ask(Method::GET, THINGS, &forged, "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["x-own"], "yes");
    let answer: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(answer["user"], "kubernetes-admin");
    assert_eq!(answer["uid"], "");
    assert_eq!(
        answer["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    assert_eq!(answer["extra"], json!({}));
    let arrived = aggregated.arrived.lock().last().unwrap().clone();
    assert!(arrived.contains("x-kept"), "{arrived}");
    for gone in [
        "authorization",
        "impersonate",
        "x-dropped",
        "x-remote-extra",
    ] {
        assert!(!arrived.contains(gone), "{gone}: {arrived}");
    }

    // Those whom a client acts as are who they are there, too; and permission is asked on both sides.
    let alice = [
        ("impersonate-user", "alice"),
        ("impersonate-uid", "a-1"),
        ("impersonate-extra-example.org%2fteam", "blue"),
    ];
    let path = format!("{THINGS}?limit=2&labelSelector=a%3Db");
    let answer = world.ask(Method::POST, &path, &alice, "{\"a\":1}").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let answer: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(answer["user"], "alice");
    assert_eq!(answer["uid"], "a-1");
    assert_eq!(answer["groups"], json!(["system:authenticated"]));
    assert_eq!(answer["extra"], json!({"example.org/team": ["blue"]}));
    assert_eq!(answer["body"], "{\"a\":1}");
    let arrived = aggregated.arrived.lock().last().unwrap().clone();
    assert!(arrived.starts_with(&format!("POST {path} ")), "{arrived}");
    assert!(!arrived.contains("impersonate"), "{arrived}");

    let before = aggregated.arrived.lock().len();
    let bob = [("impersonate-user", "bob")];
    let answer = world.ask(Method::GET, THINGS, &bob, "").await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(aggregated.arrived.lock().len(), before, "it was handed on");

    let answer = world
        .ask(Method::GET, &format!("{THINGS}/elsewhere"), &[], "")
        .await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(
        text(answer).await,
        "the backend attempted to redirect this request, which is not permitted"
    );
    let escaped = "/apis/agg.example.com/v1/namespaces/default%2Fthings";
    let answer = world.ask(Method::GET, escaped, &[], "").await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn nobody_else_is_the_front_proxy() {
    let world = World::start().await;
    let aggregated = aggregated(&world).await;
    let to = aggregated.serving.local_addr();
    let object = json!({
        "metadata": {"name": "v1.x"},
        "spec": {"group": "x", "version": "v1", "insecureSkipTLSVerify": true,
                 "service": {"namespace": "default", "name": "things", "port": 1}},
    });
    let spec = RemoteSpec::read(&object).unwrap();
    let forged = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
    ];
    // With no certificate, with one of a stranger who calls himself so, and with a good token but forged headers.
    let stranger = Authority::new().key("front-proxy-client");
    for client in [
        Backend::new(&spec, None),
        Backend::new(&spec, Some(&stranger)),
    ] {
        let answer = send(&client, to, Method::GET, THINGS, &forged, "").await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        let token = format!("Bearer {}", world.running.credentials().admin_token);
        let mut headers = forged.to_vec();
        headers.push(("authorization", &token));
        let answer = send(&client, to, Method::GET, THINGS, &headers, "").await;
        assert_eq!(answer.status(), StatusCode::OK);
        let answer: Value = serde_json::from_str(&text(answer).await).unwrap();
        assert_eq!(answer["user"], "kubernetes-admin");
    }
}

#[tokio::test]
async fn watches_stream_and_end_with_the_server() {
    let world = World::start().await;
    let aggregated = aggregated(&world).await;
    let path = format!("{THINGS}?watch=1");
    let mut answer = world.ask(Method::GET, &path, &[], "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    // Each event before there is a next one.
    for event in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"MODIFIED\"}\n"] {
        aggregated.events.send(event).unwrap();
        let frame = tokio::time::timeout(PATIENCE, answer.frame()).await;
        let frame = frame.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event.as_bytes());
    }
    world.running.server().stop();
    let end = tokio::time::timeout(PATIENCE, answer.frame()).await;
    assert!(end.unwrap().is_none(), "the watch went on");
}

#[tokio::test]
async fn a_watch_that_breaks_off_does_not_look_complete() {
    let world = World::start().await;
    let aggregated = aggregated(&world).await;
    let path = format!("{THINGS}?watch=1");
    let mut answer = world.ask(Method::GET, &path, &[], "").await;
    aggregated.events.send("{").unwrap();
    answer.frame().await.unwrap().unwrap();
    // Without a drain everything is cut off at once.
    drop(aggregated.serving);
    let end = tokio::time::timeout(PATIENCE, answer.frame()).await;
    assert!(end.unwrap().unwrap().is_err(), "it looks complete");
}

#[tokio::test]
async fn the_group_is_discovered() {
    let world = World::start().await;
    let aggregated = aggregated(&world).await;
    let groups = world.get("/apis").await;
    let groups = groups["groups"].as_array().unwrap();
    assert_eq!(groups.last().unwrap()["name"], GROUP);
    let group = world.get(&format!("/apis/{GROUP}")).await;
    assert_eq!(
        group["preferredVersion"]["groupVersion"],
        "agg.example.com/v1"
    );
    let list = world.get(&format!("/apis/{GROUP}/v1")).await;
    assert_eq!(list["resources"][0]["name"], "things");
    let paths = world.get("/").await;
    let paths = paths["paths"].as_array().unwrap();
    assert!(paths.contains(&"/apis/agg.example.com/v1".into()));
    assert_eq!(
        world.discovered(GROUP).await["versions"],
        json!([{
            "version": "v1",
            "resources": [{
                "resource": "things",
                "responseKind": {"group": "", "version": "", "kind": "Thing"},
                "scope": "Namespaced",
                "singularResource": "thing",
                "verbs": ["list"],
            }],
            "freshness": "Current",
        }])
    );

    // Who is gone answers no more, and is not there for long.
    let port = aggregated.serving.local_addr().port();
    aggregated.serving.drain(Duration::ZERO).await;
    let answer = world.ask(Method::GET, THINGS, &[], "").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let complaint = format!(
        "error trying to reach service: dial tcp 127.0.0.1:{port}: connect: connection refused\n"
    );
    assert_eq!(text(answer).await, complaint);
    let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}");
    let mut object = world.get(&path).await;
    object["spec"]["versionPriority"] = 16.into();
    let (status, _) = world.admin(Method::PUT, &path, object).await;
    assert_eq!(status, StatusCode::OK);
    let condition = world.condition(GROUP, "FailedDiscoveryCheck").await;
    let url = format!("https://127.0.0.1:{port}/apis/agg.example.com/v1");
    assert_eq!(
        condition["message"],
        format!(
            "failing or missing response from {url}: Get \"{url}\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
    );
    let answer = world.ask(Method::GET, THINGS, &[], "").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(answer).await, "service unavailable\n");
    assert_eq!(
        world.discovered(GROUP).await["versions"],
        json!([{"version": "v1", "freshness": "Stale"}])
    );

    let (status, _) = world.admin(Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let answer = world.ask(Method::GET, THINGS, &[], "").await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(world.discovered(GROUP).await, Value::Null);
}

#[tokio::test]
async fn servers_prove_themselves() {
    let world = World::start().await;
    let authority = Authority::new();
    let aggregated = Aggregated::start(&world, &authority, NAME).await;
    let port = aggregated.serving.local_addr().port();
    let good = json!({"caBundle": authority.bundle()});
    let strange = json!({"caBundle": Authority::new().bundle()});
    for (service, proof, why) in [
        ("things", strange, "certificate signed by unknown authority"),
        (
            "others",
            good,
            "certificate is valid for things.default.svc, not others.default.svc",
        ),
    ] {
        let group = format!("{service}.example.com");
        world.register(&group, service, port, proof).await;
        let condition = world.condition(&group, "FailedDiscoveryCheck").await;
        let message = condition["message"].as_str().unwrap();
        let why = format!("tls: failed to verify certificate: x509: {why}");
        assert!(message.ends_with(&why), "{message}");
    }
    assert_eq!(aggregated.arrived.lock().len(), 0);
}

#[tokio::test]
async fn custom_groups_have_their_own_services() {
    let world = World::start().await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.create(definitions, definition).await;
    let path = format!("{services}/v1.example.com");
    let object = world.get(&path).await;
    let labels = json!({"kube-aggregator.kubernetes.io/automanaged": "true"});
    assert_eq!(object["metadata"]["labels"], labels);
    let spec = json!({
        "group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100,
    });
    assert_eq!(object["spec"], spec);
    assert_eq!(object["status"]["conditions"][0]["reason"], "Local");
    assert_eq!(
        object["metadata"]["managedFields"][0]["manager"],
        "kube-apiserver"
    );
    let (status, _) = world
        .admin(
            Method::GET,
            &format!("{services}/v2.example.com"),
            Value::Null,
        )
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    // What is kept comes back, as it was.
    let (status, _) = world.admin(Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let mut object = world.get(&path).await;
    assert_eq!(object["spec"], spec);
    object["spec"]["versionPriority"] = 7.into();
    world.admin(Method::PUT, &path, object).await;
    assert_eq!(world.get(&path).await["spec"], spec);

    let name = format!("{definitions}/foos.example.com");
    world.admin(Method::DELETE, &name, Value::Null).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while world.admin(Method::GET, &path, Value::Null).await.0 != StatusCode::NOT_FOUND {
        assert!(tokio::time::Instant::now() < deadline, "it is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
