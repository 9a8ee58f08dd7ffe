//! Strategic merge patch: a merge patch that knows which lists are keyed, with directives to delete, to replace and to
//! order.

pub(super) mod scope;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use scope::{Problem, Scope};

use super::merge::drop_nulls;
use super::order::{Identity, arrange, check_requested};
use super::{Evidence, Patched, parse_object};
use crate::schema::{Shape, Types};
use crate::status::StatusError;
use plimsoll_golang::format;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

type Fields = Map<String, Value>;

pub fn apply(
    types: &Types,
    shape: &Shape,
    current: &Value,
    body: &[u8],
    strict: bool,
) -> Result<Patched, StatusError> {
    let (patch, document) = parse_object(body).map_err(StatusError::bad_request)?;
    let patch = patch.unwrap_or_default();
    let of = match shape {
        Shape::Struct(id) => Some(types.get(*id)),
        _ => None,
    };
    // A custom resource does not say how its lists merge.
    let Some(of) = of.filter(|of| !of.go_name.is_empty()) else {
        return Err(Problem::Malformed("strategic merge patch format is not supported").into());
    };
    let mut fields = current.as_object().cloned().unwrap_or_default();
    let scope = Scope::of_object(types, of);
    merge_fields(&mut fields, patch.clone(), scope)?;
    Ok(Patched {
        object: Value::Object(fields),
        complaints: if strict {
            document.complaints
        } else {
            Vec::new()
        },
        evidence: Evidence::Patch(Value::Object(patch)),
    })
}

fn merge_fields(live: &mut Fields, mut patch: Fields, scope: Scope<'_>) -> Result<(), Problem> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                *live = patch;
            }
            Some("delete") => live.clear(),
            _ => return Err(Problem::unknown_directive(directive, &patch)),
        }
        return Ok(());
    }
    retain_keys(live, &mut patch)?;
    merge_ordered_lists(live, &mut patch, scope)?;
    for (name, value) in patch {
        merge_field(live, &name, value, scope)?;
    }
    Ok(())
}

/// `$retainKeys` names every field that is to stay; a patch may set no other.
fn retain_keys(live: &mut Fields, patch: &mut Fields) -> Result<(), Problem> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(retained) = retained else {
        return Err(Problem::KEYS_TO_RETAIN);
    };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_retained = |name: &str| retained.contains(name);
    let is_directive =
        |name: &str| name.starts_with(DELETE_FROM_LIST) || name.starts_with(ELEMENT_ORDER);
    let sets_another = patch
        .iter()
        .any(|(name, value)| !value.is_null() && !is_directive(name) && !is_retained(name));
    if sets_another {
        return Err(Problem::KEYS_TO_RETAIN);
    }
    live.retain(|name, _| is_retained(name));
    Ok(())
}

/// Merges the lists for which the patch gives an order, and takes them out of the patch.
fn merge_ordered_lists(
    live: &mut Fields,
    patch: &mut Fields,
    scope: Scope<'_>,
) -> Result<(), Problem> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let requested = match patch.remove(&directive) {
            Some(Value::Array(requested)) => requested,
            other => {
                return Err(Problem::wrong_type(
                    format::LIST,
                    &other.unwrap_or_default(),
                ));
            }
        };
        let name = after_prefix(&directive, ELEMENT_ORDER).ok_or(Problem::ORDER_LIST)?;
        let was = live.get(name).map(as_list).transpose()?;
        let given = patch.get(name).map(as_list).transpose()?;
        let (field, element) = scope.list_field(name)?;
        let key = field.strategy.key.as_deref();
        check_requested(given.unwrap_or_default(), &requested, key)?;
        let merged = match (was, given) {
            (None, None) => continue,
            (Some(was), None) => was.to_vec(),
            (None, Some(given)) => without_directives(Value::Array(given.to_vec()))
                .and_then(into_list)
                .unwrap_or_default(),
            (Some(was), Some(given)) if field.strategy.merge => {
                merge_lists(was.to_vec(), given.to_vec(), element, key)?
            }
            (Some(_), Some(given)) => given.to_vec(),
        };
        let was = was.unwrap_or_default();
        element_type(was, given.unwrap_or_default())?;
        let arranged = arrange(merged, &requested, was, Identity::by(key))?;
        live.insert(name.to_owned(), Value::Array(arranged));
        patch.remove(name);
    }
    Ok(())
}

fn as_list(value: &Value) -> Result<&[Value], Problem> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(Problem::wrong_type(format::LIST, other)),
    }
}

fn into_list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn after_prefix<'a>(directive: &'a str, prefix: &str) -> Option<&'a str> {
    let (before, name) = directive.split_once('/')?;
    (before == prefix).then_some(name)
}

fn merge_field(
    live: &mut Fields,
    name: &str,
    value: Value,
    scope: Scope<'_>,
) -> Result<(), Problem> {
    let deletes = name.starts_with(DELETE_FROM_LIST);
    let name = if deletes {
        after_prefix(name, DELETE_FROM_LIST).ok_or(Problem::PRIMITIVE_LIST)?
    } else {
        name
    };
    if value.is_null() {
        live.remove(name);
        return Ok(());
    }
    match (live.get_mut(name), value) {
        (Some(Value::Object(was)), Value::Object(patch)) => {
            let field = scope.field(name)?;
            if field.strategy.replace {
                *was = patch;
                return Ok(());
            }
            merge_fields(was, patch, scope.of(&field.shape))
        }
        (Some(Value::Array(was)), Value::Array(patch)) => {
            let (field, element) = scope.list_field(name)?;
            let key = field.strategy.key.as_deref();
            *was = if deletes {
                delete_from_list(std::mem::take(was), patch, element, key)?
            } else if field.strategy.merge {
                merge_lists(std::mem::take(was), patch, element, key)?
            } else {
                patch
            };
            Ok(())
        }
        _ if deletes => Ok(()),
        (_, mut value) => {
            drop_nulls(&mut value);
            match without_directives(value) {
                Some(value) => live.insert(name.to_owned(), value),
                None => live.remove(name),
            };
            Ok(())
        }
    }
}

/// Where elements are objects, the directive is as good as none.
fn delete_from_list(
    live: Vec<Value>,
    patch: Vec<Value>,
    element: Scope<'_>,
    key: Option<&str>,
) -> Result<Vec<Value>, Problem> {
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    if element_type(&live, &patch)?.is_object() {
        return merge_lists(live, patch, element, key);
    }
    let deleted: HashSet<&Value> = patch.iter().collect();
    Ok(live
        .into_iter()
        .filter(|one| !deleted.contains(one))
        .collect())
}

fn merge_lists(
    live: Vec<Value>,
    patch: Vec<Value>,
    element: Scope<'_>,
    key: Option<&str>,
) -> Result<Vec<Value>, Problem> {
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    if !element_type(&live, &patch)?.is_object() {
        let mut met = HashSet::with_capacity(live.len() + patch.len());
        let all = live.iter().chain(&patch);
        let merged = all.filter(|one| met.insert(*one)).cloned().collect();
        return arrange(merged, &patch, &live, Identity::by(key));
    }
    let key = key.ok_or_else(|| {
        let name = element.name();
        Problem::Other(format!("cannot merge lists without merge key for {name}"))
    })?;
    let (live, patch) = obey_list_directives(live, patch, key)?;
    let mut merged = live.clone();
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(live.len());
    for (index, one) in live.iter().enumerate() {
        if let Some(identity) = one.get(key) {
            places.entry(identity.clone()).or_insert(index);
        }
    }
    for one in &patch {
        let Value::Object(fields) = one else { continue };
        let Some(identity) = fields.get(key) else {
            return Err(Problem::no_merge_key(one, key));
        };
        match places.get(identity) {
            Some(&place) => {
                if let Value::Object(was) = &mut merged[place] {
                    merge_fields(was, fields.clone(), element)?;
                }
                // A null takes the key away.
                if merged[place].get(key) != Some(identity) {
                    places.remove(identity);
                }
            }
            None => {
                places.insert(identity.clone(), merged.len());
                merged.push(one.clone());
            }
        }
    }
    arrange(merged, &patch, &live, Identity::Key(key))
}

/// Elements with `$patch` delete others, or say that the patch's list replaces the live one.
fn obey_list_directives(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Problem> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted: HashSet<Value> = HashSet::new();
    let mut replaces = false;
    for one in patch {
        let Some(directive) = one.get(DIRECTIVE) else {
            plain.push(one);
            continue;
        };
        match (directive.as_str(), &one) {
            (Some("delete"), _) => {
                let Some(identity) = one.get(key) else {
                    return Err(Problem::no_merge_key(&one, key));
                };
                deleted.insert(identity.clone());
            }
            (Some("replace"), _) => replaces = true,
            (Some("merge"), _) => {
                return Err(Problem::Other(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            (_, Value::Object(map)) => return Err(Problem::unknown_directive(directive, map)),
            _ => {}
        }
    }
    if replaces {
        return Ok((plain, Vec::new()));
    }
    live.retain(|element| !element.get(key).is_some_and(|one| deleted.contains(one)));
    Ok((live, plain))
}

/// An element for all: those of both lists must be alike, and no lists.
fn element_type<'a>(live: &'a [Value], patch: &'a [Value]) -> Result<&'a Value, Problem> {
    let mut all = live.iter().chain(patch);
    let Some(first) = all.next() else {
        return Err(Problem::Other(
            "no elements in any of the given slices".to_owned(),
        ));
    };
    match first {
        Value::Array(_) => return Err(Problem::ListOfLists),
        // The original panics here.
        Value::Null => {
            return Err(Problem::Other(
                "This request caused apiserver to panic. Look in the logs for details.".to_owned(),
            ));
        }
        _ => {}
    }
    if all.any(|one| format::type_name(one) != format::type_name(first)) {
        return Err(Problem::Other(format!(
            "list element types are not identical: [{} {}]",
            format::shown_list(live),
            format::shown_list(patch)
        )));
    }
    Ok(first)
}

/// `None` for what is nothing but a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_directives(value)?)))
                .collect(),
        )),
        Value::Array(values) => Some(Value::Array(
            values.into_iter().filter_map(without_directives).collect(),
        )),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
