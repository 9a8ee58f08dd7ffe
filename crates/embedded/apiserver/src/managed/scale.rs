//! The door `scale`: an object of another kind that shows, and owns, one field of the object behind it.
//!
//! A write through it goes so: a Scale is made of the object, with [`ScaleDoor::to_scale`] of the object's entries as
//! its own; it is written with a [`Tracking`](super::Tracking) for `autoscaling/v1` and the subresource `scale`; then the
//! object gets the replicas, and [`ScaleDoor::to_parent`] of both's entries.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entries::{Entries, Entry, Identity, Slots};
use super::fieldset::FieldSet;
use super::path::Step;

const SCALE_VERSION: &str = "autoscaling/v1";

#[derive(Debug, Clone, Copy)]
pub struct ScaleDoor<'a> {
    /// In which the object behind is written.
    pub api_version: &'a str,
    /// Where each version of the object has its replicas (`spec.replicas`); `None` for one that cannot be scaled.
    pub replicas: &'a [(&'a str, Option<&'a str>)],
}

impl ScaleDoor<'_> {
    /// What a Scale's `managedFields` are, from those of the object behind it. Null for none.
    pub fn to_scale(&self, parent: &Value) -> Value {
        let parent = Entries::parse(parent).unwrap_or_default();
        let mut entries = Entries::default();
        for entry in parent.0 {
            if self.owns_replicas(&entry) {
                entries.0.push(Entry {
                    api_version: SCALE_VERSION.to_owned(),
                    set: replicas_of_scale(),
                    ..entry
                });
            }
        }
        or_null(&entries)
    }

    /// What the object's `managedFields` become when its Scale has `scale`.
    pub fn to_parent(&self, parent: &Value, scale: &Value) -> Value {
        let parent = Entries::parse(parent).unwrap_or_default();
        let mut scale = Slots::of(Entries::parse(scale).unwrap_or_default());
        let times = parent
            .0
            .iter()
            .map(|one| (one.identity(), one.time.clone()));
        let times: BTreeMap<Identity, Option<String>> = times.collect();
        let mut entries = Entries::default();
        for entry in &parent.0 {
            let Some(path) = self.path(&entry.api_version) else {
                continue;
            };
            let mut entry = entry.clone();
            // Updaters never keep it: they are known by the version, and that is the Scale's there.
            if self.owns_replicas(&entry) && scale.remove(&entry.identity()).is_none() {
                let mut stolen = FieldSet::new();
                stolen.insert(&path.unwrap_or_default());
                entry.set = entry.set.difference(&stolen);
            }
            if !entry.set.is_empty() {
                entries.0.push(entry);
            }
        }
        let Some(path) = self.path(self.api_version).flatten() else {
            return or_null(&entries);
        };
        let mut set = FieldSet::new();
        set.insert(&path);
        let shown = [Step::field("spec"), Step::field("replicas")];
        let left = scale.into_entries().0.into_iter();
        for entry in left.filter(|entry| entry.set.has(&shown)) {
            entries.0.push(Entry {
                api_version: self.api_version.to_owned(),
                time: times.get(&entry.identity()).cloned().flatten(),
                set: set.clone(),
                ..entry
            });
        }
        or_null(&entries)
    }

    /// The outer option: whether the version is known.
    fn path(&self, api_version: &str) -> Option<Option<Vec<Step>>> {
        let (_, path) = self
            .replicas
            .iter()
            .find(|(version, _)| *version == api_version)?;
        Some(path.map(|path| path.split('.').map(Step::field).collect()))
    }

    fn owns_replicas(&self, entry: &Entry) -> bool {
        let path = self.path(&entry.api_version).flatten();
        path.is_some_and(|path| entry.set.has(&path))
    }
}

fn replicas_of_scale() -> FieldSet {
    FieldSet::of_fields(&["spec.replicas"])
}

fn or_null(entries: &Entries) -> Value {
    if entries.is_empty() {
        return Value::Null;
    }
    entries.to_value()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Reset, Tracking};
    use super::*;
    use crate::resource::builtin_type;
    use crate::schema::{Shape, Types};

    const DOOR: ScaleDoor<'_> = ScaleDoor {
        api_version: "apps/v1",
        replicas: &[("apps/v1", Some("spec.replicas"))],
    };

    fn entry(manager: &str, operation: &str, subresource: &str, fields: Value) -> Value {
        let mut entry = json!({
            "manager": manager,
            "operation": operation,
            "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        });
        match subresource {
            "" => entry["time"] = "2026-01-01T00:00:00Z".into(),
            door => entry["subresource"] = door.into(),
        }
        entry
    }

    fn replicas() -> Value {
        json!({"f:spec": {"f:replicas": {}}})
    }

    /// Writes a Scale as the server does, and gives the parent's entries after it.
    fn scale(parent: &Value, from: i64, to: i64, manager: &str) -> Value {
        let scale = |replicas: i64, entries: Value| {
            let mut scale = json!({
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "d", "uid": "u", "managedFields": entries},
                "spec": {},
                "status": {"replicas": 0},
            });
            if replicas != 0 {
                scale["spec"]["replicas"] = replicas.into();
            }
            scale
        };
        let shape = Shape::Struct(builtin_type("autoscaling", "v1", "Scale").unwrap());
        let tracking = Tracking {
            types: Types::builtin(),
            shape: &shape,
            api_version: "autoscaling/v1",
            kind: "Scale",
            subresource: "scale",
            reset: &Reset::nothing(),
            versions: &[],
        };
        let live = scale(from, DOOR.to_scale(parent));
        let mut new = scale(to, Value::Null);
        tracking.update(Some(&live), &mut new, manager, "2026-02-02T00:00:00Z");
        DOOR.to_parent(parent, &new["metadata"]["managedFields"])
    }

    #[test]
    fn a_scaler_takes_the_replicas() {
        let rest = json!({"f:spec": {"f:paused": {}}});
        let both = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let created = json!([entry("create", "Update", "", both)]);
        let scaled = scale(&created, 1, 2, "sc");
        let create = entry("create", "Update", "", rest);
        assert_eq!(
            scaled,
            json!([entry("sc", "Update", "scale", replicas()), create])
        );
        // The same again changes nothing, another scaler takes over.
        assert_eq!(scale(&scaled, 2, 2, "sc"), scaled);
        assert_eq!(
            scale(&scaled, 2, 3, "sc2"),
            json!([entry("sc2", "Update", "scale", replicas()), create])
        );
    }

    #[test]
    fn scaling_to_zero_leaves_no_owner() {
        let applied = json!([entry("main", "Apply", "", replicas())]);
        assert_eq!(scale(&applied, 9, 0, "sc"), Value::Null);
    }

    #[test]
    fn an_applier_keeps_what_was_not_changed() {
        let applied = json!([entry("main", "Apply", "", replicas())]);
        assert_eq!(scale(&applied, 1, 1, "sc"), applied);
    }
}
