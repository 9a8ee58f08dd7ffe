//! DELETE: at once, after a grace period, or when the last finalizer is gone.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::body::{BodyFormat, parse};
use super::options::{integer, invalid_options};
use super::write::{RETRIES, SharedStored, Stopped, metadata_of};
use super::{Call, finalizers, is_being_deleted, meta};
use crate::answer::{self, Answer};
use crate::codec::decode::decode;
use crate::codec::json::Node;
use crate::field::{FieldError, Path};
use crate::schema::Types;
use crate::status::{StatusError, Subject};
use crate::store::{Expect, WriteError};
use plimsoll_golang::time::show_seconds;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    pub grace: Option<i64>,
    pub uid: Option<String>,
    pub revision: Option<String>,
    pub orphan: Option<bool>,
    pub policy: Option<String>,
    pub dry_run: bool,
    /// As given.
    pub dry_runs: Vec<String>,
}

/// What became of an object.
#[derive(Debug)]
pub enum Deleted {
    /// It is gone; this is its last state.
    Gone(Value),
    /// It waits for its grace period or its finalizers.
    Pending(Value),
}

pub async fn delete(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = options(call, body)?;
    let outcome = delete_object(call, &call.key(), &options).await;
    let mut warnings = Vec::new();
    if call.served.shelf.as_ref() == "jobs.batch"
        && options.policy.is_none()
        && options.orphan.is_none()
    {
        warnings.push(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        );
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(refused) => return Err(refused.with_warnings(warnings)),
    };
    let mut answer = match outcome {
        Deleted::Pending(object) => {
            let code = if options.orphan == Some(false) {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            call.written_answer(code, &object, &[])?
        }
        Deleted::Gone(object) if call.served.rules.returns_deleted => {
            call.written_answer(StatusCode::OK, &object, &[])?
        }
        Deleted::Gone(object) => answer::json(
            StatusCode::OK,
            &success(call, &object),
            &answer::Format {
                transform: answer::Transform::None,
                ..call.format.clone()
            },
        ),
    };
    answer::add_warnings(&mut answer, &warnings);
    Ok(answer)
}

fn success(call: &Call<'_>, object: &Value) -> Value {
    let resource = &call.served.resource;
    let mut details = json!({
        "name": meta(object, "name"),
        "kind": resource.plural,
        "uid": meta(object, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}

/// Deletes what a list with the same parameters would have shown, and answers with that list.
pub async fn delete_collection(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let options = options(call, body)?;
    let (listed, found) = super::read::list_with_objects(call)?;
    for item in found {
        match delete_object(call, &item.key, &options).await {
            Err(failure) if failure.code != StatusCode::NOT_FOUND => return Err(failure),
            _ => {}
        }
    }
    Ok(listed)
}

pub async fn delete_object(
    call: &Call<'_>,
    key: &str,
    options: &DeleteOptions,
) -> Result<Deleted, StatusError> {
    let name = key.rsplit('/').next().unwrap_or_default();
    for _ in 0..RETRIES {
        let Some(current) = call.server.store().get(&call.served.shelf, key) else {
            return Err(StatusError::not_found(
                call.served.resource.as_subject(),
                name,
            ));
        };
        match try_delete(call, &current, options).await {
            Ok(deleted) => return Ok(deleted),
            Err(Stopped::Refused(failure)) => return Err(failure),
            Err(Stopped::Raced(_)) => {}
        }
    }
    Err(StatusError::conflict(
        call.served.resource.as_subject(),
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    ))
}

async fn try_delete(
    call: &Call<'_>,
    current: &SharedStored,
    options: &DeleteOptions,
) -> Result<Deleted, Stopped> {
    call.check_shown(current)?;
    let old = current.value();
    check_preconditions(call, &old, options)?;
    call.server.before_delete(call, &old)?;
    let mut marked = old.clone();
    let plan = plan(call, &mut marked, options);
    if plan == Plan::AlreadyPending {
        return Ok(Deleted::Pending(old));
    }
    if options.dry_run {
        return Ok(match plan {
            Plan::Wait => Deleted::Pending(marked),
            _ => Deleted::Gone(marked),
        });
    }
    if plan == Plan::Wait {
        if marked != old {
            let attributes = call.served.attributes(&marked);
            let expect = Expect::Revision(current.revision);
            let store = call.server.store();
            store
                .put(
                    &call.served.shelf,
                    &current.key,
                    expect,
                    &mut marked,
                    attributes,
                )
                .await
                .map_err(|error| call.stopped(current.name(), error))?;
            call.server.after_write(call).await;
        }
        return Ok(Deleted::Pending(marked));
    }
    let mark = (marked != old).then_some(marked);
    let last = remove(call, current, mark)
        .await?
        .map_err(|error| call.stopped(current.name(), error))?;
    let object = last.value();
    call.server.after_write(call).await;
    Ok(Deleted::Gone(object))
}

/// Marks the object, where it is marked at all, and removes it. Both are done even if the client leaves between them:
/// nobody would remove what is only marked.
async fn remove(
    call: &Call<'_>,
    current: &SharedStored,
    mark: Option<Value>,
) -> Result<Result<SharedStored, WriteError>, StatusError> {
    let server = call.server.clone();
    let shelf = call.served.shelf.clone();
    let key = current.key.clone();
    let mut expected = current.revision;
    let mark = mark.map(|marked| (call.served.attributes(&marked), marked));
    let removing = tokio::spawn(async move {
        let store = server.store();
        if let Some((attributes, mut marked)) = mark {
            let expect = Expect::Revision(expected);
            let stored = store
                .put(&shelf, &key, expect, &mut marked, attributes)
                .await?;
            expected = stored.revision;
        }
        store.delete(&shelf, &key, Expect::Revision(expected)).await
    });
    removing
        .await
        .map_err(|error| StatusError::internal(format!("the deletion was not done: {error}")))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// Nothing holds the object.
    Remove,
    /// Marked for deletion; it goes later.
    Wait,
    /// It was marked before, and this request changes nothing.
    AlreadyPending,
}

/// Marks the object as its deletion needs, and says what is to happen.
fn plan(call: &Call<'_>, object: &mut Value, options: &DeleteOptions) -> Plan {
    if mark_container(&call.served.shelf, object, call.now) {
        return Plan::Wait;
    }
    if call.served.shelf.as_ref() == "namespaces" {
        return plan_namespace(object);
    }
    let graceful = match grace(call, object, options) {
        Grace::None => None,
        Grace::Pending => return Plan::AlreadyPending,
        Grace::Seconds(seconds) => Some(seconds),
    };
    let wanted = wanted_finalizers(call, object, options);
    if wanted != finalizers(object) {
        let meta = metadata_of(object);
        if wanted.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".into(), json!(wanted));
        }
    }
    if graceful.is_none() && !wanted.is_empty() {
        mark_as_deleting(object, call.now);
    }
    if !wanted.is_empty() || graceful.is_some_and(|seconds| seconds > 0) {
        Plan::Wait
    } else {
        Plan::Remove
    }
}

/// What others are in is only marked when it is to go, whoever wants that and whether anything holds it or not: its
/// contents go before it. False: it is nothing of the kind, or has been marked.
pub(crate) fn mark_container(shelf: &str, object: &mut Value, now: Timestamp) -> bool {
    if is_being_deleted(object) {
        return false;
    }
    match shelf {
        "namespaces" => object["status"]["phase"] = "Terminating".into(),
        crate::custom::DEFINITIONS => crate::definitions::mark_for_removal(object, now),
        _ => return false,
    }
    metadata_of(object).insert("deletionTimestamp".into(), show_seconds(now).into());
    true
}

/// A namespace that is marked stays until its contents are gone; emptying it is the namespace controller's work.
fn plan_namespace(object: &Value) -> Plan {
    let holds = object["spec"]["finalizers"]
        .as_array()
        .is_some_and(|left| !left.is_empty())
        || !finalizers(object).is_empty();
    if holds { Plan::Wait } else { Plan::Remove }
}

enum Grace {
    /// This kind knows none.
    None,
    /// The object waits already, and this request does not shorten that.
    Pending,
    /// It waits this long from now on.
    Seconds(i64),
}

/// Only pods are given time to end.
fn grace(call: &Call<'_>, object: &mut Value, options: &DeleteOptions) -> Grace {
    if call.served.shelf.as_ref() != "pods" {
        return Grace::None;
    }
    // A negative wish is the shortest there is.
    let wish = options
        .grace
        .map(|seconds| if seconds < 0 { 1 } else { seconds });
    if is_being_deleted(object) {
        let Some(present) = object["metadata"]["deletionGracePeriodSeconds"].as_i64() else {
            return Grace::None;
        };
        return match wish {
            Some(wanted) if wanted < present => {
                let until = meta(object, "deletionTimestamp").parse::<Timestamp>();
                let less = counted(wanted) - counted(present);
                let shorter = later(until.unwrap_or(call.now), less);
                let meta = metadata_of(object);
                meta.insert("deletionTimestamp".into(), show_seconds(shorter).into());
                meta.insert("deletionGracePeriodSeconds".into(), wanted.into());
                Grace::Seconds(wanted)
            }
            // Whoever began to remove it came no further than to mark it.
            _ if present == 0 && finalizers(object).is_empty() => Grace::None,
            _ => Grace::Pending,
        };
    }
    let spec = &object["spec"];
    let not_running = spec["nodeName"].as_str().is_none_or(str::is_empty)
        || matches!(
            object["status"]["phase"].as_str(),
            Some("Failed" | "Succeeded")
        );
    let wanted = options
        .grace
        .or_else(|| spec["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(30);
    let seconds = match wanted {
        _ if not_running => 0,
        ..0 => 1,
        wanted => wanted,
    };
    let until = later(call.now, counted(seconds));
    raise_generation(object);
    let meta = metadata_of(object);
    meta.insert("deletionTimestamp".into(), show_seconds(until).into());
    meta.insert("deletionGracePeriodSeconds".into(), seconds.into());
    Grace::Seconds(seconds)
}

/// As many seconds of a grace as times are counted with: a client may wish for any number, and every client has to be able
/// to read the time that comes of it.
fn counted(seconds: i64) -> i64 {
    const CENTURY: i64 = 100 * 365 * 24 * 60 * 60;
    seconds.clamp(0, CENTURY)
}

fn later(moment: Timestamp, seconds: i64) -> Timestamp {
    let later = moment.checked_add(SignedDuration::from_secs(seconds));
    later.unwrap_or(moment)
}

fn raise_generation(object: &mut Value) {
    if let Some(generation @ 1..) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = generation.saturating_add(1).into();
    }
}

fn mark_as_deleting(object: &mut Value, now: Timestamp) {
    if !is_being_deleted(object) {
        raise_generation(object);
        metadata_of(object).insert("deletionTimestamp".into(), show_seconds(now).into());
    }
    metadata_of(object).insert("deletionGracePeriodSeconds".into(), 0.into());
}

/// The finalizers that make the garbage collector orphan dependents, or delete them first.
fn wanted_finalizers(call: &Call<'_>, object: &Value, options: &DeleteOptions) -> Vec<String> {
    let present = finalizers(object);
    let has = |name: &str| present.iter().any(|one| one == name);
    let orphans_by_default = matches!(
        call.served.shelf.as_ref(),
        "replicationcontrollers" | "jobs.batch"
    );
    let (orphan, foreground) = match (options.policy.as_deref(), options.orphan) {
        (Some("Orphan"), _) | (None, Some(true)) => (true, false),
        (Some("Foreground"), _) => (false, true),
        (Some(_), _) | (None, Some(false)) => (false, false),
        (None, None) => (
            has(ORPHAN) || (orphans_by_default && !has(FOREGROUND)),
            has(FOREGROUND),
        ),
    };
    let mut wanted: Vec<String> = present
        .into_iter()
        .filter(|one| one != ORPHAN && one != FOREGROUND)
        .collect();
    if orphan {
        wanted.push(ORPHAN.to_owned());
    }
    if foreground {
        wanted.push(FOREGROUND.to_owned());
    }
    wanted
}

fn check_preconditions(
    call: &Call<'_>,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    let resource = &call.served.resource;
    let subject = Subject {
        group: &resource.group,
        kind: &resource.kind,
    };
    let name = meta(object, "name");
    if let Some(uid) = &options.uid
        && uid != meta(object, "uid")
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            meta(object, "uid")
        );
        return Err(StatusError::conflict(subject, name, &why));
    }
    if let Some(revision) = &options.revision
        && revision != meta(object, "resourceVersion")
    {
        let why = format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). The object might have been modified",
            meta(object, "resourceVersion")
        );
        return Err(StatusError::conflict(subject, name, &why));
    }
    Ok(())
}

/// From the body if there is one, else from the query.
fn options(call: &Call<'_>, body: &[u8]) -> Result<DeleteOptions, StatusError> {
    let given = if body.is_empty() {
        from_query(call)?
    } else {
        from_body(call, body)?
    };
    let policy = Path::new("propagationPolicy");
    let mut errors = Vec::new();
    if let (Some(wanted), Some(_)) = (&given.policy, given.orphan) {
        errors.push(FieldError::invalid(
            &policy,
            wanted.as_str(),
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    if let Some(wanted) = given.policy.as_deref()
        && !matches!(wanted, "Foreground" | "Background" | "Orphan")
    {
        errors.push(FieldError::not_supported(
            &policy,
            wanted,
            &["Foreground", "Background", "Orphan", "nil"],
        ));
    }
    if given.dry_runs.iter().any(|wish| wish != "All") {
        errors.push(FieldError::not_supported(
            &Path::new("dryRun"),
            json!(given.dry_runs),
            &["All"],
        ));
    }
    if errors.is_empty() {
        return Ok(given);
    }
    Err(invalid_options("DeleteOptions", &errors))
}

fn from_query(call: &Call<'_>) -> Result<DeleteOptions, StatusError> {
    let query = call.query;
    Ok(DeleteOptions {
        grace: integer(query, "gracePeriodSeconds")?,
        uid: query
            .get("preconditions.uid")
            .or_else(|| query.get("uid"))
            .map(str::to_owned),
        revision: None,
        orphan: query
            .get("orphanDependents")
            .map(|value| !matches!(value, "0" | "false")),
        policy: query.get("propagationPolicy").map(str::to_owned),
        dry_run: query.get("dryRun").is_some(),
        dry_runs: query.all("dryRun").map(str::to_owned).collect(),
    })
}

fn from_body(call: &Call<'_>, body: &[u8]) -> Result<DeleteOptions, StatusError> {
    let parsed =
        parse(BodyFormat::of(call.headers)?, body, "DeleteOptions").map_err(|mut failure| {
            // Here Kubernetes says less.
            if let Some(at) = failure.message.find("couldn't get version/kind") {
                let end = failure.message.rfind(" (").unwrap_or(failure.message.len());
                failure.message = failure.message[at..end].to_owned();
            }
            failure
        })?;
    let node = &parsed.node;
    if let Some(Node::Text(kind)) = node.get("kind")
        && kind != "DeleteOptions"
    {
        let version = match node.get("apiVersion") {
            Some(Node::Text(version)) => version.to_string(),
            _ => "meta.k8s.io/v1".to_owned(),
        };
        return Err(StatusError::bad_request(call.server.catalogue().why_not(
            kind,
            &version,
            "meta.k8s.io",
            "DeleteOptions",
        )));
    }
    let types = Types::builtin();
    let id = types
        .find("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
        .ok_or_else(|| StatusError::internal("the facts about DeleteOptions are missing"))?;
    let value = decode(types, id, node)
        .map_err(|error| StatusError::bad_request(error.to_string()))?
        .value;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let dry_runs: Vec<String> = value["dryRun"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(text)
        .collect();
    Ok(DeleteOptions {
        grace: value["gracePeriodSeconds"].as_i64(),
        uid: text(&value["preconditions"]["uid"]),
        revision: text(&value["preconditions"]["resourceVersion"]),
        orphan: value["orphanDependents"].as_bool(),
        policy: text(&value["propagationPolicy"]),
        dry_run: !dry_runs.is_empty(),
        dry_runs,
    })
}
