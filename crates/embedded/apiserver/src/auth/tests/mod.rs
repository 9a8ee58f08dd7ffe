//! What a real server answered to the same requests.

mod impersonate;
mod rbac;
mod reviews;
mod served;
mod tokens;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Authority, Config, SigningKey, User, bootstrap};
use crate::kinds::Lookup;
use crate::request::{Query, RequestInfo};
use crate::status::StatusError;
use crate::store::{Attributes, Expect, Options, Store};

/// What is stored.
pub(super) struct World(Store);

impl World {
    pub(super) fn empty() -> Self {
        Self(Store::in_memory(Options::default()))
    }

    pub(super) fn new() -> Self {
        let world = Self::empty();
        for (resource, object) in bootstrap::objects(Timestamp::UNIX_EPOCH) {
            world.put(&resource, object);
        }
        world
    }

    pub(super) fn put(&self, resource: &str, mut object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = key(text("namespace"), text("name"));
        let expect = match self.0.get(resource, &key) {
            Some(current) => Expect::Revision(current.revision),
            None => Expect::Absent,
        };
        let attributes = Attributes::default();
        let written = self
            .0
            .begin_put(resource, &key, expect, &mut object, &attributes);
        assert!(written.is_ok());
    }

    pub(super) fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let key = key(namespace, name);
        let current = self.0.get(resource, &key).unwrap();
        let expect = Expect::Revision(current.revision);
        assert!(self.0.begin_delete(resource, &key, expect).is_ok());
    }

    pub(super) fn cluster_role(&self, name: &str, rules: Value) {
        let object = json!({"metadata": {"name": name}, "rules": rules});
        self.put("clusterroles.rbac.authorization.k8s.io", object);
    }

    /// Binds the user alice; in the whole cluster where `namespace` is empty.
    pub(super) fn bind_alice(&self, namespace: &str, kind: &str, role: &str) {
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

fn key(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

impl Lookup for World {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.0.get(resource, &key(namespace, name))?;
        Some(found.value())
    }

    fn list(&self, _: &str, _: &str) -> Vec<Value> {
        unreachable!("nobody lists to know who may do what")
    }
}

pub(super) const NOON: &str = "2026-11-16T12:00:00Z";

pub(super) fn authority_at(clock: fn() -> Timestamp, world: &World) -> Authority {
    let named = |name: &str, group: &str| User {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        groups: vec![group.to_owned()],
        ..User::default()
    };
    let key = SigningKey::generate_pem().unwrap();
    let config = Config {
        static_tokens: vec![
            ("admintoken".to_owned(), named("admin", "system:masters")),
            ("usertoken".to_owned(), named("alice", "dev")),
        ],
        signing_key: SigningKey::from_pem(&key).unwrap(),
        issuer: "https://k".to_owned(),
        clock,
    };
    Authority::new(config, &world.0)
}

pub(super) fn authority(world: &World) -> Authority {
    authority_at(|| NOON.parse().unwrap(), world)
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
pub(super) fn shown(failure: &StatusError) -> String {
    let details = failure.details.clone().map(Value::from).unwrap_or_default();
    let mut out = format!("{} {}", failure.code.as_u16(), failure.message);
    for field in ["name", "group", "kind"] {
        if let Some(value) = details[field].as_str() {
            out += &format!("\n{field}={value}");
        }
    }
    out
}
