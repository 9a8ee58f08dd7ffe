//! Counters of OOM kills by container. They survive the end of a cgroup and a restart of the agent.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use plimsoll_containers::{CgroupPath, Identity};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Counts by the name under which a container lives on: a pod's container keeps its count when it is restarted with
/// another id, everything else goes by its cgroup path.
#[derive(Debug, Default)]
pub struct OomCounters {
    inner: Mutex<Inner>,
    file: Option<PathBuf>,
    /// The kernel log cannot be read, so no kill is ever recorded.
    blind: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    saved: Saved,
    /// The workload of a cgroup path. Small, and only grows with containers that a runtime named.
    names: FxHashMap<CgroupPath, String>,
    dirty: bool,
}

/// What survives a restart.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Another boot's kernel log starts over at zero.
    pub boot_id: String,
    /// The last kernel log record that was looked at.
    pub sequence: Option<u64>,
    pub counts: BTreeMap<String, u64>,
}

/// More containers than this are not counted, so that a machine that kills for years does not fill its memory and
/// disk.
const MOST_KEYS: usize = 100_000;

impl OomCounters {
    /// Counts that live in `file`. A file of another boot keeps its counts and forgets its place in the log; one that
    /// cannot be read is set aside, and said so.
    pub fn open(file: PathBuf, boot_id: &str) -> Self {
        let mut saved = match load(&file) {
            Ok(saved) => saved,
            Err(error) => {
                let aside = file.with_extension("unreadable");
                tracing::warn!(file = %file.display(), %error, aside = %aside.display(),
                    "cannot read the saved oom counts, starting from zero");
                // If it cannot be moved it will be overwritten, which loses nothing that could be read.
                let _ = std::fs::rename(&file, &aside);
                Saved::default()
            }
        };
        if saved.boot_id != boot_id {
            saved.boot_id = boot_id.to_owned();
            saved.sequence = None;
            // Cgroup paths mean other containers after a boot; names of workloads still mean the same.
            saved.counts.retain(|key, _| !key.starts_with('/'));
        }
        Self {
            inner: Mutex::new(Inner {
                saved,
                ..Inner::default()
            }),
            file: Some(file),
            blind: AtomicBool::new(false),
        }
    }

    pub fn set_kmsg_unavailable(&self) {
        self.blind.store(true, Ordering::Relaxed);
    }

    pub fn is_kmsg_unavailable(&self) -> bool {
        self.blind.load(Ordering::Relaxed)
    }

    pub fn count(&self, path: &str, identity: Option<&Identity>) -> u64 {
        let inner = self.inner.lock();
        if inner.saved.counts.is_empty() {
            return 0;
        }
        let key = identity.and_then(workload);
        let key = key.as_deref().unwrap_or(path);
        inner.saved.counts.get(key).copied().unwrap_or(0)
    }

    /// Binds a cgroup to its workload, so that a kill reported after the end of the cgroup counts for the workload.
    pub fn bind_workload(&self, path: &CgroupPath, identity: &Identity) {
        let Some(name) = workload(identity) else {
            return;
        };
        let mut inner = self.inner.lock();
        if inner.names.len() > MOST_KEYS {
            inner.names.clear();
        }
        // Kills seen before the runtime had named the container.
        if let Some(early) = inner.saved.counts.remove(path.as_ref()) {
            *inner.saved.counts.entry(name.clone()).or_insert(0) += early;
            inner.dirty = true;
        }
        inner.names.insert(CgroupPath::clone(path), name);
    }

    /// Records a kill, unless it was recorded before a restart of the agent. False: recorded already.
    pub fn add(&self, path: &str, sequence: u64) -> bool {
        let mut inner = self.inner.lock();
        if inner.saved.sequence.is_some_and(|last| sequence <= last) {
            return false;
        }
        inner.saved.sequence = Some(sequence);
        let key = inner.names.get(path).cloned();
        let key = key.unwrap_or_else(|| path.to_owned());
        let known = inner.saved.counts.contains_key(&key);
        if known || inner.saved.counts.len() < MOST_KEYS {
            *inner.saved.counts.entry(key).or_insert(0) += 1;
        }
        inner.dirty = true;
        true
    }

    /// Writes the counts if they changed. A full disk costs the restart's memory, nothing else: they are tried again.
    pub fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let saved = {
            let mut inner = self.inner.lock();
            if !inner.dirty {
                return Ok(());
            }
            inner.dirty = false;
            inner.saved.clone()
        };
        write_atomically(file, &saved).map_err(|error| {
            self.inner.lock().dirty = true;
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })
    }
}

/// The name that outlives a container's id, where there is one.
fn workload(identity: &Identity) -> Option<String> {
    let uid = identity.label("io.kubernetes.pod.uid");
    let container = identity.label("io.kubernetes.container.name");
    if !uid.is_empty() && !container.is_empty() {
        return Some(format!("pod {uid} container {container}"));
    }
    None
}

fn load(file: &Path) -> io::Result<Saved> {
    match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Saved::default()),
        Err(error) => Err(error),
    }
}

/// Either the old file or the new one is there, whatever happens in between.
fn write_atomically(file: &Path, saved: &Saved) -> io::Result<()> {
    let temporary = file.with_extension("new");
    let bytes = serde_json::to_vec(saved)?;
    let mut out = std::fs::File::create(&temporary)?;
    io::Write::write_all(&mut out, &bytes)?;
    out.sync_all()?;
    std::fs::rename(&temporary, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_containers::{Health, Namespace};

    fn identity(uid: &str) -> Identity {
        Identity {
            namespace: Namespace::Containerd,
            id: "x".into(),
            aliases: vec![],
            image: String::new(),
            labels: BTreeMap::from([
                ("io.kubernetes.pod.uid".to_owned(), uid.to_owned()),
                ("io.kubernetes.container.name".to_owned(), "c".to_owned()),
            ]),
            envs: BTreeMap::new(),
            created: None,
            started: None,
            pid: None,
            owns_network: false,
            health: Health::default(),
            writable_layer: None,
            log_dir: None,
        }
    }

    #[test]
    fn a_restarted_container_keeps_its_count() {
        let counters = OomCounters::default();
        counters.add("/pod/first", 1);
        counters.bind_workload(&"/pod/first".into(), &identity("u"));
        assert!(counters.add("/pod/first", 2));
        counters.bind_workload(&"/pod/second".into(), &identity("u"));
        assert!(counters.add("/pod/second", 3));
        assert_eq!(counters.count("/pod/second", Some(&identity("u"))), 3);
        assert_eq!(counters.count("/pod/second", None), 0);
    }

    #[test]
    fn an_agent_restart_neither_loses_nor_repeats() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oom.json");
        let counters = OomCounters::open(file.clone(), "boot-1");
        assert!(counters.add("/a", 7));
        counters.save().unwrap();

        let counters = OomCounters::open(file.clone(), "boot-1");
        assert!(
            !counters.add("/a", 7),
            "the log is read again from its start"
        );
        assert!(counters.add("/a", 8));
        assert_eq!(counters.count("/a", None), 2);
        counters.save().unwrap();

        let counters = OomCounters::open(file, "boot-2");
        assert_eq!(counters.count("/a", None), 0);
        assert!(counters.add("/a", 1));
    }

    #[test]
    fn a_full_table_goes_on_counting_whom_it_knows() {
        let counters = OomCounters::default();
        for key in 0..MOST_KEYS {
            counters.add(&format!("/{key}"), key as u64);
        }
        counters.add("/0", MOST_KEYS as u64);
        counters.add("/new", MOST_KEYS as u64 + 1);
        let count = |path| counters.count(path, None);
        assert_eq!((count("/0"), count("/new")), (2, 0));
    }

    #[test]
    fn a_broken_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oom.json");
        std::fs::write(&file, "{ not json").unwrap();
        let counters = OomCounters::open(file.clone(), "b");
        assert_eq!(counters.count("/a", None), 0);
        assert!(dir.path().join("oom.unreadable").exists());
        counters.add("/a", 1);
        counters.save().unwrap();
        assert_eq!(OomCounters::open(file, "b").count("/a", None), 1);
    }

    #[test]
    fn a_disk_that_refuses_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let counters = OomCounters::open(dir.path().join("missing/oom.json"), "b");
        counters.add("/a", 1);
        assert!(counters.save().is_err());
        std::fs::create_dir(dir.path().join("missing")).unwrap();
        counters.save().unwrap();
        assert!(dir.path().join("missing/oom.json").exists());
    }
}
