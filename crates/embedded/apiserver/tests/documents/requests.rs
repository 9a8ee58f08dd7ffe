//! Random requests.

use fastrand::Rng;
use http::Method;
use plimsoll_apiserver::resource::{self, Resource};
use serde_json::{Value, json};

use crate::documents::{Writer, pick, pointer, seldom};
use crate::world::World;

#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub media: &'static str,
    pub accept: &'static str,
    pub body: Vec<u8>,
    /// Of the object that is meant, in its resource.
    pub object: Option<String>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        let shown: String = body.chars().take(3000).collect();
        write!(
            f,
            "{} {} {} {} ({} bytes): {shown}",
            self.method,
            self.path,
            self.media,
            self.accept,
            self.body.len()
        )
    }
}

/// Numbers of all sorts, for parameters.
const EXTREMES: &[&str] = &[
    "0",
    "1",
    "-1",
    "5",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "1e400",
    "NaN",
    "",
    "+5",
    "%D9%A1",
    "0x10",
    "1.5",
    "99999999999999999999999999",
];
const NUMERIC: &[&str] = &[
    "timeoutSeconds",
    "limit",
    "resourceVersion",
    "gracePeriodSeconds",
    "timeout",
    "continue",
];

fn folder(resource: &Resource) -> String {
    let root = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    match resource.namespaced() {
        true => format!("{root}/namespaces/default/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    }
}

fn query(rng: &mut Rng) -> String {
    let mut parts = Vec::new();
    if seldom(rng, 4) {
        parts.push(format!(
            "fieldValidation={}",
            pick(rng, &["Strict", "Warn", "Ignore", "x"])
        ));
    }
    if seldom(rng, 10) {
        parts.push("dryRun=All".to_owned());
    }
    if seldom(rng, 3) {
        parts.push(format!("{}={}", pick(rng, NUMERIC), pick(rng, EXTREMES)));
    }
    if seldom(rng, 10) {
        let requirements: Vec<String> = (0..rng.usize(..500))
            .map(|index| format!("k{index}%20in%20(a,b)"))
            .collect();
        parts.push(format!("labelSelector={}", requirements.join(",")));
    }
    if seldom(rng, 10) {
        parts.push(format!(
            "fieldSelector={}",
            pick(rng, &["metadata.name=a", "a", "a=b=c", "metadata.name!=,"])
        ));
    }
    parts.join("&")
}

/// One of any kind.
pub fn any(rng: &mut Rng, world: &World) -> Request {
    if seldom(rng, 12) {
        return of_a_definition(rng, world);
    }
    let all = resource::builtin();
    let resource = &all[rng.usize(..all.len())];
    let name = pick(rng, &["a", "b", "c", "things.example.org"]);
    let folder = folder(resource);
    let object = format!("{folder}/{name}");
    let door = resource.subresources.first().filter(|_| seldom(rng, 4));
    let target = match door {
        Some(door) => format!("{object}/{}", door.0),
        None => object.clone(),
    };
    let accept = pick(
        rng,
        &[
            "application/json",
            "application/json",
            "application/yaml",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ],
    );
    let mut request = Request {
        method: Method::GET,
        path: target.clone(),
        media: "application/json",
        accept,
        body: Vec::new(),
        object: Some(object.clone()),
    };
    let mut parameters = query(rng);
    let document = |rng: &mut Rng| {
        let mut writer = Writer::new(rng);
        match resource.type_id() {
            Some(id) if !seldom(writer.rng, 20) => {
                writer.object(&resource.api_version(), &resource.kind, id, name)
            }
            _ => writer.anything(5),
        }
        writer.out
    };
    match rng.usize(..12) {
        0..4 => {
            request.method = Method::POST;
            request.path = folder;
            request.body = document(rng).into_bytes();
            request.media = pick(
                rng,
                &[
                    "application/json",
                    "application/json",
                    "application/yaml",
                    "application/vnd.kubernetes.protobuf",
                ],
            );
        }
        4 | 5 => {
            request.method = Method::PUT;
            request.body = document(rng).into_bytes();
        }
        6..9 => {
            request.method = Method::PATCH;
            let media = pick(
                rng,
                &[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                    "application/apply-patch+yaml",
                ],
            );
            request.media = media;
            request.body = match media {
                "application/json-patch+json" => {
                    json_patch(rng, world.object(&object)).into_bytes()
                }
                _ => document(rng).into_bytes(),
            };
            if media == "application/apply-patch+yaml" {
                parameters = format!("fieldManager=m&force={}&{parameters}", rng.bool());
            }
        }
        9 => request.method = Method::DELETE,
        10 => {
            request.path = folder;
            request.object = None;
            if seldom(rng, 3) {
                parameters = format!("watch=1&{parameters}");
            }
        }
        _ => {}
    }
    if !parameters.is_empty() {
        request.path = format!("{}?{parameters}", request.path);
    }
    request
}

/// One of a kind that a definition has made.
fn of_a_definition(rng: &mut Rng, world: &World) -> Request {
    let folder = "/apis/example.com/v1/namespaces/default/things";
    let object = format!("{folder}/a");
    let document = |rng: &mut Rng| {
        let mut writer = Writer::new(rng);
        writer.out.push_str(
            "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Thing\",\"metadata\":{\"name\":\"a\"}",
        );
        for field in ["open", "keyed", "set", "closed", "choice", "unknown"] {
            if writer.rng.bool() {
                writer.out.push_str(&format!(",\"{field}\":"));
                writer.of_a_thing(field);
            }
        }
        writer.out.push('}');
        writer.out.into_bytes()
    };
    let media = pick(
        rng,
        &[
            "application/json",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ],
    );
    let (method, path) = match (media, rng.bool()) {
        ("application/json", true) => (Method::POST, folder.to_owned()),
        ("application/json", false) => (Method::PUT, object.clone()),
        _ => (
            Method::PATCH,
            format!(
                "{object}?fieldManager=m{}",
                if media.contains("apply") {
                    "&force=true"
                } else {
                    ""
                }
            ),
        ),
    };
    Request {
        method,
        path,
        media,
        accept: pick(
            rng,
            &[
                "application/json",
                "application/json;as=Table;v=v1;g=meta.k8s.io",
            ],
        ),
        body: match media {
            "application/json-patch+json" => json_patch(rng, world.object(&object)).into_bytes(),
            _ => document(rng),
        },
        object: Some(object),
    }
}

fn json_patch(rng: &mut Rng, object: Option<&Value>) -> String {
    let nothing = json!({"metadata": {"name": "a"}});
    let object = object.unwrap_or(&nothing);
    if seldom(rng, 5) {
        return doubling(rng);
    }
    let operations: Vec<String> = (0..rng.usize(..6))
        .map(|_| {
            let op = pick(
                rng,
                &["add", "remove", "replace", "test", "move", "copy", "x"],
            );
            let (path, from) = (json!(pointer(rng, object)), json!(pointer(rng, object)));
            let mut writer = Writer::new(rng);
            writer.anything(4);
            format!(
                "{{\"op\":\"{op}\",\"path\":{path},\"from\":{from},\"value\":{}}}",
                writer.out
            )
        })
        .collect();
    format!("[{}]", operations.join(","))
}

/// What copies itself into itself.
fn doubling(rng: &mut Rng) -> String {
    let root = pick(
        rng,
        &["/metadata/annotations", "/spec", "/data", "/metadata"],
    );
    let mut operations = vec![json!({"op": "add", "path": root, "value": {"a": {"a": "1"}}})];
    let mut way = "/a/a".to_owned();
    for _ in 0..rng.usize(..20) {
        operations.push(json!({"op": "copy", "from": root, "path": format!("{root}{way}")}));
        if rng.bool() {
            way = format!("{way}{way}");
        }
    }
    json!(operations).to_string()
}
