//! POST: a new object.

use http::StatusCode;
use serde_json::Value;

use super::options::{WriteOptions, write_options};
use super::write::{Stopped, metadata_of};
use super::{Call, is_being_deleted, meta};
use std::collections::HashSet;

use crate::answer::Answer;
use crate::status::StatusError;
use crate::{policies, rights};

/// The letters of generated names: none that make words, none that look alike.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const MAX_GENERATED: usize = 63;
/// How often another name is tried when a generated one is taken.
const NAME_TRIES: usize = 8;

pub async fn create(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "CreateOptions", false)?;
    let decoded = call.decode_body(body, &options)?;
    let mut warnings = decoded.warnings;
    let created = create_object(call, decoded.object, &options, &mut warnings).await;
    let object = match created {
        Ok(object) => object,
        Err(refused) => return Err(refused.with_warnings(warnings)),
    };
    call.written_answer(StatusCode::CREATED, &object, &warnings)
}

/// For an object of a definition that is being deleted.
pub fn refuse_while_terminating(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "CreateOptions", false)?;
    let decoded = call.decode_body(body, &options)?;
    Err(call.definition_terminating(meta(&decoded.object, "name")))
}

/// Everything between a decoded object and a stored one.
pub async fn create_object(
    call: &Call<'_>,
    mut object: Value,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value, StatusError> {
    settle_namespace(call, &mut object)?;
    let meta = metadata_of(&mut object);
    meta.remove("deletionTimestamp");
    meta.remove("deletionGracePeriodSeconds");
    call.track_new(&mut object);
    insert_new(call, object, options, warnings).await
}

/// From here on the managers of the fields are settled.
pub async fn insert_new(
    call: &Call<'_>,
    object: Value,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value, StatusError> {
    let mut object = without_repeated_owners(object, warnings);
    let generated = meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty();
    let namespace = call.path.namespace.as_str();
    let kind = call.served.kind();
    let mut tries = 0;
    loop {
        tries += 1;
        // Only a generated name is tried again.
        let mut attempt = if generated {
            object.clone()
        } else {
            std::mem::take(&mut object)
        };
        if generated {
            let name = generated_name(meta(&attempt, "generateName"));
            metadata_of(&mut attempt).insert("name".into(), name.into());
        }
        let name = meta(&attempt, "name").to_owned();
        call.check_namespace(namespace, &name)?;
        kind.admit(&mut attempt, None, call.server)?;
        call.server.complete(call, &mut attempt, None)?;
        call.stamp_new(&mut attempt);
        if tries == 1 {
            warnings.extend(kind.notices(&attempt));
        }
        kind.prepare_create(&mut attempt);
        let version = meta(&attempt, "resourceVersion");
        if version == "0" {
            metadata_of(&mut attempt).remove("resourceVersion");
        } else if !version.is_empty() && !options.dry_run {
            // Only what is to be stored is refused for it.
            return Err(StatusError::server_error(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        call.check_grant(&attempt, None)?;
        call.check_new(&attempt).await?;
        call.may_create()?;
        call.judge(&attempt, None, warnings)?;
        call.server.before_create(call, &mut attempt);
        if tries == 1 {
            warnings.extend(kind.warnings(&attempt, None));
            warnings.extend(kind.advice(&attempt, None, call.server));
            warnings.extend(call.server.gap(call.served, &attempt, None));
        }
        let key = call.served.key(namespace, meta(&attempt, "name"));
        call.charge_quotas(&attempt, None, options.dry_run).await?;
        match call.store_new(&key, attempt, options.dry_run).await {
            Ok(stored) => {
                call.server.after_write(call).await;
                return Ok(stored);
            }
            Err(Stopped::Refused(failure)) => return Err(failure),
            Err(Stopped::Raced(_)) if generated && tries < NAME_TRIES => {}
            Err(Stopped::Raced(present)) => {
                let mut failure =
                    StatusError::already_exists(call.served.resource.as_subject(), &name);
                if present
                    .0
                    .is_some_and(|stored| is_being_deleted(&stored.value()))
                {
                    failure.message = format!("object is being deleted: {}", failure.message);
                }
                return Err(failure);
            }
        }
    }
}

impl Call<'_> {
    /// Nobody grants what they do not have.
    pub fn check_grant(&self, object: &Value, old: Option<&Value>) -> Result<(), StatusError> {
        let authority = self.server.authority();
        authority.check_escalation(self.user, self.path, object, old)
    }

    /// The last word on a write is of those who judge it without changing it.
    pub fn judge(
        &self,
        object: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), StatusError> {
        rights::check(self, object, old)?;
        policies::check(self, object, old, warnings)
    }

    /// Whoever makes an object by another request has to be allowed to create it as well.
    fn may_create(&self) -> Result<(), StatusError> {
        let authority = self.server.authority();
        match self.info.verb {
            "create" => Ok(()),
            _ => authority.authorize_also(self.user, self.info, "create"),
        }
    }
}

/// An owner counts once, however often it is named.
pub fn without_repeated_owners(mut object: Value, warnings: &mut Vec<String>) -> Value {
    let owners = object.pointer_mut("/metadata/ownerReferences");
    let Some(owners) = owners.and_then(Value::as_array_mut) else {
        return object;
    };
    let mut seen: HashSet<Value> = HashSet::new();
    let mut repeated: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let is_new = seen.insert(owner.clone());
        if !is_new {
            repeated.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_new
    });
    if !repeated.is_empty() {
        warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
    object
}

pub fn settle_namespace(call: &Call<'_>, object: &mut Value) -> Result<(), StatusError> {
    if !call.served.resource.namespaced() {
        // What is in no namespace is not asked which one it is in.
        metadata_of(object).remove("namespace");
        return Ok(());
    }
    let given = meta(object, "namespace");
    if !given.is_empty() && given != call.path.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata_of(object).insert("namespace".into(), call.path.namespace.as_str().into());
    Ok(())
}

fn generated_name(base: &str) -> String {
    let mut end = base.len().min(MAX_GENERATED - SUFFIX_LENGTH);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    for _ in 0..SUFFIX_LENGTH {
        let letter = SUFFIX_LETTERS[fastrand::usize(..SUFFIX_LETTERS.len())];
        name.push(char::from(letter));
    }
    name
}
