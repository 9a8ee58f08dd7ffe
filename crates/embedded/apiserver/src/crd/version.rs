//! How objects of one version of a definition are read, prepared for writing and checked.

use serde_json::Value;

use super::{Version, lists, rules, shape, validate};
use crate::codec::decode::{Decoded, TypeError};
use crate::codec::json::Node;
use crate::field::{ErrorType, FieldError, Path};
use crate::met::Met;
use plimsoll_golang::strconv::quote;

impl Version {
    /// Reads a document: metadata put in order, defaults filled in, unknown fields dropped and told of.
    pub fn decode(&self, node: &Node<'_>) -> Result<Decoded, TypeError> {
        let mut objections = node.duplicates();
        let mut value = node.to_value();
        objections.extend(self.coerce(&mut value)?);
        Ok(Decoded { value, objections })
    }

    /// As [`Self::decode`], for what was merged. Nobody drops nulls from it.
    pub fn converted(&self, merged: &Value) -> Result<Decoded, TypeError> {
        let mut value = merged.clone();
        let objections = self.coerce_with(&mut value, false)?;
        Ok(Decoded { value, objections })
    }

    /// As [`Self::decode`], for an object that is at hand: the outcome of a patch. Returns the objections.
    pub fn coerce(&self, value: &mut Value) -> Result<Vec<String>, TypeError> {
        self.coerce_with(value, true)
    }

    fn coerce_with(&self, value: &mut Value, drop_nulls: bool) -> Result<Vec<String>, TypeError> {
        let mut objections = Vec::new();
        shape::fill_defaults(value, self.schema());
        if let Some(map) = value.as_object_mut() {
            shape::coerce_metadata(map, "", &mut objections)?;
        }
        let dropped = shape::prune(value, self.schema());
        objections.extend(
            dropped
                .into_iter()
                .map(|path| format!("unknown field \"{path}\"")),
        );
        if drop_nulls {
            shape::drop_nulls(value, Some(self.schema()));
        }
        let mut within = Vec::new();
        shape::coerce_embedded(value, self.schema(), &Path::root(), &mut within)
            .map_err(|error| TypeError(error.to_string()))?;
        within.sort();
        objections.extend(within);
        Ok(objections)
    }

    /// The fields of an object that this version does not know.
    pub fn unknown(&self, object: &Value) -> Vec<String> {
        shape::prune(&mut object.clone(), self.schema())
    }

    pub fn fill_defaults(&self, value: &mut Value) {
        shape::fill_defaults(value, self.schema());
    }

    pub fn prepare_create(&self, object: &mut Value) {
        if self.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        object["metadata"]["generation"] = 1.into();
    }

    /// Carries the status over where it has its own subresource, and raises the generation with any change beyond
    /// metadata.
    pub fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.has_status {
            carry(new, old, "status");
        }
        let beyond_metadata = |object: &Value| {
            let mut copy = object.clone();
            if let Some(map) = copy.as_object_mut() {
                map.remove("metadata");
            }
            copy
        };
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
        let changed = beyond_metadata(new) != beyond_metadata(old);
        new["metadata"]["generation"] = generation.saturating_add(i64::from(changed)).into();
    }

    /// For a write through `/status`: nothing but the status and the record of who owns what changes.
    pub fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let mut object = old.clone();
        carry(&mut object, new, "status");
        let managed = new["metadata"].get("managedFields").cloned();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            match managed {
                Some(managed) => metadata.insert("managedFields".into(), managed),
                None => metadata.remove("managedFields"),
            };
        }
        *new = object;
    }

    /// Everything but the metadata, whose errors come before these.
    pub fn validate_create(&self, object: &Value, of_metadata: Vec<FieldError>) -> Vec<FieldError> {
        let mut errors = of_metadata;
        errors.extend(validate::validate(
            self.schema(),
            object,
            None,
            &Path::root(),
        ));
        if let Some(scale) = &self.scale {
            errors.extend(scale.validate_spec(object));
            errors.extend(scale.validate_status(object));
        }
        lists::embedded(self.schema(), object, &Path::root(), &mut errors);
        lists::duplicates(self.schema(), object, &Path::root(), &mut errors);
        self.check_rules(object, None, &mut errors);
        errors
    }

    pub fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        of_metadata: Vec<FieldError>,
    ) -> Vec<FieldError> {
        let mut errors = of_metadata;
        errors.extend(validate::validate(
            self.schema(),
            new,
            Some(old),
            &Path::root(),
        ));
        if let Some(scale) = &self.scale {
            errors.extend(scale.validate_spec(new));
            errors.extend(scale.validate_status(new));
        }
        lists::embedded(self.schema(), new, &Path::root(), &mut errors);
        self.check_lists(new, old, &mut errors);
        self.check_rules(new, Some(old), &mut errors);
        errors
    }

    pub fn validate_status_update(
        &self,
        new: &Value,
        old: &Value,
        of_metadata: Vec<FieldError>,
    ) -> Vec<FieldError> {
        let mut errors = of_metadata;
        if let (Some(status), Some(schema)) =
            (new.get("status"), self.schema().properties.get("status"))
        {
            let base = Path::new("status");
            errors.extend(validate::validate(schema, status, old.get("status"), &base));
        }
        if let Some(scale) = &self.scale {
            errors.extend(scale.validate_status(new));
        }
        self.check_lists(new, old, &mut errors);
        self.check_rules(new, Some(old), &mut errors);
        errors
    }

    /// Duplicates that were there before may stay.
    fn check_lists(&self, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
        let mut before = Vec::new();
        lists::duplicates(self.schema(), old, &Path::root(), &mut before);
        if before.is_empty() {
            lists::duplicates(self.schema(), new, &Path::root(), errors);
        }
    }

    pub fn has_rules(&self) -> bool {
        self.schema().has_rules()
    }

    /// Rules are for objects that are otherwise of the right form.
    fn check_rules(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if !self.has_rules() {
            return;
        }
        let blocked = errors.iter().any(|error| {
            matches!(
                error.problem,
                ErrorType::NotSupported
                    | ErrorType::Required
                    | ErrorType::TooLong
                    | ErrorType::TooMany
                    | ErrorType::TypeInvalid
            )
        });
        if blocked {
            errors.push(FieldError::invalid(
                &Path::root(),
                Value::Null,
                "some validation rules were not checked because the object was invalid; correct the existing errors \
                 to complete validation",
            ));
        } else {
            rules::check(self.schema(), object, old, &Path::root(), true, errors);
        }
    }

    /// Texts for `Warning` headers: finalizers that others might use too.
    pub fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let finalizers = |object: &Value| -> Vec<String> {
            let list = object["metadata"]["finalizers"].as_array();
            let texts = list.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        let before: Met<String> = old.map(finalizers).into_iter().flatten().collect();
        let mut added = finalizers(object);
        added.sort();
        added.dedup();
        added.retain(|finalizer| !before.contains(finalizer));
        added
            .iter()
            .filter(|finalizer| !finalizer.contains('/'))
            .filter(|finalizer| {
                !matches!(
                    finalizer.as_str(),
                    "orphan" | "foregroundDeletion" | "kubernetes"
                )
            })
            .map(|finalizer| {
                let path = if finalizer.contains('.') {
                    " including a path (/)"
                } else {
                    ""
                };
                format!(
                    "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental \
                     conflicts with other finalizer writers",
                    quote(finalizer)
                )
            })
            .collect()
    }
}

fn carry(to: &mut Value, from: &Value, field: &str) {
    if let Some(map) = to.as_object_mut() {
        match from.get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
}
