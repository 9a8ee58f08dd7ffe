//! Parses cgroup paths: the runtime's container id, the pod, and whether cAdvisor would report the cgroup.
//!
//! Pure functions of a string, except that [`Rules`] check whether CRI-O is there.

use std::path::PathBuf;

/// Directories with this ending are systemd's mount units. They come and go with every volume and hold no processes
/// worth a series, so they are neither watched nor reported.
const MOUNT_SUFFIX: &str = ".mount";
const ID_LENGTH: usize = 64;
/// The leaf into which a runtime puts the processes of a container whose scope is delegated (rootless podman, crun).
const DELEGATED_LEAF: &str = "container";
/// Scopes of the processes that hold a container's terminal and exit code; they carry its id but are not it.
const MONITOR_PREFIXES: [&str; 2] = ["crio-conmon", "libpod-conmon"];
/// Swallowed by the original wherever CRI-O is in use.
const SYSTEMD_TEMPLATES: &str = "system-systemd";

/// The last component of a path; empty for `/`.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or("")
}

/// The path one level up; `None` for `/`.
pub fn parent(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path.len() > 1 => Some("/"),
        0 => None,
        at => Some(&path[..at]),
    }
}

pub fn is_mount(path: &str) -> bool {
    path.ends_with(MOUNT_SUFFIX)
}

/// The runtime's id in a cgroup's name: the first 64 characters in a row of `[a-z0-9]` in its last component, whatever
/// stands around them (`docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope`, a bare `ID`).
///
/// A last component `container` takes the id of the component above it. `None` for mount units and for the scopes of
/// the monitor processes. The original lets podman claim a `libpod-conmon-ID.scope`, so each container was shown
/// twice; that is not repeated here.
pub fn container_id(path: &str) -> Option<&str> {
    if is_mount(path) {
        return None;
    }
    let base = match base_name(path) {
        DELEGATED_LEAF => base_name(parent(path)?),
        base => base,
    };
    if MONITOR_PREFIXES.iter().any(|p| base.starts_with(p)) {
        return None;
    }
    first_id(base)
}

fn first_id(base: &str) -> Option<&str> {
    let mut start = 0;
    for (at, byte) in base.bytes().enumerate() {
        if !(byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            start = at + 1;
        } else if at + 1 - start == ID_LENGTH {
            return base.get(start..=at);
        }
    }
    None
}

/// True where CRI-O, and no other runtime, makes cgroups of this name.
pub fn is_crio(path: &str) -> bool {
    base_name(path).starts_with("crio")
}

/// A pod's quality-of-service class as the kubelet lays it out in directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Qos {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The pod that a cgroup is, or is inside of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod<'a> {
    pub uid: String,
    pub qos: Qos,
    /// The pod's own cgroup.
    pub path: &'a str,
    /// The path was the pod's own, not one below it.
    pub is_self: bool,
}

/// The pod of a path, for both of the kubelet's cgroup drivers and below any `--cgroup-root`.
///
/// cgroupfs: `/kubepods/burstable/pod<uid>`, a guaranteed pod directly below `kubepods`. systemd:
/// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`, where the uid's dashes are underscores
/// because a dash in a slice's name means a level.
pub fn pod(path: &str) -> Option<Pod<'_>> {
    let mut end = 0;
    let mut above = ["", ""];
    for component in path.split('/') {
        end += component.len();
        let found = systemd_pod(component).or_else(|| cgroupfs_pod(component, above[1], above[0]));
        if let Some((uid, qos)) = found {
            return Some(Pod {
                uid,
                qos,
                path: &path[..end],
                is_self: end == path.len(),
            });
        }
        above = [above[1], component];
        end += 1;
    }
    None
}

pub fn is_pod(path: &str) -> bool {
    pod(path).is_some_and(|pod| pod.is_self)
}

fn cgroupfs_pod(component: &str, parent: &str, grandparent: &str) -> Option<(String, Qos)> {
    let uid = component.strip_prefix("pod").filter(|uid| is_uid(uid))?;
    let qos = match (parent, grandparent) {
        ("kubepods", _) => Qos::Guaranteed,
        ("burstable", "kubepods") => Qos::Burstable,
        ("besteffort", "kubepods") => Qos::BestEffort,
        _ => return None,
    };
    Some((uid.to_owned(), qos))
}

fn systemd_pod(component: &str) -> Option<(String, Qos)> {
    let slice = component.strip_suffix(".slice")?;
    // With a `--cgroup-root` the name starts with that root's own levels: `kubelet-kubepods-…`.
    let (_, rest) = slice.split_once("kubepods-")?;
    let (qos, rest) = if let Some(rest) = rest.strip_prefix("burstable-") {
        (Qos::Burstable, rest)
    } else if let Some(rest) = rest.strip_prefix("besteffort-") {
        (Qos::BestEffort, rest)
    } else {
        (Qos::Guaranteed, rest)
    };
    let uid = rest.strip_prefix("pod").filter(|uid| is_uid(uid))?;
    Some((uid.replace('_', "-"), qos))
}

/// The API server makes UUIDs, the kubelet makes bare hashes for static pods.
fn is_uid(uid: &str) -> bool {
    !uid.is_empty()
        && uid
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Which cgroups are reported at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// `--docker_only`: report no cgroup that no runtime knows. Despite its name it hides no runtime's containers.
    pub docker_only: bool,
    /// `--raw_cgroup_prefix_whitelist`, split at commas. No entry is the same as one empty entry: everything.
    pub raw_prefixes: Vec<String>,
    /// Where one of these is, CRI-O runs, and its own leftovers are not reported as plain cgroups. Looked at anew each
    /// time: it may start later.
    pub crio_sockets: Vec<PathBuf>,
}

impl Rules {
    /// Whether a cgroup is reported, where `identified` says that a runtime claims it.
    ///
    /// The original's ways are kept, because dashboards live on them:
    /// - `/` is always reported, a mount unit never.
    /// - A claimed container is reported whatever the whitelist says.
    /// - The whitelist filters even without `--docker_only`, and compares text, not components: `/kube` lets
    ///   `/kubepods.slice` through.
    /// - `--docker_only` refuses all plain cgroups only if the *first* whitelist entry is empty; otherwise the
    ///   whitelist alone decides.
    /// - Where CRI-O runs, `system-systemd…` is refused, and so is a `crio-ID` that is no `.scope` (a sandbox's
    ///   cgroup under the systemd driver, for which CRI-O answers nothing).
    pub fn accepts(&self, path: &str, identified: bool) -> bool {
        if path == "/" {
            return true;
        }
        if is_mount(path) {
            return false;
        }
        if identified {
            return true;
        }
        if swallowed_by_crio(path) && self.crio_sockets.iter().any(|one| one.exists()) {
            return false;
        }
        let first = self.raw_prefixes.first().map_or("", String::as_str);
        if self.docker_only && first.is_empty() {
            return false;
        }
        self.raw_prefixes.is_empty()
            || self
                .raw_prefixes
                .iter()
                .any(|prefix| path.starts_with(prefix.as_str()))
    }
}

fn swallowed_by_crio(path: &str) -> bool {
    let base = base_name(path);
    base.starts_with(SYSTEMD_TEMPLATES)
        || (is_crio(path) && container_id(path).is_some() && !base.ends_with(".scope"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

    #[track_caller]
    fn id(path: &str, expected: bool) {
        let path = path.replace("ID", ID);
        assert_eq!(container_id(&path), expected.then_some(ID), "{path}");
    }

    #[test]
    fn ids_of_every_driver() {
        id("/docker/ID", true);
        id("/system.slice/docker-ID.scope", true);
        id(
            "/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
            true,
        );
        id(
            "/kubepods.slice/kubepods-pod1.slice:cri-containerd:ID",
            true,
        );
        id("/kubepods/besteffort/pod1/crio-ID", true);
        id("/machine.slice/libpod-ID.scope", true);
        id(
            "/user.slice/user-1000.slice/libpod-ID.scope/container",
            true,
        );
        id("/elsewhere/ID", true);
    }

    #[test]
    fn no_ids() {
        id("/", false);
        id("", false);
        id("/container", false);
        id("/docker/ID/init.scope", false);
        id("/machine.slice/libpod-conmon-ID.scope", false);
        id("/kubepods.slice/crio-conmon-ID.scope", false);
        id("/system.slice/run-ID.mount", false);
        assert_eq!(container_id(&format!("/docker/{}", &ID[1..])), None);
        assert_eq!(
            container_id(&format!("/docker/{}", ID.to_uppercase())),
            None
        );
    }

    #[test]
    fn a_longer_run_gives_its_first_64_characters() {
        assert_eq!(container_id(&format!("/x/{ID}ffff")), Some(ID));
        assert_eq!(container_id(&format!("/x/ab-{ID}-cd")), Some(ID));
    }

    #[track_caller]
    fn check_pod(path: &str, expected: Option<(&str, Qos, bool)>) {
        let found = pod(path);
        let seen = found.as_ref().map(|p| (p.uid.as_str(), p.qos, p.is_self));
        assert_eq!(seen, expected, "{path}");
    }

    #[test]
    fn pods_of_both_drivers() {
        let uid = "6f2a1c34-91d7-4c21-9d0a-0c6b7f3a5e11";
        let under = uid.replace('-', "_");
        check_pod(
            &format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice"
            ),
            Some((uid, Qos::Burstable, true)),
        );
        check_pod(
            &format!("/kubepods.slice/kubepods-pod{under}.slice/cri-containerd-{ID}.scope"),
            Some((uid, Qos::Guaranteed, false)),
        );
        check_pod(
            &format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort-pod{under}.slice"
            ),
            Some((uid, Qos::BestEffort, true)),
        );
        check_pod(
            &format!("/kubepods/pod{uid}"),
            Some((uid, Qos::Guaranteed, true)),
        );
        check_pod(
            &format!("/root/kubepods/burstable/pod{uid}/{ID}"),
            Some((uid, Qos::Burstable, false)),
        );
        check_pod(
            "/kubepods/besteffort/podd41d8cd98f00b204e9800998ecf8427e",
            Some(("d41d8cd98f00b204e9800998ecf8427e", Qos::BestEffort, true)),
        );
    }

    #[test]
    fn not_pods() {
        for path in [
            "/",
            "/kubepods",
            "/kubepods.slice",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods/burstable",
            "/kubepods/pod",
            "/podinfo",
            "/system.slice/podman.service",
            "/burstable/pod1",
        ] {
            check_pod(path, None);
        }
        let pod = pod("/a/kubepods/pod1/x").unwrap();
        assert_eq!(pod.path, "/a/kubepods/pod1");
    }

    fn rules(docker_only: bool, prefixes: &str) -> Rules {
        Rules {
            docker_only,
            raw_prefixes: prefixes.split(',').map(str::to_owned).collect(),
            crio_sockets: vec![PathBuf::from("/nowhere/crio.sock")],
        }
    }

    #[test]
    fn whitelist_quirks() {
        assert!(Rules::default().accepts("/a", false));
        assert!(rules(false, "").accepts("/a", false));
        assert!(!rules(true, "").accepts("/a", false));
        assert!(rules(true, "").accepts("/", false));
        assert!(rules(true, "").accepts("/a", true));
        assert!(!rules(false, "/b").accepts("/a", false));
        assert!(rules(false, "/b").accepts("/bc", false));
        assert!(rules(true, "/b").accepts("/b", false));
        // The first entry alone says whether there is a whitelist.
        assert!(!rules(true, ",/b").accepts("/b", false));
        assert!(rules(false, ",/b").accepts("/a", false));
        assert!(!rules(false, "").accepts("/system.slice/x.mount", true));
    }

    #[test]
    fn where_crio_runs() {
        let crio = Rules {
            crio_sockets: vec![PathBuf::from("/")],
            ..Rules::default()
        };
        let template = "/system.slice/system-systemd\\x2dfsck.slice";
        assert!(Rules::default().accepts(template, false));
        assert!(!crio.accepts(template, false));
        assert!(!crio.accepts(&format!("/kubepods.slice/crio-{ID}"), false));
        assert!(crio.accepts(&format!("/kubepods.slice/crio-{ID}.scope"), false));
    }

    proptest! {
        #[test]
        fn no_input_panics(path in ".{0,200}", prefix in ".{0,8}", docker_only: bool, known: bool) {
            let _ = container_id(&path);
            let _ = pod(&path);
            let _ = parent(&path);
            let _ = rules(docker_only, &prefix).accepts(&path, known);
        }

        #[test]
        fn path_like_input(
            path in "(/(kubepods|burstable|pod[0-9a-f_-]{0,4}|[a-z0-9]{60,70}|é|container|x\\.mount|\\.slice)){0,5}",
        ) {
            if let Some(pod) = pod(&path) {
                prop_assert!(path.starts_with(pod.path));
            }
            if let Some(id) = container_id(&path) {
                prop_assert_eq!(id.len(), ID_LENGTH);
                prop_assert!(path.contains(id));
            }
        }
    }
}
