//! What a new cluster holds before anybody wrote anything: the objects of `data/bootstrap.jsonl`, which are a real
//! server's own.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::resource;
use plimsoll_golang::time::show_seconds;

const OBJECTS: &str = include_str!("../../data/bootstrap.jsonl");

/// Namespaces first, then everything else, each with its qualified resource (`clusterroles.rbac.authorization.k8s.io`).
/// Without uid, resourceVersion and creation time, which whoever writes them gives; the rules of aggregated roles are
/// not computed yet ([`super::aggregate`]). `now` is when their conditions came true and
/// their fields were set.
pub fn objects(now: Timestamp) -> impl Iterator<Item = (String, Value)> {
    OBJECTS.lines().filter_map(move |line| {
        let mut object: Value = serde_json::from_str(line).ok()?;
        date(&mut object, now);
        Some((resource_of(&object)?, object))
    })
}

/// The ConfigMap from which aggregated API servers learn whom to believe; `data` has keys such as `client-ca-file`.
pub fn authentication_config(data: Map<String, Value>) -> (String, Value) {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": data,
    });
    ("configmaps".to_owned(), object)
}

fn date(object: &mut Value, now: Timestamp) {
    let conditions = object.pointer_mut("/status/conditions");
    for condition in conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        condition["lastTransitionTime"] = show_seconds(now).into();
    }
    let entries = object.pointer_mut("/metadata/managedFields");
    for entry in entries.and_then(Value::as_array_mut).into_iter().flatten() {
        entry["time"] = show_seconds(now).into();
    }
}

fn resource_of(object: &Value) -> Option<String> {
    let kind = object["kind"].as_str()?;
    let api_version = object["apiVersion"].as_str()?;
    let mut all = resource::builtin().iter();
    let found = all.find(|one| one.kind == kind && one.api_version() == api_version)?;
    Some(found.qualified())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_there_is() {
        let mut count = BTreeMap::<String, usize>::new();
        for (resource, object) in objects(Timestamp::UNIX_EPOCH) {
            assert!(object["metadata"]["name"].is_string(), "{object}");
            *count.entry(resource).or_default() += 1;
        }
        let count: Vec<String> = count.iter().map(|(r, n)| format!("{r} {n}")).collect();
        let expected = [
            "clusterrolebindings.rbac.authorization.k8s.io 50",
            "clusterroles.rbac.authorization.k8s.io 69",
            "flowschemas.flowcontrol.apiserver.k8s.io 11",
            "ipaddresses.networking.k8s.io 1",
            "namespaces 4",
            "priorityclasses.scheduling.k8s.io 2",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io 8",
            "rolebindings.rbac.authorization.k8s.io 7",
            "roles.rbac.authorization.k8s.io 7",
            "servicecidrs.networking.k8s.io 1",
            "services 1",
        ];
        assert_eq!(count, expected);
        let total = objects(Timestamp::UNIX_EPOCH).count();
        assert_eq!(total, OBJECTS.lines().count());
    }

    #[test]
    fn conditions_are_dated() {
        let (_, cidr) = objects(Timestamp::UNIX_EPOCH)
            .find(|(resource, _)| resource == "servicecidrs.networking.k8s.io")
            .unwrap();
        let condition = &cidr["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
    }
}
