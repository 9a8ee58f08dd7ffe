//! Who set which field.

use serde_json::Value;

use super::Call;
use super::actions::BodyKind;
use crate::codec::kept;
use crate::kinds::carry;
use crate::managed::{Reset, Tracking};
use crate::resource::builtin_type;
use crate::schema::{Shape, Types};
use plimsoll_golang::time::show_seconds;

impl Call<'_> {
    /// Notes the fields of a new object as set by this request.
    pub fn track_new(&self, object: &mut Value) {
        self.track(None, object);
    }

    /// Notes the fields that this request sets or changes.
    pub fn track_change(&self, old: &Value, new: &mut Value) {
        let mut old = old.clone();
        self.say_what_it_is(&mut old);
        self.track(Some(&old), new);
    }

    fn track(&self, live: Option<&Value>, object: &mut Value) {
        self.say_what_it_is(object);
        let now = show_seconds(self.now);
        let mut lean = self.without_empty_lists(object);
        self.tracking(&self.path.subresource, |tracking| {
            let tracked = lean.as_mut().unwrap_or(object);
            tracking.update(live, tracked, &self.manager(), &now);
        });
        if let Some(lean) = lean {
            carry(&mut object["metadata"], &lean["metadata"], "managedFields");
        }
        // Who owns what in a version that cannot say it is not kept, nor is anything else about owners: the original
        // gives up on all of it.
        if live.is_some_and(|live| !self.served.unknown_to_owners(live, object).is_empty())
            && let Some(meta) = object["metadata"].as_object_mut()
        {
            meta.remove("managedFields");
        }
        forget_what_it_is(object);
    }

    /// The object without the lists that are never written, and therefore nobody's; `None` where there is none.
    fn without_empty_lists(&self, object: &Value) -> Option<Value> {
        if self.served.is_custom() || !kept::has_empty_list(object) {
            return None;
        }
        let mut lean = object.clone();
        self.forget_empty_lists_as(kept::As::Json, &mut lean);
        // An empty list of owners is a request.
        carry(&mut lean["metadata"], &object["metadata"], "managedFields");
        Some(lean)
    }

    /// Notes the fields of a body that is of another kind than the resource.
    pub fn track_foreign(&self, of: BodyKind, object: &mut Value) {
        let Some(id) = builtin_type(of.group, of.version, of.kind) else {
            return;
        };
        let api_version = of.api_version();
        object["kind"] = of.kind.into();
        object["apiVersion"] = api_version.as_str().into();
        let tracking = Tracking {
            types: Types::builtin(),
            shape: &Shape::Struct(id),
            api_version: &api_version,
            kind: of.kind,
            subresource: &self.path.subresource,
            reset: &Reset::nothing(),
            versions: &[&api_version],
        };
        tracking.update(None, object, &self.manager(), &show_seconds(self.now));
        forget_what_it_is(object);
    }

    /// Runs `work` with what tracking needs to know about this resource.
    pub fn tracking<T>(&self, subresource: &str, work: impl FnOnce(&Tracking<'_>) -> T) -> T {
        let resource = &self.served.resource;
        let (types, shape) = self.served.types();
        let api_version = resource.api_version();
        let reset = if self.served.is_custom() {
            Reset::custom(resource.subresource("status").is_some(), subresource)
        } else {
            Reset::builtin(&resource.group, &resource.plural, subresource)
        };
        let catalogue = self.server.catalogue();
        let versions: Vec<String> = catalogue
            .resources()
            .iter()
            .filter(|one| one.kind == resource.kind && one.plural == resource.plural)
            .map(|one| one.api_version())
            .collect();
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        work(&Tracking {
            types,
            shape,
            api_version: &api_version,
            kind: &resource.kind,
            subresource,
            reset: &reset,
            versions: &versions,
        })
    }

    /// Objects are kept without kind and version; those who judge them need both.
    pub fn say_what_it_is(&self, object: &mut Value) {
        let resource = &self.served.resource;
        object["kind"] = resource.kind.as_str().into();
        object["apiVersion"] = resource.api_version().into();
    }
}

pub fn forget_what_it_is(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
}
