//! What kinds do beyond what the facts about their types say: defaults, preparation, validation, admission.
//!
//! Everything here is a pure function on objects that have already been decoded: unknown fields dropped, every value
//! of its declared type, absent rather than null. The rest of the server finds a kind's behaviour by [`of`].

mod addresses;
mod admission_policy;
mod at;
mod autoscaling;
mod batch;
mod claims;
mod core;
mod crd;
mod defaults;
mod devices;
mod diff;
mod extensions;
mod flow;
mod gated;
mod limits;
pub mod metadata;
pub mod names;
mod networking;
mod node;
pub mod pod;
pub mod policy;
pub mod quantity;
pub mod quota;
mod rbac;
mod rules;
pub mod service;
mod shown;
pub(crate) mod signing;
mod storage;
mod workloads;

pub use at::carry;

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::field::FieldError;
use crate::resource;
use crate::status::StatusError;
use rules::{Builtin, Rules};

/// Reads of other objects that admission needs.
pub trait Lookup {
    /// `resource` as `priorityclasses.scheduling.k8s.io` or `nodes`; `namespace` empty for cluster-scoped ones.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;
    /// All of one namespace, or of the cluster where `namespace` is empty.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Value>;
}

/// One kind's behaviour. The default of every method is what a kind without peculiarities does.
pub trait Kind: Send + Sync {
    /// Fills in what the client may leave out. Runs after every decoding, so also on updates and patch results.
    fn default(&self, _object: &mut Value) {}

    /// Resets what a client may not set on creation (the status, for most).
    fn prepare_create(&self, _object: &mut Value) {}

    /// Carries over what an ordinary update may not change, and decides whether the generation is raised.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Whether it may take long to find out what is wrong with an object.
    fn takes_time(&self) -> bool {
        false
    }

    /// Includes the metadata, for kinds that are built in.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Carries over what a write through `/status` may not change beyond the specification, which the caller keeps.
    fn prepare_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// Runs instead of `validate_create`, so it must also check what creation checks where that still applies.
    fn validate_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// For a write through `/status`: everything but the status has been carried over already.
    fn validate_status_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Texts for `Warning` headers about a new object as it was sent, whatever becomes of it.
    fn notices(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Texts for `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// More of them, from the default admission plugins, which look at other objects too.
    fn advice(&self, _object: &Value, _old: Option<&Value>, _world: &dyn Lookup) -> Vec<String> {
        Vec::new()
    }

    /// What the default admission plugins do to this kind: may look at other objects, change this one, or refuse.
    fn admit(
        &self,
        _object: &mut Value,
        _old: Option<&Value>,
        _world: &dyn Lookup,
    ) -> Result<(), StatusError> {
        Ok(())
    }

    /// What the default admission plugins refuse once everything else is in order.
    fn approve(
        &self,
        _object: &Value,
        _old: Option<&Value>,
        _world: &dyn Lookup,
    ) -> Result<(), StatusError> {
        Ok(())
    }
}

/// A kind without peculiarities: custom resources, whose schemas are somebody else's concern.
struct Plain;

impl Kind for Plain {}

/// The behaviour of a kind. Kinds that are not built in have none.
pub fn of(group: &str, version: &str, kind: &str) -> &'static dyn Kind {
    static PLAIN: Plain = Plain;
    let same_name = builtin().get(kind).into_iter().flatten();
    let mut candidates = same_name.filter(|one| (one.group, one.version) == (group, version));
    match candidates.next() {
        Some(found) => &found.kind,
        None => &PLAIN,
    }
}

struct Known {
    group: &'static str,
    version: &'static str,
    kind: Builtin,
}

fn builtin() -> &'static FxHashMap<&'static str, Vec<Known>> {
    static BUILTIN: OnceLock<FxHashMap<&'static str, Vec<Known>>> = OnceLock::new();
    BUILTIN.get_or_init(|| {
        let mut kinds: FxHashMap<&'static str, Vec<Known>> = FxHashMap::default();
        for served in resource::builtin() {
            let Some(type_id) = served.type_id() else {
                continue;
            };
            let (group, kind) = (served.group.as_str(), served.kind.as_str());
            let known = TABLES
                .iter()
                .flat_map(|table| table.iter())
                .find(|rules| (rules.group, rules.kind) == (group, kind));
            let fallback = if served.namespaced() {
                &rules::ANY_NAMESPACED
            } else {
                &rules::ANY_CLUSTER
            };
            let rules: &'static Rules = known.copied().unwrap_or(fallback);
            kinds.entry(kind).or_default().push(Known {
                group,
                version: served.version.as_str(),
                kind: Builtin { rules, type_id },
            });
        }
        kinds
    })
}

static TABLES: &[&[&Rules]] = &[
    admission_policy::KINDS,
    autoscaling::KINDS,
    batch::KINDS,
    core::KINDS,
    crd::KINDS,
    devices::KINDS,
    extensions::KINDS,
    flow::KINDS,
    networking::KINDS,
    policy::KINDS,
    rbac::KINDS,
    signing::KINDS,
    storage::KINDS,
    workloads::KINDS,
];

/// Counts a change of the specification. The server has carried the old generation over before.
fn raise_generation(object: &mut Value, changed: bool) {
    if changed {
        let generation = object["metadata"]["generation"]
            .as_i64()
            .unwrap_or_default();
        object["metadata"]["generation"] = json!(generation.saturating_add(1));
    }
}

#[cfg(test)]
mod tests;
