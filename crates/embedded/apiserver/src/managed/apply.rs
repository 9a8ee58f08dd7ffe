//! Taking fields over: what an update takes silently, an applier has to ask for.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use plimsoll_golang::json::escape_html;
use serde_json::Value;

use super::Tracking;
use super::compare::Comparison;
use super::conflict::{self, Conflict};
use super::entries::{Entries, Entry, Identity, Slots};
use super::fieldset::FieldSet;
use super::merge::merge;
use super::path::values_equal;
use super::typed::{field_set, remove, with_named_fields};
use super::validate::validate;
use crate::status::StatusError;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// The only client whose earlier, client-side applies are honoured.
const KUBECTL: &str = "kubectl";
/// Owns what an object has that was not tracked before somebody applied to it.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// So many update entries are kept apart; the oldest beyond that become one.
const MAX_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";
/// Identify the object rather than being set by anybody.
const NOBODYS: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

fn nobodys() -> &'static FieldSet {
    static SET: OnceLock<FieldSet> = OnceLock::new();
    SET.get_or_init(|| FieldSet::of_fields(&NOBODYS))
}

impl Tracking<'_> {
    /// Merges what `manager` applies into `live` (none: there is no such object yet). The result is not decoded yet
    /// and may hold nulls; where nothing changes it is `live`, with the entries' times untouched.
    pub fn apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<Value, StatusError> {
        let nothing = self.zero();
        let live = live.unwrap_or(&nothing);
        let mut entries = Entries::parse(&live["metadata"]["managedFields"]).map_err(|what| {
            StatusError::server_error(format!("failed to decode managed fields: {what}"))
        })?;
        self.check_applied(applied)?;
        if entries.is_empty() {
            self.note_update(&nothing, live, &mut entries, BEFORE_FIRST_APPLY, now);
        }
        let attempt = self.merge_applied(live, applied, &entries, manager, force, now);
        let (mut object, entries) = match attempt {
            Err(conflicts) if manager == KUBECTL => {
                self.upgrade_from_client_side(live, applied, &entries, conflicts, now)?
            }
            attempt => attempt.map_err(|conflicts| conflict::refuse(&conflicts))?,
        };
        if manager == KUBECTL {
            update_last_applied(&mut object, applied);
        }
        entries.write_to(&mut object);
        Ok(object)
    }

    fn check_applied(&self, applied: &Value) -> Result<(), StatusError> {
        let text = |name: &str| applied[name].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if (api_version, kind) != (self.api_version, self.kind) {
            let shown = shown_type(api_version, kind);
            return Err(StatusError::bad_request(format!(
                "invalid object type: {shown}"
            )));
        }
        if applied["metadata"]["managedFields"].is_array() {
            return Err(StatusError::bad_request(
                "metadata.managedFields must be nil",
            ));
        }
        match validate(applied, self.of()) {
            None => Ok(()),
            Some(what) => Err(StatusError::server_error(format!(
                "failed to create typed patch object ({}): {what}",
                shown_object(applied)
            ))),
        }
    }

    /// The refusal of a merged object that cannot be decoded, with what the decoder says.
    pub fn refuse_undecodable(&self, applied: &Value, why: &str) -> StatusError {
        StatusError::server_error(format!(
            "failed to convert new object ({}) to proper version: unable to convert unstructured object to {}: {why}",
            shown_object(applied),
            shown_type(self.api_version, self.kind)
        ))
    }

    fn merge_applied(
        &self,
        live: &Value,
        applied: &Value,
        entries: &Entries,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<(Value, Entries), Vec<Conflict>> {
        let mut entries = self.known_versions(entries);
        let mut own = self.entry(manager, true);
        let identity = own.identity();
        let last = entries.remove(&identity);
        own.set = self.reset.filter(field_set(applied, self.of()));
        own.time = last.as_ref().and_then(|last| last.time.clone());
        entries.put(own);
        let merged = merge(live, applied, self.of());
        let object = match last {
            Some(last) => self.prune(merged, &entries, &last.set),
            None => merged,
        };
        self.take_over(live, &object, &mut entries, Some(manager), force)?;
        let unchanged = values_equal(live, &object);
        if let Some(mut own) = entries.remove(&identity) {
            own.set = own.set.difference(nobodys());
            if !unchanged {
                own.time = Some(now.to_owned());
            }
            if !own.set.is_empty() {
                entries.put(own);
            }
        }
        Ok((if unchanged { live.clone() } else { object }, entries))
    }

    fn entry(&self, manager: &str, applied: bool) -> Entry {
        let manager = if manager.is_empty() {
            "unknown"
        } else {
            manager
        };
        Entry {
            manager: manager.to_owned(),
            applied,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: None,
            set: FieldSet::new(),
        }
    }

    /// Without what is owned in versions that are gone, and in step with what the type now is.
    fn known_versions(&self, entries: &Entries) -> Entries {
        let is_known = |entry: &&Entry| {
            self.versions.is_empty() || self.versions.contains(&entry.api_version.as_str())
        };
        Entries(
            entries
                .0
                .iter()
                .filter(is_known)
                .map(|entry| Entry {
                    set: super::typed::fit_to_type(&entry.set, self.of()),
                    ..entry.clone()
                })
                .collect(),
        )
    }

    /// Takes from every other entry what differs between `old` and `new`. An applier (`by`) must be allowed to.
    fn take_over(
        &self,
        old: &Value,
        new: &Value,
        entries: &mut Entries,
        by: Option<&str>,
        force: bool,
    ) -> Result<Comparison, Vec<Conflict>> {
        let compared = Comparison::of(old, new, self.of()).filter(|set| self.reset.filter(set));
        let wanted = compared.modified.union(&compared.added);
        let own = by.map(|manager| self.entry(manager, true).identity());
        let is_other = |entry: &Entry| own.as_ref() != Some(&entry.identity());
        if !force {
            let mut others: Vec<&Entry> =
                entries.0.iter().filter(|entry| is_other(entry)).collect();
            others.sort_by_cached_key(|entry| entry.identity());
            let conflicts: Vec<Conflict> = others
                .into_iter()
                .filter_map(|entry| conflict::with(entry, &wanted))
                .collect();
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        for entry in entries.0.iter_mut().filter(|entry| is_other(entry)) {
            entry.set = entry.set.difference(&wanted).difference(&compared.removed);
        }
        entries.0.retain(|entry| !entry.set.is_empty());
        Ok(compared)
    }

    /// Removes what the applier applied last time and does not now, unless somebody else owns it.
    fn prune(&self, merged: Value, entries: &Entries, last: &FieldSet) -> Value {
        if last.is_empty() {
            return merged;
        }
        let of = self.of();
        let named = |set: &FieldSet| with_named_fields(set, Some(of));
        let all = named(&field_set(&merged, of));
        let pruned = remove(&merged, &named(last), of);
        let owned = entries.0.iter().map(|entry| entry.set.clone());
        let owned = FieldSet::union_all(owned.collect());
        let kept = named(&field_set(&pruned, of)).union(&named(&owned));
        let pruned = remove(&merged, &all.difference(&kept), of);
        // What went along with it without being the applier's comes back.
        let gone = all.difference(&named(&field_set(&pruned, of)));
        remove(&merged, &gone.intersection(&named(last)), of)
    }

    /// What a manager that does not apply owns after turning `old` into `new`.
    pub(super) fn note_update(
        &self,
        old: &Value,
        new: &Value,
        entries: &mut Entries,
        manager: &str,
        now: &str,
    ) {
        *entries = self.known_versions(entries);
        let Ok(compared) = self.take_over(old, new, entries, None, true) else {
            return;
        };
        // What cannot be named cannot be owned, and then the original keeps no books at all.
        if compared.nameless {
            *entries = Entries::default();
            return;
        }
        let set = compared.modified.union(&compared.added);
        let set = set.difference(nobodys());
        if !set.is_empty() {
            let mut own = self.entry(manager, false);
            let before = entries.remove(&own.identity());
            own.set = before
                .map_or_else(FieldSet::new, |before| before.set)
                .union(&set);
            own.time = Some(now.to_owned());
            entries.put(own);
        }
        cap_updaters(entries);
    }

    /// kubectl may take from its former self what it applied on the client's side and what is still as it applied it.
    fn upgrade_from_client_side(
        &self,
        live: &Value,
        applied: &Value,
        entries: &Entries,
        conflicts: Vec<Conflict>,
        now: &str,
    ) -> Result<(Value, Entries), StatusError> {
        let Some(allowed) = self.last_applied_fields(live) else {
            return Err(conflict::refuse(&conflicts));
        };
        let left: Vec<Conflict> = conflicts
            .into_iter()
            .map(|conflict| Conflict {
                fields: conflict.fields.difference(&allowed),
                ..conflict
            })
            .filter(|conflict| !conflict.fields.is_empty())
            .collect();
        if !left.is_empty() {
            return Err(conflict::refuse(&left));
        }
        self.merge_applied(live, applied, entries, KUBECTL, true, now)
            .map_err(|conflicts| conflict::refuse(&conflicts))
    }

    fn last_applied_fields(&self, live: &Value) -> Option<FieldSet> {
        let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
        let last = crate::depth::parse(text.as_bytes())?;
        if last["apiVersion"] != self.api_version || validate(&last, self.of()).is_some() {
            return None;
        }
        let compared = Comparison::of(&last, live, self.of());
        let set = field_set(&last, self.of())
            .difference(&compared.modified)
            .difference(&compared.added)
            .difference(&compared.removed);
        Some(set)
    }
}

/// `default/web; apps/v1, Kind=Deployment`
fn shown_object(applied: &Value) -> String {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &applied["metadata"];
    format!(
        "{}/{}; {}",
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        shown_type(&text(&applied["apiVersion"]), &text(&applied["kind"]))
    )
}

/// `apps/v1, Kind=Deployment`
fn shown_type(api_version: &str, kind: &str) -> String {
    let (group, version, kind) = match api_version.split_once('/') {
        Some((_, rest)) if rest.contains('/') => ("", "", ""),
        Some((group, version)) => (group, version, kind),
        None => ("", api_version, kind),
    };
    format!("{group}/{version}, Kind={kind}")
}

/// Merges the oldest entries of updates, those of one version into one.
fn cap_updaters(entries: &mut Entries) {
    let updaters = entries.0.iter().filter(|one| !one.applied);
    let mut excess = updaters.clone().count().saturating_sub(MAX_UPDATERS);
    if excess == 0 {
        return;
    }
    let mut updaters: Vec<Entry> = updaters.cloned().collect();
    updaters.sort_by_cached_key(|one| (one.time.clone(), one.identity()));
    let mut left = Slots::of(std::mem::take(entries));
    // By version: the oldest entry, and what becomes part of one.
    let mut firsts: BTreeMap<String, Identity> = BTreeMap::new();
    let mut merged: BTreeMap<String, (Identity, Vec<FieldSet>)> = BTreeMap::new();
    for updater in updaters {
        if excess == 0 {
            break;
        }
        let version = updater.api_version.clone();
        let Some(first) = firsts.get(&version) else {
            firsts.insert(version, updater.identity());
            continue;
        };
        let bucket = Entry {
            manager: ANCIENT.to_owned(),
            subresource: String::new(),
            ..updater.clone()
        };
        let before = left
            .remove(&bucket.identity())
            .or_else(|| left.remove(first));
        left.remove(&updater.identity());
        let (_, parts) = merged
            .entry(version)
            .or_insert_with(|| (bucket.identity(), Vec::new()));
        parts.extend(before.map(|before| before.set));
        parts.push(updater.set);
        left.put(bucket);
        excess -= 1;
    }
    for (identity, parts) in merged.into_values() {
        if let Some(bucket) = left.get_mut(&identity) {
            bucket.set = FieldSet::union_all(parts);
        }
    }
    *entries = left.into_entries();
}

/// Keeps the annotation that client-side apply works with in step, where there is one.
fn update_last_applied(object: &mut Value, applied: &Value) {
    let Some(Value::Object(annotations)) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
    else {
        return;
    };
    let present = annotations
        .get(LAST_APPLIED)
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    if !present {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(given)) = applied
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
    {
        given.remove(LAST_APPLIED);
    }
    // As Go writes JSON: harmless within HTML, and with a line's end.
    let mut text = escape_html(&applied.to_string());
    text.push('\n');
    annotations.insert(LAST_APPLIED.to_owned(), text.into());
    let total: usize = annotations
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if total > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}
