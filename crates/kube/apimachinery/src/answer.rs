//! Responses: bodies, headers and the format that the client accepts.

use std::collections::HashSet;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use plimsoll_golang::yaml;
use serde::Serialize;
use serde_json::Value;

use super::accept::{self, Clause};
use super::status::StatusError;

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
    /// In the order of preference of whoever takes anything.
    pub const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    fn is_in(self, offer: Offer) -> bool {
        match self {
            Self::Json => true,
            Self::Yaml => !offer.only_json,
            Self::Protobuf => offer.protobuf,
        }
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
    /// Nothing but JSON, in no form but its own.
    pub only_json: bool,
    /// Objects can be shown as tables and as their metadata, too.
    pub forms: bool,
}

impl Offer {
    /// Who names no type that is offered is told so before anything else is looked at.
    pub fn answers(self, headers: &HeaderMap) -> Result<(), StatusError> {
        let accept = accept::header(headers);
        let offered = |media: &str| {
            let encoding = Encoding::ALL
                .into_iter()
                .find(|one| one.content_type() == media);
            media == "*/*" || encoding.is_some_and(|one| one.is_in(self))
        };
        match accept.is_empty() || accept::names(accept).any(offered) {
            true => Ok(()),
            false => Err(not_acceptable(self)),
        }
    }
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
    ) -> Result<Self, StatusError> {
        offer.answers(headers)?;
        let pretty = wants_pretty(headers, pretty);
        let accept = accept::header(headers);
        if accept.is_empty() || offer.only_json {
            return Ok(Self {
                pretty,
                ..Self::JSON
            });
        }
        accept::clauses(accept)
            .iter()
            .find_map(|one| Self::of(one, pretty, offer))
            .ok_or_else(unknown_form)
    }

    /// For a refusal, which has one form only. `None`: it goes out as indented JSON, whatever was asked for.
    pub fn of_refusal(headers: &HeaderMap, pretty: Option<&str>, offer: Offer) -> Option<Self> {
        let pretty = wants_pretty(headers, pretty);
        let offer = Offer {
            forms: false,
            only_json: false,
            protobuf: offer.protobuf || offer.only_json,
            ..offer
        };
        let accept = accept::header(headers);
        if accept.is_empty() {
            return Some(Self {
                pretty,
                ..Self::JSON
            });
        }
        accept::clauses(accept)
            .iter()
            .find_map(|one| Self::of(one, pretty, offer))
    }

    fn of(clause: &Clause<'_>, pretty: bool, offer: Offer) -> Option<Self> {
        let taken = |one: &Encoding| one.is_in(offer) && clause.takes(one.content_type());
        let encoding = Encoding::ALL.into_iter().find(taken)?;
        let (group, version) = (clause.parameter("g"), clause.parameter("v"));
        let transform = match (clause.parameter("as"), group, version) {
            ("", "", "") => Transform::None,
            (kind, "meta.k8s.io", "v1" | "v1beta1") if offer.forms => match kind {
                "Table" if encoding != Encoding::Protobuf => Transform::Table,
                "PartialObjectMetadata" => Transform::Partial,
                "PartialObjectMetadataList" => Transform::PartialList,
                _ => return None,
            },
            _ => return None,
        };
        // A stream of events is never the answer, but may be asked for. There is none in YAML.
        let stream = match clause.parameter("stream") {
            "" => true,
            stream => stream == "watch" && encoding != Encoding::Yaml,
        };
        let server_version = match clause.parameter("sv") {
            "" => true,
            wanted => offer.forms && wanted == "v1",
        };
        (stream && server_version).then_some(Self {
            encoding,
            pretty: pretty || clause.parameter("pretty") == "1",
            transform,
            meta_version: match version {
                "v1beta1" => "v1beta1",
                _ => "v1",
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
            let value = serde_json::to_value(value).unwrap_or_default();
            return yaml::to_string(&value).into();
        }
        let encoded = if self.pretty {
            serde_json::to_vec_pretty(value)
        } else {
            serde_json::to_vec(value).map(|mut json| {
                json.push(b'\n');
                json
            })
        };
        escaped(encoded.unwrap_or_default()).into()
    }
}

/// Go writes characters that mean something in HTML by their number.
fn escaped(json: Vec<u8>) -> Vec<u8> {
    let is_special = |byte: &u8| matches!(byte, b'<' | b'>' | b'&');
    if !json.iter().any(is_special) {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + 64);
    for byte in json {
        // Outside of texts JSON has none of them.
        match is_special(&byte) {
            true => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            false => out.push(byte),
        }
    }
    out
}

/// People read indented JSON more easily.
pub fn wants_pretty(headers: &HeaderMap, said: Option<&str>) -> bool {
    if let Some(wish) = said {
        return matches!(wish, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|agent| agent.to_str().ok())
        .unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|name| agent.starts_with(name))
}

/// The format is known, but not the form that is wanted in it.
fn unknown_form() -> StatusError {
    only_accepted("application/json, application/yaml, application/vnd.kubernetes.protobuf")
}

/// Nothing that is wanted can be had; these can.
pub fn only_accepted(types: &str) -> StatusError {
    StatusError::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!("only the following media types are accepted: {types}"),
    )
}

fn not_acceptable(offer: Offer) -> StatusError {
    let others = match (offer.only_json, offer.lists) {
        (true, _) => "",
        (false, false) => ", application/yaml, application/vnd.kubernetes.protobuf",
        (false, true) => {
            ", application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        }
    };
    StatusError::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!("406: Not Acceptable\n\nAvailable representations: application/json{others}"),
    )
    .with_details(serde_json::Map::new())
}

/// No answer is to be kept on its way, unless it says so itself.
pub fn not_to_be_kept(headers: &mut HeaderMap) {
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
}

/// An answer with the headers that every answer has.
pub fn answer(code: StatusCode, content_type: &'static str, body: Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    not_to_be_kept(headers);
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

/// A refusal in the format that the request allows for one.
pub fn refusal(refused: &StatusError, format: Option<&Format>) -> Answer {
    match format {
        Some(format) => failure(refused, format),
        None => failure(
            refused,
            &Format {
                pretty: true,
                ..Format::JSON
            },
        ),
    }
}

pub fn failure(failure: &StatusError, format: &Format) -> Answer {
    let format = Format {
        transform: Transform::None,
        ..format.clone()
    };
    let mut response = match format.encoding {
        Encoding::Protobuf => answer(
            failure.code,
            format.content_type(),
            full(failure.to_protobuf()),
        ),
        Encoding::Json | Encoding::Yaml => json(failure.code, &failure.status(), &format),
    };
    if let Some(seconds) = failure.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    add_warnings(&mut response, &failure.warnings);
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
    let said = response.headers().get_all(header::WARNING).iter();
    let mut said: HashSet<HeaderValue> = said.cloned().collect();
    for warning in bounded(warnings) {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\""))
            // Once is enough.
            && said.insert(value.clone())
        {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// So many characters warnings have in all; each is cut when they would be more.
const MOST_WARNED: usize = 4096;
const MOST_OF_ONE: usize = 256;

fn bounded(warnings: &[String]) -> Vec<&str> {
    let mut met = HashSet::new();
    let texts = warnings.iter().map(String::as_str);
    let all: Vec<&str> = texts
        .filter(|text| !text.is_empty() && met.insert(*text))
        .take(MOST_WARNED)
        .collect();
    let mut left = MOST_WARNED;
    let fits = all.iter().all(|text| {
        let rest = left.checked_sub(text.chars().take(MOST_WARNED + 1).count());
        left = rest.unwrap_or_default();
        rest.is_some()
    });
    if fits {
        return all;
    }
    let mut written = 0;
    let cut = all.into_iter().map_while(|text| {
        if written >= MOST_WARNED {
            return None;
        }
        let mut ends = text.char_indices().map(|(at, _)| at).skip(MOST_OF_ONE);
        let text = &text[..ends.next().unwrap_or(text.len())];
        written += text.chars().count();
        Some(text)
    });
    cut.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &str, offer: Offer) -> Result<Format, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        Format::negotiate(&headers, None, offer).map_err(|failure| failure.message)
    }

    #[test]
    fn who_gets_what() {
        let objects = Offer {
            protobuf: true,
            forms: true,
            ..Offer::default()
        };
        let encoding = |accept: &str| negotiated(accept, objects).map(|format| format.encoding);
        assert_eq!(
            encoding("application/vnd.kubernetes.protobuf, */*"),
            Ok(Encoding::Protobuf)
        );
        assert_eq!(encoding("*/*;q=0.5,application/yaml"), Ok(Encoding::Yaml));
        assert_eq!(encoding("application/json;foo=bar"), Ok(Encoding::Json));
        assert!(
            encoding("application/*")
                .unwrap_err()
                .starts_with("406: Not Acceptable")
        );
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
        assert!(
            encoding(table)
                .unwrap_err()
                .starts_with("only the following")
        );
        let both = format!("{table},application/json");
        assert_eq!(encoding(&both), Ok(Encoding::Json));
        let only_json = Offer {
            only_json: true,
            ..Offer::default()
        };
        assert!(negotiated("application/yaml", only_json).is_err());
    }

    #[test]
    fn warnings_are_cut_when_they_are_many() {
        let few = ["a".repeat(4000), "b".to_owned(), "b".to_owned()];
        assert_eq!(bounded(&few), [few[0].as_str(), "b"]);
        let more = [few.as_slice(), &["c".repeat(200)]].concat();
        let sizes: Vec<usize> = bounded(&more).iter().map(|one| one.len()).collect();
        assert_eq!(sizes, [256, 1, 200]);
        let many: Vec<String> = (0..1_000_000).map(|index| format!("w{index}")).collect();
        let total: usize = bounded(&many).iter().map(|one| one.len()).sum();
        assert!((MOST_WARNED..MOST_WARNED + MOST_OF_ONE).contains(&total));
        let mut response = text(StatusCode::OK, "");
        add_warnings(&mut response, &many);
        let told = response.headers().get_all(header::WARNING).iter().count();
        assert!(told <= MOST_WARNED);
    }

    #[test]
    fn refusals_have_one_form() {
        let mut headers = HeaderMap::new();
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        headers.insert(header::ACCEPT, table.parse().unwrap());
        let offer = Offer {
            forms: true,
            ..Offer::default()
        };
        assert_eq!(Format::of_refusal(&headers, None, offer), None);
        let both = format!("{table},application/yaml");
        headers.insert(header::ACCEPT, both.parse().unwrap());
        let format = Format::of_refusal(&headers, None, offer).unwrap();
        assert_eq!(format.encoding, Encoding::Yaml);
    }

    #[test]
    fn what_html_would_mind_is_escaped() {
        let text = Format::JSON.encode_value(&"<a> & b");
        assert_eq!(&*text, b"\"\\u003ca\\u003e \\u0026 b\"\n");
    }
}
