use super::*;
use crate::auth::Review;

fn ask(world: &World, token: &str, path: &str, object: Value) -> Result<Value, String> {
    let authority = authority(world);
    let user = authority.authenticate(&bearer(token), None, world).unwrap();
    let path = request(&format!("POST /apis/{path}")).resource.unwrap();
    let review = Review::of(&path).unwrap();
    let answer = authority.review(review, &path.namespace, object, &user, world);
    answer.map_err(|failure| format!("{} {}", failure.code.as_u16(), failure.message))
}

const TOKEN: &str = "authentication.k8s.io/v1/tokenreviews";
const SELF: &str = "authentication.k8s.io/v1/selfsubjectreviews";
const ACCESS: &str = "authorization.k8s.io/v1/subjectaccessreviews";
const LOCAL_ACCESS: &str = "authorization.k8s.io/v1/namespaces/authp/localsubjectaccessreviews";
const SELF_ACCESS: &str = "authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_RULES: &str = "authorization.k8s.io/v1/selfsubjectrulesreviews";

#[track_caller]
fn check_status(path: &str, spec: Value, expected: Value) {
    let question = json!({"spec": spec});
    let mut answer = ask(&World::new(), "usertoken", path, question).unwrap();
    assert_eq!(answer["status"].take(), expected);
    assert_eq!(answer["spec"], spec);
}

#[track_caller]
fn check_refusal(path: &str, question: Value, expected: &str) {
    let answer = ask(&World::new(), "usertoken", path, question);
    assert_eq!(answer.unwrap_err(), expected);
}

#[test]
fn tokens() {
    let alice =
        json!({"username": "alice", "uid": "alice-uid", "groups": ["dev", "system:authenticated"]});
    check_status(
        TOKEN,
        json!({"token": "usertoken"}),
        json!({"authenticated": true, "user": alice, "audiences": ["https://k"]}),
    );
    let unknown = json!({"user": {}, "error": "invalid bearer token"});
    check_status(TOKEN, json!({"token": "bad"}), unknown.clone());
    check_status(TOKEN, json!({"token": "a b"}), unknown.clone());
    check_status(
        TOKEN,
        json!({"token": "usertoken", "audiences": ["x"]}),
        unknown,
    );
    // Nothing but a space is no token at all.
    let nobody = json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]});
    check_status(
        TOKEN,
        json!({"token": " "}),
        json!({"authenticated": true, "user": nobody, "audiences": ["https://k"]}),
    );
    check_refusal(
        TOKEN,
        json!({}),
        "400 token is required for TokenReview in authentication",
    );
}

#[test]
fn tokens_of_service_accounts() {
    let world = World::new();
    let account = json!({"metadata": {"name": "sa", "namespace": "ns", "uid": "u-1"}});
    world.put("serviceaccounts", account);
    let authority = authority(&world);
    let answer = authority
        .token_request("ns", "sa", json!({}), &world)
        .unwrap();
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let admin = User::default();
    let status = |world: &World, spec: Value| {
        let question = json!({"spec": spec});
        let mut answer = authority
            .review(Review::Token, "", question, &admin, world)
            .unwrap();
        answer["status"].take()
    };
    let found = status(&world, json!({"token": token}));
    assert_eq!(found["authenticated"], true);
    assert_eq!(found["user"]["username"], "system:serviceaccount:ns:sa");
    assert_eq!(found["user"]["uid"], "u-1");
    assert_eq!(found["audiences"], json!(["https://k"]));
    let error = |world: &World, spec: Value| status(world, spec)["error"].clone();
    assert_eq!(
        error(&world, json!({"token": token, "audiences": ["x"]})),
        "[invalid bearer token, token audiences [\"https://k\"] is invalid for the target audiences [\"x\"]]"
    );
    // Claims that cannot be read are nobody's.
    let forged = token.replacen('.', ".e", 1);
    assert_eq!(
        error(&world, json!({"token": forged})),
        "invalid bearer token"
    );
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert_eq!(
        error(&world, json!({"token": format!("{signed}.c2ln")})),
        "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
    );
    let again = json!({"metadata": {"name": "sa", "namespace": "ns", "uid": "u-2"}});
    world.put("serviceaccounts", again);
    assert_eq!(
        error(&world, json!({"token": token})),
        "[invalid bearer token, service account UID (u-2) does not match claim (u-1)]"
    );
    world.remove("serviceaccounts", "ns", "sa");
    assert_eq!(
        error(&world, json!({"token": token})),
        "[invalid bearer token, serviceaccounts \"sa\" not found]"
    );
}

#[test]
fn oneself() {
    let answer = ask(
        &World::new(),
        "usertoken",
        SELF,
        json!({"metadata": {"name": "x"}}),
    );
    let expected = json!({
        "metadata": {"creationTimestamp": NOON},
        "status": {"userInfo": {"username": "alice", "uid": "alice-uid", "groups": ["dev", "system:authenticated"]}},
    });
    assert_eq!(answer.unwrap(), expected);
}

#[test]
fn access() {
    let list_pods = |spec: Value| {
        let mut spec = spec;
        spec["resourceAttributes"] = json!({"verb": "list", "resource": "pods"});
        spec
    };
    check_status(
        ACCESS,
        list_pods(json!({"user": "bob", "groups": ["dev"]})),
        json!({"allowed": false}),
    );
    check_status(
        ACCESS,
        list_pods(json!({"user": "bob", "groups": ["system:masters"]})),
        json!({"allowed": true}),
    );
    check_status(
        ACCESS,
        list_pods(json!({"user": "system:kube-scheduler"})),
        json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"system:kube-scheduler\" of ClusterRole \"system:kube-scheduler\" to User \"system:kube-scheduler\""}),
    );
    check_status(
        ACCESS,
        json!({"user": "system:serviceaccount:kube-system:kube-dns", "resourceAttributes": {"verb": "list", "resource": "endpoints"}}),
        json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"system:kube-dns\" of ClusterRole \"system:kube-dns\" to ServiceAccount \"kube-dns/kube-system\""}),
    );
    check_status(
        ACCESS,
        json!({"user": "system:serviceaccount:kube-system:bootstrap-signer", "resourceAttributes": {"verb": "list", "resource": "secrets", "namespace": "kube-system"}}),
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"system:controller:bootstrap-signer/kube-system\" of Role \"system:controller:bootstrap-signer\" to ServiceAccount \"bootstrap-signer/kube-system\""}),
    );
    check_status(
        SELF_ACCESS,
        json!({"nonResourceAttributes": {"verb": "get", "path": "/apis/x"}}),
        json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\""}),
    );
    check_status(
        LOCAL_ACCESS,
        json!({"user": "b", "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "authp"}}),
        json!({"allowed": false}),
    );
}

#[test]
fn access_by_missing_roles() {
    let world = World::new();
    world.bind_alice("", "ClusterRole", "nope");
    let question = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    let answer = ask(&world, "usertoken", SELF_ACCESS, question).unwrap();
    assert_eq!(
        answer["status"],
        json!({"allowed": false, "reason": "RBAC: clusterrole.rbac.authorization.k8s.io \"nope\" not found"})
    );
    let question = json!({"spec": {"namespace": "ns"}});
    let answer = ask(&world, "usertoken", SELF_RULES, question).unwrap();
    assert_eq!(
        answer["status"]["evaluationError"],
        "clusterrole.rbac.authorization.k8s.io \"nope\" not found"
    );
}

#[test]
fn wrong_questions() {
    check_refusal(
        ACCESS,
        json!({}),
        "422 .authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]",
    );
    check_refusal(
        ACCESS,
        json!({"spec": {"nonResourceAttributes": {"path": "/api", "verb": "get"}, "resourceAttributes": {}}}),
        "422 .authorization.k8s.io \"\" is invalid: [spec.nonResourceAttributes: Invalid value: {\"Path\":\"/api\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes, spec.user: Invalid value: \"\": at least one of user or group must be specified]",
    );
    check_refusal(
        ACCESS,
        json!({"metadata": {"name": "x", "managedFields": [{"manager": "curl", "operation": "Update", "apiVersion": "v1"}]}, "spec": {"user": "b", "resourceAttributes": {}}}),
        "422 .authorization.k8s.io \"\" is invalid: metadata: Invalid value: {\"name\":\"x\",\"managedFields\":[{\"manager\":\"curl\",\"operation\":\"Update\",\"apiVersion\":\"v1\"}]}: must be empty",
    );
    check_refusal(
        LOCAL_ACCESS,
        json!({"metadata": {"name": "x"}, "spec": {"user": "b", "resourceAttributes": {}}}),
        "422 .authorization.k8s.io \"\" is invalid: [metadata: Invalid value: {\"name\":\"x\",\"namespace\":\"authp\"}: must be empty except for namespace, spec.resourceAttributes.namespace: Invalid value: \"\": must match metadata.namespace]",
    );
    check_refusal(
        LOCAL_ACCESS,
        json!({"spec": {"user": "b", "nonResourceAttributes": {"path": "/x", "verb": "get"}}}),
        "422 .authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: disallowed on this kind of request",
    );
    check_refusal(
        LOCAL_ACCESS,
        json!({"metadata": {"namespace": "zz"}}),
        "400 the namespace of the provided object does not match the namespace sent on the request",
    );
    check_refusal(SELF_RULES, json!({}), "400 no namespace on request");
}

#[test]
fn selectors() {
    let asking = |selectors: Value| {
        let mut attributes = selectors;
        attributes["verb"] = "list".into();
        json!({"user": "b", "resourceAttributes": attributes})
    };
    check_refusal(
        ACCESS,
        json!({"spec": asking(json!({"labelSelector": {}}))}),
        "422 .authorization.k8s.io \"\" is invalid: spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
    );
    let everything = json!({
        "fieldSelector": {"rawSelector": "a", "requirements": [{"key": "", "operator": "In"}, {"key": "b", "operator": "Exists", "values": ["x"]}, {"key": "b"}]},
        "labelSelector": {"requirements": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "Exists", "values": ["x"]}]},
    });
    check_refusal(
        ACCESS,
        json!({"spec": asking(everything)}),
        "422 .authorization.k8s.io \"\" is invalid: [spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a\": may not specified at the same time as requirements, spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', spec.resourceAttributes.fieldSelector.requirements[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist', spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', spec.resourceAttributes.labelSelector.requirements[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist']",
    );
    check_status(
        ACCESS,
        asking(json!({
            "fieldSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["x"]}, {"key": "b", "operator": "In", "values": ["x", "y"]}]},
            "labelSelector": {"requirements": [{"key": "a", "operator": "Near"}]},
        })),
        json!({"allowed": false, "evaluationError": "spec.resourceAttributes.fieldSelector partially ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"}),
    );
}

#[test]
fn rules() {
    let question = json!({"metadata": {"name": "x"}, "spec": {"namespace": "authp"}});
    let answer = ask(&World::new(), "usertoken", SELF_RULES, question).unwrap();
    let expected = json!({
        "metadata": {}, "spec": {},
        "status": {
            "resourceRules": [
                {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
                {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            ],
            "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"]},
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]},
            ],
            "incomplete": false,
        },
    });
    assert_eq!(answer, expected);
}

/// Who is bound to a large role many times is not told it as often.
#[test]
fn many_rules_are_counted() {
    let world = World::new();
    let names: Vec<String> = (0..10_000).map(|number| format!("name-{number}")).collect();
    let rule =
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names});
    world.put(
        "roles.rbac.authorization.k8s.io",
        json!({"metadata": {"name": "r", "namespace": "authp"}, "rules": [rule]}),
    );
    for number in 0..100 {
        let binding = json!({
            "metadata": {"name": format!("b{number}"), "namespace": "authp"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "alice"}],
        });
        world.put("rolebindings.rbac.authorization.k8s.io", binding);
    }
    let question = json!({"spec": {"namespace": "authp"}});
    let answer = ask(&world, "usertoken", SELF_RULES, question).unwrap();
    assert!(answer.to_string().len() < 4 << 20);
    assert_eq!(answer["status"]["incomplete"], true);
    let told = answer["status"]["evaluationError"].as_str().unwrap();
    assert!(told.ends_with("more rules"), "{told}");
}
