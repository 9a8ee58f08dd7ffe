use super::*;

fn definitions(description: &str) -> Vec<Arc<Definition>> {
    let definition = json!({
        "metadata": {"name": "tools.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "tools", "singular": "tool", "kind": "Tool", "listKind": "ToolList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "description": description,
                "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "default": 3, "nullable": true, "description": "How big."},
                    "port": {"x-kubernetes-int-or-string": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }}}],
        },
    });
    vec![Arc::new(Definition::read(&definition).unwrap())]
}

fn read(packed: &Packed) -> Value {
    serde_json::from_slice(&packed.plain()).unwrap()
}

#[test]
fn the_index_leads_to_documents() {
    let api = OpenApi::default();
    let definitions = definitions("A tool.");
    let index = api.index(&definitions);
    let paths = index["paths"].as_object().unwrap();
    for path in [
        "api/v1",
        "apis/apps/v1",
        "apis/apps",
        "version",
        "apis/example.com/v1",
    ] {
        let packed = api.v3(path, &definitions).unwrap();
        let url = format!("/openapi/v3/{path}?hash={}", packed.hash);
        assert_eq!(paths[path]["serverRelativeURL"], url);
        assert_eq!(read(&packed)["openapi"], "3.0.0");
    }
    assert!(api.v3("apis/nope/v1", &definitions).is_none());
    assert!(api.v3("apis/example.com/v1", &[]).is_none());
}

#[test]
fn a_document_is_made_once_until_it_changes() {
    let api = OpenApi::default();
    let before = definitions("A tool.");
    let first = api.v3("apis/example.com/v1", &before).unwrap();
    let again = api.v3("apis/example.com/v1", &before).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let changed = api
        .v3("apis/example.com/v1", &definitions("Another."))
        .unwrap();
    assert_ne!(first.hash, changed.hash);
    let built_in = api.v3("apis/batch/v1", &before).unwrap();
    let unaffected = api.v3("apis/batch/v1", &[]).unwrap();
    assert!(Arc::ptr_eq(&built_in, &unaffected));
}

#[test]
fn schemas_say_what_the_facts_say() {
    let document = read(&OpenApi::default().v3("api/v1", &[]).unwrap());
    let schemas = &document["components"]["schemas"];
    let mut ports = schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"].clone();
    assert!(
        ports["description"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    ports.as_object_mut().unwrap().remove("description");
    assert_eq!(
        ports,
        json!({
            "type": "array",
            "items": {
                "default": {},
                "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.ContainerPort"}],
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
            "x-kubernetes-patch-merge-key": "containerPort",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchCoreV1NamespacedPod");
    let names: Vec<&Value> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(
        names,
        ["dryRun", "fieldManager", "fieldValidation", "force"]
    );
}

#[test]
fn custom_resources_in_both_versions() {
    let api = OpenApi::default();
    let definitions = definitions("A tool.");
    let name = "com.example.v1.Tool";
    let v3 = read(&api.v3("apis/example.com/v1", &definitions).unwrap());
    let spec = &v3["components"]["schemas"][name]["properties"]["spec"]["properties"];
    assert_eq!(spec["size"]["default"], 3);
    assert_eq!(
        spec["port"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    let v2 = read(&api.v2(&definitions));
    let schema = &v2["definitions"][name];
    assert_eq!(schema["description"], "A tool.");
    assert_eq!(
        schema["properties"]["spec"]["properties"],
        json!({
            "size": {"description": "How big."},
            "port": {"x-kubernetes-int-or-string": true},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
        })
    );
    // Whatever is referred to is there.
    let text = v2.to_string();
    for part in text.split("\"#/definitions/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(v2["definitions"].get(name).is_some(), "{name}");
    }
    for part in text.split("\"#/parameters/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(v2["parameters"].get(name).is_some(), "{name}");
    }
}
