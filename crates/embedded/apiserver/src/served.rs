//! A resource as the server serves it: its names, its type, and the rules that are not in either.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use bytes::Bytes;

use crate::codec::decode::{self, Decoded, TypeError};
use crate::codec::json::Node;
use crate::conversion::{self, Conversion};
use crate::crd::Definition;
use crate::crd::scale::Scale;
use crate::custom::Custom;
use crate::kinds::{self, Kind, Lookup};
use crate::resource::Resource;
use crate::schema::{Shape, TypeId, Types};
use crate::status::StatusError;
use crate::store::Attributes;

/// One resource in one version, ready to serve.
pub struct Served {
    pub resource: Arc<Resource>,
    /// Where its objects are kept. Versions and aliases of a resource share a shelf.
    pub shelf: Box<str>,
    pub rules: Rules,
    model: Model,
}

/// Where the knowledge about its objects comes from.
enum Model {
    Builtin {
        id: TypeId,
        shape: Shape,
        kind: &'static dyn Kind,
        conversion: Option<Conversion>,
    },
    Custom(Box<Custom>),
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Served")
            .field(&self.resource.qualified())
            .finish()
    }
}

/// Where resources differ in how they are written and deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// A PUT of what does not exist creates it.
    pub create_on_update: bool,
    /// A deletion answers with the object rather than with a Status.
    pub returns_deleted: bool,
}

impl Rules {
    fn of(resource: &Resource) -> Self {
        let conditional = matches!(
            resource.group.as_str(),
            "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io"
        ) || matches!(
            resource.plural.as_str(),
            "runtimeclasses"
                | "poddisruptionbudgets"
                | "csidrivers"
                | "csistoragecapacities"
                | "volumeattachments"
                | "csinodes"
                | "leases"
        );
        Self {
            unconditional_update: !conditional,
            create_on_update: matches!(
                resource.plural.as_str(),
                "runtimeclasses"
                    | "roles"
                    | "clusterroles"
                    | "rolebindings"
                    | "clusterrolebindings"
                    | "leases"
                    | "limitranges"
                    | "events"
                    | "services"
                    | "endpoints"
            ),
            returns_deleted: resource.group == "resource.k8s.io"
                || matches!(
                    resource.plural.as_str(),
                    "csidrivers"
                        | "storageclasses"
                        | "volumeattachments"
                        | "csinodes"
                        | "volumeattributesclasses"
                        | "resourcequotas"
                        | "persistentvolumes"
                        | "serviceaccounts"
                        | "persistentvolumeclaims"
                        | "namespaces"
                        | "pods"
                        | "services"
                        | "podtemplates"
                ),
        }
    }
}

impl Served {
    /// `None`: the facts know no such type.
    pub fn builtin(resource: Arc<Resource>) -> Option<Self> {
        let id = resource.type_id()?;
        // The two event resources are one, and so are the versions of a resource.
        let shelf = match resource.plural.as_str() {
            "events" => "events".to_owned(),
            _ => resource.qualified(),
        };
        Some(Self {
            shelf: shelf.into(),
            rules: Rules::of(&resource),
            model: Model::Builtin {
                id,
                shape: Shape::Struct(id),
                kind: kinds::of(&resource.group, &resource.version, &resource.kind),
                conversion: Conversion::of(&resource.group, &resource.version, &resource.kind),
            },
            resource,
        })
    }

    /// One served version of a CustomResourceDefinition; `None` if it has no such version.
    pub fn custom(definition: Arc<Definition>, version: &str) -> Option<Self> {
        let custom = Custom::new(definition, version)?;
        let resource = custom.version().resource.clone();
        Some(Self {
            shelf: resource.qualified().into(),
            rules: Rules {
                unconditional_update: false,
                create_on_update: false,
                returns_deleted: false,
            },
            model: Model::Custom(Box::new(custom)),
            resource,
        })
    }

    /// Whether it was defined by a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        matches!(self.model, Model::Custom(_))
    }

    /// The fields of an object that another version of a custom resource, in which somebody owns some, does not know.
    pub fn unknown_to_owners(&self, live: &Value, object: &Value) -> Vec<String> {
        let Model::Custom(custom) = &self.model else {
            return Vec::new();
        };
        let own = self.resource.api_version();
        let owners = live["metadata"]["managedFields"].as_array();
        let mut asked = BTreeSet::new();
        let mut versions = owners
            .into_iter()
            .flatten()
            .filter_map(|entry| entry["apiVersion"].as_str())
            .filter(|version| *version != own && asked.insert(*version));
        versions
            .find_map(|version| {
                Some(custom.unknown_to(version, object)).filter(|all| !all.is_empty())
            })
            .unwrap_or_default()
    }

    pub fn kind(&self) -> &dyn Kind {
        match &self.model {
            Model::Builtin { kind, .. } => *kind,
            Model::Custom(custom) => custom.as_ref(),
        }
    }

    /// How its objects merge.
    pub fn types(&self) -> (&Types, &Shape) {
        match &self.model {
            Model::Builtin { shape, .. } => (Types::builtin(), shape),
            Model::Custom(custom) => custom.types(),
        }
    }

    pub fn decode(&self, node: &Node<'_>) -> Result<Decoded, TypeError> {
        match &self.model {
            Model::Builtin { id, .. } => decode::decode_as_given(Types::builtin(), *id, node),
            Model::Custom(custom) => custom.version().decode(node),
        }
    }

    /// What is said to everybody who uses it.
    pub fn deprecation(&self) -> Option<&str> {
        match &self.model {
            Model::Custom(custom) => custom.version().deprecation.as_deref(),
            Model::Builtin { .. } => match self.shelf.as_ref() {
                "endpoints" => Some(
                    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
                ),
                "componentstatuses" => Some("v1 ComponentStatus is deprecated in v1.19+"),
                _ => None,
            },
        }
    }

    /// A stored object as this version shows it.
    pub fn present(&self, stored: &Bytes) -> Bytes {
        match &self.model {
            Model::Builtin {
                conversion: Some(conversion),
                ..
            } => {
                let mut object: Value = serde_json::from_slice(stored).unwrap_or_default();
                conversion.as_shown(&mut object);
                serde_json::to_vec(&object).map_or_else(|_| stored.clone(), Bytes::from)
            }
            Model::Builtin { .. } => stored.clone(),
            Model::Custom(custom) => custom.present(stored),
        }
    }

    /// Whether this version differs from what is kept.
    pub fn converts(&self) -> bool {
        matches!(
            self.model,
            Model::Builtin {
                conversion: Some(_),
                ..
            }
        )
    }

    /// A stored object as this version has it, to be changed.
    pub fn as_shown(&self, mut object: Value) -> Value {
        match &self.model {
            Model::Builtin { conversion, .. } => {
                if let Some(conversion) = conversion {
                    conversion.as_shown(&mut object);
                }
                object
            }
            Model::Custom(custom) => custom.as_shown(object),
        }
    }

    /// An object of this version as it is kept.
    pub fn as_kept(&self, mut object: Value) -> Value {
        match &self.model {
            Model::Builtin { conversion, .. } => {
                if let Some(conversion) = conversion {
                    conversion.as_kept(&mut object);
                }
                object
            }
            Model::Custom(custom) => custom.as_kept(object),
        }
    }

    /// Why a stored object cannot be shown in this version.
    pub fn cannot_show(&self, stored: &Bytes, world: &dyn Lookup) -> Option<StatusError> {
        match &self.model {
            Model::Builtin { .. } => None,
            Model::Custom(custom) => custom
                .cannot_show(stored, world)
                .map(StatusError::server_error),
        }
    }

    pub fn can_show(&self, stored: &Bytes) -> bool {
        match &self.model {
            Model::Builtin { .. } => true,
            Model::Custom(custom) => custom.can_show(stored),
        }
    }

    /// Whether somebody else converts from one version to another.
    pub fn asks_webhook(&self) -> bool {
        match &self.model {
            Model::Builtin { .. } => false,
            Model::Custom(custom) => custom.asks_webhook(),
        }
    }

    /// Why an object of this version cannot be kept.
    pub fn cannot_keep(&self, world: &dyn Lookup) -> Option<StatusError> {
        match &self.model {
            Model::Builtin { .. } => None,
            Model::Custom(custom) => custom.cannot_keep(world).map(StatusError::server_error),
        }
    }

    /// Fills in defaults, and puts what is said twice in step.
    pub fn settle(&self, object: &mut Value) {
        self.kind().default(object);
        if !self.is_custom() {
            conversion::align(&self.resource.kind, object);
        }
    }

    /// As [`Self::normalised`], of what was merged as maps.
    pub fn converted(&self, value: &Value) -> Result<Decoded, TypeError> {
        match &self.model {
            Model::Builtin { id, .. } => decode::convert(Types::builtin(), *id, value),
            // Nulls that were applied are judged; only those of a document are dropped.
            Model::Custom(custom) => custom.version().converted(value),
        }
    }

    /// Puts a value that was changed by code or by a patch into canonical form.
    pub fn normalised(&self, value: &Value) -> Result<Decoded, TypeError> {
        self.decode(&Node::of(value))
    }

    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.resource.namespaced() {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// What keys of a namespace begin with.
    pub fn prefix(&self, namespace: &str) -> String {
        if namespace.is_empty() || !self.resource.namespaced() {
            String::new()
        } else {
            format!("{namespace}/")
        }
    }

    /// Where a custom resource's objects have what a Scale shows.
    pub fn custom_scale(&self) -> Option<&Scale> {
        match &self.model {
            Model::Custom(custom) => custom.version().scale.as_ref(),
            Model::Builtin { .. } => None,
        }
    }

    pub fn attributes(&self, object: &Value) -> Attributes {
        let mut attributes = attributes(&self.shelf, object);
        if let Model::Custom(custom) = &self.model {
            for field in &custom.version().selectable {
                let value = field.of(object);
                attributes
                    .fields
                    .push((field.name.clone().into(), value.into()));
            }
        }
        attributes
    }

    /// Whether objects can be selected by a field.
    pub fn selects_by(&self, field: &str) -> bool {
        if field == "metadata.name" {
            return true;
        }
        if field == "metadata.namespace" {
            // Kinds without a namespace that name their fields themselves do not name this one.
            return self.resource.namespaced()
                || self.is_custom()
                || selectable_fields(&self.shelf).is_empty();
        }
        if let Model::Custom(custom) = &self.model {
            return custom
                .version()
                .selectable
                .iter()
                .any(|one| one.name == field);
        }
        // The two event resources call the same thing differently.
        let foreign = match (self.shelf.as_ref(), self.resource.group.as_str()) {
            ("events", "events.k8s.io") => {
                field.starts_with("involvedObject.")
                    || matches!(field, "reportingComponent" | "source")
            }
            ("events", _) => field.starts_with("regarding.") || field == "reportingController",
            _ => false,
        };
        !foreign
            && selectable_fields(&self.shelf)
                .iter()
                .any(|one| one.0 == field)
    }
}

impl Served {
    /// Kinds with fields of their own say less.
    pub fn unknown_field(&self, field: &str) -> String {
        let has_own = self.is_custom()
            || !selectable_fields(&self.shelf).is_empty()
            || matches!(self.resource.kind.as_str(), "Namespace" | "Node" | "Pod");
        if self.shelf.as_ref() == "jobs.batch" {
            let field = plimsoll_golang::strconv::quote(field);
            format!("field label {field} not supported for Job")
        } else if self.shelf.as_ref() == "resourceslices.resource.k8s.io" {
            let version = self.resource.api_version();
            format!("field label not supported for {version}, Kind=ResourceSlice: {field}")
        } else if has_own {
            format!("field label not supported: {field}")
        } else {
            format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                plimsoll_golang::strconv::quote(field)
            )
        }
    }
}

/// Takes out what selectors may ask about.
pub fn attributes(shelf: &str, object: &Value) -> Attributes {
    let labels = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            (
                key.as_str().into(),
                value.as_str().unwrap_or_default().into(),
            )
        })
        .collect();
    let fields = selectable_fields(shelf)
        .iter()
        .filter_map(|(field, pointer)| {
            let text = match object.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => selectable_default(field)?.to_owned(),
                Some(other) => other.to_string(),
            };
            Some(((*field).into(), text.into()))
        })
        .collect();
    Attributes { labels, fields }
}

/// What an absent field counts as, where that is not the empty string.
fn selectable_default(field: &str) -> Option<&'static str> {
    match field {
        "spec.unschedulable" | "spec.hostNetwork" => Some("false"),
        "status.replicas" | "status.successful" => Some("0"),
        _ => None,
    }
}

/// Field selectors beyond name and namespace, and where their values are.
fn selectable_fields(shelf: &str) -> &'static [(&'static str, &'static str)] {
    match shelf {
        "pods" => &[
            ("spec.nodeName", "/spec/nodeName"),
            ("spec.restartPolicy", "/spec/restartPolicy"),
            ("spec.schedulerName", "/spec/schedulerName"),
            ("spec.serviceAccountName", "/spec/serviceAccountName"),
            ("spec.hostNetwork", "/spec/hostNetwork"),
            ("status.phase", "/status/phase"),
            ("status.podIP", "/status/podIP"),
            // May be asked for, and is nowhere.
            ("status.podIPs", "/status/none"),
            ("status.nominatedNodeName", "/status/nominatedNodeName"),
        ],
        "nodes" => &[("spec.unschedulable", "/spec/unschedulable")],
        "namespaces" => &[("status.phase", "/status/phase")],
        "secrets" => &[("type", "/type")],
        "services" => &[
            ("spec.clusterIP", "/spec/clusterIP"),
            ("spec.type", "/spec/type"),
        ],
        "replicationcontrollers" => &[("status.replicas", "/status/replicas")],
        "jobs.batch" => &[("status.successful", "/status/succeeded")],
        "certificatesigningrequests.certificates.k8s.io" => {
            &[("spec.signerName", "/spec/signerName")]
        }
        "resourceslices.resource.k8s.io" => &[
            ("spec.nodeName", "/spec/nodeName"),
            ("spec.driver", "/spec/driver"),
        ],
        "events" => &[
            ("involvedObject.kind", "/involvedObject/kind"),
            ("involvedObject.namespace", "/involvedObject/namespace"),
            ("involvedObject.name", "/involvedObject/name"),
            ("involvedObject.uid", "/involvedObject/uid"),
            ("involvedObject.apiVersion", "/involvedObject/apiVersion"),
            (
                "involvedObject.resourceVersion",
                "/involvedObject/resourceVersion",
            ),
            ("involvedObject.fieldPath", "/involvedObject/fieldPath"),
            ("reason", "/reason"),
            ("reportingComponent", "/reportingComponent"),
            ("source", "/source/component"),
            ("type", "/type"),
            ("regarding.kind", "/involvedObject/kind"),
            ("regarding.namespace", "/involvedObject/namespace"),
            ("regarding.name", "/involvedObject/name"),
            ("regarding.uid", "/involvedObject/uid"),
            ("reportingController", "/reportingComponent"),
        ],
        _ => &[],
    }
}
