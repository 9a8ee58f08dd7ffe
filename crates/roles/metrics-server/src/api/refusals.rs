//! What cannot be had, and in which form the rest is shown.

use http::StatusCode;
use plimsoll_apimachinery::answer::{Format, Transform};
use plimsoll_apimachinery::request::Query;
use plimsoll_apimachinery::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;

use super::row::Kind;
use super::sheet::{Form, Include};
use super::version::GROUP;

pub enum Wanted {
    One(Kind),
    List(Kind),
}

/// What is asked for must fit what is there.
pub fn form(format: &Format, query: &Query, wanted: Wanted) -> Result<Form, StatusError> {
    let meta = match format.meta_version {
        "v1beta1" => "meta.k8s.io/v1beta1",
        _ => "meta.k8s.io/v1",
    };
    let misfit = |asked: &str, what: &str, kind: &str| {
        StatusError::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            format!("you requested {asked}, but the requested object is {what} (*metrics.{kind})"),
        )
    };
    match (format.transform, wanted) {
        (Transform::None, _) => Ok(Form::Object),
        (Transform::Partial, Wanted::One(_)) | (Transform::PartialList, Wanted::List(_)) => {
            Ok(Form::Metadata { meta })
        }
        (Transform::Partial, Wanted::List(kind)) => {
            Err(misfit("PartialObjectMetadata", "a list", kind.list_name()))
        }
        (Transform::PartialList, Wanted::One(kind)) => Err(misfit(
            "PartialObjectMetadataList",
            "not a list",
            kind.name(),
        )),
        (Transform::Table, _) => {
            let include = match query.get("includeObject").unwrap_or_default() {
                "" | "Metadata" => Include::Metadata,
                "Object" => Include::Object,
                "None" => Include::Nothing,
                other => {
                    return Err(StatusError::bad_request(format!(
                        "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                        quote(other)
                    )));
                }
            };
            Ok(Form::Table { meta, include })
        }
    }
}

pub fn unknown(kind: Kind, name: &str) -> StatusError {
    let kind = match kind {
        Kind::Node => "node",
        Kind::Pod => "pods",
    };
    StatusError::not_found(Subject { group: "", kind }, name)
}

pub fn no_metrics(kind: Kind, namespace: &str, name: &str) -> StatusError {
    let (kind, name) = match kind {
        Kind::Node => ("nodemetrics", name.to_owned()),
        Kind::Pod => ("podmetrics", format!("{namespace}/{name}")),
    };
    StatusError::not_found(Subject { group: GROUP, kind }, &name)
}

/// Of a request that says to carry something that nobody here can read.
pub fn unsupported_media_type() -> StatusError {
    let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let text = "415: Unsupported Media Type";
    StatusError::new(code, "UnsupportedMediaType", text).with_details(serde_json::Map::new())
}

pub fn no_watch(kind: Kind) -> StatusError {
    let details = [("group", GROUP), ("kind", kind.resource())];
    let details = details.map(|(key, text)| (key.to_owned(), text.into()));
    StatusError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        format!(
            "watch is not supported on resources of kind \"{}.{GROUP}\"",
            kind.resource()
        ),
    )
    .with_details(details.into_iter().collect())
}
