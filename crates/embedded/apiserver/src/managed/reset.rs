//! What a write through a certain door cannot change, hence nobody comes to own by it.

use super::fieldset::FieldSet;

/// These fields, and all below them, are left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset(FieldSet);

impl Reset {
    /// Of a built-in resource (by its plural name) or, with `subresource`, of one of its doors. Those for resizing and
    /// for ephemeral containers own even what they do not change, as in the original.
    pub fn builtin(group: &str, plural: &str, subresource: &str) -> Self {
        let fields: &[&str] = match (group, plural, subresource) {
            ("", "pods", "status") => &[
                "spec",
                "metadata.deletionTimestamp",
                "metadata.ownerReferences",
            ],
            ("apps", "deployments", "status") => &["spec", "metadata.labels"],
            ("", "namespaces", "finalize") => &["status"],
            ("certificates.k8s.io", "certificatesigningrequests", door) => match door {
                "status" => &["spec", "status.conditions"],
                "approval" => &["spec", "status.certificate"],
                _ => &["spec", "status"],
            },
            (
                "apiregistration.k8s.io"
                | "flowcontrol.apiserver.k8s.io"
                | "admissionregistration.k8s.io"
                | "resource.k8s.io",
                _,
                "status",
            )
            | ("storage.k8s.io", "volumeattachments", "status")
            | ("networking.k8s.io", "servicecidrs", "status") => &["metadata", "spec"],
            (_, _, "status") => &["spec"],
            (_, _, "") if has_status_door(group, plural) => &["status"],
            _ => &[],
        };
        Self(FieldSet::of_fields(fields))
    }

    /// Of a custom resource. `has_status`: its status can be written through its own door only.
    pub fn custom(has_status: bool, subresource: &str) -> Self {
        let fields: &[&str] = match (has_status, subresource) {
            (_, "status") => &["metadata", "spec"],
            (true, "") => &["status"],
            _ => &[],
        };
        Self(FieldSet::of_fields(fields))
    }

    /// Nothing is left alone.
    pub fn nothing() -> Self {
        Self(FieldSet::new())
    }

    pub(super) fn filter(&self, set: FieldSet) -> FieldSet {
        if self.0.is_empty() {
            return set;
        }
        set.recursive_difference(&self.0)
    }
}

fn has_status_door(group: &str, plural: &str) -> bool {
    crate::resource::builtin()
        .iter()
        .find(|one| one.group == group && one.plural == plural)
        .is_some_and(|one| one.subresource("status").is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filtered(reset: Reset) -> serde_json::Value {
        let set = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:annotations": {}},
            "f:spec": {"f:containers": {
                r#"k:{"name":"c"}"#: {".": {}, "f:image": {}, "f:resources": {"f:limits": {}}},
            }},
            "f:status": {"f:phase": {}},
        });
        reset.filter(FieldSet::from_value(&set).unwrap()).to_value()
    }

    #[test]
    fn each_door_leaves_something_alone() {
        let spec = json!({"f:spec": {"f:containers": {
            r#"k:{"name":"c"}"#: {".": {}, "f:image": {}, "f:resources": {"f:limits": {}}},
        }}});
        assert_eq!(
            filtered(Reset::builtin("", "pods", ""))["f:spec"],
            spec["f:spec"]
        );
        assert_eq!(
            filtered(Reset::builtin("", "pods", ""))["f:status"],
            json!(null)
        );
        assert_eq!(
            filtered(Reset::builtin("apps", "deployments", "status")),
            json!({"f:metadata": {"f:annotations": {}}, "f:status": {"f:phase": {}}})
        );
        assert_eq!(
            filtered(Reset::custom(true, "status")),
            json!({"f:status": {"f:phase": {}}})
        );
        assert_eq!(
            filtered(Reset::custom(false, ""))["f:status"],
            json!({"f:phase": {}})
        );
        // A kind without a door for its status lets it be written.
        assert_eq!(
            filtered(Reset::builtin("", "configmaps", ""))["f:status"],
            json!({"f:phase": {}})
        );
    }
}
