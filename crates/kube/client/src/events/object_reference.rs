//! The object that an event is about.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    /// `None`: of the whole cluster.
    pub namespace: Option<String>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// A part of the object: `spec.containers{main}`.
    pub field_path: Option<String>,
}

impl Reference {
    pub fn new(api_version: &str, kind: &str, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: object.name_any(),
            namespace: object.namespace(),
            uid: object.uid(),
            resource_version: object.resource_version(),
            field_path: None,
        }
    }

    /// Events live beside what they are about; those about things of the whole cluster live here.
    pub(super) fn event_namespace(&self) -> String {
        let own = self.namespace.clone().filter(|ns| !ns.is_empty());
        own.unwrap_or_else(|| "default".to_owned())
    }
}

impl From<&Reference> for ObjectReference {
    fn from(reference: &Reference) -> Self {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            api_version: filled(&reference.api_version),
            kind: filled(&reference.kind),
            name: filled(&reference.name),
            namespace: reference.namespace.clone(),
            uid: reference.uid.clone(),
            resource_version: reference.resource_version.clone(),
            field_path: reference.field_path.clone(),
        }
    }
}
