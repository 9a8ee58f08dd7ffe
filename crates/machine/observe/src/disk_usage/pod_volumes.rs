//! What pods have on the node's disk besides their containers' layers: volumes made by the kubelet, logs, the hosts file.
//! Found in the kubelet's directory, without the API server.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_containers::Identity;
use plimsoll_host::fs::{FsUsage, StatfsWorker, Walked, files_usage};
use plimsoll_host::{HostRoot, Timestamp};

use crate::machine::Written;

/// Volumes whose content the kubelet itself keeps below the pod's directory, by their plugin's directory, and whether
/// they count as the pod's ephemeral storage. What others hold (claims, drivers) has names that only their objects know.
const KEPT: [(&str, bool); 6] = [
    ("kubernetes.io~empty-dir", true),
    ("kubernetes.io~configmap", true),
    ("kubernetes.io~git-repo", true),
    ("kubernetes.io~downward-api", false),
    ("kubernetes.io~projected", false),
    ("kubernetes.io~secret", false),
];

/// Disk usage of one pod, as of the last walk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodDisk {
    pub at: Timestamp,
    /// Those that count as ephemeral storage first, each half by name.
    pub volumes: Vec<Volume>,
    /// The hosts file and what lies beside the containers' log directories.
    pub own: Written,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volume {
    pub name: String,
    pub used: Written,
    /// Of the file system that it lies on.
    pub on: Option<FsUsage>,
    /// Takes the node's disk, and goes when the pod goes.
    pub is_ephemeral: bool,
}

/// The pod of a container, by the kubelet's labels on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl PodKey {
    pub fn of(identity: &Identity) -> Option<Self> {
        let label = |key| identity.label(key).to_owned();
        let key = Self {
            namespace: label("io.kubernetes.pod.namespace"),
            name: label("io.kubernetes.pod.name"),
            uid: label("io.kubernetes.pod.uid"),
        };
        let names = [&key.namespace, &key.name]
            .into_iter()
            .all(|name| is_name(name));
        // Runtimes that know no pods may tell none.
        (names && (key.uid.is_empty() || is_name(&key.uid))).then_some(key)
    }

    pub fn is_namesake(&self, other: &Self) -> bool {
        (&self.namespace, &self.name) == (&other.namespace, &other.name)
    }
}

/// One name of a path. Labels may come from an image, whose author is not to choose where we look.
pub fn is_name(text: &str) -> bool {
    const LONGEST: usize = 255;
    !matches!(text, "" | "." | "..") && text.len() <= LONGEST && !text.contains(['/', '\0'])
}

#[derive(Debug)]
pub struct PodDisks {
    root: HostRoot,
    /// The kubelet's directory.
    kubelet: PathBuf,
}

impl PodDisks {
    pub fn new(root: HostRoot, kubelet: PathBuf) -> Self {
        Self { root, kubelet }
    }

    /// The directories to walk. `None`: the kubelet has no directory for this pod.
    pub fn plan(&self, pod: &PodKey) -> Option<PodPlan> {
        let dir = self.root.path(self.kubelet.join("pods").join(&pod.uid));
        let plugins = dir.join("volumes");
        let device = std::fs::metadata(&dir).ok()?.dev();
        let mut volumes = Vec::new();
        for (plugin, counts) in KEPT {
            for dir in subdirectories(&plugins.join(plugin)) {
                let Some(name) = dir.file_name().and_then(|name| name.to_str()) else {
                    continue;
                };
                volumes.push((name.to_owned(), counts, dir));
            }
        }
        let PodKey {
            namespace,
            name,
            uid,
        } = pod;
        let logs = Path::new("/var/log/pods").join(format!("{namespace}_{name}_{uid}"));
        Some(PodPlan {
            hosts: dir.join("etc-hosts"),
            logs: self.root.path(logs),
            volumes,
            device,
        })
    }
}

/// The directories of one pod that are walked.
#[derive(Debug)]
pub struct PodPlan {
    /// Each with its name, and whether it counts as ephemeral storage where it lies on the node's disk.
    volumes: Vec<(String, bool, PathBuf)>,
    hosts: PathBuf,
    logs: PathBuf,
    /// Where the pod's own directory is.
    device: u64,
}

impl PodPlan {
    /// The directories that [`Self::finish`] needs, in its order.
    pub fn places(&self) -> Vec<PathBuf> {
        let volumes = self.volumes.iter().map(|(_, _, dir)| dir.clone());
        volumes.chain([self.hosts.clone()]).collect()
    }

    pub fn finish(
        self,
        walked: &[Option<Walked>],
        at: Timestamp,
        prober: &mut StatfsWorker,
    ) -> PodDisk {
        let written = |place: usize| {
            let walked = walked.get(place).copied().flatten()?;
            Some(Written {
                bytes: walked.bytes,
                inodes: walked.inodes,
            })
        };
        let mut own = written(self.volumes.len()).unwrap_or_default();
        own += log_files(&self.logs).unwrap_or_default();
        let mut volumes = Vec::new();
        for (place, (name, counts, dir)) in self.volumes.into_iter().enumerate() {
            let (Some(used), Ok(found)) = (written(place), std::fs::symlink_metadata(&dir)) else {
                continue;
            };
            volumes.push(Volume {
                name,
                used,
                on: prober.usage(&dir).ok(),
                // One in memory is a mount of its own, and takes no disk.
                is_ephemeral: counts && found.dev() == self.device,
            });
        }
        volumes.sort_by(|a, b| (!a.is_ephemeral, &a.name).cmp(&(!b.is_ephemeral, &b.name)));
        PodDisk { at, volumes, own }
    }
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// The files of a log directory, as the kubelet counts them: neither the directory itself nor what is below it.
pub fn log_files(dir: &Path) -> Option<Written> {
    let files = files_usage(dir).ok()?;
    Some(Written {
        bytes: files.bytes,
        inodes: files.inodes,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::AtomicBool;

    use plimsoll_host::fs::{Walk, dir_usage};

    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert!(is_name("u1") && is_name("a.b") && is_name("..."));
        let long = "u".repeat(256);
        for uid in ["", "..", ".", "../../../etc", "a/b", "/", "a\0b", &long] {
            assert!(!is_name(uid), "{uid}");
        }
    }

    #[test]
    fn what_a_pod_keeps() {
        let machine = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: usize| {
            let path = machine.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![b'x'; bytes]).unwrap();
        };
        let volumes = "data/kubelet/pods/u1/volumes";
        write(
            &format!("{volumes}/kubernetes.io~empty-dir/scratch/a/b"),
            9000,
        );
        write(&format!("{volumes}/kubernetes.io~configmap/config/key"), 1);
        write(
            &format!("{volumes}/kubernetes.io~projected/kube-api-access-x/token"),
            1,
        );
        write(&format!("{volumes}/kubernetes.io~csi/pvc-1/mount/data"), 1);
        write("data/kubelet/pods/u1/etc-hosts", 200);
        write("var/log/pods/ns_web_u1/events.log", 100);
        write("var/log/pods/ns_web_u1/app/0.log", 100);

        let root = HostRoot::new(machine.path());
        let disks = PodDisks::new(root, "/data/kubelet".into());
        let cancel = AtomicBool::new(false);
        let walk = Walk {
            cancel: &cancel,
            most_entries: 100,
        };
        let pod = |uid: &str| PodKey {
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
        };
        let at = Timestamp::from_secs(7);
        let plan = disks.plan(&pod("u1")).unwrap();
        let places = plan.places();
        let walked: Vec<_> = places.iter().map(|dir| dir_usage(dir, walk).ok()).collect();
        let found = plan.finish(&walked, at, &mut StatfsWorker::default());
        let listed: Vec<_> = found
            .volumes
            .iter()
            .map(|v| (v.name.as_str(), v.used.inodes, v.is_ephemeral))
            .collect();
        assert_eq!(
            listed,
            [
                ("config", 2, true),
                ("scratch", 3, true),
                ("kube-api-access-x", 2, false)
            ]
        );
        let blocks = |path: &str| fs::metadata(machine.path().join(path)).unwrap().blocks() * 512;
        let scratch = format!("{volumes}/kubernetes.io~empty-dir/scratch");
        let parts = ["", "/a", "/a/b"].map(|part| blocks(&format!("{scratch}{part}")));
        assert_eq!(found.volumes[1].used.bytes, parts.iter().sum::<u64>());
        assert!(found.volumes[1].on.is_some_and(|on| on.capacity > 0));
        let own =
            blocks("data/kubelet/pods/u1/etc-hosts") + blocks("var/log/pods/ns_web_u1/events.log");
        assert_eq!(
            found.own,
            Written {
                bytes: own,
                inodes: 2
            }
        );
        assert!(disks.plan(&pod("u2")).is_none());
    }
}
