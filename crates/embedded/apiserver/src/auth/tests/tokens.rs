use std::cell::Cell;

use jiff::SignedDuration;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use super::*;

thread_local! {
    /// Hours after noon.
    static LATER: Cell<i64> = const { Cell::new(0) };
}

fn clock() -> Timestamp {
    let noon: Timestamp = NOON.parse().unwrap();
    noon + SignedDuration::from_hours(LATER.get())
}

fn world() -> World {
    let world = World::new();
    let object =
        |name: &str, uid: &str| json!({"metadata": {"name": name, "namespace": "ns", "uid": uid}});
    world.put("serviceaccounts", object("sa1", "u-sa1"));
    world.put("serviceaccounts", object("sa2", "u-sa2"));
    world.put("secrets", object("s", "u-s"));
    let mut pod = object("p", "u-p");
    pod["spec"] = json!({"serviceAccountName": "sa1", "nodeName": "n"});
    world.put("pods", pod);
    world.put("nodes", json!({"metadata": {"name": "n", "uid": "u-n"}}));
    world
}

fn ask(
    authority: &Authority,
    world: &World,
    account: &str,
    request: Value,
) -> Result<Value, String> {
    let answer = authority.token_request("ns", account, request, world);
    answer.map_err(|failure| shown(&failure))
}

fn bound_to(kind: &str, name: &str) -> Value {
    json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}}})
}

fn token(answer: &Value) -> String {
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn claims(answer: &Value) -> Value {
    let mut claims = super::super::jwt::unverified_claims(&token(answer)).unwrap();
    assert_eq!(claims["jti"].take().as_str().unwrap().len(), 36);
    claims
}

#[test]
fn an_answer_has_everything() {
    let world = world();
    let authority = authority(&world);
    let mut answer = ask(&authority, &world, "sa1", json!({})).unwrap();
    let noon = 1794830400;
    let expected = json!({
        "aud": ["https://k"], "exp": noon + 3600, "iat": noon, "iss": "https://k", "jti": null, "nbf": noon,
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "sa1", "uid": "u-sa1"}},
        "sub": "system:serviceaccount:ns:sa1",
    });
    assert_eq!(claims(&answer), expected);
    answer["status"]["token"].take();
    let expected = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": "sa1", "namespace": "ns", "uid": "u-sa1", "creationTimestamp": NOON},
        "spec": {"audiences": ["https://k"], "expirationSeconds": 3600, "boundObjectRef": null},
        "status": {"token": null, "expirationTimestamp": "2026-11-16T13:00:00Z"},
    });
    assert_eq!(answer, expected);
}

#[test]
fn bound_claims() {
    let world = world();
    let authority = authority(&world);
    let mut request = bound_to("Pod", "p");
    request["spec"]["expirationSeconds"] = 3607.into();
    let answer = ask(&authority, &world, "sa1", request).unwrap();
    let claims = claims(&answer);
    let expected = json!({
        "namespace": "ns", "node": {"name": "n", "uid": "u-n"}, "pod": {"name": "p", "uid": "u-p"},
        "serviceaccount": {"name": "sa1", "uid": "u-sa1"}, "warnafter": 1794830400 + 3607,
    });
    assert_eq!(claims["kubernetes.io"], expected);
    assert_eq!(claims["exp"], 1794830400 + 365 * 24 * 3600);
    let status = &answer["status"]["expirationTimestamp"];
    assert_eq!(status, "2026-11-16T13:00:07Z");

    let user = authority
        .authenticate(&bearer(&token(&answer)), None, &world)
        .unwrap();
    assert_eq!(user.name, "system:serviceaccount:ns:sa1");
    assert_eq!(user.uid, "u-sa1");
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:ns",
        "system:authenticated",
    ];
    assert_eq!(user.groups, groups);
    let keys: Vec<&str> = user
        .extra
        .keys()
        .map(|key| key.split('/').nth(1).unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "credential-id",
            "node-name",
            "node-uid",
            "pod-name",
            "pod-uid"
        ]
    );
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("JTI="));
}

#[test]
fn refused_requests() {
    let world = world();
    let authority = authority(&world);
    let check = |account: &str, request: Value, expected: &str| {
        let refused = ask(&authority, &world, account, request).unwrap_err();
        assert_eq!(refused, expected);
    };
    let kind = "group=authentication.k8s.io\nkind=TokenRequest";
    check(
        "nope",
        json!({}),
        "404 serviceaccounts \"nope\" not found\nname=nope\nkind=serviceaccounts",
    );
    check(
        "sa1",
        json!({"spec": {"expirationSeconds": 599}}),
        &format!(
            "422 TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes\n{kind}"
        ),
    );
    check(
        "sa1",
        json!({"spec": {"expirationSeconds": 4294967297i64}}),
        &format!(
            "422 TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds\n{kind}"
        ),
    );
    check(
        "sa1",
        json!({"metadata": {"name": "foo"}}),
        &format!(
            "422 TokenRequest.authentication.k8s.io \"sa1\" is invalid: metadata.name: Invalid value: \"foo\": must match the service account name if specified\nname=sa1\n{kind}"
        ),
    );
    check(
        "sa1",
        json!({"metadata": {"uid": "foo"}}),
        &format!(
            "409 Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"sa1\": the UID in the token request (foo) does not match the UID of the service account (u-sa1)\nname=sa1\n{kind}"
        ),
    );
    check(
        "sa1",
        bound_to("Pod", "nope"),
        "404 pods \"nope\" not found\nname=nope\nkind=pods",
    );
    check(
        "sa2",
        bound_to("Pod", "p"),
        "400 cannot bind token for serviceaccount \"sa2\" to pod running with different serviceaccount name.",
    );
    check(
        "sa1",
        json!({"spec": {"boundObjectRef": {"kind": "Foo", "apiVersion": "a/b"}}}),
        "400 cannot bind token to object of type a/b, Kind=Foo",
    );
    check(
        "sa1",
        json!({"spec": {"boundObjectRef": {}}}),
        "400 cannot bind token to object of type /, Kind=",
    );
    check(
        "sa1",
        json!({"spec": {"boundObjectRef": {"kind": "Secret", "name": "s", "uid": "zz"}}}),
        "409 Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (zz) does not match the UID in record. The object might have been deleted and then recreated\nname=s\nkind=Secret",
    );
}

#[test]
fn a_token_ends_with_what_it_is_bound_to() {
    for (kind, resource, namespace, name) in [
        ("Pod", "pods", "ns", "p"),
        ("Secret", "secrets", "ns", "s"),
        ("Node", "nodes", "", "n"),
    ] {
        let world = world();
        let authority = authority(&world);
        let answer = ask(&authority, &world, "sa1", bound_to(kind, name)).unwrap();
        let headers = bearer(&token(&answer));
        assert!(
            authority.authenticate(&headers, None, &world).is_ok(),
            "{kind}"
        );
        let mut object = world.get(resource, namespace, name).unwrap();
        object["metadata"]["deletionTimestamp"] = "2026-11-16T11:58:00Z".into();
        world.put(resource, object.clone());
        assert!(
            authority.authenticate(&headers, None, &world).is_err(),
            "{kind}"
        );
        // Just now: it may still be used to say goodbye.
        object["metadata"]["deletionTimestamp"] = NOON.into();
        world.put(resource, object.clone());
        assert!(
            authority.authenticate(&headers, None, &world).is_ok(),
            "{kind}"
        );
        object["metadata"]["uid"] = "another".into();
        world.put(resource, object);
        assert!(
            authority.authenticate(&headers, None, &world).is_err(),
            "{kind}"
        );
        world.remove(resource, namespace, name);
        let refused = authority.authenticate(&headers, None, &world).unwrap_err();
        assert_eq!(shown(&refused), "401 Unauthorized");
    }
    let world = world();
    let authority = authority(&world);
    let answer = ask(&authority, &world, "sa1", json!({})).unwrap();
    world.remove("serviceaccounts", "ns", "sa1");
    assert!(
        authority
            .authenticate(&bearer(&token(&answer)), None, &world)
            .is_err()
    );
}

#[test]
fn time_and_audience() {
    let world = world();
    let authority = authority_at(clock, &world);
    let answer = ask(&authority, &world, "sa1", json!({})).unwrap();
    let headers = bearer(&token(&answer));
    for (hours, good) in [(0, true), (1, true), (2, false), (-1, false)] {
        LATER.set(hours);
        let found = authority.authenticate(&headers, None, &world);
        assert_eq!(found.is_ok(), good, "{hours} hours later");
    }
    LATER.set(0);
    let elsewhere = json!({"spec": {"audiences": ["vault"]}});
    let answer = ask(&authority, &world, "sa1", elsewhere).unwrap();
    assert!(
        authority
            .authenticate(&bearer(&token(&answer)), None, &world)
            .is_err()
    );
    // Signed by another cluster with the same issuer.
    let answer = ask(&authority_at(clock, &world), &world, "sa1", json!({})).unwrap();
    assert!(
        authority
            .authenticate(&bearer(&token(&answer)), None, &world)
            .is_err()
    );
}

fn certificate(subject: &[(DnType, &str)]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().to_vec()
}

#[test]
fn who_is_who() {
    let world = world();
    let authority = authority(&world);
    let name = |headers: &HeaderMap, certificate: Option<&[u8]>| {
        let user = authority.authenticate(headers, certificate, &world);
        user.map_or_else(|failure| failure.reason.to_owned(), |user| user.name)
    };
    let none = HeaderMap::new();
    assert_eq!(name(&none, None), "system:anonymous");
    assert_eq!(name(&bearer("usertoken"), None), "alice");
    assert_eq!(name(&bearer("bad"), None), "Unauthorized");
    assert_eq!(name(&bearer("usertokenx"), None), "Unauthorized");
    assert_eq!(name(&bearer(" usertoken"), None), "system:anonymous");
    assert!(super::super::ignored_token_warning(&bearer(" usertoken")).is_some());
    let basic = headers(&[("authorization", "Basic usertoken")]);
    assert_eq!(name(&basic, None), "system:anonymous");
    let forged = headers(&[
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
    ]);
    assert_eq!(name(&forged, None), "system:anonymous");

    let node = certificate(&[
        (DnType::OrganizationName, "system:nodes"),
        (DnType::CommonName, "system:node:a"),
    ]);
    let user = authority.authenticate(&none, Some(&node), &world).unwrap();
    assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
    let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    // The certificate speaks first, even beside a token that is no good.
    assert_eq!(name(&bearer("bad"), Some(&node)), "system:node:a");
    let nameless = certificate(&[(DnType::OrganizationName, "system:masters")]);
    assert_eq!(name(&none, Some(&nameless)), "system:anonymous");
    assert_eq!(name(&bearer("usertoken"), Some(&nameless)), "alice");
    assert_eq!(name(&none, Some(b"rubbish")), "Unauthorized");
    assert_eq!(name(&bearer("usertoken"), Some(b"rubbish")), "alice");
}
