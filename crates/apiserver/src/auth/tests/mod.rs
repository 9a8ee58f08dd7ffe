//! What a real server answered to the same requests.

mod impersonate;
mod rbac;
mod reviews;
mod tokens;

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Authority, Config, SigningKey, User, bootstrap};
use crate::kinds::Lookup;
use crate::request::{Query, RequestInfo};
use crate::status::Failure;

/// Objects by resource, namespace and name.
#[derive(Default)]
pub(super) struct World(BTreeMap<(String, String, String), Value>);

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self::default();
        for (resource, object) in bootstrap::objects(Timestamp::UNIX_EPOCH) {
            world.put(&resource, object);
        }
        world
    }

    pub(super) fn put(&mut self, resource: &str, object: Value) {
        let text = |field: &str| {
            let value = object["metadata"][field].as_str();
            value.unwrap_or_default().to_owned()
        };
        let key = (resource.to_owned(), text("namespace"), text("name"));
        self.0.insert(key, object);
    }

    pub(super) fn remove(&mut self, resource: &str, namespace: &str, name: &str) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        assert!(self.0.remove(&key).is_some());
    }

    pub(super) fn cluster_role(&mut self, name: &str, rules: Value) {
        let object = json!({"metadata": {"name": name}, "rules": rules});
        self.put("clusterroles.rbac.authorization.k8s.io", object);
    }

    /// Binds the user alice; in the whole cluster where `namespace` is empty.
    pub(super) fn bind_alice(&mut self, namespace: &str, kind: &str, role: &str) {
        let resource = match namespace {
            "" => "clusterrolebindings.rbac.authorization.k8s.io",
            _ => "rolebindings.rbac.authorization.k8s.io",
        };
        let object = json!({
            "metadata": {"name": format!("alice-{role}"), "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "User", "name": "alice"}],
        });
        self.put(resource, object);
    }
}

impl Lookup for World {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.0.get(&key).cloned()
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let all = self.0.iter();
        let of =
            all.filter(|((r, n, _), _)| r == resource && (namespace.is_empty() || n == namespace));
        of.map(|(_, object)| object.clone()).collect()
    }
}

pub(super) const NOON: &str = "2026-11-16T12:00:00Z";

pub(super) fn authority_at(clock: fn() -> Timestamp) -> Authority {
    let named = |name: &str, group: &str| User {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        groups: vec![group.to_owned()],
        ..User::default()
    };
    let key = SigningKey::generate_pem().unwrap();
    Authority::new(Config {
        static_tokens: vec![
            ("admintoken".to_owned(), named("admin", "system:masters")),
            ("usertoken".to_owned(), named("alice", "dev")),
        ],
        signing_key: SigningKey::from_pem(&key).unwrap(),
        issuer: "https://k".to_owned(),
        clock,
    })
}

pub(super) fn authority() -> Authority {
    authority_at(|| NOON.parse().unwrap())
}

pub(super) fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in all {
        let name = HeaderName::try_from(*name).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

pub(super) fn bearer(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

/// `GET /api/v1/pods?watch`
pub(super) fn request(text: &str) -> RequestInfo {
    let (method, target) = text.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    RequestInfo::new(&method, path, &Query::parse(query))
}

pub(super) fn alice(authority: &Authority, world: &World) -> User {
    let headers = bearer("usertoken");
    authority.authenticate(&headers, None, world).unwrap()
}

/// Code, message and the object of the details, as far as they say something.
pub(super) fn shown(failure: &Failure) -> String {
    let details = failure.details.clone().map(Value::from).unwrap_or_default();
    let mut out = format!("{} {}", failure.code.as_u16(), failure.message);
    for field in ["name", "group", "kind"] {
        if let Some(value) = details[field].as_str() {
            out += &format!("\n{field}={value}");
        }
    }
    out
}
