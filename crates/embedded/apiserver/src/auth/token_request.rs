//! `serviceaccounts/token`: tokens on request.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::service_account;
use super::tokens::{Bound, Claims, Reference, Tokens};
use crate::field::{FieldError, Path};
use crate::kinds::Lookup;
use crate::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;
use plimsoll_golang::time::show_seconds;

const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// What is asked for on behalf of pods. Such a token lasts a year, because old programs never read a new one.
const POD_SECONDS: i64 = 3607;
const POD_REAL_SECONDS: i64 = 365 * 24 * 3600;

const KIND: Subject<'static> = Subject {
    group: "authentication.k8s.io",
    kind: "TokenRequest",
};

/// What a token is bound to, besides its account.
#[derive(Default)]
struct Binding {
    pod: Option<Reference>,
    node: Option<Reference>,
    secret: Option<Reference>,
}

/// The answer to a TokenRequest posted for the account `name`.
pub(super) fn answer(
    tokens: &Tokens,
    namespace: &str,
    name: &str,
    mut request: Value,
    now: Timestamp,
    world: &dyn Lookup,
) -> Result<Value, StatusError> {
    let said = |field: &str| text(&request["metadata"][field]);
    let (said_name, said_namespace, said_uid) = (said("name"), said("namespace"), said("uid"));
    if !said_namespace.is_empty() && said_namespace != namespace {
        let why =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(StatusError::bad_request(why));
    }
    if !said_name.is_empty() && said_name != name {
        let why = "must match the service account name if specified";
        let path = Path::new("metadata").child("name");
        let error = FieldError::invalid(&path, said_name, why);
        return Err(StatusError::invalid(KIND, name, &[error]));
    }
    let account = found(world, "serviceaccounts", namespace, name)?;
    let uid = text(&account["metadata"]["uid"]);
    if !said_uid.is_empty() && said_uid != uid {
        let why = format!(
            "the UID in the token request ({said_uid}) does not match the UID of the service account ({uid})"
        );
        return Err(StatusError::conflict(KIND, name, &why));
    }

    let mut spec = request["spec"].as_object().cloned().unwrap_or_default();
    let audiences = spec.get("audiences").and_then(Value::as_array);
    let audiences: Vec<String> = audiences.into_iter().flatten().map(text).collect();
    let audiences = match audiences.as_slice() {
        [] => tokens.audiences.clone(),
        _ => audiences,
    };
    let seconds = spec.get("expirationSeconds").and_then(Value::as_i64);
    let seconds = seconds.unwrap_or(DEFAULT_SECONDS);
    check_seconds(seconds)?;
    let reference = spec.get("boundObjectRef").cloned().unwrap_or_default();
    let binding = match reference.is_object() {
        true => bind(&reference, namespace, name, world)?,
        false => Binding::default(),
    };

    let for_this_server = audiences.iter().all(|one| tokens.audiences.contains(one));
    let warn = binding.pod.is_some() && seconds == POD_SECONDS && for_this_server;
    let issued = now.as_second();
    let claims = Claims {
        aud: audiences.clone(),
        exp: issued + if warn { POD_REAL_SECONDS } else { seconds },
        iat: issued,
        iss: tokens.issuer.clone(),
        jti: uuid::Uuid::new_v4().to_string(),
        kubernetes: Bound {
            namespace: namespace.to_owned(),
            node: binding.node,
            pod: binding.pod,
            secret: binding.secret,
            serviceaccount: Reference {
                name: name.to_owned(),
                uid: uid.clone(),
            },
            warnafter: warn.then_some(issued + seconds),
        },
        nbf: issued,
        sub: service_account::user_name(namespace, name),
    };
    let failed = || StatusError::internal("failed to generate token");
    let claims = serde_json::to_value(claims).map_err(|_| failed())?;
    let token = tokens.key.sign(&claims).ok_or_else(failed)?;

    let mut metadata = request["metadata"].take();
    if !metadata.is_object() {
        metadata = json!({});
    }
    metadata["name"] = name.into();
    metadata["namespace"] = namespace.into();
    metadata["uid"] = uid.into();
    metadata["creationTimestamp"] = show_seconds(now).into();
    spec.insert("audiences".into(), audiences.into());
    spec.insert("expirationSeconds".into(), seconds.into());
    spec.insert("boundObjectRef".into(), reference);
    Ok(json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "token": token,
            "expirationTimestamp": show_seconds(now + SignedDuration::from_secs(seconds)),
        },
    }))
}

fn check_seconds(seconds: i64) -> Result<(), StatusError> {
    let why = match seconds {
        ..MIN_SECONDS => "may not specify a duration less than 10 minutes",
        MIN_SECONDS..=MAX_SECONDS => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let path = Path::new("spec").child("expirationSeconds");
    let error = FieldError::invalid(&path, seconds, why);
    Err(StatusError::invalid(KIND, "", &[error]))
}

fn bind(
    reference: &Value,
    namespace: &str,
    account: &str,
    world: &dyn Lookup,
) -> Result<Binding, StatusError> {
    let (kind, name) = (text(&reference["kind"]), text(&reference["name"]));
    let api_version = text(&reference["apiVersion"]);
    let (group, version) = match api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => ("", ""),
        Some((group, version)) => (group, version),
        None => ("", api_version.as_str()),
    };
    if name.is_empty() && ["Pod", "Secret", "Node"].contains(&kind.as_str()) {
        return Err(StatusError::bad_request("Name parameter required."));
    }
    let mut binding = Binding::default();
    let (slot, object) = match (group, kind.as_str()) {
        ("", "Pod") => {
            let pod = found(world, "pods", namespace, &name)?;
            if text(&pod["spec"]["serviceAccountName"]) != account {
                return Err(StatusError::bad_request(format!(
                    "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                    quote(account)
                )));
            }
            binding.node = node_of(&pod, world);
            (&mut binding.pod, pod)
        }
        ("", "Node") => (&mut binding.node, found(world, "nodes", "", &name)?),
        ("", "Secret") => {
            let secret = found(world, "secrets", namespace, &name)?;
            (&mut binding.secret, secret)
        }
        _ => {
            return Err(StatusError::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let (said, uid) = (text(&reference["uid"]), text(&object["metadata"]["uid"]));
    if !said.is_empty() && said != uid {
        let why = format!(
            "the UID in the bound object reference ({said}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        let subject = Subject {
            group: "",
            kind: &kind,
        };
        return Err(StatusError::conflict(subject, &name, &why));
    }
    *slot = Some(Reference { name, uid });
    Ok(binding)
}

/// The node that a pod is on; one that is not registered is told by name only.
fn node_of(pod: &Value, world: &dyn Lookup) -> Option<Reference> {
    let name = text(&pod["spec"]["nodeName"]);
    if name.is_empty() {
        return None;
    }
    let node = world.get("nodes", "", &name).unwrap_or_default();
    let uid = text(&node["metadata"]["uid"]);
    Some(Reference { name, uid })
}

fn found(
    world: &dyn Lookup,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Value, StatusError> {
    let subject = Subject {
        group: "",
        kind: resource,
    };
    world
        .get(resource, namespace, name)
        .ok_or_else(|| StatusError::not_found(subject, name))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
