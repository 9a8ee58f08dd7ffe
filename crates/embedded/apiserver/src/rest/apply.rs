//! Server-side apply: PATCH with the fields that the client has an opinion on.

use http::StatusCode;
use serde_json::Value;

use super::Call;
use super::body::go_unmarshal_errors;
use super::create::{insert_new, settle_namespace};
use super::options::{FieldValidation, WriteOptions, write_options};
use super::track::forget_what_it_is;
use super::update::change_tracked;
use super::write::metadata_of;
use super::{meta, update};
use crate::answer::Answer;
use crate::codec::json::Node;
use crate::codec::yaml;
use crate::status::StatusError;
use plimsoll_golang::time::show_seconds;

pub async fn apply(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "PatchOptions", true)?;
    let parsed = parse_applied(body)?;
    let applied = parsed.node.to_value();
    let strict = call
        .served
        .decode(&parsed.node)
        .map(|decoded| decoded.objections)
        .unwrap_or_default();
    let mut warnings = Vec::new();
    if options.validation == FieldValidation::Warn {
        warnings.clone_from(&parsed.repeated);
        warnings.extend(strict.iter().cloned());
    }
    // What the types say against the fields comes before all of this.
    let settled = |object: Value, exists: bool| -> Result<Value, StatusError> {
        if options.validation == FieldValidation::Strict {
            refuse_loosely_written(call, &parsed.repeated, &strict)?;
        }
        check_identity(call, &applied, exists)?;
        Ok(object)
    };
    let key = call.key();
    if call.server.store().get(&call.served.shelf, &key).is_none() {
        let object = |call: &Call<'_>| settled(merged(call, None, &applied)?, false);
        return create(call, &applied, &options, object, warnings).await;
    }
    let written = change_tracked(call, &options, &mut warnings, |current, _| {
        if current.is_null() {
            return Err(call.not_found());
        }
        settled(merged(call, Some(current), &applied)?, true)
    })
    .await?;
    call.written_answer(StatusCode::OK, &written.object, &warnings)
}

/// Fields that are there twice, or that a custom resource does not have.
fn refuse_loosely_written(
    call: &Call<'_>,
    repeated: &[String],
    strict: &[String],
) -> Result<(), StatusError> {
    if !repeated.is_empty() {
        return Err(StatusError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: {}",
            go_unmarshal_errors(repeated)
        )));
    }
    // Built-in types refuse what they do not know in any case, in words of their own.
    if call.served.is_custom() && !strict.is_empty() {
        return Err(StatusError::bad_request(format!(
            "strict decoding error: {}",
            strict.join(", ")
        )));
    }
    Ok(())
}

/// Any YAML is read, and has to be an object.
pub fn parse_applied(body: &[u8]) -> Result<yaml::Parsed, StatusError> {
    let refuse = |why: String| StatusError::bad_request(format!("error decoding YAML: {why}"));
    let parsed = yaml::parse(&String::from_utf8_lossy(body))
        .map_err(|error| refuse(format!("error converting YAML to JSON: {error}")))?;
    if !matches!(parsed.node, Node::Object(_) | Node::Null) {
        return Err(refuse(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type {}",
            parsed.node.type_name(),
            plimsoll_golang::format::MAP
        )));
    }
    Ok(parsed)
}

async fn create(
    call: &Call<'_>,
    applied: &Value,
    options: &WriteOptions,
    object: impl Fn(&Call<'_>) -> Result<Value, StatusError>,
    mut warnings: Vec<String>,
) -> Result<Answer, StatusError> {
    if !call.path.subresource.is_empty() {
        return Err(call.not_found());
    }
    if !meta(applied, "uid").is_empty() {
        return Err(StatusError::conflict(
            call.served.resource.as_subject(),
            &call.path.name,
            &format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                meta(applied, "uid")
            ),
        ));
    }
    let mut object = object(call)?;
    // There is nothing yet that it could be the version of.
    metadata_of(&mut object).remove("resourceVersion");
    settle_namespace(call, &mut object)?;
    let object = insert_new(call, object, options, &mut warnings).await?;
    call.written_answer(StatusCode::CREATED, &object, &warnings)
}

/// What the present object becomes, decoded and with its managers noted.
fn merged(call: &Call<'_>, current: Option<&Value>, applied: &Value) -> Result<Value, StatusError> {
    let live = current.map(|current| {
        let mut live = current.clone();
        call.say_what_it_is(&mut live);
        live
    });
    let force = call.query.flag("force");
    let now = show_seconds(call.now);
    call.tracking(&call.path.subresource, |tracking| {
        let manager = call.manager();
        // Whether others' versions can say it comes before whether they agree.
        if call.served.is_custom()
            && let Some(live) = &live
            && let Ok(object) = tracking.apply(Some(live), applied, &manager, true, &now)
        {
            refuse_unknown_to_owners(call, live, &object)?;
        }
        let object = tracking.apply(live.as_ref(), applied, &manager, force, &now)?;
        let decoded = call
            .served
            .converted(&object)
            .map_err(|error| tracking.refuse_undecodable(applied, &error.to_string()))?;
        let mut object = decoded.value;
        forget_what_it_is(&mut object);
        call.served.settle(&mut object);
        Ok(object)
    })
}

/// Others own fields in versions of theirs, which have to be able to say all of it.
fn refuse_unknown_to_owners(
    call: &Call<'_>,
    live: &Value,
    object: &Value,
) -> Result<(), StatusError> {
    let unknown = call.served.unknown_to_owners(live, object);
    let words = |field: &String| format!(".{field}: field not declared in schema");
    let words = match unknown.as_slice() {
        [] => return Ok(()),
        [one] => words(one),
        many => {
            let lines: Vec<String> = many
                .iter()
                .map(|field| format!("\n  {}", words(field)))
                .collect();
            format!("errors:{}", lines.concat())
        }
    };
    Err(StatusError::server_error(format!(
        "failed to convert new object: {words}"
    )))
}

/// An object that is there already has a name, so what is applied to it need not say it.
fn check_identity(call: &Call<'_>, applied: &Value, exists: bool) -> Result<(), StatusError> {
    let name = meta(applied, "name");
    if name.is_empty() && applied["metadata"].is_object() && !exists {
        return Err(update::undeterminable(call));
    }
    if !name.is_empty() && name != call.path.name {
        return Err(update::name_mismatch(call, name));
    }
    let namespace = meta(applied, "namespace");
    if call.served.resource.namespaced()
        && !namespace.is_empty()
        && namespace != call.path.namespace
    {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
