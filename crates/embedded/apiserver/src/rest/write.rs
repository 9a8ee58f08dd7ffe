//! What all writes share: the last steps before an object is stored, and the answer after.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{Call, aside, finalizers, fit, is_being_deleted};
use crate::answer::{self, Answer};
use crate::codec::kept;
use crate::custom::DEFINITIONS;
use crate::field::FieldError;
use crate::status::StatusError;
use crate::store::{Expect, Mismatch, NewError, Stored, WriteError};

/// Why a write did not happen.
#[derive(Debug)]
pub enum Stopped {
    Refused(StatusError),
    /// Somebody else was faster.
    Raced(Mismatch),
}

impl From<StatusError> for Stopped {
    fn from(failure: StatusError) -> Self {
        Self::Refused(failure)
    }
}

/// A written object, or one that would have been.
#[derive(Debug)]
pub struct Written {
    pub object: Value,
    pub created: bool,
    /// The write removed the last finalizer of an object that was to be deleted.
    pub deleted: bool,
}

impl Call<'_> {
    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> StatusError {
        let mut kind = self.served.resource.as_kind();
        // Events are the core group's, whichever way they come.
        if self.served.shelf.as_ref() == "events" {
            kind.group = "";
        }
        StatusError::invalid(kind, name, errors)
    }

    pub fn not_found(&self) -> StatusError {
        StatusError::not_found(self.served.resource.as_subject(), &self.path.name)
    }

    /// Objects are made in namespaces that exist and stay.
    pub fn check_namespace(&self, namespace: &str, name: &str) -> Result<(), StatusError> {
        if !self.served.resource.namespaced() {
            return Ok(());
        }
        let Some(found) = self.server.store().get("namespaces", namespace) else {
            let subject = crate::status::Subject {
                group: "",
                kind: "namespaces",
            };
            return Err(StatusError::not_found(subject, namespace));
        };
        if !is_being_deleted(&found.value()) {
            return Ok(());
        }
        Err(self.terminating(namespace, name))
    }

    /// What a definition that is being deleted says to new objects.
    pub fn definition_terminating(&self, name: &str) -> StatusError {
        StatusError::forbidden(
            self.served.resource.as_subject(),
            name,
            "create not allowed while custom resource definition is terminating",
        )
    }

    fn terminating(&self, namespace: &str, name: &str) -> StatusError {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut refused = StatusError::forbidden(self.served.resource.as_subject(), name, &why);
        refused.details.get_or_insert_default().insert(
            "causes".into(),
            json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]),
        );
        refused
    }

    /// Numbers of custom resources are judged as they came and kept as they are written.
    fn as_written(&self, mut object: Value) -> Value {
        if self.served.is_custom() {
            crate::crd::write_whole_numbers_so(&mut object);
        }
        self.forget_empty_lists(&mut object);
        object
    }

    /// The built-in kinds lose lists without elements, some groups only those that may be left out.
    pub fn forget_empty_lists(&self, object: &mut Value) {
        let kept = match self.served.resource.group.as_str() {
            // Those of the last two are answered and not kept.
            "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "authentication.k8s.io"
            | "authorization.k8s.io" => kept::As::Json,
            _ => kept::As::Protobuf,
        };
        self.forget_empty_lists_as(kept, object);
    }

    pub fn forget_empty_lists_as(&self, kept: kept::As, object: &mut Value) {
        if !self.served.is_custom() {
            let (types, shape) = self.served.types();
            kept::forget_empty_lists(types, shape, kept, object);
        }
    }

    /// Stores a new object. `object` is prepared and valid.
    pub async fn store_new(
        &self,
        key: &str,
        object: Value,
        dry_run: bool,
    ) -> Result<Value, Stopped> {
        let object = self.as_written(object);
        self.check_kept()?;
        fit::check(&object)?;
        let store = self.server.store();
        let name = key.rsplit('/').next().unwrap_or_default();
        if dry_run {
            return match store.get(&self.served.shelf, key) {
                Some(found) => Err(Stopped::Raced(Mismatch(Some(found)))),
                None => Ok(object),
            };
        }
        let mut object = self.served.as_kept(object);
        let attributes = self.served.attributes(&object);
        let namespace = self.path.namespace.as_str();
        let shelf = self.served.shelf.as_ref();
        let within = self.served.resource.namespaced();
        let within = within.then_some(("namespaces", namespace));
        let definition = self.served.is_custom().then_some((DEFINITIONS, shelf));
        let homes: Vec<(&str, &str)> = within.into_iter().chain(definition).collect();
        let written = store.put_new(shelf, key, &homes, &mut object, attributes);
        written.await.map_err(|error| match error {
            NewError::Homeless(home) if home.as_ref() == DEFINITIONS => {
                self.definition_terminating(name).into()
            }
            NewError::Homeless(_) => self.terminating(namespace, name).into(),
            NewError::Write(error) => self.stopped(name, error),
        })?;
        Ok(self.served.as_shown(object))
    }

    /// Stores a changed object, or deletes it if nothing holds it any more. `old` is what `current` shows.
    pub async fn store_changed(
        &self,
        current: &Stored,
        old: &Value,
        object: Value,
        dry_run: bool,
    ) -> Result<Written, Stopped> {
        let mut object = self.as_written(object);
        if !dry_run {
            metadata_of(&mut object).remove("selfLink");
        }
        let store = self.server.store();
        let expect = Expect::Revision(current.revision);
        if self.nothing_holds(&object) {
            if dry_run {
                return Ok(written(object, true));
            }
            store
                .delete(&self.served.shelf, &current.key, expect)
                .await
                .map_err(|error| self.stopped(current.name(), error))?;
            // The client gets what it wrote, in the version that it changed.
            return Ok(written(object, true));
        }
        self.check_kept()?;
        fit::check(&object)?;
        if dry_run || (object == *old && !self.served.is_custom()) {
            return Ok(written(object, false));
        }
        let mut object = self.served.as_kept(object);
        // A write that changes nothing is none. Defaults that a custom resource got later are a change.
        if self.served.is_custom() && object == current.value() {
            return Ok(written(self.served.as_shown(object), false));
        }
        let attributes = self.served.attributes(&object);
        store
            .put(
                &self.served.shelf,
                &current.key,
                expect,
                &mut object,
                attributes,
            )
            .await
            .map_err(|error| self.stopped(current.name(), error))?;
        Ok(written(self.served.as_shown(object), false))
    }

    /// Whether a stored object can be shown in the version that was asked for.
    pub fn check_shown(&self, stored: &Stored) -> Result<(), StatusError> {
        let refused = self.served.cannot_show(&stored.bytes(), self.server);
        refused.map_or(Ok(()), Err)
    }

    /// Whether all stored objects whose keys begin so can, whether they are selected or not.
    pub fn check_all_shown(&self, prefix: &str) -> Result<(), StatusError> {
        if !self.served.asks_webhook() {
            return Ok(());
        }
        let shelf = &self.served.shelf;
        let all = self
            .server
            .store()
            .list(shelf, prefix, None, None, usize::MAX, |_| true);
        let items = all.map(|page| page.items).unwrap_or_default();
        items.iter().try_for_each(|item| self.check_shown(item))
    }

    /// The same for a watch. A real server feeds it from a cache of all objects, which is then never filled.
    pub fn check_watched(&self) -> Result<(), StatusError> {
        let resource = &self.served.resource;
        self.check_all_shown("").map_err(|refused| {
            let mut failure = StatusError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                format!(
                    "storage is (re)initializing: failed to list {}, Kind={}: {}",
                    resource.api_version(),
                    resource.kind,
                    refused.message
                ),
            );
            failure.retry_after = Some(1);
            failure
        })
    }

    /// Whether objects of the version that was asked for can be kept.
    fn check_kept(&self) -> Result<(), StatusError> {
        self.served.cannot_keep(self.server).map_or(Ok(()), Err)
    }

    /// Whether an object that is being deleted can go: no finalizer is left, and its grace is over.
    pub fn nothing_holds(&self, object: &Value) -> bool {
        let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
        is_being_deleted(object)
            && finalizers(object).is_empty()
            && grace.unwrap_or(0) == 0
            && object["spec"]["finalizers"]
                .as_array()
                .is_none_or(|left| self.served.shelf.as_ref() != "namespaces" || left.is_empty())
    }

    pub fn stopped(&self, name: &str, error: WriteError) -> Stopped {
        match error {
            WriteError::Mismatch(present) => Stopped::Raced(present),
            WriteError::NotKept => self
                .not_kept(&self.served.resource.qualified(), name)
                .into(),
        }
    }

    /// What a client is told when the disk refuses.
    pub fn not_kept(&self, resource: &str, name: &str) -> StatusError {
        let trouble = self.server.store().trouble();
        let why = trouble.unwrap_or_else(|| "the database could not be written".to_owned());
        StatusError::internal(format!("{resource} {name:?} was not stored: {why}"))
    }

    /// The metadata that a server gives to a new object.
    pub fn stamp_new(&self, object: &mut Value) {
        let meta = metadata_of(object);
        meta.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
        meta.insert(
            "creationTimestamp".into(),
            plimsoll_golang::time::show_seconds(self.now).into(),
        );
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            meta.remove(field);
        }
        if !self.served.resource.namespaced() {
            meta.remove("namespace");
        }
    }

    /// The metadata that an update cannot change, put back.
    pub fn keep_metadata(&self, new: &mut Value, old: &Value) {
        let meta = metadata_of(new);
        let old = &old["metadata"];
        for field in ["generation", "creationTimestamp"] {
            match old.get(field) {
                Some(value) => meta.insert(field.into(), value.clone()),
                None => meta.remove(field),
            };
        }
        // What is being deleted has been since then, whatever anybody says.
        if let Some(since) = old.get("deletionTimestamp") {
            meta.insert("deletionTimestamp".into(), since.clone());
        }
        let kept = ["uid", "namespace", "deletionGracePeriodSeconds"];
        for field in kept {
            if meta
                .get(field)
                .is_none_or(|value| value.is_null() || value == "")
                && let Some(value) = old.get(field)
            {
                meta.insert(field.into(), value.clone());
            }
        }
    }

    pub async fn check_new(&self, object: &Value) -> Result<(), StatusError> {
        let kind = self.served.kind();
        let errors = if kind.takes_time() {
            let object = object.clone();
            aside::objections(self.served, move |kind| kind.validate_create(&object)).await
        } else {
            kind.validate_create(object)
        };
        if errors.is_empty() {
            return kind.approve(object, None, self.server);
        }
        Err(self.invalid(super::meta(object, "name"), &errors))
    }

    /// An object as the answer to a write.
    pub fn written_answer(
        &self,
        code: StatusCode,
        object: &Value,
        warnings: &[String],
    ) -> Result<Answer, StatusError> {
        let bytes = if self.served.converts() {
            serde_json::to_vec(&self.served.as_kept(object.clone()))
        } else {
            serde_json::to_vec(object)
        };
        let bytes: Bytes = bytes.unwrap_or_default().into();
        let mut answer = self.object_answer(code, &bytes)?;
        answer::add_warnings(&mut answer, warnings);
        Ok(answer)
    }
}

fn written(object: Value, deleted: bool) -> Written {
    Written {
        object,
        created: false,
        deleted,
    }
}

/// The object's metadata, made if it is not there.
pub fn metadata_of(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

/// For races that are lost again and again.
pub const RETRIES: usize = 100;

pub type SharedStored = Arc<Stored>;
