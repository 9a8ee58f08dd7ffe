//! Subresources that are actions: their bodies are of kinds that are not kept.

use http::StatusCode;
use serde_json::{Value, json};

use super::body::{BodyFormat, parse};
use super::options::{FieldValidation, WriteOptions, write_options};
use super::write::{RETRIES, Stopped};
use super::{Call, is_being_deleted, meta};
use crate::answer::{self, Answer, Format, Transform};
use crate::auth::Review;
use crate::codec::decode::decode;
use crate::resource::builtin_type;
use crate::schema::Types;
use crate::status::{StatusError, Subject};
use crate::store::WriteError;
use plimsoll_golang::strconv::quote;
use plimsoll_golang::time::show_seconds;

/// A kind that is not the resource's own.
#[derive(Debug, Clone, Copy)]
pub struct BodyKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// Versions that are read as if they were this one.
    pub older: &'static [&'static str],
}

impl BodyKind {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

const BINDING: BodyKind = BodyKind {
    group: "",
    version: "v1",
    kind: "Binding",
    older: &[],
};

impl Call<'_> {
    /// Decodes a body of another kind; what is missing of kind and version is filled in.
    pub fn decode_as(
        &self,
        of: BodyKind,
        body: &[u8],
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value, StatusError> {
        let parsed = parse(BodyFormat::of(self.headers)?, body, of.kind)?;
        let node = &parsed.node;
        let text = |key: &str, default: &str| match node.get(key) {
            Some(crate::codec::json::Node::Text(text)) if !text.is_empty() => text.to_string(),
            _ => default.to_owned(),
        };
        let own_version = of.api_version();
        let (kind, version) = (text("kind", of.kind), text("apiVersion", &own_version));
        let refuse = |why: String| {
            StatusError::bad_request(format!(
                "{kind} in version {} cannot be handled as a {}: {why}",
                quote(version.rsplit('/').next().unwrap_or_default()),
                of.kind
            ))
        };
        let is_known = version == own_version || of.older.contains(&version.as_str());
        if kind != of.kind || !is_known {
            let catalogue = self.server.catalogue();
            return Err(refuse(
                catalogue.why_not(&kind, &version, of.group, of.kind),
            ));
        }
        let id = builtin_type(of.group, of.version, of.kind).ok_or_else(|| {
            StatusError::internal(format!("the facts about {} are missing", of.kind))
        })?;
        let decoded =
            decode(Types::builtin(), id, node).map_err(|error| refuse(error.to_string()))?;
        if !decoded.objections.is_empty() || !parsed.repeated.is_empty() {
            match options.validation {
                FieldValidation::Strict => {
                    let said = parsed.strictly(&decoded.objections);
                    return Err(refuse(format!("strict decoding error: {said}")));
                }
                FieldValidation::Warn => warnings.extend(parsed.objections(decoded.objections)),
                FieldValidation::Ignore => {}
            }
        }
        Ok(decoded.value)
    }

    /// A document of another kind as the answer.
    pub fn foreign_answer(&self, code: StatusCode, of: BodyKind, mut object: Value) -> Answer {
        object["kind"] = of.kind.into();
        object["apiVersion"] = of.api_version().into();
        let format = Format {
            transform: Transform::None,
            ..self.format.clone()
        };
        answer::json(code, &object, &format)
    }

    /// The action is done, and there is nothing to show.
    pub fn done(&self, warnings: &[String]) -> Answer {
        let status = json!({"status": "Success", "code": 201, "metadata": {}});
        let of = BodyKind {
            group: "",
            version: "v1",
            kind: "Status",
            older: &[],
        };
        let mut answer = self.foreign_answer(StatusCode::CREATED, of, status);
        answer::add_warnings(&mut answer, warnings);
        answer
    }

    /// Changes a stored object by `change`, again if somebody else was faster; nothing else is checked.
    pub async fn amend(
        &self,
        shelf: &str,
        key: &str,
        dry_run: bool,
        missing: impl Fn() -> StatusError,
        change: impl Fn(&mut Value) -> Result<(), StatusError>,
    ) -> Result<Value, StatusError> {
        for _ in 0..RETRIES {
            let current = self.server.store().get(shelf, key).ok_or_else(&missing)?;
            let mut object = current.value();
            change(&mut object)?;
            if dry_run {
                return Ok(object);
            }
            let attributes = crate::served::attributes(shelf, &object);
            let expect = crate::store::Expect::Revision(current.revision);
            let store = self.server.store();
            match store.put(shelf, key, expect, &mut object, attributes).await {
                Ok(stored) => return Ok(stored.value()),
                Err(WriteError::NotKept) => {
                    return Err(self.not_kept(shelf, current.name()));
                }
                Err(WriteError::Mismatch(_)) => {}
            }
        }
        Err(StatusError::conflict(
            self.served.resource.as_subject(),
            key.rsplit('/').next().unwrap_or_default(),
            "the object has been modified; please apply your changes to the latest version and try again",
        ))
    }
}

/// A precondition that does not hold, as the storage says it.
pub fn precondition_failed(
    call: &Call<'_>,
    name: &str,
    what: &str,
    wanted: &str,
    found: &str,
) -> StatusError {
    let key = registry_key(call, name);
    StatusError::conflict(
        call.served.resource.as_subject(),
        name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
        ),
    )
}

/// Where a real server keeps the object.
fn registry_key(call: &Call<'_>, name: &str) -> String {
    let resource = &call.served.resource;
    let place = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "nodes") => "minions".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", plural) => {
            format!("{}/{plural}", resource.group)
        }
        (group, plural) if call.served.is_custom() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    // Whoever only tries is told where in the registry it would be.
    let registry = match call.query.get("dryRun") {
        None => "/registry",
        Some(_) => "",
    };
    if resource.namespaced() {
        format!("{registry}/{place}/{}/{name}", call.path.namespace)
    } else {
        format!("{registry}/{place}/{name}")
    }
}

/// POST to `bindings` or to a pod's `binding`: the pod gets its node.
pub async fn bind(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "CreateOptions", false)?;
    let mut warnings = Vec::new();
    let binding = call.decode_as(BINDING, body, &options, &mut warnings)?;
    let name = match call.path.subresource.as_str() {
        "" => meta(&binding, "name").to_owned(),
        _ => call.path.name.clone(),
    };
    call.check_namespace(&call.path.namespace, &name)?;
    if meta(&binding, "name") != name {
        return Err(StatusError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let target = &binding["target"];
    let kind = target["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        return Err(StatusError::server_error(format!(
            "target.kind: Unsupported value: {}: supported values: \"Node\", \"<empty>\"",
            quote(kind)
        )));
    }
    let node = target["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Err(StatusError::server_error("target.name: Required value"));
    }
    if name.is_empty() {
        return Err(StatusError::bad_request("Name parameter required."));
    }
    let key = format!("{}/{name}", call.path.namespace);
    let pods = Subject {
        group: "",
        kind: "pods",
    };
    call.amend(
        "pods",
        &key,
        options.dry_run,
        || StatusError::not_found(pods, &name),
        |pod| {
            let uid = meta(&binding, "uid");
            if !uid.is_empty() && uid != meta(pod, "uid") {
                return Err(precondition_failed(
                    call,
                    &name,
                    "UID",
                    uid,
                    meta(pod, "uid"),
                ));
            }
            let version = meta(&binding, "resourceVersion");
            let present = meta(pod, "resourceVersion");
            if !version.is_empty() && version != present {
                return Err(precondition_failed(
                    call,
                    &name,
                    "ResourceVersion",
                    version,
                    present,
                ));
            }
            assign(call, pod, node, &binding)
        },
    )
    .await?;
    Ok(call.done(&warnings))
}

fn assign(
    call: &Call<'_>,
    pod: &mut Value,
    node: &str,
    binding: &Value,
) -> Result<(), StatusError> {
    let name = meta(pod, "name").to_owned();
    let refuse = |why: String| {
        let subject = Subject {
            group: "",
            kind: "pods/binding",
        };
        Err(StatusError::conflict(subject, &name, &why))
    };
    if is_being_deleted(pod) {
        return refuse(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    if let Some(present) = pod["spec"]["nodeName"]
        .as_str()
        .filter(|node| !node.is_empty())
    {
        let text = format!("pod {name} is already assigned to node {}", quote(present));
        return refuse(text);
    }
    let gated = pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    if gated {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = node.into();
    for field in ["labels", "annotations"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    set_condition(
        pod,
        json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": show_seconds(call.now),
        }),
    );
    Ok(())
}

/// Replaces the condition of the same type, or adds it.
pub fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
        match conditions
            .iter_mut()
            .find(|one| one["type"] == condition["type"])
        {
            Some(found) => *found = condition,
            None => conditions.push(condition),
        }
    }
}

const TOKEN_REQUEST: BodyKind = BodyKind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenRequest",
    older: &[],
};

/// POST to a service account's `token`.
/// Of a token for which no other is asked, in seconds.
const TOKEN_LIFETIME: u32 = 3600;

pub fn token(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "CreateOptions", false)?;
    let mut warnings = Vec::new();
    let mut request = call.decode_as(TOKEN_REQUEST, body, &options, &mut warnings)?;
    call.check_namespace(&call.path.namespace, &call.path.name)?;
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = TOKEN_LIFETIME.into();
    }
    call.track_foreign(TOKEN_REQUEST, &mut request);
    let answer = call.server.authority().token_request(
        &call.path.namespace,
        &call.path.name,
        request,
        call.server,
    )?;
    let mut answer = call.foreign_answer(StatusCode::CREATED, TOKEN_REQUEST, answer);
    answer::add_warnings(&mut answer, &warnings);
    Ok(answer)
}

impl From<Stopped> for StatusError {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Refused(failure) => failure,
            Stopped::Raced(_) => StatusError::internal("the object changed while it was written"),
        }
    }
}

/// POST to a review: a question about tokens or permissions, answered at once and not kept.
pub fn review(call: &Call<'_>, review: Review, body: &[u8]) -> Result<Answer, StatusError> {
    let options = write_options(call.query, "CreateOptions", false)?;
    let node = parse(
        BodyFormat::of(call.headers)?,
        body,
        &call.served.resource.kind,
    )?;
    let decoded = call.decode(&node, body, &options)?;
    let mut object = decoded.object;
    if !call.served.resource.namespaced() {
        super::write::metadata_of(&mut object).remove("namespace");
    }
    call.track_new(&mut object);
    call.forget_empty_lists(&mut object);
    let answer = call.server.authority().review(
        review,
        &call.path.namespace,
        object,
        call.user,
        call.server,
    )?;
    call.written_answer(StatusCode::CREATED, &answer, &decoded.warnings)
}
