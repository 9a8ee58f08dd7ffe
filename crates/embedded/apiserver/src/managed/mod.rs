//! Who owns which field of an object, and server-side apply.
//!
//! The order in which the server has to do things, since what is owned depends on it: decode and default the new
//! object, then [`Tracking::update`] (or [`Tracking::apply`], then decode and default), then admission, then the kind's
//! preparation and validation, then [`keep_times`], then the comparison with what is stored.

mod apply;
mod compare;
mod conflict;
mod entries;
pub mod fieldset;
mod merge;
mod name;
pub mod path;
mod reset;
mod scale;
pub mod structural;
mod typed;
mod validate;

use serde_json::Value;

use entries::Entries;
pub use name::{manager_name, validate_manager};
pub use reset::Reset;
pub use scale::ScaleDoor;
use typed::Type;

use crate::codec::decode::zero_struct;
use crate::schema::{Shape, Types};

/// What is written, and through which door.
#[derive(Debug, Clone, Copy)]
pub struct Tracking<'a> {
    pub types: &'a Types,
    /// Of the object: a built-in type, a custom resource's, or `Shape::Any` for one without a schema.
    pub shape: &'a Shape,
    /// Of the request; objects are in this version.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// What a write through this door cannot change.
    pub reset: &'a Reset,
    /// The versions that this kind is served in. What is owned in others is forgotten.
    pub versions: &'a [&'a str],
}

impl Tracking<'_> {
    /// Notes what `manager` owns after creating (`live` is none), updating or patching. `new` is the whole object
    /// as it shall be, with the `metadata.managedFields` that the client gave; `now` is an RFC 3339 time in seconds.
    pub fn update(&self, live: Option<&Value>, new: &mut Value, manager: &str, now: &str) {
        let mut entries = self.entries_for_update(live, new);
        entries::remove_from(new);
        let exists = live.is_some_and(|live| !live["metadata"]["uid"].is_null());
        if entries.is_empty() && exists {
            return;
        }
        let nothing;
        let live = match live {
            Some(live) => live,
            None => {
                nothing = self.zero();
                &nothing
            }
        };
        self.note_update(live, new, &mut entries, manager, now);
        entries.write_to(new);
    }

    /// A client may edit the entries, or have them forgotten; what it does not understand, it cannot lose.
    fn entries_for_update(&self, live: Option<&Value>, new: &Value) -> Entries {
        let of_live = || {
            let given = live.map(|live| &live["metadata"]["managedFields"]);
            Entries::parse(given.unwrap_or(&Value::Null)).unwrap_or_default()
        };
        if !self.subresource.is_empty() {
            return of_live();
        }
        let given = &new["metadata"]["managedFields"];
        if entries::asks_to_forget(given) {
            return Entries::default();
        }
        match Entries::parse(given) {
            Ok(entries) if !entries.is_empty() => entries,
            _ => of_live(),
        }
    }

    fn of(&self) -> Type<'_> {
        Type::of_object(self.types, self.shape)
    }

    fn zero(&self) -> Value {
        // A custom resource starts as a map with nothing in it; Go's structs have fields that are always there, so that
        // setting them is a change and no addition.
        let mut object = match self.shape {
            Shape::Struct(id) if !self.types.get(*id).go_name.is_empty() => {
                zero_struct(self.types, *id)
            }
            _ => Value::Object(serde_json::Map::new()),
        };
        object["apiVersion"] = self.api_version.into();
        object["kind"] = self.kind.into();
        object
    }
}

/// A write that changes nothing but the times of entries shall change nothing: gives `new` the times of `old`.
pub fn keep_times(old: &Value, new: &mut Value) {
    let without_times = |entries: &Value| {
        let mut entries = entries.clone();
        for entry in entries.as_array_mut().into_iter().flatten() {
            if let Value::Object(fields) = entry {
                fields.remove("time");
            }
        }
        entries
    };
    let (were, are) = (
        &old["metadata"]["managedFields"],
        &new["metadata"]["managedFields"],
    );
    if were == are || without_times(were) != without_times(are) {
        return;
    }
    if same_but_for_entries(old, new) {
        new["metadata"]["managedFields"] = were.clone();
    }
}

fn same_but_for_entries(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return false;
    };
    old.len() == new.len()
        && old
            .iter()
            .all(|(name, was)| match (name.as_str(), new.get(name), was) {
                ("metadata", Some(Value::Object(is)), Value::Object(was)) => {
                    was.len() == is.len()
                        && was
                            .iter()
                            .all(|(name, was)| name == "managedFields" || is.get(name) == Some(was))
                }
                (_, is, was) => is == Some(was),
            })
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
