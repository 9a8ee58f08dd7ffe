//! One kind's peculiarities as a table entry, and what all kinds have in common.

use serde_json::{Value, json};

use super::at::{At, Errors, carry, field, same};
use super::names::NameRule;
use super::pod::level_labels;
use super::{Kind, Lookup, defaults, gated, metadata, raise_generation};
use crate::codec::decode::zero_struct;
use crate::field::FieldError;
use crate::schema::{Shape, TypeId, Types};
use crate::status::StatusError;

pub type Check = fn(&At<'_>, &mut Errors);
pub type CheckUpdate = fn(&At<'_>, &At<'_>, &mut Errors);

pub struct Rules {
    pub group: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub names: NameRule,
    /// The status is written through `/status` only.
    pub status: bool,
    /// Changes of the specification are counted in `metadata.generation`.
    pub generation: bool,
    /// Finalizers without a domain must be ones that Kubernetes knows.
    pub known_finalizers: bool,
    /// Metadata is checked by the kind itself. Where it is not, only what holds for all kinds is, and last.
    pub own_metadata: bool,
    /// On updates, `validate_update` looks at the metadata itself, beyond what holds for all kinds.
    pub update_checks_metadata: bool,
    /// After the status has been reset and the generation set.
    pub prepare_create: fn(&mut Value),
    /// After the status has been carried over; before the generation is counted.
    pub prepare_update: fn(&mut Value, &Value),
    pub prepare_status_update: fn(&mut Value, &Value),
    /// Beyond metadata.
    pub validate: Check,
    /// Beyond metadata; what creation checks where there is none.
    pub validate_update: Option<CheckUpdate>,
    pub validate_status: CheckUpdate,
    pub notices: fn(&Value) -> Vec<String>,
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    pub advice: fn(&Value, Option<&Value>, &dyn Lookup) -> Vec<String>,
    /// Where the specification of its pods is, for kinds that have any.
    pub pods: &'static str,
    pub admit: fn(&mut Value, Option<&Value>, &dyn Lookup) -> Result<(), StatusError>,
    pub approve: fn(&Value, Option<&Value>, &dyn Lookup) -> Result<(), StatusError>,
}

impl Rules {
    pub const fn cluster(group: &'static str) -> Self {
        Self {
            group,
            kind: "",
            namespaced: false,
            names: NameRule::Subdomain,
            status: false,
            generation: false,
            known_finalizers: true,
            own_metadata: true,
            update_checks_metadata: false,
            prepare_create: |_| {},
            prepare_update: |_, _| {},
            prepare_status_update: |_, _| {},
            validate: |_, _| {},
            validate_update: None,
            validate_status: |_, _, _| {},
            notices: |_| Vec::new(),
            warnings: |_, _| Vec::new(),
            advice: |_, _, _| Vec::new(),
            pods: "",
            admit: |_, _, _| Ok(()),
            approve: |_, _, _| Ok(()),
        }
    }

    pub const fn namespaced(group: &'static str) -> Self {
        Self {
            namespaced: true,
            ..Self::cluster(group)
        }
    }
}

pub static ANY_CLUSTER: Rules = Rules::cluster("");
pub static ANY_NAMESPACED: Rules = Rules::namespaced("");

/// A kind that is built in: its rules, and the facts about its type.
pub struct Builtin {
    pub rules: &'static Rules,
    pub type_id: TypeId,
}

impl Builtin {
    fn status_type(&self) -> Option<TypeId> {
        match Types::builtin().get(self.type_id).field("status")?.shape {
            Shape::Struct(id) => Some(id),
            _ => None,
        }
    }

    /// What any update checks first, whatever the kind.
    fn check_common(&self, new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
        let (meta, before) = (new.get("metadata"), old.get("metadata"));
        metadata::check(
            &meta,
            Some(self.rules.namespaced),
            NameRule::PathSegment,
            errors,
        );
        metadata::check_update(&meta, &before, errors);
    }

    fn check_metadata_update(&self, new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
        let (meta, before) = (new.get("metadata"), old.get("metadata"));
        metadata::check_update(&meta, &before, errors);
        if self.rules.known_finalizers {
            metadata::check_known_finalizers(&meta, errors);
        }
    }
}

impl Kind for Builtin {
    fn default(&self, object: &mut Value) {
        defaults::apply(object, self.type_id);
    }

    fn prepare_create(&self, object: &mut Value) {
        gated::forget(self.rules, object);
        if self.rules.status
            && let Some(id) = self.status_type()
        {
            object["status"] = zero_struct(Types::builtin(), id);
        }
        if self.rules.generation {
            object["metadata"]["generation"] = json!(1);
        }
        (self.rules.prepare_create)(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        gated::forget(self.rules, new);
        if self.rules.status {
            carry(new, old, "status");
        }
        (self.rules.prepare_update)(new, old);
        if self.rules.generation {
            let changed = !same(field(new, &["spec"]), field(old, &["spec"]));
            raise_generation(new, changed);
        }
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        gated::forget(self.rules, new);
        (self.rules.prepare_status_update)(new, old);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let object = At::root(object);
        let meta = object.get("metadata");
        let namespaced = Some(self.rules.namespaced);
        if !self.rules.own_metadata {
            (self.rules.validate)(&object, &mut errors);
            if errors.is_empty() {
                metadata::check(&meta, namespaced, NameRule::PathSegment, &mut errors);
            }
            return errors.0;
        }
        metadata::check(&meta, namespaced, self.rules.names, &mut errors);
        if self.rules.known_finalizers {
            metadata::check_known_finalizers(&meta, &mut errors);
        }
        (self.rules.validate)(&object, &mut errors);
        errors.0
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let (new, old) = (At::root(new), At::root(old));
        self.check_common(&new, &old, &mut errors);
        if self.rules.own_metadata && !self.rules.update_checks_metadata {
            self.check_metadata_update(&new, &old, &mut errors);
        }
        match self.rules.validate_update {
            Some(check) => check(&new, &old, &mut errors),
            None => (self.rules.validate)(&new, &mut errors),
        }
        errors.0
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let (new, old) = (At::root(new), At::root(old));
        self.check_common(&new, &old, &mut errors);
        self.check_metadata_update(&new, &old, &mut errors);
        (self.rules.validate_status)(&new, &old, &mut errors);
        errors.0
    }

    fn notices(&self, object: &Value) -> Vec<String> {
        (self.rules.notices)(object)
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        (self.rules.warnings)(object, old)
    }

    fn advice(&self, object: &Value, old: Option<&Value>, world: &dyn Lookup) -> Vec<String> {
        let of_pods = match self.rules.pods {
            "" => None,
            pods => level_labels::warning(object, old, pods, world),
        };
        let mut advice = (self.rules.advice)(object, old, world);
        advice.extend(of_pods);
        advice
    }

    fn admit(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        world: &dyn Lookup,
    ) -> Result<(), StatusError> {
        (self.rules.admit)(object, old, world)
    }

    fn approve(
        &self,
        object: &Value,
        old: Option<&Value>,
        world: &dyn Lookup,
    ) -> Result<(), StatusError> {
        (self.rules.approve)(object, old, world)
    }
}
