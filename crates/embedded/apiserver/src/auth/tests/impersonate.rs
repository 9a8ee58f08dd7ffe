use super::*;

fn act(
    authority: &Authority,
    world: &World,
    token: &str,
    asked: &str,
    said: &[(&str, &str)],
) -> Result<User, String> {
    let user = authority.authenticate(&bearer(token), None, world).unwrap();
    let found = authority.impersonate(user, &headers(said), &request(asked));
    found.map_err(|failure| failure.message)
}

#[track_caller]
fn check_refusal(world: &World, asked: &str, said: &[(&str, &str)], expected: &str) {
    let refused = act(&authority(world), world, "usertoken", asked, said);
    assert_eq!(refused.unwrap_err(), expected);
}

const PODS: &str = "GET /api/v1/pods";
const AS_BOB: (&str, &str) = ("impersonate-user", "bob");

#[test]
fn without_permission() {
    let world = World::new();
    check_refusal(
        &world,
        PODS,
        &[AS_BOB],
        "pods is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" at the cluster scope",
    );
    check_refusal(
        &world,
        "GET /api/v1/namespaces/authp/pods/x",
        &[AS_BOB],
        "pods \"x\" is forbidden: User \"alice\" cannot impersonate-on:user-info:get resource \"pods\" in API group \"\" in the namespace \"authp\"",
    );
    check_refusal(
        &world,
        "GET /healthz",
        &[AS_BOB],
        "forbidden: User \"alice\" cannot impersonate-on:user-info:get path \"/healthz\"",
    );
    let account = ("impersonate-user", "system:serviceaccount:authp:sa1");
    check_refusal(
        &world,
        PODS,
        &[account],
        "pods is forbidden: User \"alice\" cannot impersonate-on:serviceaccount:list resource \"pods\" in API group \"\" at the cluster scope",
    );
    let node = ("impersonate-user", "system:node:n1");
    check_refusal(
        &world,
        PODS,
        &[node],
        "pods is forbidden: User \"alice\" cannot impersonate-on:arbitrary-node:list resource \"pods\" in API group \"\" at the cluster scope",
    );
    let group = ("impersonate-group", "g");
    check_refusal(
        &world,
        PODS,
        &[node, group],
        "users \"system:node:n1\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
    );
    check_refusal(
        &world,
        PODS,
        &[account, group],
        "serviceaccounts \"sa1\" is forbidden: User \"alice\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"authp\"",
    );
}

#[test]
fn nobody_to_be() {
    let world = World::new();
    check_refusal(
        &world,
        PODS,
        &[("impersonate-group", "g")],
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string(nil)} without impersonating a user name",
    );
    check_refusal(
        &world,
        PODS,
        &[
            ("impersonate-group", "g"),
            ("impersonate-uid", "u\"1"),
            ("impersonate-extra-Foo%2fbar", "x"),
            ("impersonate-extra-Foo%2fbar", "y"),
            ("impersonate-extra-Abc", "z"),
        ],
        "requested &user.DefaultInfo{Name:\"\", UID:\"u\\\"1\", Groups:[]string{\"g\"}, Extra:map[string][]string{\"abc\":[]string{\"z\"}, \"foo/bar\":[]string{\"x\", \"y\"}}} without impersonating a user name",
    );
    check_refusal(
        &world,
        PODS,
        &[("impersonate-user", ""), ("impersonate-uid", "1")],
        "requested &user.DefaultInfo{Name:\"\", UID:\"1\", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name",
    );
}

#[test]
fn groups_of_the_impersonated() {
    let world = World::new();
    let authority = authority(&world);
    let groups = |said: &[(&str, &str)]| {
        let user = act(&authority, &world, "admintoken", PODS, said).unwrap();
        user.groups.join(" ")
    };
    assert_eq!(groups(&[]), "system:masters system:authenticated");
    assert_eq!(groups(&[AS_BOB]), "system:authenticated");
    let account = ("impersonate-user", "system:serviceaccount:a:b");
    assert_eq!(
        groups(&[account]),
        "system:serviceaccounts system:serviceaccounts:a system:authenticated"
    );
    let group = ("impersonate-group", "g");
    assert_eq!(groups(&[account, group]), "g system:authenticated");
    // On a fresh memory: having used the older way, a node would be a user like any other.
    let node = [("impersonate-user", "system:node:n1")];
    let fresh = self::authority(&world);
    let user = act(&fresh, &world, "admintoken", PODS, &node).unwrap();
    assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
    let unknown = ("impersonate-group", "system:unauthenticated");
    assert_eq!(
        groups(&[AS_BOB, group, unknown]),
        "g system:unauthenticated"
    );
    let nobody = ("impersonate-user", "system:anonymous");
    assert_eq!(groups(&[nobody]), "system:unauthenticated");
    let masters = ("impersonate-group", "system:masters");
    assert_eq!(
        groups(&[AS_BOB, masters]),
        "system:masters system:authenticated"
    );
}

#[test]
fn everything_told_is_taken() {
    let world = World::new();
    let authority = authority(&world);
    let said = [
        AS_BOB,
        ("impersonate-uid", "7"),
        ("impersonate-extra-a.b%2fScopes", "x"),
        ("impersonate-extra-a.b%2fScopes", "y"),
        ("impersonate-extra-odd%zz", "z"),
    ];
    let user = act(&authority, &world, "admintoken", PODS, &said).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "7"));
    assert_eq!(user.extra["a.b/scopes"], ["x", "y"]);
    assert_eq!(user.extra["odd%zz"], ["z"]);
    let mut left = headers(&said);
    plimsoll_serving::auth::Impersonation::strip(&mut left);
    assert!(left.is_empty());
}

#[test]
fn the_older_way() {
    let world = World::new();
    let rules = json!([{"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"]}]);
    world.cluster_role("imp", rules);
    world.bind_alice("", "ClusterRole", "imp");
    let authority = authority(&world);
    let bob = act(&authority, &world, "usertoken", PODS, &[AS_BOB]).unwrap();
    assert_eq!(bob.name, "bob");
    // From now on refusals speak of that way.
    let refused =
        |said: &[(&str, &str)]| act(&authority, &world, "usertoken", PODS, said).unwrap_err();
    assert_eq!(
        refused(&[("impersonate-user", "carol")]),
        "users \"carol\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
    assert_eq!(
        refused(&[AS_BOB, ("impersonate-group", "g")]),
        "groups \"g\" is forbidden: User \"alice\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope"
    );
    assert_eq!(
        refused(&[AS_BOB, ("impersonate-uid", "6")]),
        "uids.authentication.k8s.io \"6\" is forbidden: User \"alice\" cannot impersonate resource \"uids\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
    assert_eq!(
        refused(&[AS_BOB, ("impersonate-extra-scopes", "a<b")]),
        "userextras.authentication.k8s.io \"a<b\" is forbidden: User \"alice\" cannot impersonate resource \"userextras/scopes\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
}

#[test]
fn the_narrower_way() {
    let world = World::new();
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]},
    ]);
    world.cluster_role("imp", rules);
    world.bind_alice("", "ClusterRole", "imp");
    let bob = act(&authority(&world), &world, "usertoken", PODS, &[AS_BOB]).unwrap();
    assert_eq!(bob.groups, ["system:authenticated"]);
    check_refusal(
        &world,
        PODS,
        &[("impersonate-user", "carol")],
        "users.authentication.k8s.io \"carol\" is forbidden: User \"alice\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope",
    );
    check_refusal(
        &world,
        "GET /api/v1/nodes",
        &[AS_BOB],
        "nodes is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"nodes\" in API group \"\" at the cluster scope",
    );
    check_refusal(
        &world,
        PODS,
        &[AS_BOB, ("impersonate-group", "system:masters")],
        "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"alice\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not allowed",
    );
    check_refusal(
        &world,
        PODS,
        &[AS_BOB, ("impersonate-group", "")],
        "groups.authentication.k8s.io is forbidden: User \"alice\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the empty string group is not allowed",
    );
    check_refusal(
        &world,
        PODS,
        &[AS_BOB, ("impersonate-extra-scopes", "a")],
        "userextras.authentication.k8s.io is forbidden: User \"alice\" cannot impersonate:user-info resource \"userextras\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed path (such as \"acme.io/foo\")",
    );
    check_refusal(
        &world,
        PODS,
        &[AS_BOB, ("impersonate-extra-a.b%2fscopes", "a<b")],
        "userextras.authentication.k8s.io \"a<b\" is forbidden: User \"alice\" cannot impersonate:user-info resource \"userextras/a.b/scopes\" in API group \"authentication.k8s.io\" at the cluster scope",
    );
}

#[test]
fn an_account_as_its_node() {
    let world = World::new();
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["nodes"], "resourceNames": ["*"], "verbs": ["impersonate:associated-node"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:associated-node:list"]},
    ]);
    world.cluster_role("imp", rules);
    world.put(
        "clusterrolebindings.rbac.authorization.k8s.io",
        json!({
            "metadata": {"name": "agents"}, "roleRef": {"kind": "ClusterRole", "name": "imp"},
            "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": "ns"}],
        }),
    );
    let agent = User {
        name: "system:serviceaccount:ns:agent".to_owned(),
        extra: [(
            "authentication.kubernetes.io/node-name".to_owned(),
            vec!["n1".to_owned()],
        )]
        .into(),
        ..User::default()
    };
    let authority = authority(&world);
    let to_be = |node: &str| {
        let said = headers(&[("impersonate-user", &format!("system:node:{node}"))]);
        authority.impersonate(agent.clone(), &said, &request(PODS))
    };
    let node = to_be("n1").unwrap();
    assert_eq!(node.groups, ["system:nodes", "system:authenticated"]);
    assert!(to_be("n2").is_err());
}
