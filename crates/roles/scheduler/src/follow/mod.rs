//! What happens in the cluster, as the core is told it.
//!
//! Objects come as the bytes that the API server sent and are read once, by the core's own decoders. What is known of
//! each kind is no more than which objects there were, so that those which a later list lacks can be told as gone.

mod kinds;
mod unread;

use bytes::Bytes;
use plimsoll_client::reflector::{CacheSync, RawChange, RawReflector};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_sched::framework::{Plugin, Profile};
use plimsoll_sched::model::Names;
use plimsoll_sched::{Features, Observation, Scheduler, Time};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::mpsc;

use kinds::Identity;
pub use kinds::Kind;
use unread::Unread;

/// Changes that wait for the core. Beyond that, watches wait.
const WAITING: usize = 1024;

pub type Changes = mpsc::Receiver<(Kind, RawChange)>;

/// Starts to follow everything that the plugins of these profiles look at.
pub fn follow(
    client: &kube::Client,
    profiles: &[Profile],
    features: &Features,
    gate: &CacheSync,
    shutdown: &Shutdown,
) -> Changes {
    let (told, changes) = mpsc::channel(WAITING);
    for kind in Kind::ALL {
        if !kind.is_needed_by(profiles, features) {
            continue;
        }
        let mut paths = kind.paths().iter();
        let Some(first) = paths.next() else {
            continue;
        };
        let mut reflector = RawReflector::new(kind.name(), client.clone(), *first);
        for path in paths {
            reflector = reflector.or_at(*path);
        }
        if *kind == Kind::Pod {
            // Pods that have ended take no room.
            reflector = reflector.fields("status.phase!=Succeeded,status.phase!=Failed");
        }
        reflector.spawn(*kind, told.clone(), gate, shutdown.clone());
    }
    changes
}

/// Whether a plugin runs anywhere in a profile.
fn runs(profile: &Profile, plugin: Plugin) -> bool {
    profile.filter.contains(&plugin)
        || profile.permit.contains(&plugin)
        || profile.pre_enqueue.contains(&plugin)
        || profile.score.iter().any(|(other, _)| *other == plugin)
}

/// Which objects there are, by kind.
#[derive(Debug, Default)]
pub struct Books {
    kinds: Vec<Known>,
    /// Nodes as they came, if somebody wants to be sent them.
    nodes: Option<FxHashMap<Identity, Bytes>>,
    /// Objects that cannot be read, by kind.
    unread: FxHashMap<&'static str, Unread>,
}

#[derive(Debug, Default)]
struct Known {
    objects: FxHashSet<Identity>,
    /// The list that is being read.
    fresh: Option<FxHashSet<Identity>>,
}

impl Books {
    /// Keeps nodes as they came, too.
    pub fn keep_nodes(&mut self) {
        self.nodes = Some(FxHashMap::default());
    }

    /// Nodes as they came, as far as they are kept.
    pub fn raw_nodes(&self, wanted: &[Box<str>], names: &Names) -> Vec<Bytes> {
        let Some(nodes) = &self.nodes else {
            return Vec::new();
        };
        wanted
            .iter()
            .filter_map(|name| nodes.get(&Identity::Symbol(names.find(name)?)).cloned())
            .collect()
    }

    fn keep(&mut self, kind: Kind, observation: &Observation, object: &Bytes) {
        if let (Kind::Node, Some(nodes)) = (kind, &mut self.nodes)
            && let Some(identity) = Identity::of(observation)
        {
            nodes.insert(identity, object.clone());
        }
    }

    /// Tells the core about one change.
    pub fn take(&mut self, kind: Kind, change: RawChange, core: &mut Scheduler, now: Time) {
        let at = kind as usize;
        if self.kinds.len() <= at {
            self.kinds.resize_with(at + 1, Known::default);
        }
        match change {
            RawChange::Begin => {
                self.kinds[at].fresh = Some(FxHashSet::default());
                if let Some(unread) = self.unread.get_mut(kind.name()) {
                    unread.list_begins();
                }
            }
            RawChange::Listed(object) => {
                let Some(observation) = read(kind, &object, core.names_mut(), &mut self.unread)
                else {
                    return;
                };
                self.keep(kind, &observation, &object);
                let known = &mut self.kinds[at];
                if let Some(identity) = Identity::of(&observation) {
                    known.fresh.get_or_insert_default().insert(identity.clone());
                    known.objects.insert(identity);
                }
                core.observe(observation, now);
            }
            RawChange::End(ticket) => {
                let known = &mut self.kinds[at];
                let fresh = known.fresh.take().unwrap_or_default();
                for gone in known.objects.difference(&fresh) {
                    forget(kind, gone, &mut self.nodes);
                    core.observe(gone.clone().gone(kind), now);
                }
                known.objects = fresh;
                if let Some(unread) = self.unread.get_mut(kind.name()) {
                    unread.list_ends(kind.name());
                }
                ticket.ready();
            }
            RawChange::Applied(object) => {
                let Some(observation) = read(kind, &object, core.names_mut(), &mut self.unread)
                else {
                    return;
                };
                self.keep(kind, &observation, &object);
                if let Some(identity) = Identity::of(&observation) {
                    self.kinds[at].objects.insert(identity);
                }
                core.observe(observation, now);
            }
            RawChange::Deleted(object) => match Identity::read(kind, &object, core.names_mut()) {
                Ok(identity) => {
                    if let Some(unread) = self.unread.get_mut(kind.name()) {
                        unread.well(kind.name(), &identity);
                    }
                    self.kinds[at].objects.remove(&identity);
                    forget(kind, &identity, &mut self.nodes);
                    core.observe(identity.gone(kind), now);
                }
                Err(error) => {
                    tracing::warn!(kind = kind.name(), %error, "cannot read what is gone");
                }
            },
        }
    }
}

/// A node is gone, and what was kept of it goes. CSINodes and NodeMetrics have the names of nodes, too.
fn forget(kind: Kind, identity: &Identity, nodes: &mut Option<FxHashMap<Identity, Bytes>>) {
    if let (Kind::Node, Some(nodes)) = (kind, nodes) {
        nodes.remove(identity);
    }
}

/// An object that makes no sense is as good as unchanged.
fn read(
    kind: Kind,
    object: &[u8],
    names: &mut Names,
    unread: &mut FxHashMap<&'static str, Unread>,
) -> Option<Observation> {
    match kind.observation(object, names) {
        Ok(observation) => {
            if let Some(unread) = unread.get_mut(kind.name())
                && let Some(identity) = Identity::of(&observation)
            {
                unread.well(kind.name(), &identity);
            }
            Some(observation)
        }
        Err(error) => {
            let identity = Identity::read(kind, object, names).ok();
            let unread = unread.entry(kind.name()).or_default();
            unread.failed(kind.name(), identity, &error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_sched::Config;
    use plimsoll_sched::queue::QueueConfig;

    use super::*;

    struct Told {
        books: Books,
        core: Scheduler,
        gate: CacheSync,
    }

    impl Told {
        fn new() -> Self {
            let mut names = Names::default();
            let name = names.intern("default-scheduler");
            let config = Config {
                profiles: vec![Profile::standard(name)],
                queue: QueueConfig::default(),
                seed: 1,
            };
            let mut books = Books::default();
            books.keep_nodes();
            let core = Scheduler::new(config, names);
            let gate = CacheSync::default();
            Self { books, core, gate }
        }

        fn tell(&mut self, kind: Kind, change: RawChange) {
            self.books
                .take(kind, change, &mut self.core, Time::from_secs(1));
        }

        /// A list of these.
        fn list(&mut self, kind: Kind, objects: &[&str]) {
            self.tell(kind, RawChange::Begin);
            for name in objects {
                self.tell(kind, RawChange::Listed(named(name)));
            }
            let ticket = Arc::new(self.gate.register(kind.name()));
            self.tell(kind, RawChange::End(ticket));
        }

        fn raw(&self) -> Vec<Bytes> {
            let wanted = ["a", "b"].map(Box::from);
            self.books.raw_nodes(&wanted, &self.core.cluster().names)
        }
    }

    fn named(name: &str) -> Bytes {
        format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).into()
    }

    #[test]
    fn a_node_is_kept_though_something_of_its_name_goes() {
        let mut told = Told::new();
        told.list(Kind::Node, &["a", "b"]);
        for kind in [Kind::CsiNode, Kind::NodeMetric, Kind::Namespace] {
            told.list(kind, &["a", "b"]);
            told.tell(kind, RawChange::Deleted(named("a")));
            told.list(kind, &[]);
            assert_eq!(told.raw(), [named("a"), named("b")], "{kind:?}");
        }
        told.tell(Kind::Node, RawChange::Deleted(named("a")));
        assert_eq!(told.raw(), [named("b")]);
    }

    #[test]
    fn a_node_that_a_new_list_lacks_is_not_kept() {
        let mut told = Told::new();
        told.list(Kind::Node, &["a", "b"]);
        told.list(Kind::Node, &["b"]);
        assert_eq!(told.raw(), [named("b")]);
        let kept = told.books.nodes.as_ref().map(FxHashMap::len);
        assert_eq!(kept, Some(1));
    }

    #[test]
    fn what_cannot_be_read_is_so_until_it_changes_or_goes() {
        let mut told = Told::new();
        let bad = |name: &str| -> Bytes {
            format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"unschedulable":"perhaps"}}}}"#)
                .into()
        };
        let fails = |told: &Told| told.books.unread[Kind::Node.name()].is_failing();
        told.list(Kind::Node, &["a"]);
        told.tell(Kind::Node, RawChange::Applied(bad("b")));
        assert!(fails(&told));
        // Another one says nothing about it.
        told.tell(Kind::Node, RawChange::Applied(named("a")));
        assert!(fails(&told));
        told.tell(Kind::Node, RawChange::Applied(named("b")));
        assert!(!fails(&told));
        told.tell(Kind::Node, RawChange::Applied(bad("b")));
        told.tell(Kind::Node, RawChange::Deleted(named("b")));
        assert!(!fails(&told));
        // Nobody knows which one that is: only a list tells that it is gone.
        told.tell(Kind::Node, RawChange::Applied("{".into()));
        told.tell(Kind::Node, RawChange::Applied(named("a")));
        assert!(fails(&told));
        told.list(Kind::Node, &["a"]);
        assert!(!fails(&told));
        told.tell(Kind::Node, RawChange::Begin);
        told.tell(Kind::Node, RawChange::Listed(bad("b")));
        let ticket = Arc::new(told.gate.register("again"));
        told.tell(Kind::Node, RawChange::End(ticket));
        assert!(fails(&told));
    }
}
