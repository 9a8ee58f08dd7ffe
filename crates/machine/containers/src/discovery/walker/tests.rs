//! The walker on real directories with real inotify; the test itself decides when notices are read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;

struct Rig {
    dirs: Vec<tempfile::TempDir>,
    walker: Walker,
    counters: Arc<Counters>,
    /// What a consumer of the news believes.
    believed: BTreeSet<String>,
}

impl Rig {
    fn new(trees: usize) -> Self {
        Self::with(trees, |roots| Inotify::new(roots).0)
    }

    fn with(trees: usize, kernel: impl FnOnce(Vec<PathBuf>) -> Inotify) -> Self {
        let dirs: Vec<_> = (0..trees).map(|_| tempfile::tempdir().unwrap()).collect();
        let roots = dirs.iter().map(|d| d.path().to_owned()).collect();
        let counters = Arc::<Counters>::default();
        Self {
            walker: Walker::new(kernel(roots), Arc::clone(&counters)),
            dirs,
            counters,
            believed: BTreeSet::new(),
        }
    }

    fn make(&self, tree: usize, path: &str) {
        std::fs::create_dir_all(self.dirs[tree].path().join(path)).unwrap();
    }

    fn remove(&self, tree: usize, path: &str) {
        std::fs::remove_dir_all(self.dirs[tree].path().join(path)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let root = self.dirs[0].path();
        std::fs::rename(root.join(from), root.join(to)).unwrap();
    }

    /// Everything that was done is in the queue already, so reading until it is empty is enough.
    fn drain(&mut self) {
        while self.walker.drain() {}
        self.believe();
    }

    /// Each name must appear before it vanishes, and never twice in a row.
    #[track_caller]
    fn believe(&mut self) {
        for news in self.walker.take_events() {
            match news {
                TreeEvent::Appeared(path) => {
                    assert!(self.believed.insert(path.to_string()), "{path}")
                }
                TreeEvent::Vanished(path) => assert!(self.believed.remove(&*path), "{path}"),
            }
        }
    }

    #[track_caller]
    fn check(&self) {
        let mut real = BTreeSet::from(["/".to_owned()]);
        for dir in &self.dirs {
            collect(dir.path(), dir.path(), &mut real);
        }
        assert_eq!(self.believed, real);
        let known: BTreeSet<String> = self.walker.known.paths().map(|p| p.to_string()).collect();
        assert_eq!(known, real);
    }
}

fn collect(root: &Path, dir: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.to_str().unwrap().ends_with(".mount") {
            into.insert(format!("/{}", path.strip_prefix(root).unwrap().display()));
            collect(root, &path, into);
        }
    }
}

#[test]
fn walk_then_follow() {
    let mut rig = Rig::new(2);
    rig.make(0, "a/b/c");
    rig.make(1, "a/b");
    rig.make(1, "x.mount/y");
    rig.walker.rescan();
    rig.believe();
    rig.check();
    rig.make(1, "late/deep/er");
    rig.make(0, "z.mount");
    rig.remove(0, "a/b");
    rig.drain();
    rig.check();
    rig.remove(1, "a");
    rig.drain();
    rig.check();
}

#[test]
fn the_root_is_first_and_parents_precede_children() {
    let mut rig = Rig::new(1);
    rig.make(0, "b/c");
    rig.make(0, "a");
    rig.walker.rescan();
    let order: Vec<String> = rig
        .walker
        .take_events()
        .into_iter()
        .map(|news| match news {
            TreeEvent::Appeared(path) => path.to_string(),
            TreeEvent::Vanished(path) => panic!("{path}"),
        })
        .collect();
    assert_eq!(order, ["/", "/a", "/b", "/b/c"]);
}

#[test]
fn files_are_not_cgroups() {
    let mut rig = Rig::new(1);
    std::fs::write(rig.dirs[0].path().join("cgroup.procs"), "").unwrap();
    rig.walker.rescan();
    std::fs::write(rig.dirs[0].path().join("later"), "").unwrap();
    rig.drain();
    rig.check();
}

#[test]
fn a_name_that_is_no_text_is_left_out_and_counted() {
    use std::os::unix::ffi::OsStrExt;
    let mut rig = Rig::new(1);
    let make = |rig: &Rig, name: &[u8]| {
        let name = std::ffi::OsStr::from_bytes(name);
        std::fs::create_dir(rig.dirs[0].path().join(name)).unwrap();
    };
    make(&rig, b"early\xff");
    rig.make(0, "plain");
    rig.walker.rescan();
    make(&rig, b"late\xfe");
    rig.drain();
    let expected = ["/", "/plain"].map(str::to_owned);
    assert_eq!(rig.believed, expected.into());
    assert_eq!(rig.counters.nameless.load(Relaxed), 2);
}

#[test]
fn moves_within_and_over() {
    let mut rig = Rig::new(1);
    rig.make(0, "a/x/y");
    rig.make(0, "empty");
    rig.walker.rescan();
    rig.rename("a", "b");
    rig.drain();
    rig.check();
    rig.make(0, "b/x/new");
    rig.rename("b/x", "empty");
    rig.drain();
    rig.check();
    // The watches moved along: what happens inside is still seen.
    rig.make(0, "empty/y/z");
    rig.drain();
    rig.check();
}

#[test]
fn made_removed_and_made_again_unread() {
    let mut rig = Rig::new(1);
    rig.walker.rescan();
    for round in 0..5 {
        rig.make(0, &format!("a/child{round}"));
        rig.remove(0, "a");
    }
    rig.make(0, "a/last");
    rig.drain();
    rig.check();
    rig.make(0, "a/last/seen");
    rig.drain();
    rig.check();
}

#[test]
fn an_overflow_is_repaired_by_a_rescan() {
    let mut rig = Rig::new(1);
    rig.make(0, "stays");
    rig.make(0, "goes/inner");
    rig.walker.rescan();
    rig.believe();
    rig.remove(0, "goes");
    rig.make(0, "comes/inner");
    rig.make(0, "stays/inner");
    // Read and thrown away, as the kernel does when its queue is full.
    rig.walker.kernel.drain(usize::MAX, |_, _| {});
    rig.walker.overflowed();
    rig.believe();
    rig.check();
    assert_eq!(rig.counters.overflows.load(Relaxed), 1);
    // Notices that came late are about things known already.
    rig.make(0, "comes/inner/more");
    rig.drain();
    rig.check();
}

#[test]
fn a_replaced_directory_is_watched_again_by_a_rescan() {
    let mut rig = Rig::new(1);
    rig.make(0, "a");
    rig.walker.rescan();
    rig.remove(0, "a");
    rig.make(0, "a");
    rig.walker.kernel.drain(usize::MAX, |_, _| {});
    rig.walker.rescan();
    rig.believe();
    rig.make(0, "a/inside");
    rig.drain();
    rig.check();
}

#[test]
fn without_inotify_polling_finds_everything() {
    let mut rig = Rig::with(2, Inotify::without_inotify);
    rig.make(0, "a/b");
    rig.walker.rescan();
    rig.believe();
    rig.check();
    assert!(rig.walker.needs_polling());
    assert_eq!(rig.counters.watch_limit_hits.load(Relaxed), 1);
    rig.make(0, "a/b/c/d");
    rig.make(1, "e");
    rig.walker.poll_unwatched();
    rig.believe();
    rig.check();
    rig.remove(0, "a/b");
    rig.remove(1, "e");
    rig.walker.poll_unwatched();
    rig.believe();
    rig.check();
}

#[test]
fn watches_are_given_back() {
    let mut rig = Rig::new(1);
    rig.walker.rescan();
    for i in 0..50 {
        rig.make(0, &format!("a/{i}"));
    }
    rig.drain();
    assert_eq!(rig.counters.watches.load(Relaxed), 52);
    rig.remove(0, "a");
    rig.drain();
    rig.check();
    assert_eq!(rig.counters.watches.load(Relaxed), 1);
    assert_eq!(rig.walker.known.watched_dirs(), 1);
}
