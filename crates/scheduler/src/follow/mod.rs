//! What happens in the cluster, as the core is told it.
//!
//! Objects come as the bytes that the API server sent and are read once, by the core's own decoders. What is known of
//! each kind is no more than which objects there were, so that those which a later list lacks can be told as gone.

mod kinds;

use bytes::Bytes;
use plimsoll_ground::reflect::{Gate, RawChange, RawReflector};
use plimsoll_ground::shutdown::Shutdown;
use plimsoll_sched::framework::{Plugin, Profile};
use plimsoll_sched::model::Names;
use plimsoll_sched::{Features, Observation, Scheduler, Time};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::mpsc;

use kinds::Identity;
pub use kinds::Kind;

/// Changes that wait for the core. Beyond that, watches wait.
const WAITING: usize = 1024;

pub type Changes = mpsc::Receiver<(Kind, RawChange)>;

/// Starts to follow everything that the plugins of these profiles look at.
pub fn follow(
    client: &kube::Client,
    profiles: &[Profile],
    features: &Features,
    gate: &Gate,
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
            RawChange::Begin => self.kinds[at].fresh = Some(FxHashSet::default()),
            RawChange::Listed(object) => {
                let Some(observation) = read(kind, &object, core.names_mut()) else {
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
                    core.observe(gone.clone().gone(kind), now);
                }
                known.objects = fresh;
                ticket.ready();
            }
            RawChange::Applied(object) => {
                let Some(observation) = read(kind, &object, core.names_mut()) else {
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
                    self.kinds[at].objects.remove(&identity);
                    if let Some(nodes) = &mut self.nodes {
                        nodes.remove(&identity);
                    }
                    core.observe(identity.gone(kind), now);
                }
                Err(error) => {
                    tracing::warn!(kind = kind.name(), %error, "cannot read what is gone");
                }
            },
        }
    }
}

/// An object that makes no sense is as good as unchanged.
fn read(kind: Kind, object: &[u8], names: &mut Names) -> Option<Observation> {
    match kind.observation(object, names) {
        Ok(observation) => Some(observation),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                kind = kind.name(),
                error,
                "cannot read an object, leaving it out"
            );
            None
        }
    }
}
