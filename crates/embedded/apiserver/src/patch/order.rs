//! The order of a list after a strategic merge: as in the patch for what the patch names, as before for the rest,
//! both interleaved by where they were before.

use std::collections::HashMap;

use serde_json::Value;

use super::strategic::scope::Problem;
use plimsoll_golang::format;

/// What identifies an element: one of its fields, or itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identity<'a> {
    Key(&'a str),
    Whole,
}

impl<'a> Identity<'a> {
    pub(super) fn by(key: Option<&'a str>) -> Self {
        key.map_or(Self::Whole, Self::Key)
    }

    /// `None` for an object without the key.
    fn of(self, element: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Whole => Some(element),
            Self::Key(key) => element.get(key),
        }
    }

    pub(super) fn places(self, list: &'a [Value]) -> Places<'a> {
        let mut first = HashMap::with_capacity(list.len());
        for (index, element) in list.iter().enumerate() {
            if let Some(identity) = self.of(element) {
                first.entry(identity).or_insert(index);
            }
        }
        Places {
            identity: self,
            first,
        }
    }

    /// Every element must have an identity.
    fn check(self, list: &[Value]) -> Result<(), Problem> {
        let Self::Key(key) = self else { return Ok(()) };
        for element in list {
            let Value::Object(_) = element else {
                return Err(Problem::wrong_type(format::MAP, element));
            };
            if element.get(key).is_none() {
                return Err(Problem::no_merge_key(element, key));
            }
        }
        Ok(())
    }
}

/// Where the elements of a list are; of those with one identity the first.
#[derive(Debug)]
pub(super) struct Places<'a> {
    identity: Identity<'a>,
    first: HashMap<&'a Value, usize>,
}

impl Places<'_> {
    pub(super) fn of(&self, element: &Value) -> Option<usize> {
        let identity = match self.identity {
            Identity::Whole => element,
            Identity::Key(key) => element.get(key)?,
        };
        self.first.get(identity).copied()
    }
}

/// Arranges `merged`: `patch_order` holds what the patch names, `live_order` is the list as it was.
pub(super) fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    live_order: &[Value],
    identity: Identity<'_>,
) -> Result<Vec<Value>, Problem> {
    identity.check(&merged)?;
    let (wanted, was) = (identity.places(patch_order), identity.places(live_order));
    let (mut named, mut rest): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|one| wanted.of(one).is_some());
    if !named.is_empty() {
        identity.check(patch_order)?;
    }
    if !rest.is_empty() {
        identity.check(live_order)?;
    }
    named.sort_by_key(|one| wanted.of(one));
    rest.sort_by_key(|one| was.of(one));
    Ok(interleave(rest, named, &was))
}

/// An element of the rest goes before the first named one that it stood before; new elements have stood nowhere, so
/// that they come first.
fn interleave(rest: Vec<Value>, named: Vec<Value>, was: &Places<'_>) -> Vec<Value> {
    let mut out = Vec::with_capacity(rest.len() + named.len());
    let mut rest = rest.into_iter().peekable();
    for one in named {
        let here = was.of(&one);
        while let Some(next) = rest.peek() {
            let there = was.of(next);
            if !matches!((there, here), (Some(there), Some(here)) if there < here) {
                break;
            }
            out.extend(rest.next());
        }
        out.push(one);
    }
    out.extend(rest);
    out
}

/// Checks that what the patch names comes in the order that it asks for.
pub(super) fn check_requested(
    patch: &[Value],
    requested: &[Value],
    key: Option<&str>,
) -> Result<(), Problem> {
    if patch.is_empty() || requested.is_empty() {
        return Ok(());
    }
    if key.is_some()
        && let Some(odd) = patch.iter().find(|one| !one.is_object())
    {
        return Err(Problem::wrong_type(format::MAP, odd));
    }
    let identity = Identity::by(key);
    let mut wanted = requested.iter();
    for one in patch.iter().filter(|one| one.get("$patch").is_none()) {
        loop {
            let Some(next) = wanted.next() else {
                return Err(Problem::order_mismatch(patch, requested));
            };
            identity.check(std::slice::from_ref(one))?;
            identity.check(std::slice::from_ref(next))?;
            if identity.of(one) == identity.of(next) {
                break;
            }
        }
    }
    Ok(())
}
