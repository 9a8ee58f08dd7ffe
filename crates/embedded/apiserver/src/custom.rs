//! Custom resources as the server serves them: one version of a definition, ready for its objects.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::crd::{Definition, Version};
use crate::field::FieldError;
use crate::kinds::names::NameRule;
use crate::kinds::{Kind, Lookup, metadata};
use crate::managed::structural;
use crate::rest::track::forget_what_it_is;
use crate::schema::{Shape, Types};

pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// One version of a definition, with what merging needs to know.
#[derive(Debug)]
pub struct Custom {
    definition: Arc<Definition>,
    version: usize,
    /// Made when somebody writes first.
    types: OnceLock<(Types, Shape)>,
}

impl Custom {
    pub fn new(definition: Arc<Definition>, version: &str) -> Option<Self> {
        let version = definition
            .versions
            .iter()
            .position(|one| one.name == version)?;
        Some(Self {
            definition,
            version,
            types: OnceLock::new(),
        })
    }

    pub fn version(&self) -> &Version {
        &self.definition.versions[self.version]
    }

    /// The fields of an object that a version of the definition does not know.
    pub fn unknown_to(&self, api_version: &str, object: &Value) -> Vec<String> {
        let name = api_version.rsplit('/').next().unwrap_or_default();
        let version = self.definition.versions.iter().find(|one| one.name == name);
        version.map_or_else(Vec::new, |version| version.unknown(object))
    }

    pub fn types(&self) -> (&Types, &Shape) {
        let of_schema = || structural::from_schema(&self.version().document());
        let (types, shape) = self.types.get_or_init(of_schema);
        (types, shape)
    }

    /// A stored object as this version shows it.
    pub fn present(&self, stored: &Bytes) -> Bytes {
        let Ok(object) = serde_json::from_slice::<Value>(stored) else {
            return stored.clone();
        };
        let shown = self.as_shown(object);
        serde_json::to_vec(&shown).map_or_else(|_| stored.clone(), Bytes::from)
    }

    /// The same of an object that is at hand.
    pub fn as_shown(&self, mut object: Value) -> Value {
        // What does not say in which version it was kept was kept before anybody noted that.
        if !object["apiVersion"].is_string()
            && let Some(storage) = self.definition.storage()
        {
            object["apiVersion"] = format!("{}/{}", self.definition.group, storage.name).into();
        }
        let mut shown = self.definition.present(object, self.version());
        forget_what_it_is(&mut shown);
        shown
    }

    /// An object of this version as it is kept: in the version of the definition's choice, which it says.
    pub fn as_kept(&self, mut object: Value) -> Value {
        object["apiVersion"] = self.version().resource.api_version().into();
        let mut kept = self.definition.to_storage(object);
        if let Some(fields) = kept.as_object_mut() {
            fields.remove("kind");
        }
        kept
    }

    pub fn asks_webhook(&self) -> bool {
        self.definition.webhook.is_some()
    }

    /// Why a stored object cannot be shown in this version: somebody else would have to convert it.
    pub fn cannot_show(&self, stored: &Bytes, world: &dyn Lookup) -> Option<String> {
        let webhook = self.definition.webhook.as_ref()?;
        let kept = self.foreign(stored)?;
        Some(webhook.failure(&self.called(&kept), world))
    }

    pub fn can_show(&self, stored: &Bytes) -> bool {
        !self.asks_webhook() || self.foreign(stored).is_none()
    }

    /// The version in which an object is kept, if it is another one.
    fn foreign(&self, stored: &Bytes) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Kept {
            #[serde(rename = "apiVersion")]
            api_version: Option<String>,
        }
        let kept: Option<Kept> = serde_json::from_slice(stored).ok();
        let kept = match kept.and_then(|kept| kept.api_version) {
            Some(said) => said.rsplit('/').next()?.to_owned(),
            None => self.definition.storage()?.name.clone(),
        };
        (kept != self.version().name).then_some(kept)
    }

    /// Why an object of this version cannot be kept.
    pub fn cannot_keep(&self, world: &dyn Lookup) -> Option<String> {
        let webhook = self.definition.webhook.as_ref()?;
        let own = &self.version().name;
        let kept = &self.definition.storage()?.name;
        (kept != own).then(|| webhook.failure(&self.called(own), world))
    }

    fn called(&self, version: &str) -> String {
        let definition = &self.definition;
        format!("{}/{version}, Kind={}", definition.group, definition.kind)
    }

    /// With kind and version, which schemas may speak of.
    fn whole(&self, object: &Value) -> Value {
        let mut whole = object.clone();
        whole["kind"] = self.definition.kind.as_str().into();
        whole["apiVersion"] = format!("{}/{}", self.definition.group, self.version().name).into();
        whole
    }
}

impl Kind for Custom {
    fn default(&self, object: &mut Value) {
        self.version().fill_defaults(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        self.version().prepare_create(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        self.version().prepare_update(new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        self.version().prepare_status_update(new, old);
    }

    /// Rules may.
    fn takes_time(&self) -> bool {
        self.version().has_rules()
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let namespaced = self.version().resource.namespaced();
        let errors = metadata::validate_metadata_create(
            &object["metadata"],
            namespaced,
            NameRule::Subdomain,
        );
        self.version().validate_create(&self.whole(object), errors)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let namespaced = self.version().resource.namespaced();
        let meta = &new["metadata"];
        let mut errors = metadata::validate_metadata_update(meta, &old["metadata"]);
        if !meta["resourceVersion"].is_null() {
            // Three come by and look at it, and each says what is wrong.
            errors.extend(errors.clone());
            let rule = NameRule::Subdomain;
            errors.extend(metadata::validate_metadata_create(meta, namespaced, rule));
        }
        let (new, old) = (self.whole(new), self.whole(old));
        self.version().validate_update(&new, &old, errors)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let errors = metadata::validate_metadata_update(&new["metadata"], &old["metadata"]);
        let (new, old) = (self.whole(new), self.whole(old));
        self.version().validate_status_update(&new, &old, errors)
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        self.version().warnings(object, old)
    }
}
