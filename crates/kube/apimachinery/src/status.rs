//! Kubernetes' `Status` errors, with the reasons and texts that clients match on.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::field::{self, FieldError};
use super::protobuf::enveloped;
use plimsoll_golang::protowire::Message;
use plimsoll_golang::strconv::quote;

/// A request's failure, to be answered as a `Status`.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusError {
    pub code: StatusCode,
    /// Empty: the answer has no reason.
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Map<String, Value>>,
    /// Seconds, for the `Retry-After` header.
    pub retry_after: Option<u32>,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// Which resource a refusal speaks of: `pods`, or `deployments.apps`.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub group: &'a str,
    /// A resource's plural name, or a kind, as the refusal wants it.
    pub kind: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    fn details(&self, name: &str) -> Map<String, Value> {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !self.group.is_empty() {
            details.insert("group".into(), self.group.into());
        }
        if !self.kind.is_empty() {
            details.insert("kind".into(), self.kind.into());
        }
        details
    }
}

impl StatusError {
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
            warnings: Vec::new(),
        }
    }

    /// What was to be said of the request goes with the refusal, too.
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    pub fn with_details(mut self, details: Map<String, Value>) -> Self {
        self.details = Some(details);
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A mistake of the client that Kubernetes answers with a bare 500.
    pub fn server_error(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut details = Map::new();
        details.insert("causes".into(), json!([{"message": message}]));
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .with_details(details)
    }

    /// The client has as much as it may have, and is to come back in a while.
    pub fn too_many_requests() -> Self {
        let mut failure = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "Too many requests, please try again later.",
        );
        failure.retry_after = Some(1);
        failure
    }

    pub fn not_found(subject: Subject<'_>, name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            format!("{} {} not found", subject.qualified(), quote(name)),
        )
        .with_details(subject.details(name))
    }

    pub fn already_exists(subject: Subject<'_>, name: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            format!("{} {} already exists", subject.qualified(), quote(name)),
        )
        .with_details(subject.details(name))
    }

    pub fn conflict(subject: Subject<'_>, name: &str, why: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {}: {why}",
                subject.qualified(),
                quote(name)
            ),
        )
        .with_details(subject.details(name))
    }

    pub fn forbidden(subject: Subject<'_>, name: &str, why: &str) -> Self {
        let message = match (subject.kind.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{} is forbidden: {why}", subject.qualified()),
            (false, false) => format!(
                "{} {} is forbidden: {why}",
                subject.qualified(),
                quote(name)
            ),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details(subject.details(name))
    }

    /// `subject.kind` is a kind here (`Pod`), unlike in the other refusals.
    pub fn invalid(subject: Subject<'_>, name: &str, errors: &[FieldError]) -> Self {
        let errors = field::told(errors);
        let mut details = subject.details(name);
        details.insert(
            "causes".into(),
            errors.iter().map(FieldError::cause).collect(),
        );
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!(
                "{} {} is invalid: {}",
                subject.qualified(),
                quote(name),
                field::summary(errors)
            ),
        )
        .with_details(details)
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub fn method_not_supported() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(Map::new())
    }

    /// An unknown resource of a known group and version.
    pub fn no_such_resource() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(Map::new())
    }

    pub fn gone(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, reason, message)
    }

    /// The object on the wire, its keys in the order that Kubernetes writes them in.
    pub fn status(&self) -> impl Serialize {
        let details = self.details.as_ref();
        let has_details = details.is_some() || self.retry_after.is_some();
        Status {
            kind: "Status",
            api_version: "v1",
            metadata: Map::new(),
            status: "Failure",
            message: self.message.clone(),
            reason: self.reason,
            details: has_details.then(|| Details::of(details, self.retry_after)),
            code: self.code.as_u16(),
        }
    }

    pub fn to_value(&self) -> Value {
        serde_json::to_value(self.status()).unwrap_or_default()
    }

    /// The same in protobuf, as it is sent.
    pub fn to_protobuf(&self) -> Vec<u8> {
        let mut list_metadata = Message::default();
        for field in 1..=3 {
            list_metadata.text(field, "");
        }
        let mut out = Message::default();
        out.message(1, &list_metadata);
        out.text(2, "Failure");
        out.text(3, &self.message);
        out.text(4, self.reason);
        if self.details.is_some() || self.retry_after.is_some() {
            out.message(5, &self.details_message());
        }
        out.integer(6, self.code.as_u16().into());
        enveloped("v1", "Status", &out.0)
    }

    fn details_message(&self) -> Message {
        let details = Details::of(self.details.as_ref(), self.retry_after);
        let mut out = Message::default();
        out.text(1, &details.name);
        out.text(2, &details.group);
        out.text(3, &details.kind);
        for cause in &details.causes {
            let mut message = Message::default();
            message.text(1, &cause.reason);
            message.text(2, &cause.message);
            message.text(3, &cause.field);
            out.message(4, &message);
        }
        out.integer(5, self.retry_after.unwrap_or(0).into());
        out.text(6, &details.uid);
        out
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    kind: &'static str,
    api_version: &'static str,
    metadata: Map<String, Value>,
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

#[derive(Serialize)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
}

impl Details {
    fn of(details: Option<&Map<String, Value>>, retry_after_seconds: Option<u32>) -> Self {
        let text = |value: Option<&Value>| {
            let text = value.and_then(Value::as_str).unwrap_or_default();
            text.to_owned()
        };
        let of = |key: &str| details.and_then(|details| details.get(key));
        let causes = of("causes").and_then(Value::as_array).into_iter().flatten();
        Self {
            name: text(of("name")),
            group: text(of("group")),
            kind: text(of("kind")),
            uid: text(of("uid")),
            causes: causes
                .map(|cause| Cause {
                    reason: text(cause.get("reason")),
                    message: text(cause.get("message")),
                    field: text(cause.get("field")),
                })
                .collect(),
            retry_after_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Path;

    #[test]
    fn keys_come_in_kubernetes_order() {
        let error = FieldError::required(&Path::new("spec"), "");
        let subject = Subject {
            group: "g",
            kind: "K",
        };
        let mut failure = StatusError::invalid(subject, "n", &[error]);
        failure.retry_after = Some(2);
        assert_eq!(
            serde_json::to_string(&failure.status()).unwrap(),
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"K.g \\\"n\\\" is invalid: spec: Required value\",\"reason\":\"Invalid\",\"details\":{\"name\":\"n\",\"group\":\"g\",\"kind\":\"K\",\"causes\":[{\"reason\":\"FieldValueRequired\",\"message\":\"Required value\",\"field\":\"spec\"}],\"retryAfterSeconds\":2},\"code\":422}"
        );
        let unauthorized = StatusError::unauthorized();
        assert!(
            !serde_json::to_string(&unauthorized.status())
                .unwrap()
                .contains("details")
        );
    }

    #[test]
    fn a_refusal_in_protobuf() {
        let subject = Subject {
            group: "",
            kind: "node",
        };
        let expected = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x43\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x12node \"x\" not found\"\x08NotFound*\x0f\x0a\x01x\x12\0\x1a\x04node(\0\x32\0\x30\x94\x03\x1a\0\x22\0";
        assert_eq!(StatusError::not_found(subject, "x").to_protobuf(), expected);
    }
}
