//! PATCH: four ways to say what is to change.

use http::{StatusCode, header};
use serde_json::Value;

use super::options::{FieldValidation, WriteOptions, write_options};
use super::track::forget_what_it_is;
use super::update::{check_name, replace, undeterminable};
use super::{Call, meta};
use crate::answer::Answer;
use crate::codec::decode::decode;
use crate::codec::json::Node;
use crate::field::{FieldError, Path};
use crate::patch::{self, PatchKind, Patched};
use crate::resource::builtin_type;
use crate::schema::{Shape, Types};
use crate::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;

pub const APPLY: &str = "application/apply-patch+yaml";

pub async fn patch(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let media = call
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if media == APPLY {
        return super::apply::apply(call, body).await;
    }
    let kind = PatchKind::from_media_type(media)
        .filter(|kind| *kind != PatchKind::Strategic || !call.served.is_custom())
        .ok_or_else(|| unsupported(call))?;
    let options = write_options(call.query, "PatchOptions", false)?;
    let mut warnings = Vec::new();
    let written = replace(call, &options, &mut warnings, |current, warnings| {
        if current.is_null() {
            return Err(call.not_found());
        }
        let (object, complaints) = patched(call, kind, current, body, &options)?;
        warnings.extend(complaints);
        Ok(object)
    })
    .await;
    match written {
        Ok(written) => call.written_answer(StatusCode::OK, &written.object, &warnings),
        Err(refused) if refused.warnings.is_empty() => Err(refused.with_warnings(warnings)),
        Err(refused) => Err(refused),
    }
}

pub fn unsupported(call: &Call<'_>) -> StatusError {
    if !call.served.is_custom() {
        return StatusError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )
        .with_details(serde_json::Map::new());
    }
    let media = [
        "application/json-patch+json",
        "application/merge-patch+json",
        APPLY,
    ];
    StatusError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            media.join(", ")
        ),
    )
}

/// The object that the patch makes of the current one, decoded; and what is to be said about it.
fn patched(
    call: &Call<'_>,
    kind: PatchKind,
    current: &Value,
    body: &[u8],
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), StatusError> {
    let mut whole = current.clone();
    call.say_what_it_is(&mut whole);
    // It may be kept with fields that this version of a custom resource does not have, which are not the patch's.
    if call.served.is_custom()
        && let Ok(decoded) = call.served.normalised(&whole)
    {
        whole = decoded.value;
    }
    let (types, shape) = call.served.types();
    let shown_as = shown_as(call);
    let strict = options.validation != FieldValidation::Ignore;
    let mut patched = patch::apply(kind, types, shape, &whole, body, strict)?;
    if kind == PatchKind::Strategic && patched.object.is_object() {
        // Such a patch is applied to a typed object, which stays what it is whatever is taken from it.
        call.say_what_it_is(&mut patched.object);
    }
    keep_identity(&mut patched.object, &whole);
    if !call.served.is_custom() && says_no_version(&patched.object) {
        return Err(nothing_known(call, &patched, options));
    }
    let decoded = match kind {
        PatchKind::Strategic => call.served.converted(&patched.object),
        PatchKind::Json | PatchKind::Merge => call.served.normalised(&patched.object),
    };
    let decoded = decoded.map_err(|error| patched.refuse(types, shown_as, &error.to_string()))?;
    let mut complaints = patched.complaints.clone();
    complaints.extend(decoded.objections);
    if !complaints.is_empty() && options.validation == FieldValidation::Strict {
        return Err(patched.refuse(
            types,
            shown_as,
            &format!("strict decoding error: {}", complaints.join(", ")),
        ));
    }
    if options.validation == FieldValidation::Ignore {
        complaints.clear();
    }
    let mut object = decoded.value;
    if let Err(refused) = check_identity(call, &mut object, &patched) {
        return Err(refused.with_warnings(complaints));
    }
    forget_what_it_is(&mut object);
    call.served.settle(&mut object);
    Ok((object, complaints))
}

/// Custom resources are maps to the server, which have no order of their own.
fn shown_as<'c>(call: &'c Call<'_>) -> &'c Shape {
    if call.served.is_custom() {
        &Shape::Any
    } else {
        call.served.types().1
    }
}

fn says_no_version(object: &Value) -> bool {
    let is_said = |version: &Value| !version.is_null() && version != "";
    object.is_object() && !object.get("apiVersion").is_some_and(is_said)
}

/// Of an object without a version nothing is known, neither its fields nor its name.
fn nothing_known(call: &Call<'_>, patched: &Patched, options: &WriteOptions) -> StatusError {
    let fields = patched.object.as_object().into_iter().flatten();
    let unknown: Vec<String> = fields
        .filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str()))
        .map(|(name, _)| format!("unknown field {}", quote(name)))
        .collect();
    match options.validation {
        FieldValidation::Ignore => undeterminable(call),
        FieldValidation::Warn => undeterminable(call).with_warnings(unknown),
        FieldValidation::Strict => {
            let (types, shape) = call.served.types();
            let why = format!("strict decoding error: {}", unknown.join(", "));
            patched.refuse(types, shape, &why)
        }
    }
}

/// What a patch that replaces everything forgets to say about the object stays true of it.
fn keep_identity(new: &mut Value, old: &Value) {
    if !new["metadata"].is_object() {
        return;
    }
    for field in ["namespace", "uid", "creationTimestamp"] {
        if new["metadata"].get(field).is_none()
            && let Some(value) = old["metadata"].get(field)
        {
            new["metadata"][field] = value.clone();
        }
    }
}

/// A patch does not make another object of the one it is for.
fn check_identity(
    call: &Call<'_>,
    object: &mut Value,
    patched: &Patched,
) -> Result<(), StatusError> {
    let resource = &call.served.resource;
    if object["kind"].as_str().is_none_or(str::is_empty) && !call.served.is_custom() {
        object["kind"] = resource.kind.as_str().into();
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    if kind.is_empty() && version.is_empty() {
        return Err(undeterminable(call));
    }
    if !call.served.is_custom() && (kind != resource.kind || version != resource.api_version()) {
        let catalogue = call.server.catalogue();
        let (types, shape) = call.served.types();
        // What it calls itself it has to be, before anybody asks whether it is what it should be.
        let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
        let why = builtin_type(group, short, kind)
            .and_then(|id| decode(Types::builtin(), id, &Node::of(&patched.object)).err())
            .map_or_else(
                || catalogue.why_not(kind, version, &resource.group, &resource.kind),
                |error| error.to_string(),
            );
        return Err(patched.refuse(types, shape, &why));
    }
    let namespace = meta(object, "namespace");
    if resource.namespaced() && !namespace.is_empty() && namespace != call.path.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    check_name(call, object)?;
    if call.served.is_custom() {
        check_self_description(call, object)?;
    }
    Ok(())
}

/// What a custom resource calls itself is a field like others.
fn check_self_description(call: &Call<'_>, object: &Value) -> Result<(), StatusError> {
    let resource = &call.served.resource;
    let mut errors = Vec::new();
    for (field, wanted) in [
        ("kind", resource.kind.clone()),
        ("apiVersion", resource.api_version()),
    ] {
        let found = object[field].as_str().unwrap_or_default();
        if found != wanted {
            let detail = format!("must be {wanted}");
            errors.push(FieldError::invalid(&Path::new(field), found, detail));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let subject = Subject {
        group: version.rsplit_once('/').map_or("", |(group, _)| group),
        kind: object["kind"].as_str().unwrap_or_default(),
    };
    Err(StatusError::invalid(subject, &call.path.name, &errors))
}
