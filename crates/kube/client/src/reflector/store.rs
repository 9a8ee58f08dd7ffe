//! The local copy: one task writes, many read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use kube::Resource;
use parking_lot::RwLock;

/// Objects are told apart by these; `namespace` is empty for those of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<K> {
    Added(Arc<K>),
    Updated {
        old: Arc<K>,
        new: Arc<K>,
    },
    /// As it was last seen, which may have been a while before its end.
    Deleted(Arc<K>),
}

#[derive(Debug)]
struct Shared<K> {
    objects: RwLock<BTreeMap<Key, Arc<K>>>,
    /// Advances with every change.
    generation: AtomicU64,
    snapshot: ArcSwap<(u64, Arc<[Arc<K>]>)>,
}

pub(super) fn store<K>() -> (Writer<K>, Reader<K>) {
    let shared = Arc::new(Shared {
        objects: RwLock::default(),
        generation: AtomicU64::new(0),
        snapshot: ArcSwap::from_pointee((0, Arc::from(Vec::new()))),
    });
    (Writer(Arc::clone(&shared)), Reader(shared))
}

/// There is one.
#[derive(Debug)]
pub(super) struct Writer<K>(Arc<Shared<K>>);

impl<K: Resource> Writer<K> {
    pub fn apply(&mut self, object: K) -> Change<K> {
        let key = Key::of(&object);
        let new = Arc::new(object);
        let old = self.0.objects.write().insert(key, Arc::clone(&new));
        self.changed();
        match old {
            Some(old) => Change::Updated { old, new },
            None => Change::Added(new),
        }
    }

    /// `None`: it was not there.
    pub fn delete(&mut self, object: &K) -> Option<Change<K>> {
        let old = self.0.objects.write().remove(&Key::of(object))?;
        self.changed();
        Some(Change::Deleted(old))
    }

    /// Everything anew. Tells what is different; an object of the same version is not.
    pub fn replace(&mut self, fresh: BTreeMap<Key, Arc<K>>) -> Vec<Change<K>> {
        let old = std::mem::replace(&mut *self.0.objects.write(), fresh.clone());
        self.changed();
        let mut changes = Vec::new();
        for (key, old) in &old {
            if !fresh.contains_key(key) {
                changes.push(Change::Deleted(Arc::clone(old)));
            }
        }
        for (key, new) in fresh {
            match old.get(&key) {
                None => changes.push(Change::Added(new)),
                Some(old) if same_version(old, &new) => {}
                Some(old) => changes.push(Change::Updated {
                    old: Arc::clone(old),
                    new,
                }),
            }
        }
        changes
    }

    fn changed(&mut self) {
        self.0.generation.fetch_add(1, Ordering::Release);
    }
}

fn same_version<K: Resource>(one: &Arc<K>, other: &Arc<K>) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.uid == other.uid
        && one.resource_version.is_some()
        && one.resource_version == other.resource_version
}

/// Looks at the copy. Clones look at the same.
#[derive(Debug)]
pub struct Reader<K>(Arc<Shared<K>>);

impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Reader<K> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let key = Key::new(namespace, name);
        self.0.objects.read().get(&key).cloned()
    }

    pub fn len(&self) -> usize {
        self.0.objects.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes with the content.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// All objects at one moment, by namespace and name. Costs next to nothing if nothing changed since the last one,
    /// and never keeps the writer waiting while it is looked at.
    pub fn snapshot(&self) -> Arc<[Arc<K>]> {
        let known = self.0.snapshot.load();
        if known.0 == self.generation() {
            return Arc::clone(&known.1);
        }
        let objects = self.0.objects.read();
        // Nothing is written while this is held, so the number belongs to what is copied; at worst it is older.
        let generation = self.generation();
        let all: Arc<[Arc<K>]> = objects.values().cloned().collect();
        drop(objects);
        let fresh = Arc::new((generation, Arc::clone(&all)));
        self.0.snapshot.store(fresh);
        all
    }
}
