//! What ends with something else, and what does not.

use super::*;

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
