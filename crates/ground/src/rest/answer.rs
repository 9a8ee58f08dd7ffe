//! Answers: bodies, headers and the format that the client asked for.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;
use serde_json::Value;

use super::status::Failure;

/// What another server sends may break off.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
pub type Answer = Response<Body>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub fn stream(chunks: impl futures::Stream<Item = Bytes> + Send + 'static) -> Body {
    use futures::StreamExt;
    StreamBody::new(chunks.map(|chunk| Ok(Frame::data(chunk)))).boxed_unsync()
}

/// What a client wants to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    pub encoding: Encoding,
    pub pretty: bool,
    pub transform: Transform,
    /// Of `meta.k8s.io`, for tables and metadata.
    pub meta_version: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
    /// Kubernetes' own framing of it. Only servers that say so offer it.
    Protobuf,
}

impl Encoding {
    fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "*/*" | "application/json" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }

    fn is_in(self, offer: Offer) -> bool {
        self != Self::Protobuf || offer.protobuf
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    None,
    Table,
    Partial,
    PartialList,
}

/// What a path has to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offer {
    /// It is one of a list, which can be watched too.
    pub lists: bool,
    pub protobuf: bool,
}

impl Format {
    pub const JSON: Self = Self {
        encoding: Encoding::Json,
        pretty: false,
        transform: Transform::None,
        meta_version: "v1",
    };

    /// The first of the accepted formats that can be had.
    pub fn negotiate(
        headers: &HeaderMap,
        pretty: Option<&str>,
        offer: Offer,
    ) -> Result<Self, Failure> {
        let agent = headers
            .get(header::USER_AGENT)
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        let by_a_person = ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|name| agent.starts_with(name));
        let pretty = match pretty {
            Some(wish) => matches!(wish, "1" | "t" | "T" | "true" | "TRUE" | "True"),
            None => by_a_person,
        };
        let accepted: Vec<&str> = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .collect();
        if accepted.is_empty() {
            return Ok(Self {
                pretty,
                ..Self::JSON
            });
        }
        let mut accepted: Vec<(f32, &str)> =
            accepted.into_iter().map(|one| (weight(one), one)).collect();
        // The client's order counts among equals.
        accepted.sort_by(|a, b| b.0.total_cmp(&a.0));
        accepted
            .iter()
            .find_map(|(_, one)| Self::of(one, pretty, offer))
            .ok_or_else(|| {
                let known = |one: &str| {
                    let media = one.split(';').next().unwrap_or_default().trim();
                    Encoding::of(media).is_some_and(|one| one.is_in(offer))
                };
                if accepted.iter().any(|(_, one)| known(one)) {
                    unknown_form()
                } else {
                    not_acceptable(offer.lists)
                }
            })
    }

    fn of(accept: &str, pretty: bool, offer: Offer) -> Option<Self> {
        let mut parts = accept.split(';').map(str::trim);
        let encoding = Encoding::of(parts.next()?).filter(|one| one.is_in(offer))?;
        let mut transform = Transform::None;
        let (mut group, mut version) = ("", "");
        for part in parts {
            match part.split_once('=') {
                Some(("as", kind)) => {
                    transform = match kind {
                        "Table" => Transform::Table,
                        "PartialObjectMetadata" => Transform::Partial,
                        "PartialObjectMetadataList" => Transform::PartialList,
                        _ => return None,
                    }
                }
                Some(("g", value)) => group = value,
                Some(("v", value)) => version = value,
                Some(("pretty" | "q" | "stream" | "charset", _)) => {}
                _ => return None,
            }
        }
        let known = group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1");
        let no_table = encoding == Encoding::Protobuf && transform == Transform::Table;
        ((transform == Transform::None || known) && !no_table).then_some(Self {
            encoding,
            pretty,
            transform,
            meta_version: if version == "v1beta1" {
                "v1beta1"
            } else {
                "v1"
            },
        })
    }

    /// Compact JSON.
    pub fn is_plain(&self) -> bool {
        self.encoding == Encoding::Json && !self.pretty
    }

    pub fn content_type(&self) -> &'static str {
        self.encoding.content_type()
    }

    /// A document that is at hand as compact JSON.
    pub fn encode(&self, json: Bytes) -> Bytes {
        if self.is_plain() {
            return json;
        }
        match serde_json::from_slice::<Value>(&json) {
            Ok(value) => self.encode_value(&value),
            Err(_) => json,
        }
    }

    pub fn encode_value(&self, value: &impl Serialize) -> Bytes {
        if self.encoding == Encoding::Yaml {
            return serde_saphyr::to_string(value).unwrap_or_default().into();
        }
        let encoded = if self.pretty {
            serde_json::to_vec_pretty(value)
        } else {
            serde_json::to_vec(value).map(|mut json| {
                json.push(b'\n');
                json
            })
        };
        encoded.unwrap_or_default().into()
    }
}

/// The `q` of an accepted format.
fn weight(accept: &str) -> f32 {
    accept
        .split(';')
        .filter_map(|part| part.trim().strip_prefix("q="))
        .find_map(|q| q.parse().ok())
        .unwrap_or(1.0)
}

/// The format is known, but not the form that is wanted in it.
fn unknown_form() -> Failure {
    Failure::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    )
}

fn not_acceptable(lists: bool) -> Failure {
    let streams = if lists {
        ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    } else {
        ""
    };
    Failure::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!(
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf{streams}"
        ),
    )
    .with_details(serde_json::Map::new())
}

/// An answer with the headers that every answer has.
pub fn answer(code: StatusCode, content_type: &'static str, body: Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

pub fn json(code: StatusCode, value: &impl Serialize, format: &Format) -> Answer {
    answer(
        code,
        format.content_type(),
        full(format.encode_value(value)),
    )
}

pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = answer(code, "text/plain; charset=utf-8", full(text));
    response.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

pub fn failure(failure: &Failure, format: &Format) -> Answer {
    let format = Format {
        transform: Transform::None,
        ..format.clone()
    };
    let mut response = json(failure.code, &failure.status(), &format);
    if let Some(seconds) = failure.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Puts a warning before those that are there.
pub fn warn_first(response: &mut Answer, warning: &str) {
    let said: Vec<HeaderValue> = response
        .headers()
        .get_all(header::WARNING)
        .iter()
        .cloned()
        .collect();
    response.headers_mut().remove(header::WARNING);
    add_warnings(response, &[warning.to_owned()]);
    for value in said {
        if !response
            .headers()
            .get_all(header::WARNING)
            .iter()
            .any(|one| one == value)
        {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// `Warning: 299 - "…"`, as kubectl shows them.
pub fn add_warnings(response: &mut Answer, warnings: &[String]) {
    for warning in warnings {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            // Once is enough.
            if !response
                .headers()
                .get_all(header::WARNING)
                .iter()
                .any(|said| said == value)
            {
                response.headers_mut().append(header::WARNING, value);
            }
        }
    }
}

/// A stored object as a document of its own: kind and version are not stored with it.
pub fn document(kind: &str, api_version: &str, object: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(object.len() + kind.len() + api_version.len() + 32);
    out.put_slice(b"{\"kind\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"apiVersion\":\"");
    out.put_slice(api_version.as_bytes());
    out.put_slice(b"\",");
    out.put_slice(object.get(1..).unwrap_or(b"}"));
    out
}
