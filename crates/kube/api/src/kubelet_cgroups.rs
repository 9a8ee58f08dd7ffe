//! Where the kubelet and the runtimes put pods in the cgroup tree.

use crate::priority::KubeQos;

/// Who makes the kubelet's cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CgroupDriver {
    #[default]
    Systemd,
    Cgroupfs,
}

impl CgroupDriver {
    /// As the kubelet's configuration spells it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "systemd" => Some(Self::Systemd),
            "cgroupfs" => Some(Self::Cgroupfs),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Runtime {
    Containerd,
    Docker,
    Crio,
    Pouch,
}

impl Runtime {
    const ALL: [Self; 4] = [Self::Containerd, Self::Docker, Self::Crio, Self::Pouch];

    /// Of a container's identity, `containerd://ID`.
    pub fn of_scheme(scheme: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.scheme() == scheme)
    }

    pub fn scheme(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Docker => "docker",
            Self::Crio => "cri-o",
            Self::Pouch => "pouch",
        }
    }

    /// What a scope of systemd begins with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Containerd => "cri-containerd-",
            Self::Docker => "docker-",
            Self::Crio => "crio-",
            Self::Pouch => "pouch-",
        }
    }
}

/// `containerd://ID` in two.
pub fn container_id(full: &str) -> Option<(Runtime, &str)> {
    let (scheme, id) = full.split_once("://")?;
    let runtime = Runtime::of_scheme(scheme)?;
    (!id.is_empty()).then_some((runtime, id))
}

/// What a cgroup is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The class of guaranteed pods is the root of all of them.
    Tier(KubeQos),
    Pod {
        uid: String,
        qos: KubeQos,
    },
    Container {
        uid: String,
        qos: KubeQos,
        /// `None`: the path does not tell.
        runtime: Option<Runtime>,
        id: String,
    },
}

/// Paths begin with a slash and are below the root of the cgroup tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupLayout {
    pub driver: CgroupDriver,
    /// Folders above the kubelet's own, outermost first: its `--cgroup-root`.
    root: Vec<Box<str>>,
}

const TIERS: [KubeQos; 3] = [KubeQos::Burstable, KubeQos::BestEffort, KubeQos::Guaranteed];

impl CgroupLayout {
    pub fn new(driver: CgroupDriver, cgroup_root: &str) -> Self {
        let parts = cgroup_root.split('/');
        let parts = parts.filter(|part| !matches!(*part, "" | "." | ".."));
        Self {
            driver,
            root: parts.map(Into::into).collect(),
        }
    }

    /// Pods are in the class that the kubelet gives them, whatever else they are labelled as.
    pub fn tier(&self, qos: KubeQos) -> String {
        let names = self.names(qos);
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", names.join("/")),
            CgroupDriver::Systemd => slices(&names),
        }
    }

    pub fn pod(&self, uid: &str, qos: KubeQos) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => format!("{}/pod{uid}", self.tier(qos)),
            CgroupDriver::Systemd => {
                let prefix = escaped(&self.names(qos)).join("-");
                let uid = uid.replace('-', "_");
                format!("{}/{prefix}-pod{uid}.slice", self.tier(qos))
            }
        }
    }

    /// Below its pod's folder.
    pub fn container(&self, pod: &str, runtime: Runtime, id: &str) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => format!("{pod}/{id}"),
            CgroupDriver::Systemd => format!("{pod}/{}{id}.scope", runtime.prefix()),
        }
    }

    /// `None`: it is none of the kubelet's.
    pub fn parse(&self, path: &str) -> Option<Place> {
        let path = path.trim_end_matches('/');
        // The root of all pods is the beginning of the others.
        for qos in TIERS {
            let Some(rest) = path.strip_prefix(&*self.tier(qos)) else {
                continue;
            };
            if rest.is_empty() {
                return Some(Place::Tier(qos));
            }
            let Some(rest) = rest.strip_prefix('/') else {
                continue;
            };
            let mut parts = rest.split('/');
            let uid = self.uid(parts.next()?, qos)?;
            let Some(container) = parts.next() else {
                return Some(Place::Pod { uid, qos });
            };
            if parts.next().is_some() {
                return None;
            }
            let (runtime, id) = self.id(container)?;
            return Some(Place::Container {
                uid,
                qos,
                runtime,
                id,
            });
        }
        None
    }

    fn uid(&self, name: &str, qos: KubeQos) -> Option<String> {
        let uid = match self.driver {
            CgroupDriver::Cgroupfs => name.strip_prefix("pod")?.to_owned(),
            CgroupDriver::Systemd => {
                let prefix = escaped(&self.names(qos)).join("-");
                let name = name.strip_prefix(&prefix)?.strip_prefix("-pod")?;
                name.strip_suffix(".slice")?.replace('_', "-")
            }
        };
        (!uid.is_empty()).then_some(uid)
    }

    fn id(&self, name: &str) -> Option<(Option<Runtime>, String)> {
        let (runtime, id) = match self.driver {
            CgroupDriver::Cgroupfs => (None, name),
            CgroupDriver::Systemd => {
                let name = name.strip_suffix(".scope")?;
                Runtime::ALL.into_iter().find_map(|runtime| {
                    Some((Some(runtime), name.strip_prefix(runtime.prefix())?))
                })?
            }
        };
        (!id.is_empty()).then(|| (runtime, id.to_owned()))
    }

    fn names(&self, qos: KubeQos) -> Vec<&str> {
        let mut names: Vec<&str> = self.root.iter().map(|part| &**part).collect();
        names.push("kubepods");
        match qos {
            KubeQos::Guaranteed => {}
            KubeQos::Burstable => names.push("burstable"),
            KubeQos::BestEffort => names.push("besteffort"),
        }
        names
    }
}

/// A dash separates levels in the name of a slice.
fn escaped(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.replace('-', "_")).collect()
}

/// Each level's name has the names of all above it: `/a.slice/a-b.slice`.
fn slices(names: &[&str]) -> String {
    let names = escaped(names);
    let levels = (1..=names.len()).map(|level| format!("/{}.slice", names[..level].join("-")));
    levels.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "7712555c-ce62-454a-9e18-9ff0217b8941";

    #[test]
    fn paths_as_kubelets_make_them() {
        let systemd = CgroupLayout::new(CgroupDriver::Systemd, "");
        let pod = systemd.pod(UID, KubeQos::Burstable);
        assert_eq!(
            pod,
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7712555c_ce62_454a_9e18_9ff0217b8941.slice"
        );
        assert_eq!(
            systemd.container(&pod, Runtime::Crio, "abc"),
            format!("{pod}/crio-abc.scope")
        );
        assert_eq!(
            systemd.pod("u", KubeQos::Guaranteed),
            "/kubepods.slice/kubepods-podu.slice"
        );
        let cgroupfs = CgroupLayout::new(CgroupDriver::Cgroupfs, "/");
        let pod = cgroupfs.pod(UID, KubeQos::BestEffort);
        assert_eq!(pod, format!("/kubepods/besteffort/pod{UID}"));
        assert_eq!(
            cgroupfs.container(&pod, Runtime::Docker, "abc"),
            format!("{pod}/abc")
        );
        assert_eq!(cgroupfs.tier(KubeQos::Guaranteed), "/kubepods");
        let rooted = CgroupLayout::new(CgroupDriver::Systemd, "/my-root/x");
        assert_eq!(
            rooted.tier(KubeQos::BestEffort),
            "/my_root.slice/my_root-x.slice/my_root-x-kubepods.slice/my_root-x-kubepods-besteffort.slice"
        );
    }

    #[test]
    fn what_is_none_of_the_kubelets() {
        let layout = CgroupLayout::default();
        for path in [
            "/",
            "/system.slice",
            "/kubepods",
            "/kubepods.slice/x",
            "/kubepods.slice/kubepods-pod.slice",
            "/kubepods.slice/kubepods-podu.slice/a-1.scope",
        ] {
            assert_eq!(layout.parse(path), None, "{path}");
        }
        assert_eq!(container_id("containerd://"), None);
        assert_eq!(container_id("cri-o://x"), Some((Runtime::Crio, "x")));
    }

    proptest! {
        #[test]
        fn what_is_built_is_read_back(
            systemd: bool,
            root in "(/[a-z][a-z-]{0,5}){0,2}",
            uid in "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}",
            id in "[0-9a-f]{64}",
            tier in 0..3_usize,
            runtime in 0..4_usize,
        ) {
            let driver = if systemd { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs };
            let layout = CgroupLayout::new(driver, &root);
            let (qos, runtime) = (TIERS[tier], Runtime::ALL[runtime]);
            prop_assert_eq!(layout.parse(&layout.tier(qos)), Some(Place::Tier(qos)));
            let pod = layout.pod(&uid, qos);
            let found = Place::Pod { uid: uid.clone(), qos };
            prop_assert_eq!(layout.parse(&pod), Some(found));
            let path = layout.container(&pod, runtime, &id);
            let runtime = systemd.then_some(runtime);
            prop_assert_eq!(layout.parse(&path), Some(Place::Container { uid, qos, runtime, id }));
        }
    }
}
