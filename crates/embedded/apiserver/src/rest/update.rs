//! PUT: a changed object; and what every change of an object goes through.

use http::StatusCode;
use serde_json::Value;

use super::actions::precondition_failed;
use super::create::{insert_new, settle_namespace, without_repeated_owners};
use super::options::{WriteOptions, revision, write_options};
use super::write::{RETRIES, Stopped, Written, metadata_of};
use super::{Call, aside, meta};
use crate::answer::Answer;
use crate::field::{FieldError, Path};
use crate::kinds::quantity::Quantity;
use crate::kinds::{Kind, Lookup, pod, signing};
use crate::managed;
use crate::status::StatusError;

pub async fn update(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "UpdateOptions", false)?;
    let decoded = call.decode_body(body, &options)?;
    let mut warnings = decoded.warnings;
    let mut object = decoded.object;
    let meant = settle_namespace(call, &mut object).and_then(|()| check_name(call, &object));
    if let Err(refused) = meant {
        return Err(refused.with_warnings(warnings));
    }
    let written = replace(call, &options, &mut warnings, |current, _| {
        let mut object = object.clone();
        if current.is_null() {
            // It is not there: the version that was meant does not matter.
            metadata_of(&mut object).remove("resourceVersion");
        }
        Ok(object)
    })
    .await;
    let written = match written {
        Ok(written) => written,
        Err(refused) => return Err(refused.with_warnings(warnings)),
    };
    let code = if written.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    call.written_answer(code, &written.object, &warnings)
}

/// The object does not say what it is called.
pub fn undeterminable(call: &Call<'_>) -> StatusError {
    StatusError::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        call.path.name
    ))
}

/// The object has to be called what the path calls it.
pub fn check_name(call: &Call<'_>, object: &Value) -> Result<(), StatusError> {
    let name = meta(object, "name");
    if name.is_empty() {
        return Err(undeterminable(call));
    }
    if name != call.path.name {
        return Err(name_mismatch(call, name));
    }
    Ok(())
}

pub fn name_mismatch(call: &Call<'_>, name: &str) -> StatusError {
    StatusError::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({})",
        call.path.name
    ))
}

/// As [`change_tracked`], for changes that do not note their managers themselves.
pub async fn replace(
    call: &Call<'_>,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
    change: impl Fn(&Value, &mut Vec<String>) -> Result<Value, StatusError>,
) -> Result<Written, StatusError> {
    change_tracked(call, options, warnings, |current, warnings| {
        let mut new = change(current, warnings)?;
        if current.is_null() {
            call.track_new(&mut new);
        } else {
            call.track_change(current, &mut new);
        }
        Ok(new)
    })
    .await
}

/// Changes an object by `change`, which is given the present one (null: there is none) and a place for warnings, again
/// if somebody else was faster.
pub async fn change_tracked(
    call: &Call<'_>,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
    change: impl Fn(&Value, &mut Vec<String>) -> Result<Value, StatusError>,
) -> Result<Written, StatusError> {
    let key = call.key();
    let said_before = warnings.len();
    for _ in 0..RETRIES {
        warnings.truncate(said_before);
        let Some(current) = call.server.store().get(&call.served.shelf, &key) else {
            let object = change(&Value::Null, warnings)?;
            return create_instead(call, options, warnings, object).await;
        };
        call.check_shown(&current)?;
        let old = call.served.as_shown(current.value());
        let mut new = without_repeated_owners(change(&old, warnings)?, warnings);
        let given_revision = check_revision(call, &new, &old, current.revision)?;
        finish_change(call, &old, &mut new, warnings).await?;
        call.forget_empty_lists(&mut new);
        managed::keep_times(&old, &mut new);
        if call.path.subresource.is_empty() {
            call.charge_quotas(&new, Some(&old), options.dry_run)
                .await?;
        }
        match call
            .store_changed(&current, &old, new, options.dry_run)
            .await
        {
            Ok(written) => {
                if !options.dry_run {
                    call.server.after_write(call).await;
                }
                return Ok(written);
            }
            Err(Stopped::Refused(failure)) => return Err(failure),
            Err(Stopped::Raced(_)) if given_revision => return Err(modified(call)),
            Err(Stopped::Raced(_)) => {}
        }
    }
    Err(modified(call))
}

async fn create_instead(
    call: &Call<'_>,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
    object: Value,
) -> Result<Written, StatusError> {
    if !call.served.rules.create_on_update || !call.path.subresource.is_empty() {
        return Err(call.not_found());
    }
    let object = insert_new(call, object, options, warnings).await?;
    Ok(Written {
        object,
        created: true,
        deleted: false,
    })
}

/// Whether the client gave the version that it means to change; that it is the present one.
fn check_revision(
    call: &Call<'_>,
    new: &Value,
    old: &Value,
    present: u64,
) -> Result<bool, StatusError> {
    let given = meta(new, "resourceVersion");
    let uid = meta(new, "uid");
    if !uid.is_empty() && uid != meta(old, "uid") && call.info.verb == "update" {
        return Err(precondition_failed(
            call,
            &call.path.name,
            "UID",
            uid,
            meta(old, "uid"),
        ));
    }
    if given.is_empty() || given == "0" {
        if call.served.rules.unconditional_update {
            return Ok(false);
        }
        let path = Path::new("metadata").child("resourceVersion");
        let error = FieldError::invalid(&path, 0, "must be specified for an update");
        let subject = call.served.resource.as_subject();
        return Err(StatusError::invalid(subject, &call.path.name, &[error]));
    }
    let wanted = revision(given).map_err(|error| {
        // Here Kubernetes names no field.
        let plain = error.find("strconv").map(|at| error[at..].to_owned());
        StatusError::server_error(plain.unwrap_or(error))
    })?;
    if wanted != present {
        return Err(modified(call));
    }
    Ok(true)
}

pub fn modified(call: &Call<'_>) -> StatusError {
    StatusError::conflict(
        call.served.resource.as_subject(),
        &call.path.name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// What a kind has against a change.
async fn objections(
    call: &Call<'_>,
    new: &Value,
    old: &Value,
    find: fn(&dyn Kind, &Value, &Value) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let kind = call.served.kind();
    if !kind.takes_time() {
        return find(kind, new, old);
    }
    let (new, old) = (new.clone(), old.clone());
    aside::objections(call.served, move |kind| find(kind, &new, &old)).await
}

/// Puts back what this request may not change, admits, and checks the result.
async fn finish_change(
    call: &Call<'_>,
    old: &Value,
    new: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let kind = call.served.kind();
    metadata_of(new).insert(
        "resourceVersion".into(),
        meta(old, "resourceVersion").into(),
    );
    if matches!(call.path.subresource.as_str(), "status" | "approval") {
        keep_all_but_status(call, new, old);
        if call.path.subresource == "approval" {
            keep_all_but_conditions(new, old);
        }
        signing::note_times(&call.served.shelf, new, old, call.now);
        call.keep_metadata(new, old);
        kind.prepare_status_update(new, old);
        note_phase(call, new, old);
        let errors = objections(call, new, old, |kind, new, old| {
            kind.validate_status_update(new, old)
        })
        .await;
        fail_if_any(call, &errors)?;
        return call.judge(new, Some(old), warnings);
    }
    match call.path.subresource.as_str() {
        "ephemeralcontainers" => {
            call.keep_metadata(new, old);
            pod::prepare_ephemeral_containers(new, old);
            fail_if_any(call, &pod::validate_ephemeral_containers(new, old))?;
            return call.judge(new, Some(old), warnings);
        }
        "resize" => {
            call.keep_metadata(new, old);
            pod::prepare_resize(new, old);
            fail_if_any(call, &pod::validate_resize(new, old))?;
            fits_its_node(call, new)?;
            return call.judge(new, Some(old), warnings);
        }
        "finalize" => {
            let (wanted, entries) = (
                new["spec"].clone(),
                new["metadata"]["managedFields"].clone(),
            );
            *new = old.clone();
            new["spec"] = wanted;
            if !entries.is_null() {
                new["metadata"]["managedFields"] = entries;
            }
            fail_if_any(call, &kind.validate_update(new, old))?;
            return call.judge(new, Some(old), warnings);
        }
        _ => {}
    }
    kind.admit(new, Some(old), call.server)?;
    call.keep_metadata(new, old);
    call.server.complete(call, new, Some(old))?;
    kind.prepare_update(new, old);
    call.check_grant(new, Some(old))?;
    let errors = objections(call, new, old, |kind, new, old| {
        kind.validate_update(new, old)
    })
    .await;
    fail_if_any(call, &errors)?;
    kind.approve(new, Some(old), call.server)?;
    call.judge(new, Some(old), warnings)?;
    call.server.before_update(call, new);
    warnings.extend(kind.warnings(new, Some(old)));
    warnings.extend(kind.advice(new, Some(old), call.server));
    warnings.extend(call.server.gap(call.served, new, Some(old)));
    Ok(())
}

/// Since when a persistent volume has been in its phase, unless whoever changes it says so.
fn note_phase(call: &Call<'_>, new: &mut Value, old: &Value) {
    const SINCE: &str = "lastPhaseTransitionTime";
    let (now, then) = (&new["status"], &old["status"]);
    let is_told = !now[SINCE].is_null() && now[SINCE] != then[SINCE];
    if call.served.shelf.as_ref() == "persistentvolumes"
        && now["phase"] != then["phase"]
        && !is_told
    {
        new["status"][SINCE] = plimsoll_golang::time::show_seconds(call.now).into();
    }
}

/// A pod grows only as far as its node can bear alone.
fn fits_its_node(call: &Call<'_>, pod: &Value) -> Result<(), StatusError> {
    let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Ok(());
    }
    let refuse = |why: String| {
        StatusError::forbidden(call.served.resource.as_subject(), &call.path.name, &why)
    };
    let node = call.server.get("nodes", "", name).ok_or_else(|| {
        refuse(format!(
            "node {} not found",
            plimsoll_golang::strconv::quote(name)
        ))
    })?;
    for (resource, (wanted, _)) in pod::resources::pod_total(&pod["spec"], "requests") {
        let room = node["status"]["allocatable"][resource].as_str();
        if matches!(resource, "cpu" | "memory")
            && room.is_some_and(|room| wanted > Quantity::of(room))
        {
            let unit = |amount: Quantity| {
                if resource == "cpu" {
                    amount.0 / 1_000_000
                } else {
                    amount.0 / 1_000_000_000
                }
            };
            let mut refused = refuse(format!(
                "node didn't have enough allocatable resources: {resource}, requested: {}, allocatable: {}",
                unit(wanted),
                unit(Quantity::of(room.unwrap_or_default()))
            ));
            refused.details.get_or_insert_default().insert(
                "causes".into(),
                serde_json::json!([{"reason": "NodeCapacity"}]),
            );
            return Err(refused);
        }
    }
    Ok(())
}

fn fail_if_any(call: &Call<'_>, errors: &[FieldError]) -> Result<(), StatusError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(call.invalid(&call.path.name, errors))
}

/// Of the status, only the conditions say whether somebody approves.
fn keep_all_but_conditions(new: &mut Value, old: &Value) {
    let conditions = new["status"]["conditions"].take();
    new["status"] = old["status"].clone();
    if let Some(status) = new["status"].as_object_mut() {
        status.remove("conditions");
    }
    if !conditions.is_null() {
        new["status"]["conditions"] = conditions;
    }
}

/// Through `/status` the status changes, and with most kinds labels and annotations too.
fn keep_all_but_status(call: &Call<'_>, new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else {
        return;
    };
    new.retain(|key, _| matches!(key.as_str(), "metadata" | "status"));
    for (key, value) in old {
        if !matches!(key.as_str(), "metadata" | "status") {
            new.insert(key.clone(), value.clone());
        }
    }
    let kept: &[&str] = match call.served.shelf.as_ref() {
        "deployments.apps" => &["labels"],
        "flowschemas.flowcontrol.apiserver.k8s.io"
        | "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
        | "resourceclaims.resource.k8s.io" => {
            &["labels", "annotations", "finalizers", "ownerReferences"]
        }
        "pods" => &["ownerReferences"],
        _ => &[],
    };
    for field in kept {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][*field] = value.clone(),
            None => {
                if let Some(meta) = new.get_mut("metadata").and_then(Value::as_object_mut) {
                    meta.remove(*field);
                }
            }
        }
    }
}
