//! `scale`: how many there are and shall be, whatever the kind behind it.

use std::sync::Arc;

use http::{StatusCode, header};
use serde_json::{Value, json};

use super::actions::{BodyKind, precondition_failed};
use super::create::settle_namespace;
use super::options::{FieldValidation, revision, write_options};
use super::track::forget_what_it_is;
use super::update::{change_tracked, check_name};
use super::{Call, meta};
use crate::answer::Answer;
use crate::codec::decode::{convert, decode};
use crate::codec::json::Node;
use crate::crd::scale::{self, Scale};
use crate::field::{FieldError, Path};
use crate::managed::{Reset, ScaleDoor, Tracking};
use crate::patch::{self, PatchKind};
use crate::resource::builtin_type;
use crate::schema::{Shape, TypeId, Types};
use crate::status::{StatusError, Subject};
use crate::table;
use plimsoll_golang::time::show_seconds;

const SCALE: BodyKind = BodyKind {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    older: &[],
};

/// How an object becomes a Scale and back.
#[derive(Debug, Clone, Copy)]
enum Scaling<'a> {
    /// Built-in kinds have their numbers at `spec.replicas` and `status.replicas`, and their selector as an object.
    Builtin,
    /// As the definition says.
    Custom(&'a Scale),
}

impl Scaling<'_> {
    fn of(self, object: &Value) -> Result<Value, StatusError> {
        match self {
            Self::Builtin => Ok(shown(object)),
            Self::Custom(scale) => {
                let mut scale = scale.of(object)?;
                forget_what_it_is(&mut scale);
                Ok(scale)
            }
        }
    }

    /// The Scale that a write starts from: where there is no number yet, it is nought.
    fn to_change(self, object: &Value) -> Result<Value, StatusError> {
        self.of(object)
            .or_else(|_| self.of(&self.apply(object, &Value::Null)?))
    }

    /// The object with the number that the Scale wants.
    fn apply(self, object: &Value, scale: &Value) -> Result<Value, StatusError> {
        match self {
            Self::Builtin => {
                let mut object = object.clone();
                let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
                object["spec"]["replicas"] = replicas.into();
                Ok(object)
            }
            Self::Custom(custom) => custom.apply(object, scale),
        }
    }

    fn replicas_path(&self) -> &str {
        match self {
            Self::Builtin => "spec.replicas",
            Self::Custom(scale) => scale.spec_replicas.trim_start_matches('.'),
        }
    }
}

pub async fn scale(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let scaling = match call.served.custom_scale() {
        Some(scale) => Scaling::Custom(scale),
        None => Scaling::Builtin,
    };
    match call.info.verb {
        "get" => {
            let stored = call
                .server
                .store()
                .get(&call.served.shelf, &call.key())
                .ok_or_else(|| call.not_found())?;
            call.check_shown(&stored)?;
            let object = call.served.as_shown(stored.value());
            answer(call, StatusCode::OK, &scaling.of(&object)?, &[])
        }
        "update" => update(call, scaling, body).await,
        _ => patch_scale(call, scaling, body).await,
    }
}

/// The Scale of a built-in object.
fn shown(object: &Value) -> Value {
    let meta = scale::metadata(object);
    let mut spec = json!({});
    if let Some(wanted @ 1..) = object["spec"]["replicas"].as_i64() {
        spec["replicas"] = wanted.into();
    }
    let present = object["status"]["replicas"].as_i64().unwrap_or(0);
    let mut status = json!({"replicas": present});
    let selector = selector_text(&object["spec"]["selector"]);
    if !selector.is_empty() {
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
) -> Result<Answer, StatusError> {
    let resource = Arc::new(table::scale_resource(call.served.is_custom()));
    let bytes = serde_json::to_vec(scale).unwrap_or_default().into();
    let json = call.shaper_of(&resource)?.one(&bytes);
    let mut answer = call.document_answer(code, json);
    crate::answer::add_warnings(&mut answer, warnings);
    Ok(answer)
}

/// What a request makes of a Scale.
enum Wanted {
    /// This, and its sender owns what differs.
    Scale(Value),
    /// What the sender has an opinion on.
    Applied(Value),
}

async fn update(call: &Call<'_>, scaling: Scaling<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "UpdateOptions", false)?;
    let mut warnings = Vec::new();
    let mut scale = call.decode_as(SCALE, body, &options, &mut warnings)?;
    settle_namespace(call, &mut scale)?;
    check_name(call, &scale)?;
    let wanted = |_: &Value, _: &mut Vec<String>| Ok(Wanted::Scale(scale.clone()));
    write(call, scaling, options.dry_run, warnings, wanted).await
}

async fn patch_scale(
    call: &Call<'_>,
    scaling: Scaling<'_>,
    body: &[u8],
) -> Result<Answer, StatusError> {
    let media = call
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if media == super::patch::APPLY {
        let options = write_options(call.query, "PatchOptions", true)?;
        let applied = super::apply::parse_applied(body)?.node.to_value();
        let wanted = |_: &Value, _: &mut Vec<String>| Ok(Wanted::Applied(applied.clone()));
        return write(call, scaling, options.dry_run, Vec::new(), wanted).await;
    }
    let kind = PatchKind::from_media_type(media).ok_or_else(|| super::patch::unsupported(call))?;
    let options = write_options(call.query, "PatchOptions", false)?;
    let types = Types::builtin();
    let id = scale_type()?;
    let shape = Shape::Struct(id);
    let strict = options.validation != FieldValidation::Ignore;
    let wanted = |current: &Value, warnings: &mut Vec<String>| {
        let mut whole = current.clone();
        whole["kind"] = "Scale".into();
        whole["apiVersion"] = "autoscaling/v1".into();
        let patched = patch::apply(kind, types, &shape, &whole, body, strict)?;
        let decoded = match kind {
            PatchKind::Strategic => convert(types, id, &patched.object),
            PatchKind::Json | PatchKind::Merge => decode(types, id, &Node::of(&patched.object)),
        };
        let decoded = decoded.map_err(|error| patched.refuse(types, &shape, &error.to_string()))?;
        let mut complaints = patched.complaints.clone();
        complaints.extend(decoded.objections);
        match options.validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                let why = format!("strict decoding error: {}", complaints.join(", "));
                return Err(patched.refuse(types, &shape, &why));
            }
            FieldValidation::Warn => warnings.extend(complaints),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(Wanted::Scale(decoded.value))
    };
    write(call, scaling, options.dry_run, Vec::new(), wanted).await
}

fn scale_type() -> Result<TypeId, StatusError> {
    builtin_type("autoscaling", "v1", "Scale")
        .ok_or_else(|| StatusError::internal("the facts about Scale are missing"))
}

/// Writes the wanted number into the object behind.
async fn write(
    call: &Call<'_>,
    scaling: Scaling<'_>,
    dry_run: bool,
    mut warnings: Vec<String>,
    change: impl Fn(&Value, &mut Vec<String>) -> Result<Wanted, StatusError>,
) -> Result<Answer, StatusError> {
    let options = super::options::WriteOptions {
        dry_run,
        validation: FieldValidation::Ignore,
    };
    let written = change_tracked(call, &options, &mut warnings, |object, warnings| {
        if object.is_null() {
            return Err(call.not_found());
        }
        let present = scaling.to_change(object)?;
        let entries = object["metadata"]["managedFields"].clone();
        let shown = with_owners(call, scaling, &entries, present.clone());
        let wanted = change(&shown, warnings)?;
        let (wanted, entries) = tracked(call, scaling, &entries, &present, wanted)?;
        check(call, scaling, object, &wanted)?;
        let mut new = scaling.apply(object, &wanted)?;
        if let Some(meta) = new["metadata"].as_object_mut() {
            if entries.is_null() {
                meta.remove("managedFields");
            } else {
                meta.insert("managedFields".into(), entries);
            }
        }
        Ok(new)
    })
    .await?;
    answer(
        call,
        StatusCode::OK,
        &scaling.of(&written.object)?,
        &warnings,
    )
}

fn check(
    call: &Call<'_>,
    scaling: Scaling<'_>,
    object: &Value,
    scale: &Value,
) -> Result<(), StatusError> {
    let name = &call.path.name;
    let (uid, present) = (meta(scale, "uid"), meta(object, "uid"));
    if !uid.is_empty() && uid != present {
        return Err(precondition_failed(call, name, "UID", uid, present));
    }
    let version = meta(scale, "resourceVersion");
    if !version.is_empty() && version != meta(object, "resourceVersion") {
        revision(version).map_err(StatusError::server_error)?;
        return Err(super::update::modified(call));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    // A custom resource's own rules say what is wrong with it.
    if replicas < 0 && matches!(scaling, Scaling::Builtin) {
        let subject = Subject {
            group: "autoscaling",
            kind: "Scale",
        };
        let path = Path::new("spec").child("replicas");
        let error = FieldError::invalid(&path, replicas, "must be greater than or equal to 0");
        return Err(StatusError::invalid(subject, name, &[error]));
    }
    Ok(())
}

/// Runs `work` with the way between the owners of a Scale's fields and of those behind it.
fn with_door<T>(
    call: &Call<'_>,
    scaling: Scaling<'_>,
    work: impl FnOnce(&ScaleDoor<'_>) -> T,
) -> T {
    let api_version = call.served.resource.api_version();
    work(&ScaleDoor {
        api_version: &api_version,
        replicas: &[(api_version.as_str(), Some(scaling.replicas_path()))],
    })
}

/// A Scale as clients see it, with who owns its fields.
fn with_owners(call: &Call<'_>, scaling: Scaling<'_>, entries: &Value, mut scale: Value) -> Value {
    let entries = with_door(call, scaling, |door| door.to_scale(entries));
    if !entries.is_null() {
        scale["metadata"]["managedFields"] = entries;
    }
    scale
}

/// The Scale that is wanted, and who owns the fields of the object behind from now on: the one who scales owns the
/// number.
fn tracked(
    call: &Call<'_>,
    scaling: Scaling<'_>,
    entries: &Value,
    present: &Value,
    wanted: Wanted,
) -> Result<(Value, Value), StatusError> {
    let id = scale_type()?;
    let owners = with_door(call, scaling, |door| door.to_scale(entries));
    let whole = |mut scale: Value| {
        scale["kind"] = "Scale".into();
        scale["apiVersion"] = "autoscaling/v1".into();
        scale["metadata"]["managedFields"] = owners.clone();
        scale
    };
    let tracking = Tracking {
        types: Types::builtin(),
        shape: &Shape::Struct(id),
        api_version: "autoscaling/v1",
        kind: "Scale",
        subresource: "scale",
        reset: &Reset::nothing(),
        versions: &["autoscaling/v1"],
    };
    let before = whole(present.clone());
    let (manager, now) = (call.manager(), show_seconds(call.now));
    let scale = match wanted {
        Wanted::Scale(scale) => {
            let mut scale = whole(scale);
            tracking.update(Some(&before), &mut scale, &manager, &now);
            scale
        }
        Wanted::Applied(applied) => {
            let force = call.query.flag("force");
            tracking.apply(Some(&before), &applied, &manager, force, &now)?
        }
    };
    let owners = &scale["metadata"]["managedFields"];
    let merged = with_door(call, scaling, |door| door.to_parent(entries, owners));
    Ok((scale, merged))
}
