//! The thread as a whole: storms from other threads, and a consumer that only hears the changes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Instant;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(20);

struct Rig {
    dir: tempfile::TempDir,
    changes: Receiver<ContainerEvent>,
    counters: Arc<Counters>,
    wake: Wake,
    thread: JoinHandle<()>,
    believed: BTreeSet<String>,
}

impl Rig {
    fn new(rescan: Duration) -> Self {
        Self::looking(rescan, OFTEN)
    }

    fn looking(rescan: Duration, poll: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sender, changes) = channel();
        let counters = Arc::<Counters>::default();
        let wake = Wake::new().unwrap();
        let (_, replies) = channel();
        let intervals = Intervals { rescan, poll };
        let parts = Parts {
            intervals,
            clock: Clock::Real,
            counters: Arc::clone(&counters),
            wake: wake.clone(),
            replies,
            changes: sender,
        };
        let trees = Hierarchies::v2(dir.path());
        let thread = Discovery::new(&trees, parts, NoRuntimes).spawn().unwrap();
        Self {
            dir,
            changes,
            counters,
            wake,
            thread,
            believed: BTreeSet::new(),
        }
    }

    /// Listens until what was heard equals what is really there.
    #[track_caller]
    fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Ok(change) = self.changes.try_recv() {
                self.believe(change);
            }
            let mut real = BTreeSet::from(["/".to_owned()]);
            collect(self.dir.path(), self.dir.path(), &mut real);
            if self.believed == real {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let change = self.changes.recv_timeout(left);
            self.believe(change.expect("what was heard never equals what is there"));
        }
    }

    #[track_caller]
    fn believe(&mut self, change: ContainerEvent) {
        match change {
            ContainerEvent::Appeared { path, .. } => {
                assert!(self.believed.insert(path.to_string()), "{path}");
            }
            ContainerEvent::Vanished { path, .. } => {
                assert!(self.believed.remove(&*path), "{path}")
            }
            other => panic!("{other:?}"),
        }
    }

    fn stop(self) {
        self.wake.stop();
        self.thread.join().unwrap();
    }
}

fn collect(root: &Path, dir: &Path, into: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            into.insert(format!("/{}", path.strip_prefix(root).unwrap().display()));
            collect(root, &path, into);
        }
    }
}

/// Makes and removes nested directories in an order that depends on the seed alone.
fn storm(root: &Path, seed: usize, rounds: usize) {
    for round in 0..rounds {
        let slot = (round * 7 + seed) % 23;
        let outer = root.join(format!("s{seed}-{slot}"));
        let inner = outer.join(format!("i{}", round % 5)).join("leaf");
        std::fs::create_dir_all(&inner).unwrap();
        if round % 3 == 0 {
            let _ = std::fs::remove_dir_all(&outer);
        } else if round % 11 == 5 {
            let _ = std::fs::rename(&outer, root.join(format!("moved{seed}-{slot}")));
        }
    }
}

#[test]
fn storms_settle_to_the_truth() {
    let mut rig = Rig::new(NEVER);
    rig.settle();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let root = rig.dir.path();
            scope.spawn(move || storm(root, seed, 1500));
        }
    });
    rig.settle();
    assert_eq!(rig.counters.failures.load(Ordering::Relaxed), 0);
    rig.stop();
}

#[test]
fn a_storm_during_rescans_settles_too() {
    let mut rig = Rig::new(Duration::from_millis(1));
    std::thread::scope(|scope| {
        let root = rig.dir.path();
        scope.spawn(move || storm(root, 1, 1500));
        scope.spawn(move || storm(root, 2, 1500));
    });
    rig.settle();
    let given_up = Instant::now() + PATIENCE;
    while rig.counters.rescans.load(Ordering::Relaxed) <= 1 {
        assert!(Instant::now() < given_up, "nothing was walked again");
        std::thread::yield_now();
    }
    rig.stop();
}

/// Rescans and polls are an hour apart, so whatever is heard came as an event.
#[test]
fn creations_are_heard_without_looking() {
    let mut rig = Rig::looking(NEVER, NEVER);
    rig.settle();
    for i in 0..20 {
        std::fs::create_dir(rig.dir.path().join(format!("n{i}"))).unwrap();
        rig.settle();
    }
    rig.stop();
}

#[test]
fn nobody_listening_ends_the_thread() {
    let rig = Rig::new(Duration::from_millis(5));
    drop(rig.changes);
    std::fs::create_dir(rig.dir.path().join("a")).unwrap();
    rig.thread.join().unwrap();
}
