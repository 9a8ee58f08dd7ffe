//! What kinds do beyond what the facts about their types say: defaults, preparation, validation, admission.
//!
//! Everything here is a pure function on objects that have already been decoded: unknown fields dropped, every value
//! of its declared type, absent rather than null. The rest of the server finds a kind's behaviour by [`of`].

use serde_json::Value;

use crate::field::FieldError;
use crate::status::Failure;

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

    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Runs instead of `validate_create`, so it must also check what creation checks where that still applies.
    fn validate_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// For a write through `/status`: everything but the status has been carried over already.
    fn validate_status_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Texts for `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// What the default admission plugins do to this kind: may look at other objects, change this one, or refuse.
    fn admit(
        &self,
        _object: &mut Value,
        _old: Option<&Value>,
        _world: &dyn Lookup,
    ) -> Result<(), Failure> {
        Ok(())
    }
}
