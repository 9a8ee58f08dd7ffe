//! `scale`: how many there are and shall be, whatever the kind behind it.

use std::sync::Arc;

use http::{StatusCode, header};
use serde_json::{Value, json};

use super::actions::{BodyKind, precondition_failed};
use super::options::{FieldValidation, revision, write_options};
use super::update::{change_tracked, name_mismatch};
use super::{Call, meta};
use crate::answer::Answer;
use crate::codec::decode::decode;
use crate::codec::json::Node;
use crate::codec::time::show_seconds;
use crate::field::{FieldError, Path};
use crate::managed::{Reset, ScaleDoor, Tracking};
use crate::patch::{self, PatchKind};
use crate::resource::builtin_type;
use crate::schema::{Shape, Types};
use crate::status::{Failure, Subject};
use crate::table;

const SCALE: BodyKind = BodyKind {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
};

/// Where an object has what a Scale shows.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// Of a selector as text; built-in kinds have theirs as an object at `spec.selector`.
    pub selector: Option<String>,
}

impl ScalePaths {
    pub fn builtin() -> Self {
        Self {
            spec_replicas: "/spec/replicas".to_owned(),
            status_replicas: "/status/replicas".to_owned(),
            selector: None,
        }
    }
}

pub async fn scale(call: &Call<'_>, body: &[u8]) -> Result<Answer, Failure> {
    let paths = call.served.scale_paths();
    match call.info.verb {
        "get" => {
            let stored = call
                .server
                .store()
                .get(&call.served.shelf, &call.key())
                .ok_or_else(|| call.not_found())?;
            answer(call, StatusCode::OK, &shown(&paths, &stored.value()), &[])
        }
        "update" => update(call, &paths, body).await,
        _ => patch_scale(call, &paths, body).await,
    }
}

/// The Scale of an object.
fn shown(paths: &ScalePaths, object: &Value) -> Value {
    let mut meta = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(field) {
            meta[field] = value.clone();
        }
    }
    let wanted = object.pointer(&paths.spec_replicas).and_then(Value::as_i64);
    let present = object
        .pointer(&paths.status_replicas)
        .and_then(Value::as_i64);
    let mut spec = json!({});
    if let Some(wanted @ 1..) = wanted {
        spec["replicas"] = wanted.into();
    }
    let mut status = json!({"replicas": present.unwrap_or(0)});
    let selector = match &paths.selector {
        Some(path) => object
            .pointer(path)
            .and_then(Value::as_str)
            .map(str::to_owned),
        None => Some(selector_text(&object["spec"]["selector"])),
    };
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        status["selector"] = selector.into();
    }
    json!({"metadata": meta, "spec": spec, "status": status})
}

/// A selector as people write it: `a=b,c notin (d)`.
fn selector_text(selector: &Value) -> String {
    let mut terms: Vec<(String, String)> = Vec::new();
    let plain = selector["matchLabels"].as_object();
    // A replication controller's selector is a map of labels itself.
    let labels = plain.or_else(|| {
        let is_plain = selector.get("matchExpressions").is_none();
        selector.as_object().filter(|_| is_plain)
    });
    for (key, value) in labels.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        terms.push((key.clone(), format!("{key}={value}")));
    }
    for one in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = one["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = one["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push((
            key.to_owned(),
            match one["operator"].as_str() {
                Some("In") => format!("{key} in ({values})"),
                Some("NotIn") => format!("{key} notin ({values})"),
                Some("Exists") => key.to_owned(),
                _ => format!("!{key}"),
            },
        ));
    }
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

fn answer(
    call: &Call<'_>,
    code: StatusCode,
    scale: &Value,
    warnings: &[String],
) -> Result<Answer, Failure> {
    let resource = Arc::new(table::scale_resource());
    let bytes = serde_json::to_vec(scale).unwrap_or_default().into();
    let json = call.shaper_of(&resource)?.one(&bytes);
    let mut answer = call.document_answer(code, json);
    crate::answer::add_warnings(&mut answer, warnings);
    Ok(answer)
}

async fn update(call: &Call<'_>, paths: &ScalePaths, body: &[u8]) -> Result<Answer, Failure> {
    let options = write_options(call.query, "UpdateOptions", false)?;
    let mut warnings = Vec::new();
    let scale = call.decode_as(SCALE, body, &options, &mut warnings)?;
    let name = meta(&scale, "name");
    if name != call.path.name {
        return Err(name_mismatch(call, name));
    }
    write(
        call,
        paths,
        options.dry_run,
        warnings,
        |_| Ok(scale.clone()),
    )
    .await
}

async fn patch_scale(call: &Call<'_>, paths: &ScalePaths, body: &[u8]) -> Result<Answer, Failure> {
    let media = call
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    let kind = PatchKind::from_media_type(media).ok_or_else(|| super::patch::unsupported(call))?;
    let options = write_options(call.query, "PatchOptions", false)?;
    let types = Types::builtin();
    let id = builtin_type("autoscaling", "v1", "Scale")
        .ok_or_else(|| Failure::internal("the facts about Scale are missing"))?;
    let shape = Shape::Struct(id);
    let strict = options.validation != FieldValidation::Ignore;
    write(call, paths, options.dry_run, Vec::new(), |current| {
        let mut whole = current.clone();
        whole["kind"] = "Scale".into();
        whole["apiVersion"] = "autoscaling/v1".into();
        let patched = patch::apply(kind, types, &shape, &whole, body, strict)?;
        let decoded = decode(types, id, &Node::of(&patched.object))
            .map_err(|error| patched.refuse(types, &shape, &error.to_string()))?;
        Ok(decoded.value)
    })
    .await
}

/// Writes the wanted number into the object behind.
async fn write(
    call: &Call<'_>,
    paths: &ScalePaths,
    dry_run: bool,
    mut warnings: Vec<String>,
    change: impl Fn(&Value) -> Result<Value, Failure>,
) -> Result<Answer, Failure> {
    let options = super::options::WriteOptions {
        dry_run,
        validation: FieldValidation::Ignore,
    };
    let written = change_tracked(call, &options, &mut warnings, |object, _| {
        if object.is_null() {
            return Err(call.not_found());
        }
        let present = shown(paths, object);
        let mut wanted = change(&present)?;
        check(call, object, &wanted)?;
        let mut new = object.clone();
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if let Some(place) = new.pointer_mut(&paths.spec_replicas) {
            *place = replicas.into();
        } else {
            set_pointer(&mut new, &paths.spec_replicas, replicas.into());
        }
        note_owner(call, paths, &present, &mut wanted, &mut new);
        Ok(new)
    })
    .await?;
    answer(
        call,
        StatusCode::OK,
        &shown(paths, &written.object),
        &warnings,
    )
}

fn check(call: &Call<'_>, object: &Value, scale: &Value) -> Result<(), Failure> {
    let name = &call.path.name;
    let (uid, present) = (meta(scale, "uid"), meta(object, "uid"));
    if !uid.is_empty() && uid != present {
        return Err(precondition_failed(call, name, "UID", uid, present));
    }
    let version = meta(scale, "resourceVersion");
    if !version.is_empty() && version != meta(object, "resourceVersion") {
        revision(version).map_err(Failure::server_error)?;
        return Err(super::update::modified(call));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let subject = Subject {
            group: "autoscaling",
            kind: "Scale",
        };
        let path = Path::new("spec").child("replicas");
        let error = FieldError::invalid(&path, replicas, "must be greater than or equal to 0");
        return Err(Failure::invalid(subject, name, &[error]));
    }
    Ok(())
}

/// The one who scales owns the number from now on.
fn note_owner(
    call: &Call<'_>,
    paths: &ScalePaths,
    present: &Value,
    wanted: &mut Value,
    object: &mut Value,
) {
    let Some(id) = builtin_type("autoscaling", "v1", "Scale") else {
        return;
    };
    let api_version = call.served.resource.api_version();
    let path = paths
        .spec_replicas
        .trim_start_matches('/')
        .replace('/', ".");
    let replicas = [(api_version.as_str(), Some(path.as_str()))];
    let door = ScaleDoor {
        api_version: &api_version,
        replicas: &replicas,
    };
    let entries = object["metadata"]["managedFields"].clone();
    let mut before = present.clone();
    for scale in [&mut before, &mut *wanted] {
        scale["kind"] = "Scale".into();
        scale["apiVersion"] = "autoscaling/v1".into();
        scale["metadata"]["managedFields"] = door.to_scale(&entries);
    }
    let reset = Reset::nothing();
    let shape = Shape::Struct(id);
    let tracking = Tracking {
        types: Types::builtin(),
        shape: &shape,
        api_version: "autoscaling/v1",
        kind: "Scale",
        subresource: "scale",
        reset: &reset,
        versions: &["autoscaling/v1"],
    };
    tracking.update(
        Some(&before),
        wanted,
        &call.manager(),
        &show_seconds(call.now),
    );
    let merged = door.to_parent(&entries, &wanted["metadata"]["managedFields"]);
    if let Some(meta) = object["metadata"].as_object_mut() {
        if merged.is_null() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".into(), merged);
        }
    }
}

/// Puts a value where the pointer says, making the objects on the way.
fn set_pointer(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for part in pointer.split('/').skip(1) {
        place = &mut place[part];
    }
    *place = value;
}
