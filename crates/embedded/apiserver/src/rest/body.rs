//! Bodies: from bytes to an object of the resource's type.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::Call;
use super::options::{FieldValidation, WriteOptions};
use crate::codec::json::Node;
use crate::codec::{protobuf, yaml};
use crate::field::{FieldError, Path};
use crate::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;

/// The largest body that is read.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

impl BodyFormat {
    /// Without a content type it is JSON.
    pub fn of(headers: &HeaderMap) -> Result<Self, StatusError> {
        let media = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("application/json");
        let mut parts = media.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        // A parameter without a value makes it no media type at all.
        let is_sound = parts.all(|part| part.is_empty() || part.contains('='));
        match kind {
            _ if !is_sound => Err(unknown_format()),
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            _ => Err(unknown_format()),
        }
    }
}

fn unknown_format() -> StatusError {
    StatusError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    )
}

/// An object and what is to be said about it.
#[derive(Debug)]
pub struct Decoded {
    pub object: Value,
    pub warnings: Vec<String>,
}

/// A body, read but not understood.
#[derive(Debug)]
pub struct Parsed<'a> {
    pub node: Node<'a>,
    /// What YAML's reader has against it.
    pub repeated: Vec<String>,
}

impl Parsed<'_> {
    /// What a strict reader objects to, given what the decoder did.
    pub fn objections(&self, decoded: Vec<String>) -> Vec<String> {
        let mut all = self.repeated.clone();
        all.extend(decoded);
        all
    }

    /// The same as one text.
    pub fn strictly(&self, decoded: &[String]) -> String {
        let mut all = Vec::new();
        if !self.repeated.is_empty() {
            all.push(go_unmarshal_errors(&self.repeated));
        }
        all.extend_from_slice(decoded);
        all.join(", ")
    }
}

pub fn go_unmarshal_errors(errors: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", errors.join("\n  "))
}

/// Reads a document, whatever it is of.
pub fn parse<'a>(
    format: BodyFormat,
    body: &'a [u8],
    kind: &str,
) -> Result<Parsed<'a>, StatusError> {
    let text = String::from_utf8_lossy(body);
    let unrecognised = |problem: String| unrecognised(kind, &problem, body);
    let mut repeated = Vec::new();
    let node = match format {
        BodyFormat::Protobuf => {
            return protobuf::parse(body)
                .map(|node| Parsed { node, repeated })
                .map_err(|error| unrecognised(error.to_string()));
        }
        BodyFormat::Yaml => {
            let parsed = yaml::parse(&text).map_err(unrecognised)?;
            repeated = parsed.repeated;
            parsed.node
        }
        BodyFormat::Json => {
            let parsed = match &text {
                Cow::Borrowed(text) => Node::parse(text),
                Cow::Owned(text) => Node::parse(text).map(Node::into_owned),
            };
            parsed.map_err(|error| {
                unrecognised(format!(
                    "couldn't get version/kind; json parse error: {error}"
                ))
            })?
        }
    };
    for field in ["kind", "apiVersion"] {
        if let Some(found) = node.get(field)
            && !matches!(found, Node::Text(_) | Node::Null)
        {
            return Err(unrecognised(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
                found.type_name()
            )));
        }
    }
    if !matches!(node, Node::Object(_) | Node::Null) {
        return Err(unrecognised(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            node.type_name()
        )));
    }
    Ok(Parsed { node, repeated })
}

fn unrecognised(kind: &str, problem: &str, body: &[u8]) -> StatusError {
    StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {problem} ({})",
        excerpt(body)
    ))
}

/// What Kubernetes shows of a body that it does not understand: short text, or the first bytes in hex.
fn excerpt(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let text_like = body
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
        .is_none_or(|byte| *byte == b'{');
    let cut = &body[..body.len().min(SHOWN)];
    let dots = if body.len() > SHOWN { " ..." } else { "" };
    if text_like && std::str::from_utf8(body).is_ok() {
        return format!("{}{dots}", String::from_utf8_lossy(cut));
    }
    let hex: String = cut.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}{dots}")
}

impl Call<'_> {
    /// The body of the request: a document of this resource's kind.
    pub fn decode_body(&self, body: &[u8], options: &WriteOptions) -> Result<Decoded, StatusError> {
        let format = BodyFormat::of(self.headers)?;
        let parsed = parse(format, body, &self.served.resource.kind)?;
        self.decode(&parsed, body, options)
    }

    /// Decodes a document of this resource's kind.
    pub fn decode(
        &self,
        parsed: &Parsed<'_>,
        body: &[u8],
        options: &WriteOptions,
    ) -> Result<Decoded, StatusError> {
        let resource = &self.served.resource;
        // Nothing at all is an object of which nothing is said.
        let nothing = Node::Object(Vec::new());
        let node = match &parsed.node {
            Node::Null => &nothing,
            node => node,
        };
        let text_of = |key: &str| match node.get(key) {
            Some(Node::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        let (kind, version) = (text_of("kind"), text_of("apiVersion"));
        let own_version = resource.api_version();
        let kind = if kind.is_empty() {
            resource.kind.clone()
        } else {
            kind
        };
        // A custom resource has to say it.
        let version = if version.is_empty() && !self.served.is_custom() {
            own_version.clone()
        } else {
            version
        };
        let refuse = |why: String| {
            StatusError::bad_request(format!(
                "{kind} in version {} cannot be handled as a {}: {why}",
                quote(version.rsplit('/').next().unwrap_or_default()),
                resource.kind
            ))
        };
        if version.matches('/').count() > 1 {
            let problem = format!("unexpected GroupVersion string: {version}");
            return Err(unrecognised(&resource.kind, &problem, body));
        }
        // Of a custom resource nothing is known but what it says itself.
        if self.served.is_custom() && text_of("kind").is_empty() {
            let text = String::from_utf8_lossy(body);
            let problem = format!("Object 'Kind' is missing in '{text}'");
            return Err(unrecognised(&resource.kind, &problem, body));
        }
        if self.served.is_custom() && version != own_version {
            return Err(StatusError::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({own_version})"
            )));
        }
        if self.served.is_custom() && kind != resource.kind {
            let name = match node.get("metadata").and_then(|meta| meta.get("name")) {
                Some(Node::Text(name)) => name.to_string(),
                _ => String::new(),
            };
            let subject = Subject {
                group: &resource.group,
                kind: &kind,
            };
            let error = FieldError::invalid(
                &Path::new("kind"),
                kind.as_str(),
                format!("must be {}", resource.kind),
            );
            return Err(StatusError::invalid(subject, &name, &[error]));
        }
        if kind != resource.kind || version != own_version {
            return Err(refuse(self.server.catalogue().why_not(
                &kind,
                &version,
                &resource.group,
                &resource.kind,
            )));
        }
        let decoded = self
            .served
            .decode(node)
            .map_err(|error| refuse(error.to_string()))?;
        let mut warnings = Vec::new();
        if !decoded.objections.is_empty() || !parsed.repeated.is_empty() {
            match options.validation {
                FieldValidation::Strict => {
                    let said = parsed.strictly(&decoded.objections);
                    return Err(refuse(format!("strict decoding error: {said}")));
                }
                FieldValidation::Warn => warnings = parsed.objections(decoded.objections),
                FieldValidation::Ignore => {}
            }
        }
        let mut object = decoded.value;
        super::track::forget_what_it_is(&mut object);
        self.served.settle(&mut object);
        Ok(Decoded { object, warnings })
    }
}
