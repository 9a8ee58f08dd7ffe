//! What the server says about its resources.

use http::StatusCode;
use plimsoll_apimachinery::answer;
use plimsoll_apimachinery::answer::{Answer, Encoding, Format, full};
use plimsoll_apimachinery::protobuf::enveloped;
use plimsoll_golang::protowire::Message;
use serde::Serialize;

use super::past;
use super::row::Kind;
use super::version::{Announced, GROUP, Version};

pub const VERBS: [&str; 2] = ["get", "list"];

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
