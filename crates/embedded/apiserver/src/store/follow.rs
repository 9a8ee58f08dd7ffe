//! What is derived from stored objects follows the store: it asks, before each use, whether anything has changed, and
//! is told what. Whoever writes has nothing to tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Change, Shared, Store, Stored};

/// The changes of some shelves.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    shelves: Vec<Followed>,
}

#[derive(Debug)]
struct Followed {
    name: Arc<str>,
    /// Of the last change that readers see.
    revision: Arc<AtomicU64>,
}

/// What has changed.
#[derive(Debug)]
pub struct News {
    /// Up to this revision, on all shelves.
    pub revision: u64,
    /// These are all objects that there are: what was known before does not count.
    pub is_all: bool,
    pub items: Vec<Item>,
}

#[derive(Debug)]
pub struct Item {
    /// The place of its shelf among those that are followed.
    pub shelf: usize,
    pub key: Arc<str>,
    /// `None`: it is gone.
    pub object: Option<Arc<Stored>>,
}

impl Store {
    pub fn follow(&self, shelves: &[&str]) -> Follower {
        let mut state = self.shared.state.lock();
        let follow = |name: &&str| Followed {
            name: state.shelf_name(name),
            revision: state.shelf(name).changed.clone(),
        };
        Follower {
            shelves: shelves.iter().map(follow).collect(),
            shared: self.shared.clone(),
        }
    }
}

impl Follower {
    /// The revision of the last change; costs no more than to read a number a shelf.
    pub fn changed(&self) -> u64 {
        let shelves = self.shelves.iter();
        let revisions = shelves.map(|shelf| shelf.revision.load(Ordering::Acquire));
        revisions.max().unwrap_or_default()
    }

    /// What has changed after a revision, in the order of the changes; `None`: nothing is known yet.
    pub fn news(&self, since: Option<u64>) -> News {
        let mut state = self.shared.state.lock();
        let revision = state.revision;
        let mut items = Vec::new();
        let is_all = since.is_none_or(|since| {
            let mut names = self.shelves.iter().map(|shelf| &shelf.name);
            names.any(|name| state.shelf(name).forgotten > since)
        });
        for (shelf, followed) in self.shelves.iter().enumerate() {
            let found = state.shelf(&followed.name);
            if is_all {
                items.extend(found.objects.iter().map(|(key, object)| Item {
                    shelf,
                    key: key.clone(),
                    object: Some(object.clone()),
                }));
                continue;
            }
            let is_new = |revision: u64| since.is_some_and(|since| revision > since);
            let events = found.log.iter().rev();
            let before = items.len();
            items.extend(
                events
                    .take_while(|event| is_new(event.revision))
                    .map(|event| Item {
                        shelf,
                        key: event.object.key.clone(),
                        object: (event.change != Change::Deleted).then(|| event.object.clone()),
                    }),
            );
            items[before..].reverse();
        }
        News {
            revision,
            is_all,
            items,
        }
    }
}
