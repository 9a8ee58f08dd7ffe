//! Discovery of everything in one document, which clients keep by its tag.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use plimsoll_apimachinery::accept;
use plimsoll_apimachinery::answer::{Answer, Encoding, Format, full};
use plimsoll_apimachinery::fingerprint::quoted_fingerprint;
use plimsoll_apimachinery::protobuf::enveloped;
use plimsoll_golang::protowire::Message;
use serde::Serialize;

use super::discovery::{Document, VERBS, answer_with};
use super::past;
use super::row::Kind;
use super::version::{Announced, GROUP};

const AGGREGATED: &str = "APIGroupDiscoveryList";
const AGGREGATED_GROUP: &str = "apidiscovery.k8s.io";
const AGGREGATED_VERSION: &str = "v2";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Aggregated {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    items: Vec<AggregatedGroup>,
}

/// The same without kind and version.
#[derive(Debug, Serialize)]
struct Untold<'a> {
    metadata: &'a Empty,
    items: &'a [AggregatedGroup],
}

#[derive(Debug, Serialize)]
struct Empty {}

#[derive(Debug, Serialize)]
struct AggregatedGroup {
    metadata: Named,
    versions: Vec<AggregatedVersion>,
}

#[derive(Debug, Serialize)]
struct Named {
    name: &'static str,
}

#[derive(Debug, Serialize)]
struct AggregatedVersion {
    version: &'static str,
    resources: Vec<AggregatedResource>,
    freshness: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: &'static str,
    response_kind: GroupVersionKind,
    scope: &'static str,
    singular_resource: &'static str,
    verbs: [&'static str; 2],
}

#[derive(Debug, Serialize)]
struct GroupVersionKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

/// Whether everything is wanted in one document, and in which encoding.
pub fn wants_aggregated(headers: &HeaderMap) -> Option<Encoding> {
    let accept = accept::header(headers);
    // Who names none of the types is refused, whatever form they wish for.
    let named =
        |name: &str| name == "*/*" || Encoding::ALL.iter().any(|one| one.content_type() == name);
    if !accept::names(accept).any(named) {
        return None;
    }
    accept::clauses(accept).iter().find_map(|clause| {
        let form = [
            clause.parameter("g"),
            clause.parameter("v"),
            clause.parameter("as"),
        ];
        let taken = |one: &Encoding| clause.takes(one.content_type());
        let encoding = Encoding::ALL.into_iter().find(taken)?;
        (form == [AGGREGATED_GROUP, AGGREGATED_VERSION, AGGREGATED]).then_some(encoding)
    })
}

/// `GET /apis`, everything at once.
pub fn aggregated(
    announced: Announced,
    encoding: Encoding,
    pretty: bool,
    headers: &HeaderMap,
) -> Answer {
    let document = Aggregated::new(announced);
    let etag = document.etag();
    // Held against the whole of the header, unlike tags of other documents.
    let known = headers.get(header::IF_NONE_MATCH);
    let mut response = if known.is_some_and(|known| known == etag.as_str()) {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let format = Format {
            encoding,
            pretty,
            ..Format::JSON
        };
        let mut response = answer_with(&document, &format);
        let kind = format!(
            "{};g={AGGREGATED_GROUP};v={AGGREGATED_VERSION};as={AGGREGATED}",
            format.content_type()
        );
        if let Ok(kind) = HeaderValue::from_str(&kind) {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

impl Aggregated {
    /// One fingerprint for all encodings: of the document in JSON, before it is told what it is.
    fn etag(&self) -> String {
        let json = Format::JSON.encode_value(&Untold {
            metadata: &self.metadata,
            items: &self.items,
        });
        quoted_fingerprint(json.strip_suffix(b"\n").unwrap_or(&json))
    }

    fn new(announced: Announced) -> Self {
        let versions = announced
            .versions()
            .iter()
            .map(|version| AggregatedVersion {
                version: version.name(),
                resources: Kind::ALL
                    .map(|kind| AggregatedResource {
                        resource: kind.resource(),
                        response_kind: GroupVersionKind {
                            group: "",
                            version: "",
                            kind: kind.name(),
                        },
                        scope: match kind {
                            Kind::Node => "Cluster",
                            Kind::Pod => "Namespaced",
                        },
                        singular_resource: "",
                        verbs: VERBS,
                    })
                    .into(),
                freshness: "Current",
            });
        Self {
            kind: AGGREGATED,
            api_version: "apidiscovery.k8s.io/v2",
            metadata: Empty {},
            items: std::iter::once(AggregatedGroup {
                metadata: Named { name: GROUP },
                versions: versions.collect(),
            })
            .chain(announced.past.then(Self::past))
            .collect(),
        }
    }

    fn past() -> AggregatedGroup {
        AggregatedGroup {
            metadata: Named { name: past::GROUP },
            versions: vec![AggregatedVersion {
                version: past::VERSION,
                resources: vec![AggregatedResource {
                    resource: past::RESOURCE,
                    response_kind: GroupVersionKind {
                        group: "",
                        version: "",
                        kind: past::KIND,
                    },
                    scope: "Namespaced",
                    singular_resource: "",
                    verbs: VERBS,
                }],
                freshness: "Current",
            }],
        }
    }
}

impl Document for Aggregated {
    fn protobuf(&self) -> Vec<u8> {
        let texts = |fields: std::ops::RangeInclusive<u64>, named: &str| {
            let mut out = Message::default();
            for field in fields {
                out.text(field, if field == 1 { named } else { "" });
            }
            out
        };
        let mut out = Message::default();
        out.message(1, &texts(1..=3, ""));
        for group in &self.items {
            let mut metadata = texts(1..=6, group.metadata.name);
            metadata.integer(7, 0);
            // When it was made: never.
            metadata.message(8, &Message::default());
            let mut message = Message::default();
            message.message(1, &metadata);
            for version in &group.versions {
                let mut one = Message::default();
                one.text(1, version.version);
                for resource in &version.resources {
                    one.message(2, &resource.message());
                }
                one.text(3, version.freshness);
                message.message(2, &one);
            }
            out.message(2, &message);
        }
        enveloped(self.api_version, self.kind, &out.0)
    }
}

impl AggregatedResource {
    fn message(&self) -> Message {
        let mut kind = Message::default();
        kind.text(1, self.response_kind.group);
        kind.text(2, self.response_kind.version);
        kind.text(3, self.response_kind.kind);
        let mut out = Message::default();
        out.text(1, self.resource);
        out.message(2, &kind);
        out.text(3, self.scope);
        out.text(4, self.singular_resource);
        for verb in self.verbs {
            out.text(5, verb);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that knew the original keep its tag.
    #[test]
    fn the_tag_is_the_originals() {
        let document = Aggregated::new(Announced::default());
        let expected = concat!(
            "\"358A59ADB76207FD91A611EE4E44AA35402A763B15DAFCCDA881CF87B1316E7F",
            "7BCF0A0AAF9F7D57EE70498199884A495CE5759E3A791DC934EA8FB4ABBD68F3\"",
        );
        assert_eq!(document.etag(), expected);
    }
}
