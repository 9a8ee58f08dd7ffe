//! What a kube-apiserver 1.36.3 answered.

use serde_json::json;

use super::*;
use crate::resource::builtin_type;

fn apply_to(group: &str, kind: &str, current: &Value, patch: &Value) -> Result<Value, StatusError> {
    let id = builtin_type(group, "v1", kind).unwrap();
    let body = patch.to_string();
    let patched = apply(
        Types::builtin(),
        &Shape::Struct(id),
        current,
        body.as_bytes(),
        true,
    )?;
    Ok(patched.object)
}

/// Merges the parts of a pod's spec.
fn check_spec(current: Value, patch: Value, expected: Value) {
    let pod = apply_to(
        "",
        "Pod",
        &json!({"spec": current}),
        &json!({"spec": patch}),
    )
    .unwrap();
    assert_eq!(pod["spec"], expected, "{patch}");
}

fn check_meta(current: Value, patch: Value, expected: Value) {
    let (current, patch) = (json!({"metadata": current}), json!({"metadata": patch}));
    let object = apply_to("", "ConfigMap", &current, &patch).unwrap();
    assert_eq!(object["metadata"], expected, "{patch}");
}

fn check_failure(current: Value, patch: Value, expected: StatusError) {
    let (current, patch) = (json!({"metadata": current}), json!({"metadata": patch}));
    let failure = apply_to("", "ConfigMap", &current, &patch).unwrap_err();
    assert_eq!(failure, expected, "{patch}");
}

fn containers(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

#[test]
fn new_elements_come_first() {
    check_meta(
        json!({"finalizers": ["a.b/c"]}),
        json!({"finalizers": ["a.b/d", "a.b/c", "a.b/e"]}),
        json!({"finalizers": ["a.b/d", "a.b/c", "a.b/e"]}),
    );
    check_meta(
        json!({"ownerReferences": [{"uid": "1", "name": "x"}]}),
        json!({"ownerReferences": [{"uid": "2", "name": "y"}]}),
        json!({"ownerReferences": [{"uid": "2", "name": "y"}, {"uid": "1", "name": "x"}]}),
    );
    check_spec(
        json!({"containers": containers(&["c1", "c2"])}),
        json!({"containers": containers(&["c3", "c2"])}),
        json!({"containers": containers(&["c3", "c1", "c2"])}),
    );
}

#[test]
fn elements_merge_by_key() {
    check_spec(
        json!({"containers": [{
            "name": "c1",
            "image": "i",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80}, {"containerPort": 81, "name": "x"}],
            "args": ["a"],
            "resources": {"limits": {"cpu": "1"}},
        }]}),
        json!({"containers": [{
            "name": "c1",
            "env": [{"name": "C", "value": "3"}, {"name": "A", "value": "9"}],
            "ports": [{"containerPort": 80, "name": "y"}, {"containerPort": 82}],
            "args": ["b"],
            "resources": {"limits": {"cpu": null, "memory": "1Gi"}},
        }]}),
        json!({"containers": [{
            "name": "c1",
            "image": "i",
            "env": [
                {"name": "C", "value": "3"},
                {"name": "A", "value": "9"},
                {"name": "B", "value": "2"},
            ],
            "ports": [
                {"containerPort": 80, "name": "y"},
                {"containerPort": 82},
                {"containerPort": 81, "name": "x"},
            ],
            "args": ["b"],
            "resources": {"limits": {"memory": "1Gi"}},
        }]}),
    );
}

#[test]
fn some_lists_are_replaced() {
    check_spec(
        json!({"tolerations": [{"key": "a"}]}),
        json!({"tolerations": [{"key": "z"}]}),
        json!({"tolerations": [{"key": "z"}]}),
    );
}

#[test]
fn directives_in_lists() {
    check_spec(
        json!({"containers": containers(&["c1", "c2"])}),
        json!({"containers": [{"name": "c2", "$patch": "delete"}]}),
        json!({"containers": containers(&["c1"])}),
    );
    check_spec(
        json!({"containers": containers(&["c1", "c2"])}),
        json!({"containers": [{"$patch": "replace"}, {"name": "c3"}]}),
        json!({"containers": containers(&["c3"])}),
    );
    check_meta(
        json!({"finalizers": ["a", "b", "c"]}),
        json!({"$deleteFromPrimitiveList/finalizers": ["b"]}),
        json!({"finalizers": ["a", "c"]}),
    );
    check_spec(
        json!({"nodeSelector": {"c": "d"}}),
        json!({"$deleteFromPrimitiveList/nodeSelector": ["c"]}),
        json!({"nodeSelector": {"c": "d"}}),
    );
}

#[test]
fn directives_in_maps() {
    check_spec(
        json!({"nodeSelector": {"a": "b"}}),
        json!({"nodeSelector": {"$patch": "replace", "c": "d"}}),
        json!({"nodeSelector": {"c": "d"}}),
    );
    check_spec(
        json!({"securityContext": {"runAsUser": 1}}),
        json!({"securityContext": {"$patch": "delete"}}),
        json!({"securityContext": {}}),
    );
    // Where nothing was before, a directive leaves nothing behind.
    check_spec(
        json!({}),
        json!({"securityContext": {"$patch": "delete"}}),
        json!({}),
    );
    check_spec(
        json!({"volumes": [{"name": "v", "configMap": {"name": "x"}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
    );
}

#[test]
fn nulls_delete_or_vanish() {
    check_meta(
        json!({"labels": {"a": "b"}}),
        json!({"labels": {"a": null, "n": null, "o": "1"}, "annotations": {"x": null}}),
        json!({"labels": {"o": "1"}, "annotations": {}}),
    );
}

#[test]
fn an_order_can_be_asked_for() {
    check_spec(
        json!({"containers": containers(&["c3", "c1"])}),
        json!({
            "$setElementOrder/containers": containers(&["c1", "c3"]),
            "containers": [{"name": "c1", "image": "k"}],
        }),
        json!({"containers": [{"name": "c1", "image": "k"}, {"name": "c3"}]}),
    );
    check_spec(
        json!({"volumes": containers(&["v1", "v2"])}),
        json!({
            "$setElementOrder/volumes": containers(&["v2"]),
            "volumes": [{"$patch": "delete", "name": "v1"}],
        }),
        json!({"volumes": containers(&["v2"])}),
    );
    check_spec(
        json!({"volumes": containers(&["v2"])}),
        json!({
            "$setElementOrder/volumes": containers(&["v9", "v2"]),
            "volumes": containers(&["v9"]),
        }),
        json!({"volumes": containers(&["v9", "v2"])}),
    );
    check_meta(
        json!({"finalizers": ["c", "e"]}),
        json!({"$setElementOrder/finalizers": ["e", "c"], "finalizers": ["e"]}),
        json!({"finalizers": ["e", "c"]}),
    );
}

#[test]
fn mistakes_that_are_the_clients() {
    for (patch, complaint) in [
        (
            json!({"$deleteFromPrimitiveList": ["x"]}),
            "invalid patch format of primitive list",
        ),
        (
            json!({"$retainKeys": ["name"], "labels": {"a": "b"}}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"$setElementOrder": []}),
            "invalid patch format of setElementOrder list",
        ),
    ] {
        check_failure(json!({}), patch, StatusError::bad_request(complaint));
    }
}

#[test]
fn mistakes_that_the_original_takes_for_its_own() {
    let owner = |uid: &str| json!({"kind": "P", "uid": uid});
    let current = json!({"finalizers": ["e", "c"], "ownerReferences": [owner("2"), owner("1")]});
    for (patch, complaint) in [
        (
            json!({"$patch": "x"}),
            "unknown patch type: x in map: map[$patch:x]",
        ),
        (
            json!({"finalizers": [1]}),
            "list element types are not identical: [[e c] [1]]",
        ),
        (
            json!({"ownerReferences": [{"name": "x"}]}),
            "map: map[name:x] does not contain declared merge key: uid",
        ),
        (
            json!({"ownerReferences": [{"uid": "2", "$patch": "foo"}]}),
            "unknown patch type: foo in map: map[$patch:foo uid:2]",
        ),
        (
            json!({"ownerReferences": [{"uid": "2", "$patch": "merge"}]}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"ownerReferences": [{"$patch": "delete"}]}),
            "map: map[$patch:delete] does not contain declared merge key: uid",
        ),
        (
            json!({"ownerReferences": [null]}),
            "list element types are not identical: [[map[kind:P uid:2] map[kind:P uid:1]] [<nil>]]",
        ),
        (
            json!({"$setElementOrder/ownerReferences": 1}),
            "expected a []interface {}, but received a int64",
        ),
        (
            json!({"$setElementOrder/ownerReferences": [{"uid": "1"}], "ownerReferences": [owner("9")]}),
            "The order in patch list:\n[map[kind:P uid:9]]\n doesn't match $setElementOrder list:\n[map[uid:1]]\n",
        ),
        (
            json!({"$setElementOrder/nope": []}),
            "unable to find api field in struct ObjectMeta for the json field \"nope\"",
        ),
    ] {
        check_failure(current.clone(), patch, StatusError::server_error(complaint));
    }
    check_failure(
        json!({}),
        json!({"$setElementOrder/finalizers": [], "finalizers": []}),
        StatusError::server_error("no elements in any of the given slices"),
    );
}

#[test]
fn malformed_patches() {
    let id = builtin_type("", "v1", "Pod").unwrap();
    let refused = |body: &[u8]| {
        apply(Types::builtin(), &Shape::Struct(id), &json!({}), body, true).unwrap_err()
    };
    assert_eq!(
        refused(b"{"),
        StatusError::bad_request("unexpected end of JSON input")
    );
    assert_eq!(
        refused(b"[]"),
        StatusError::bad_request(
            "json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    );
}

#[test]
fn a_result_that_cannot_be_decoded_is_refused_with_the_patch() {
    let id = builtin_type("", "v1", "ConfigMap").unwrap();
    let patched = apply(
        Types::builtin(),
        &Shape::Struct(id),
        &json!({}),
        br#"{"data":[]}"#,
        true,
    )
    .unwrap();
    assert_eq!(
        patched
            .refuse(
                Types::builtin(),
                &Shape::Struct(id),
                "cannot restore map from slice"
            )
            .message,
        " \"\" is invalid: patch: Invalid value: \"map[data:[]]\": cannot restore map from slice"
    );
}
