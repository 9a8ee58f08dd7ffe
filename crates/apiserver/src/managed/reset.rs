//! What a write through a certain door cannot change, hence nobody comes to own by it.

use super::fieldset::FieldSet;
use super::path::Step;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// These, and all below them, are left alone.
    Fields(FieldSet),
    /// Only what is at or below one of these is changed. A star stands for any element.
    AllBut(&'static [&'static [&'static str]]),
}

impl Reset {
    /// Of a built-in resource (by its plural name) or, with `subresource`, of one of its doors.
    pub fn builtin(group: &str, plural: &str, subresource: &str) -> Self {
        let fields: &[&str] = match (group, plural, subresource) {
            ("", "pods", "ephemeralcontainers") => {
                return Self::AllBut(&[&["spec", "ephemeralContainers"]]);
            }
            ("", "pods", "resize") => {
                return Self::AllBut(&[
                    &["spec", "containers", "*", "resources"],
                    &["spec", "containers", "*", "resizePolicy"],
                    &["spec", "initContainers", "*", "resources"],
                    &["spec", "initContainers", "*", "resizePolicy"],
                ]);
            }
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
        Self::Fields(FieldSet::of_fields(fields))
    }

    /// Of a custom resource. `has_status`: its status can be written through its own door only.
    pub fn custom(has_status: bool, subresource: &str) -> Self {
        let fields: &[&str] = match (has_status, subresource) {
            (_, "status") => &["metadata", "spec"],
            (true, "") => &["status"],
            _ => &[],
        };
        Self::Fields(FieldSet::of_fields(fields))
    }

    /// Nothing is left alone.
    pub fn nothing() -> Self {
        Self::Fields(FieldSet::new())
    }

    pub(super) fn filter(&self, set: FieldSet) -> FieldSet {
        match self {
            Self::Fields(fields) if fields.is_empty() => set,
            Self::Fields(fields) => set.recursive_difference(fields),
            Self::AllBut(patterns) => matching(&set, patterns),
        }
    }
}

fn has_status_door(group: &str, plural: &str) -> bool {
    crate::resource::builtin()
        .iter()
        .find(|one| one.group == group && one.plural == plural)
        .is_some_and(|one| one.subresource("status").is_some())
}

fn matching(set: &FieldSet, patterns: &[&[&str]]) -> FieldSet {
    set.map(|step, member, below| {
        let rests: Vec<&[&str]> = patterns
            .iter()
            .filter_map(|pattern| {
                let (first, rest) = pattern.split_first()?;
                let fits = *first == "*" || *step == Step::field(first);
                fits.then_some(rest)
            })
            .collect();
        if rests.is_empty() {
            return (false, FieldSet::new());
        }
        if rests.iter().any(|rest| rest.is_empty()) {
            return (member, below.clone());
        }
        (member, matching(below, &rests))
    })
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

    #[test]
    fn resizing_touches_resources_only() {
        assert_eq!(
            filtered(Reset::builtin("", "pods", "resize")),
            json!({"f:spec": {"f:containers": {
                r#"k:{"name":"c"}"#: {".": {}, "f:resources": {"f:limits": {}}},
            }}})
        );
    }
}
