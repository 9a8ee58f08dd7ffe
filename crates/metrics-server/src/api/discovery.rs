//! What the server says about its resources.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use plimsoll_ground::rest::answer::{self, Answer, Encoding, Format, full};
use plimsoll_ground::rest::fingerprint::{is_known, quoted_fingerprint};
use plimsoll_ground::rest::protobuf::{Message, enveloped};
use serde::Serialize;

use super::past;
use super::row::Kind;
use super::version::{Announced, GROUP, Version};

const VERBS: [&str; 2] = ["get", "list"];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Groups {
    kind: &'static str,
    groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    name: &'static str,
    versions: Vec<GroupVersion>,
    preferred_version: GroupVersion,
    #[serde(
        rename = "serverAddressByClientCIDRs",
        skip_serializing_if = "Vec::is_empty"
    )]
    addresses: Vec<Address>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: &'static str,
    version: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    server_address: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    kind: &'static str,
    api_version: &'static str,
    group_version: &'static str,
    resources: Vec<Resource>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    name: &'static str,
    singular_name: &'static str,
    namespaced: bool,
    kind: &'static str,
    verbs: [&'static str; 2],
}

/// A document that can be had as JSON, YAML and protobuf.
pub trait Document: Serialize {
    fn protobuf(&self) -> Vec<u8>;
}

pub fn answer_with(document: &impl Document, format: &Format) -> Answer {
    let body = match format.encoding {
        Encoding::Protobuf => document.protobuf().into(),
        Encoding::Json | Encoding::Yaml => format.encode_value(document),
    };
    answer::answer(StatusCode::OK, format.content_type(), full(body))
}

fn group_versions(announced: Announced) -> Vec<GroupVersion> {
    let versions = announced.versions().iter();
    versions
        .map(|version| GroupVersion {
            group_version: version.api_version(),
            version: version.name(),
        })
        .collect()
}

/// `GET /apis`; the address is where clients reach the server: `:443`.
pub fn groups(announced: Announced, address: &str) -> Groups {
    let mut groups = vec![group(announced)];
    if announced.past {
        groups.push(past_group());
    }
    for group in &mut groups {
        group.kind = "";
        group.api_version = "";
        group.addresses = vec![Address {
            client_cidr: "0.0.0.0/0",
            server_address: address.to_owned(),
        }];
    }
    Groups {
        kind: "APIGroupList",
        groups,
    }
}

/// `GET /apis/history.plimsoll.dev`
pub fn past_group() -> Group {
    let version = GroupVersion {
        group_version: past::API_VERSION,
        version: past::VERSION,
    };
    Group {
        kind: "APIGroup",
        api_version: "v1",
        name: past::GROUP,
        versions: vec![version.clone()],
        preferred_version: version,
        addresses: Vec::new(),
    }
}

/// `GET /apis/history.plimsoll.dev/v1alpha1`
pub fn past_resources() -> Resources {
    Resources {
        kind: "APIResourceList",
        api_version: "v1",
        group_version: past::API_VERSION,
        resources: vec![Resource {
            name: past::RESOURCE,
            singular_name: "",
            namespaced: true,
            kind: past::KIND,
            verbs: VERBS,
        }],
    }
}

/// `GET /apis/metrics.k8s.io`
pub fn group(announced: Announced) -> Group {
    let versions = group_versions(announced);
    let [preferred, ..] = announced.versions() else {
        unreachable!("there is always a version")
    };
    Group {
        kind: "APIGroup",
        api_version: "v1",
        name: GROUP,
        preferred_version: GroupVersion {
            group_version: preferred.api_version(),
            version: preferred.name(),
        },
        versions,
        addresses: Vec::new(),
    }
}

/// `GET /apis/metrics.k8s.io/v1beta1`
pub fn resources(version: Version) -> Resources {
    Resources {
        kind: "APIResourceList",
        api_version: "v1",
        group_version: version.api_version(),
        resources: Kind::ALL
            .map(|kind| Resource {
                name: kind.resource(),
                singular_name: "",
                namespaced: kind == Kind::Pod,
                kind: kind.name(),
                verbs: VERBS,
            })
            .into(),
    }
}

impl GroupVersion {
    fn message(&self) -> Message {
        let mut out = Message::default();
        out.text(1, self.group_version);
        out.text(2, self.version);
        out
    }
}

impl Group {
    fn message(&self) -> Message {
        let mut out = Message::default();
        out.text(1, self.name);
        for version in &self.versions {
            out.message(2, &version.message());
        }
        out.message(3, &self.preferred_version.message());
        for address in &self.addresses {
            let mut message = Message::default();
            message.text(1, address.client_cidr);
            message.text(2, &address.server_address);
            out.message(4, &message);
        }
        out
    }
}

impl Document for Group {
    fn protobuf(&self) -> Vec<u8> {
        enveloped(self.api_version, self.kind, &self.message().0)
    }
}

impl Document for Groups {
    fn protobuf(&self) -> Vec<u8> {
        let mut out = Message::default();
        for group in &self.groups {
            out.message(1, &group.message());
        }
        enveloped("", self.kind, &out.0)
    }
}

fn verbs_message() -> Message {
    let mut out = Message::default();
    for verb in VERBS {
        out.text(1, verb);
    }
    out
}

impl Document for Resources {
    fn protobuf(&self) -> Vec<u8> {
        let mut out = Message::default();
        out.text(1, self.group_version);
        for resource in &self.resources {
            let mut message = Message::default();
            message.text(1, resource.name);
            message.integer(2, resource.namespaced.into());
            message.text(3, resource.kind);
            message.message(4, &verbs_message());
            // Singular name, group, version and the hash of how it is stored.
            for field in [6, 8, 9, 10] {
                message.text(field, "");
            }
            out.message(2, &message);
        }
        enveloped(self.api_version, self.kind, &out.0)
    }
}

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
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let encoding = match parts.next()? {
                "application/json" => Encoding::Json,
                "application/yaml" => Encoding::Yaml,
                "application/vnd.kubernetes.protobuf" => Encoding::Protobuf,
                _ => return None,
            };
            let has = |key: &str, value: &str| {
                clause
                    .split(';')
                    .filter_map(|part| part.trim().split_once('='))
                    .any(|pair| pair == (key, value))
            };
            let wanted =
                has("g", AGGREGATED_GROUP) && has("v", AGGREGATED_VERSION) && has("as", AGGREGATED);
            wanted.then_some(encoding)
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
    let json = Format::JSON.encode_value(&document);
    // One fingerprint for all encodings: of the document as it is told without a new line at its end.
    let etag = quoted_fingerprint(json.strip_suffix(b"\n").unwrap_or(&json));
    let mut response = if is_known(&etag, headers) {
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
