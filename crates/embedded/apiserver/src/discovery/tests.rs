use super::*;
use crate::resource::builtin;

fn builtins<'a>() -> impl Iterator<Item = &'a Resource> {
    builtin().iter().map(AsRef::as_ref)
}

#[test]
fn versions_in_kubernetes_order() {
    let mut versions = [
        "foo1",
        "v1",
        "v3beta1",
        "v10",
        "v2",
        "v12alpha1",
        "v11alpha2",
        "foo10",
        "v11beta2",
        "v0",
    ];
    versions.sort_by(|a, b| compare_versions(b, a));
    assert_eq!(
        versions,
        [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v0"
        ]
    );
}

#[test]
fn a_group_prefers_its_first_version() {
    let catalog = Catalog::new(builtins(), []);
    assert_eq!(
        catalog.group_document("autoscaling"),
        Some(json!({
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": "autoscaling",
            "versions": [
                {"groupVersion": "autoscaling/v2", "version": "v2"},
                {"groupVersion": "autoscaling/v1", "version": "v1"},
            ],
            "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"},
        }))
    );
    assert_eq!(catalog.group_document("x"), None);
    assert_eq!(catalog.group_document(""), None);
}

#[test]
fn resources_with_the_hashes_of_the_original() {
    let catalog = Catalog::new(builtins(), []);
    let list = catalog.resource_list("", "v1").unwrap();
    let entry = |name: &str| {
        let resources = list["resources"].as_array().unwrap();
        resources.iter().find(|one| one["name"] == name).unwrap()
    };
    assert_eq!(entry("configmaps")["storageVersionHash"], "qFsyl6wFWjQ=");
    assert_eq!(entry("events")["storageVersionHash"], "r2yiGXH7wu8=");
    assert!(entry("bindings").get("storageVersionHash").is_none());
    assert_eq!(entry("pods/eviction")["group"], "policy");
    assert_eq!(entry("serviceaccounts/token")["version"], "v1");
    assert!(list.get("apiVersion").is_none());
}

#[test]
fn remote_groups_take_their_place() {
    let remote = Remote {
        group: "metrics.k8s.io".into(),
        version: "v1beta1".into(),
        group_priority: 100,
        version_priority: 100,
        discovery: None,
    };
    let catalog = Catalog::new(builtins(), [&remote]);
    let groups = catalog.group_list();
    let last = groups["groups"].as_array().unwrap().last().unwrap();
    assert_eq!(last["name"], "metrics.k8s.io");
    assert_eq!(catalog.resource_list("metrics.k8s.io", "v1beta1"), None);
    let aggregated = catalog.aggregated(false, "v2");
    let document: Value = serde_json::from_slice(&aggregated.body).unwrap();
    let last = document["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["versions"][0]["freshness"], "Stale");
    assert_eq!(aggregated.etag.len(), 130);
}
