//! Groups that other servers answer for: which APIServices there are, whether their servers can be reached, and the way
//! of a request to them.
//!
//! [`local`] keeps the APIServices of what is served here, [`available`] finds out about the others, [`forward`] hands
//! requests on, and [`announce`] is why the others believe us.

mod announce;
pub mod available;
pub mod backend;
pub mod forward;
pub mod learn;
pub mod local;
pub mod resolve;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use memchr::memmem;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustls::sign::CertifiedKey;
use serde_json::Value;

use crate::discovery;
use crate::rest::meta;
use crate::server::Server;
use crate::store::Stored;
use backend::{Backend, Proof};
use resolve::ServiceRef;

pub const API_SERVICES: &str = "apiservices.apiregistration.k8s.io";
pub const GROUP: &str = "apiregistration.k8s.io";

/// An APIService whose group and version another server answers for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSpec {
    pub name: String,
    pub group: String,
    pub version: String,
    pub group_priority: i32,
    pub version_priority: i32,
    pub service: ServiceRef,
    pub proof: Proof,
}

impl RemoteSpec {
    /// `None`: what it is about is served here.
    pub fn read(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| {
            let number = spec[field].as_i64().unwrap_or_default();
            i32::try_from(number).unwrap_or_default()
        };
        Some(Self {
            name: meta(object, "name").to_owned(),
            group: text("group"),
            version: text("version"),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            service: ServiceRef::read(&spec["service"])?,
            proof: Proof::read(spec),
        })
    }

    /// Where its server lists its resources.
    pub fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }
}

/// A group and version of another server, with the way there.
#[derive(Debug)]
pub struct Remote {
    pub spec: RemoteSpec,
    /// As its APIService says.
    pub available: bool,
    pub backend: Arc<Backend>,
}

#[derive(Debug, Default)]
struct Remotes {
    routes: FxHashMap<(String, String), Arc<Remote>>,
    discovery: Arc<Vec<discovery::Remote>>,
}

/// What is known about other servers.
#[derive(Debug, Default)]
pub struct Aggregator {
    /// What this server proves itself with.
    identity: OnceLock<Arc<CertifiedKey>>,
    remotes: ArcSwap<Remotes>,
    /// What servers said about their resources, by APIService. Held while the routes are made, so that nobody
    /// replaces newer ones by older.
    learned: Mutex<FxHashMap<String, Value>>,
}

impl Aggregator {
    /// Who answers for a path, if it is another server.
    pub fn at(&self, path: &str) -> Option<Arc<Remote>> {
        let remotes = self.remotes.load();
        if remotes.routes.is_empty() {
            return None;
        }
        let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
        let key = (parts.next()?.to_owned(), parts.next()?.to_owned());
        remotes.routes.get(&key).cloned()
    }

    /// For discovery.
    pub fn described(&self) -> Arc<Vec<discovery::Remote>> {
        self.remotes.load().discovery.clone()
    }

    /// Of an APIService by its name.
    fn named(&self, name: &str) -> Option<Arc<Remote>> {
        let remotes = self.remotes.load();
        let mut all = remotes.routes.values();
        all.find(|remote| remote.spec.name == name).cloned()
    }

    /// What a server says about its resources; `None`: nothing, at the moment.
    fn learn(&self, name: &str, document: Option<Value>) {
        let mut learned = self.learned.lock();
        match document {
            Some(document) => learned.insert(name.to_owned(), document),
            None => learned.remove(name),
        };
    }

    /// Makes the routes what the APIServices say.
    fn settle(&self, services: &[Value]) {
        let mut learned = self.learned.lock();
        let old = self.remotes.load_full();
        let mut routes = FxHashMap::default();
        let mut described = Vec::new();
        for object in services {
            let Some(spec) = RemoteSpec::read(object) else {
                continue;
            };
            let key = (spec.group.clone(), spec.version.clone());
            let before = old.routes.get(&key).map(|remote| (&remote.spec, remote));
            // Connections outlive changes that do not concern them.
            let backend = match before {
                Some((was, remote)) if was.service == spec.service && was.proof == spec.proof => {
                    remote.backend.clone()
                }
                _ => Arc::new(Backend::new(&spec, self.identity.get())),
            };
            let available = available::is_available(object);
            described.push(discovery::Remote {
                group: spec.group.clone(),
                version: spec.version.clone(),
                group_priority: spec.group_priority,
                version_priority: spec.version_priority,
                discovery: learned.get(&spec.name).filter(|_| available).cloned(),
            });
            let remote = Remote {
                spec,
                available,
                backend,
            };
            routes.insert(key, Arc::new(remote));
        }
        learned.retain(|name, _| routes.values().any(|remote| remote.spec.name == *name));
        self.remotes.store(Arc::new(Remotes {
            routes,
            discovery: Arc::new(described),
        }));
    }
}

impl Server {
    /// After every write of an APIService, and when other resources are served than before.
    pub(crate) async fn settle_services(&self) {
        let mut definitions = self.definitions().lock().await;
        self.settle_services_of(&mut definitions.services).await;
    }

    /// `settled`: see [`Server::register_custom_services`].
    pub(crate) async fn settle_services_of(&self, settled: &mut FxHashMap<String, u64>) {
        self.register_custom_services(settled).await;
        // There is one for each custom version, and those of other servers are few.
        let may_be_remote =
            |stored: &Stored| memmem::find(&stored.bytes(), b"\"service\"").is_some();
        let page = self
            .store()
            .list(API_SERVICES, "", None, None, usize::MAX, may_be_remote);
        let items = page.map(|page| page.items).unwrap_or_default();
        let services: Vec<Value> = items.iter().map(|item| item.value()).collect();
        self.aggregator().settle(&services);
    }
}
