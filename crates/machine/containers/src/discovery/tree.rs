//! The set of known cgroups. Directory listings and inotify events go in, added and removed cgroups come out. Pure.
//!
//! A container is one name although v1 keeps a directory for it in many trees: each name carries the set of trees that
//! have it, appears with the first and vanishes with the last.

use std::collections::BTreeMap;
use std::ops::Bound;

use rustc_hash::FxHashMap;

use crate::CgroupPath;
use crate::names::is_mount;

/// The kernel's name of one watched directory.
pub(super) type WatchId = i32;

/// One directory: a cgroup in one of the trees.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TreeDir {
    pub tree: u8,
    pub path: CgroupPath,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TreeEvent {
    Appeared(CgroupPath),
    Vanished(CgroupPath),
}

/// What the kernel says happened in a watched directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InotifyEvent<'a> {
    /// A directory was made or moved here.
    Arrived(&'a str),
    /// A directory was removed or moved away.
    Left(&'a str),
    /// The kernel dropped the watch, because its directory is gone.
    Unwatched,
}

#[derive(Debug, Default)]
struct Node {
    /// One bit a tree.
    trees: u16,
    watches: Vec<(u8, WatchId)>,
}

#[derive(Debug, Default)]
pub(super) struct CgroupTree {
    /// Ordered, so that everything below a path is one range.
    nodes: BTreeMap<CgroupPath, Node>,
    watches: FxHashMap<WatchId, TreeDir>,
    news: Vec<TreeEvent>,
    /// Watches of removed directories, to be removed in the kernel.
    freed: Vec<WatchId>,
}

impl CgroupTree {
    pub const MOST_TREES: usize = u16::BITS as usize;

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn watched_dirs(&self) -> usize {
        self.watches.len()
    }

    #[cfg(test)]
    pub fn paths(&self) -> impl Iterator<Item = &CgroupPath> {
        self.nodes.keys()
    }

    pub fn take_events(&mut self) -> Vec<TreeEvent> {
        std::mem::take(&mut self.news)
    }

    pub fn take_freed(&mut self) -> Vec<WatchId> {
        std::mem::take(&mut self.freed)
    }

    pub fn contains(&self, place: &TreeDir) -> bool {
        self.nodes
            .get(&place.path)
            .is_some_and(|node| node.trees & bit(place.tree) != 0)
    }

    pub fn is_watched(&self, place: &TreeDir) -> bool {
        self.nodes
            .get(&place.path)
            .is_some_and(|node| node.watches.iter().any(|(tree, _)| *tree == place.tree))
    }

    /// A directory exists. Knowing it already is fine.
    pub fn enter(&mut self, tree: u8, path: &str) -> TreeDir {
        if let Some((known, _)) = self.nodes.get_key_value(path) {
            let path = CgroupPath::clone(known);
            if let Some(node) = self.nodes.get_mut(&path) {
                node.trees |= bit(tree);
            }
            return TreeDir { tree, path };
        }
        let path = CgroupPath::from(path);
        let node = Node {
            trees: bit(tree),
            watches: Vec::new(),
        };
        self.nodes.insert(CgroupPath::clone(&path), node);
        self.news
            .push(TreeEvent::Appeared(CgroupPath::clone(&path)));
        TreeDir { tree, path }
    }

    /// A directory and everything below it has gone from one tree; innermost names vanish first.
    pub fn leave(&mut self, tree: u8, path: &str) {
        let below = format!("{}/", path.trim_end_matches('/'));
        let mut gone: Vec<CgroupPath> = self
            .nodes
            .range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded))
            .map(|(path, _)| path)
            .take_while(|path| path.starts_with(below.as_str()))
            .map(CgroupPath::clone)
            .collect();
        // Reversed below, so the directory itself goes last.
        gone.retain(|child| &**child != path);
        for child in gone.iter().rev() {
            self.leave_one(tree, child);
        }
        if let Some((path, _)) = self.nodes.get_key_value(path) {
            let path = CgroupPath::clone(path);
            self.leave_one(tree, &path);
        }
    }

    fn leave_one(&mut self, tree: u8, path: &CgroupPath) {
        let Some(node) = self.nodes.get_mut(path) else {
            return;
        };
        if node.trees & bit(tree) == 0 {
            return;
        }
        node.trees &= !bit(tree);
        if let Some(at) = node.watches.iter().position(|(t, _)| *t == tree) {
            let (_, watch) = node.watches.swap_remove(at);
            self.watches.remove(&watch);
            self.freed.push(watch);
        }
        if node.trees == 0 {
            self.nodes.remove(path);
            self.news.push(TreeEvent::Vanished(CgroupPath::clone(path)));
        }
    }

    /// The kernel watches a directory under this id from now on.
    pub fn watched(&mut self, place: &TreeDir, watch: WatchId) {
        // A directory keeps its watch when it is renamed: the id may still stand for the old name.
        if let Some(before) = self.watches.insert(watch, place.clone())
            && before != *place
            && let Some(node) = self.nodes.get_mut(&before.path)
        {
            node.watches.retain(|(_, other)| *other != watch);
        }
        let Some(node) = self.nodes.get_mut(&place.path) else {
            return;
        };
        match node.watches.iter_mut().find(|(t, _)| *t == place.tree) {
            Some((_, old)) if *old == watch => {}
            Some((_, old)) => {
                // Another directory has taken this name since; notices about the former one mean nothing any more.
                let stale = std::mem::replace(old, watch);
                self.watches.remove(&stale);
                self.freed.push(stale);
            }
            None => node.watches.push((place.tree, watch)),
        }
    }

    /// Compares what is known with a fresh listing of one directory. Returns the children to look into: the new ones,
    /// or all of them where `deep` asks for a confirmation of the whole subtree.
    pub fn listed(&mut self, place: &TreeDir, names: &mut Vec<String>, deep: bool) -> Vec<TreeDir> {
        names.retain(|name| !is_mount(name));
        names.sort_unstable();
        let known = self.children(place);
        let prefix = place.path.trim_end_matches('/');
        for child in &known {
            let name = &child[prefix.len() + 1..];
            if names.binary_search_by(|n| n.as_str().cmp(name)).is_err() {
                self.leave(place.tree, child);
            }
        }
        let mut visit = Vec::new();
        for name in names.iter() {
            let path = format!("{prefix}/{name}");
            let is_known = known.binary_search_by(|k| (**k).cmp(&path)).is_ok();
            if deep || !is_known {
                visit.push(self.enter(place.tree, &path));
            }
        }
        visit
    }

    /// The known directories directly inside one, in order.
    fn children(&self, place: &TreeDir) -> Vec<CgroupPath> {
        let prefix = format!("{}/", place.path.trim_end_matches('/'));
        let mut children = Vec::new();
        let mut from = Bound::Excluded(prefix.clone());
        loop {
            let mut skip_to = None;
            let range = (from.as_ref().map(String::as_str), Bound::Unbounded);
            for (path, node) in self.nodes.range::<str, _>(range) {
                let Some(rest) = path.strip_prefix(prefix.as_str()) else {
                    break;
                };
                if let Some(at) = rest.find('/') {
                    // Jump over everything inside that child: '0' is the character after '/'.
                    skip_to = Some(format!("{prefix}{}0", &rest[..at]));
                    break;
                }
                if node.trees & bit(place.tree) != 0 {
                    children.push(CgroupPath::clone(path));
                }
            }
            match skip_to {
                Some(next) => from = Bound::Included(next),
                None => return children,
            }
        }
    }

    /// Applies one event; returns the directory to list if one was added.
    pub fn notice(&mut self, watch: WatchId, notice: InotifyEvent<'_>) -> Option<TreeDir> {
        let place = self.watches.get(&watch)?.clone();
        let child = |name: &str| format!("{}/{name}", place.path.trim_end_matches('/'));
        match notice {
            // Looked into even if known: a rename may have put another directory in its place.
            InotifyEvent::Arrived(name) if !is_mount(name) => {
                Some(self.enter(place.tree, &child(name)))
            }
            InotifyEvent::Arrived(_) => None,
            InotifyEvent::Left(name) => {
                self.leave(place.tree, &child(name));
                None
            }
            InotifyEvent::Unwatched => {
                self.watches.remove(&watch);
                if let Some(node) = self.nodes.get_mut(&place.path) {
                    node.watches.retain(|(_, other)| *other != watch);
                }
                None
            }
        }
    }
}

fn bit(tree: u8) -> u16 {
    1 << tree
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn place(tree: u8, path: &str) -> TreeDir {
        TreeDir {
            tree,
            path: path.into(),
        }
    }

    fn listing(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[track_caller]
    fn check(known: &mut CgroupTree, expected: Expect) {
        let lines: Vec<String> = known
            .take_events()
            .into_iter()
            .map(|news| match news {
                TreeEvent::Appeared(path) => format!("+{path}"),
                TreeEvent::Vanished(path) => format!("-{path}"),
            })
            .collect();
        expected.assert_eq(&lines.join(" "));
    }

    #[test]
    fn one_name_in_two_trees() {
        let mut known = CgroupTree::default();
        known.enter(0, "/");
        known.enter(1, "/");
        known.listed(&place(0, "/"), &mut listing(&["a"]), false);
        known.listed(&place(1, "/"), &mut listing(&["a", "b"]), false);
        check(&mut known, expect!["+/ +/a +/b"]);
        known.leave(0, "/a");
        check(&mut known, expect![""]);
        known.leave(1, "/a");
        check(&mut known, expect!["-/a"]);
    }

    #[test]
    fn a_subtree_leaves_innermost_first_and_alone() {
        let mut known = CgroupTree::default();
        for path in ["/", "/a", "/a/x", "/a/x/y", "/a-b", "/a0"] {
            known.enter(0, path);
        }
        known.enter(1, "/a/x");
        known.take_events();
        known.leave(0, "/a");
        check(&mut known, expect!["-/a/x/y -/a"]);
        let left: Vec<&str> = known.paths().map(|p| &**p).collect();
        assert_eq!(left, ["/", "/a-b", "/a/x", "/a0"]);
    }

    #[test]
    fn a_listing_repairs_both_ways_and_swallows_mounts() {
        let mut known = CgroupTree::default();
        for path in ["/", "/a", "/a/x", "/a-b", "/a.b", "/c", "/c/d"] {
            known.enter(0, path);
        }
        known.take_events();
        let visit = known.listed(
            &place(0, "/"),
            &mut listing(&["z.mount", "n", "a-b", "a"]),
            false,
        );
        assert_eq!(visit, [place(0, "/n")]);
        check(&mut known, expect!["-/a.b -/c/d -/c +/n"]);
        let all = known.listed(&place(0, "/"), &mut listing(&["n", "a-b", "a"]), true);
        assert_eq!(all.len(), 3);
        check(&mut known, expect![""]);
    }

    #[test]
    fn notices() {
        let mut known = CgroupTree::default();
        let root = known.enter(0, "/");
        known.watched(&root, 1);
        let a = known.notice(1, InotifyEvent::Arrived("a")).unwrap();
        known.watched(&a, 2);
        assert_eq!(
            known.notice(2, InotifyEvent::Arrived("x")),
            Some(place(0, "/a/x"))
        );
        assert_eq!(known.notice(1, InotifyEvent::Arrived("m.mount")), None);
        // A notice of a watch that is not ours any more is stale.
        assert_eq!(known.notice(99, InotifyEvent::Arrived("z")), None);
        check(&mut known, expect!["+/ +/a +/a/x"]);
        known.notice(1, InotifyEvent::Left("a"));
        known.notice(2, InotifyEvent::Unwatched);
        check(&mut known, expect!["-/a/x -/a"]);
        assert_eq!(known.take_freed(), [2]);
        assert_eq!(known.watched_dirs(), 1);
    }

    #[test]
    fn a_renamed_directory_keeps_its_watch() {
        let mut known = CgroupTree::default();
        let old = known.enter(0, "/old");
        known.watched(&old, 7);
        let new = known.enter(0, "/new");
        known.watched(&new, 7);
        known.leave(0, "/old");
        assert!(known.take_freed().is_empty());
        assert!(known.is_watched(&new));
        assert_eq!(
            known.notice(7, InotifyEvent::Arrived("x")),
            Some(place(0, "/new/x"))
        );
    }

    #[test]
    fn a_recreated_directory_drops_the_former_watch() {
        let mut known = CgroupTree::default();
        let a = known.enter(0, "/a");
        known.watched(&a, 3);
        known.watched(&a, 4);
        assert_eq!(known.take_freed(), [3]);
        assert_eq!(known.notice(3, InotifyEvent::Left("x")), None);
        assert_eq!(known.watched_dirs(), 1);
    }
}
