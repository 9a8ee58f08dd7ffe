use serde_json::{Value, json};

use super::*;

#[track_caller]
fn check_refusal(world: &World, asked: &str, expected: &str) {
    let authority = authority(world);
    let user = alice(&authority, world);
    let refused = authority.authorize(&user, &request(asked));
    assert_eq!(shown(&refused.unwrap_err()), expected);
}

#[test]
fn refusals() {
    let world = World::new();
    check_refusal(
        &world,
        "GET /api/v1/pods",
        "403 pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" at the cluster scope\nkind=pods",
    );
    check_refusal(
        &world,
        "GET /api/v1/namespaces/authp",
        "403 namespaces \"authp\" is forbidden: User \"alice\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"authp\"\nname=authp\nkind=namespaces",
    );
    check_refusal(
        &world,
        "GET /api/v1/namespaces/authp/pods/x/log",
        "403 pods \"x\" is forbidden: User \"alice\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"authp\"\nname=x\nkind=pods",
    );
    check_refusal(
        &world,
        "DELETE /apis/apps/v1/namespaces/authp/deployments",
        "403 deployments.apps is forbidden: User \"alice\" cannot deletecollection resource \"deployments\" in API group \"apps\" in the namespace \"authp\"\ngroup=apps\nkind=deployments",
    );
    check_refusal(
        &world,
        "POST /foo",
        "403 forbidden: User \"alice\" cannot post path \"/foo\"",
    );
    check_refusal(
        &world,
        "GET /api/v1/namespaces/au%3Cthp/pods/x%26y",
        "403 pods \"x&y\" is forbidden: User \"alice\" cannot get resource \"pods\" in API group \"\" in the namespace \"au&lt;thp\"\nname=x&y\nkind=pods",
    );
}

#[test]
fn missing_roles_are_told() {
    let world = World::new();
    world.bind_alice("", "ClusterRole", "authp-nope");
    check_refusal(
        &world,
        "GET /metrics",
        "403 forbidden: User \"alice\" cannot get path \"/metrics\": RBAC: clusterrole.rbac.authorization.k8s.io \"authp-nope\" not found",
    );
    world.bind_alice("authp", "Role", "r-nope");
    check_refusal(
        &world,
        "GET /api/v1/namespaces/authp/pods",
        "403 pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" in the namespace \"authp\": RBAC: [clusterrole.rbac.authorization.k8s.io \"authp-nope\" not found, role.rbac.authorization.k8s.io \"r-nope\" not found]\nkind=pods",
    );
}

#[test]
fn what_everybody_may() {
    let world = World::new();
    let authority = authority(&world);
    let allowed = |user: &User, asked: &str| {
        let refused = authority.authorize(user, &request(asked));
        refused.is_ok()
    };
    let user = alice(&authority, &world);
    for asked in [
        "GET /healthz",
        "GET /version",
        "GET /api",
        "GET /apis/apps/v1",
    ] {
        assert!(allowed(&user, asked), "{asked}");
    }
    let nobody = authority
        .authenticate(&HeaderMap::new(), None, &world)
        .unwrap();
    assert_eq!(nobody.name, "system:anonymous");
    assert!(allowed(&nobody, "GET /healthz") && !allowed(&nobody, "GET /api"));
    let admin = authority
        .authenticate(&bearer("admintoken"), None, &world)
        .unwrap();
    assert!(allowed(&admin, "DELETE /api/v1/nodes"));
}

#[test]
fn changes_count_at_once() {
    let world = World::new();
    let authority = authority(&world);
    let user = alice(&authority, &world);
    let asked = request("GET /api/v1/namespaces/a/pods/p");
    let elsewhere = request("GET /api/v1/namespaces/b/pods/p");
    let role = "system:aggregate-to-view";
    assert!(authority.authorize(&user, &asked).is_err());
    world.bind_alice("a", "ClusterRole", role);
    assert!(authority.authorize(&user, &asked).is_ok());
    assert!(authority.authorize(&user, &elsewhere).is_err());
    world.cluster_role(role, json!([]));
    assert!(authority.authorize(&user, &asked).is_err());
    world.remove("clusterroles.rbac.authorization.k8s.io", "", role);
    let refused = authority.authorize(&user, &asked).unwrap_err();
    assert!(
        refused.message.ends_with("not found"),
        "{}",
        refused.message
    );
    world.cluster_role(
        role,
        json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    );
    assert!(authority.authorize(&user, &asked).is_ok());
    let binding = format!("alice-{role}");
    world.remove("rolebindings.rbac.authorization.k8s.io", "a", &binding);
    assert!(authority.authorize(&user, &asked).is_err());
}

/// What a role gathers counts before anybody has written it down, and no longer than its source is there.
#[test]
fn gathered_rules_follow_their_sources() {
    let world = World::new();
    let authority = authority(&world);
    let user = alice(&authority, &world);
    let asked = request("GET /apis/example.com/v1/namespaces/a/things/t");
    world.bind_alice("", "ClusterRole", "view");
    assert!(authority.authorize(&user, &asked).is_err());
    let source = |labels: Value| {
        json!({
            "metadata": {"name": "things", "labels": labels},
            "rules": [{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}],
        })
    };
    const SHELF: &str = "clusterroles.rbac.authorization.k8s.io";
    const LABEL: &str = "rbac.authorization.k8s.io/aggregate-to-view";
    world.put(SHELF, source(json!({LABEL: "true"})));
    assert!(authority.authorize(&user, &asked).is_ok());
    world.put(SHELF, source(json!({LABEL: "false"})));
    assert!(authority.authorize(&user, &asked).is_err());
    world.put(SHELF, source(json!({LABEL: "true"})));
    assert!(authority.authorize(&user, &asked).is_ok());
    world.remove(SHELF, "", "things");
    assert!(authority.authorize(&user, &asked).is_err());
}

/// What is not there is told, but not all of it if it is much.
#[test]
fn many_missing_roles_are_counted() {
    let world = World::new();
    for number in 0..500 {
        world.bind_alice("a", "Role", &format!("r{number}"));
    }
    let authority = authority(&world);
    let user = alice(&authority, &world);
    let asked = request("GET /api/v1/namespaces/a/pods");
    let refused = authority.authorize(&user, &asked).unwrap_err();
    assert!(
        refused.message.ends_with("and 400 more]"),
        "{}",
        refused.message
    );
}

/// Alice may write roles and bindings, and read pods.
fn world_of_a_role_writer() -> World {
    let world = World::new();
    let writer = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"], "verbs": ["create", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]);
    world.cluster_role("writer", writer);
    world.bind_alice("", "ClusterRole", "writer");
    world
}

fn write(
    world: &World,
    asked: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let authority = authority(world);
    let user = alice(&authority, world);
    let path = request(asked).resource.unwrap();
    authority.check_escalation(&user, &path, object, old)
}

const ROLES: &str = "POST /apis/rbac.authorization.k8s.io/v1/namespaces/authp/roles";
const CLUSTER_ROLES: &str = "POST /apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "POST /apis/rbac.authorization.k8s.io/v1/namespaces/authp/rolebindings";
const CLUSTER_BINDINGS: &str = "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

#[track_caller]
fn check_write(asked: &str, object: Value, expected: &str) {
    let refused = write(&world_of_a_role_writer(), asked, &object, None);
    let found = refused.map_or_else(|failure| shown(&failure), |()| String::new());
    assert_eq!(found, expected);
}

#[test]
fn roles_with_more_than_one_has() {
    check_write(
        ROLES,
        json!({"metadata": {"name": "r1"}, "rules": [
            {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list", "delete"]},
            {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a", "b"]},
        ]}),
        "403 roles.rbac.authorization.k8s.io \"r1\" is forbidden: user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\" \"delete\"]}\n{APIGroups:[\"apps\"], Resources:[\"*\"], ResourceNames:[\"a\"], Verbs:[\"*\"]}\n{APIGroups:[\"apps\"], Resources:[\"*\"], ResourceNames:[\"b\"], Verbs:[\"*\"]}\nname=r1\ngroup=rbac.authorization.k8s.io\nkind=roles",
    );
    check_write(
        CLUSTER_ROLES,
        json!({"metadata": {"name": "c"}, "rules": [{"nonResourceURLs": ["/a", "/api"], "verbs": ["get", "put"]}]}),
        "403 clusterroles.rbac.authorization.k8s.io \"c\" is forbidden: user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/a\"], Verbs:[\"put\"]}\n{NonResourceURLs:[\"/api\"], Verbs:[\"put\"]}\nname=c\ngroup=rbac.authorization.k8s.io\nkind=clusterroles",
    );
    let held = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    check_write(ROLES, json!({"metadata": {"name": "r"}, "rules": held}), "");
    check_write(
        CLUSTER_ROLES,
        json!({"metadata": {"name": "c"}, "rules": [], "aggregationRule": {"clusterRoleSelectors": [{}]}}),
        "403 clusterroles.rbac.authorization.k8s.io \"c\" is forbidden: must have cluster-admin privileges to use the aggregationRule\nname=c\ngroup=rbac.authorization.k8s.io\nkind=clusterroles",
    );
}

#[test]
fn bindings_to_more_than_one_has() {
    let binding = |kind: &str, name: &str| json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}});
    check_write(
        CLUSTER_BINDINGS,
        binding("ClusterRole", "cluster-admin"),
        "403 clusterrolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}\nname=b\ngroup=rbac.authorization.k8s.io\nkind=clusterrolebindings",
    );
    check_write(
        BINDINGS,
        binding("Role", "nope"),
        "404 rolebindings.rbac.authorization.k8s.io \"nope\" not found\nname=nope\ngroup=rbac.authorization.k8s.io\nkind=rolebindings",
    );
    check_write(
        BINDINGS,
        binding("Foo", "x"),
        "500 unsupported role reference kind: \"Foo\"",
    );
    check_write(BINDINGS, binding("ClusterRole", "writer"), "");
}

#[test]
fn the_verbs_that_permit_it() {
    let world = world_of_a_role_writer();
    let special = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"]},
    ]);
    world.cluster_role("special", special);
    world.bind_alice("", "ClusterRole", "special");
    let all = json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    assert!(write(&world, ROLES, &all, None).is_ok());
    assert!(write(&world, CLUSTER_ROLES, &all, None).is_err());
    let bind = |name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
    assert!(write(&world, CLUSTER_BINDINGS, &bind("view"), None).is_ok());
    assert!(write(&world, CLUSTER_BINDINGS, &bind("cluster-admin"), None).is_err());
}

#[test]
fn garbage_collection_changes_nothing_that_matters() {
    let world = world_of_a_role_writer();
    let role = |finalizers: Value, verb: &str| json!({"metadata": {"name": "c", "finalizers": finalizers}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": [verb]}]});
    let old = role(json!(["x"]), "get");
    let put = "PUT /apis/rbac.authorization.k8s.io/v1/clusterroles/c";
    assert!(write(&world, put, &role(json!([]), "get"), Some(&old)).is_ok());
    assert!(write(&world, put, &role(json!([]), "list"), Some(&old)).is_err());
}
