//! Which file has a target's value.

use std::path::{Path, PathBuf};

use plimsoll_host::HostRoot;
use plimsoll_host::cgroup::{Controller, Hierarchies};
use plimsoll_plan::{IoKnob, Knob, ProcFile, ResctrlKnob, Sysctl, Target};

use crate::KernelFile;

/// How the kernel writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    V1,
    V2,
}

/// Whose value it is. Whoever is gone, or was made anew under the same name, gets nothing back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Directory(KernelFile),
    Process {
        stat: KernelFile,
        start_ticks: u64,
    },
    /// The whole machine.
    Machine,
}

/// Where a target is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub form: Form,
    pub file: KernelFile,
    /// v1 has the period of a quota in a file of its own.
    pub period: Option<KernelFile>,
    pub owner: Owner,
}

/// Where things are on one machine.
#[derive(Debug, Clone)]
pub struct Machine {
    root: HostRoot,
    hierarchies: Hierarchies,
    resctrl: PathBuf,
    net_cls: PathBuf,
}

impl Machine {
    pub fn new(root: HostRoot, hierarchies: Hierarchies) -> Self {
        let resctrl = root.sys("fs/resctrl");
        // Beside the others; nobody who only reads looks for it.
        let beside = hierarchies.mount(Controller::Cpu).and_then(Path::parent);
        let net_cls = match beside {
            Some(dir) => dir.join("net_cls"),
            None => root.sys("fs/cgroup/net_cls"),
        };
        Self {
            root,
            hierarchies,
            resctrl,
            net_cls,
        }
    }

    #[must_use]
    pub fn with_resctrl(mut self, mount: PathBuf) -> Self {
        self.resctrl = mount;
        self
    }

    pub fn root(&self) -> &HostRoot {
        &self.root
    }

    pub fn form(&self) -> Form {
        match self.hierarchies.is_v2() {
            true => Form::V2,
            false => Form::V1,
        }
    }

    /// `None`: this kind of machine has no such thing, or the name is none.
    pub fn place(&self, target: &Target) -> Option<Place> {
        match target {
            Target::Cgroup { path, knob } => self.cgroup(path, *knob),
            Target::Resctrl { group, knob } => self.resctrl(group, *knob),
            Target::Process {
                pid,
                start_ticks,
                file: ProcFile::OomScoreAdj,
            } => {
                let proc = self.root.path("/proc");
                Some(Place {
                    form: self.form(),
                    file: KernelFile::new(&proc, format!("{pid}/oom_score_adj")),
                    period: None,
                    owner: Owner::Process {
                        stat: KernelFile::new(&proc, format!("{pid}/stat")),
                        start_ticks: *start_ticks,
                    },
                })
            }
            Target::Sysctl(sysctl) => Some(Place {
                form: self.form(),
                file: self.sysctl(sysctl)?,
                period: None,
                owner: Owner::Machine,
            }),
        }
    }

    fn cgroup(&self, path: &str, knob: Knob) -> Option<Place> {
        let below = plain(path.strip_prefix('/')?)?;
        if knob == Knob::Freeze {
            return self.freeze(below);
        }
        let v2 = self.hierarchies.is_v2();
        let (controller, v1_name, v2_name) = names(knob);
        let name = match v2 {
            true => v2_name?,
            false => v1_name?,
        };
        let mount = match controller {
            Some(controller) => self.hierarchies.mount(controller)?,
            None if v2 => self.hierarchies.unified()?,
            None => &self.net_cls,
        };
        let period = (knob == Knob::CpuQuota && !v2).then_some("cpu.cfs_period_us");
        Some(Place {
            form: self.form(),
            file: KernelFile::new(mount, below.join(name)),
            period: period.map(|name| KernelFile::new(mount, below.join(name))),
            owner: Owner::Directory(KernelFile::new(mount, below)),
        })
    }

    /// Any mount of cgroup2 can freeze, with controllers or without, and can kill what is frozen. v1 cannot.
    fn freeze(&self, below: &Path) -> Option<Place> {
        let (form, mount, name) = match self.hierarchies.unified() {
            Some(unified) => (Form::V2, unified, "cgroup.freeze"),
            None => {
                let freezer = self.hierarchies.mount(Controller::Freezer)?;
                (Form::V1, freezer, "freezer.state")
            }
        };
        Some(Place {
            form,
            file: KernelFile::new(mount, below.join(name)),
            period: None,
            owner: Owner::Directory(KernelFile::new(mount, below)),
        })
    }

    fn resctrl(&self, group: &str, knob: ResctrlKnob) -> Option<Place> {
        const NO_GROUPS: [&str; 3] = ["info", "mon_data", "mon_groups"];
        let below = plain(group)?;
        if below.components().count() > 1 || NO_GROUPS.contains(&group) {
            return None;
        }
        let file = match knob {
            ResctrlKnob::Exists if group.is_empty() => return None,
            ResctrlKnob::Exists => below.to_owned(),
            ResctrlKnob::L3 | ResctrlKnob::MemoryBandwidth => below.join("schemata"),
            ResctrlKnob::Tasks => below.join("tasks"),
        };
        // A group that is to be made has no inode yet.
        let owner = match knob {
            ResctrlKnob::Exists => Path::new(""),
            _ => below,
        };
        Some(Place {
            form: self.form(),
            file: KernelFile::new(&self.resctrl, file),
            period: None,
            owner: Owner::Directory(KernelFile::new(&self.resctrl, owner)),
        })
    }

    fn sysctl(&self, sysctl: &Sysctl) -> Option<KernelFile> {
        let (proc, sys) = (
            self.root.path("/proc/sys"),
            self.root.sys("kernel/mm/x").parent()?.parent()?.to_owned(),
        );
        let in_proc = |below: &str| Some(KernelFile::new(&proc, below));
        let in_sys = |below: &str| Some(KernelFile::new(&sys, below));
        match sysctl {
            Sysctl::MinFreeKbytes => in_proc("vm/min_free_kbytes"),
            Sysctl::WatermarkScaleFactor => in_proc("vm/watermark_scale_factor"),
            Sysctl::SchedGroupIdentityEnabled => in_proc("kernel/sched_group_identity_enabled"),
            Sysctl::SchedIdleSaverWmark => in_proc("kernel/sched_idle_saver_wmark"),
            Sysctl::SchedCore => in_proc("kernel/sched_core"),
            Sysctl::MemcgReaper => in_sys("mm/memcg_reaper/reap_background"),
            Sysctl::PageCacheLimit => in_sys("mm/pagecache_limit/enabled"),
            Sysctl::KidledScanPeriod => in_sys("mm/kidled/scan_period_in_seconds"),
            Sysctl::KidledUseHierarchy => in_sys("mm/kidled/use_hierarchy"),
            // Newer kernels have them in a folder.
            Sysctl::SchedFeature(_) => {
                let newer = sys.join("debug/sched/features");
                match newer.exists() {
                    true => in_sys("debug/sched/features"),
                    false => in_sys("debug/sched_features"),
                }
            }
        }
    }
}

/// A relative path of plain names.
fn plain(path: &str) -> Option<&Path> {
    let fine = path.is_empty()
        || path
            .split('/')
            .all(|name| !name.is_empty() && name != "." && name != "..");
    (fine && !path.contains('\0')).then_some(Path::new(path))
}

/// What koordlet calls this kind of value: the file's name in v1, where there is one.
pub(crate) fn kind_of(target: &Target) -> &'static str {
    match target {
        Target::Cgroup { knob, .. } => {
            let (_, v1, v2) = names(*knob);
            v1.or(v2).unwrap_or("cgroup")
        }
        Target::Resctrl { knob, .. } => match knob {
            ResctrlKnob::Exists => "resctrl",
            ResctrlKnob::L3 | ResctrlKnob::MemoryBandwidth => "schemata",
            ResctrlKnob::Tasks => "tasks",
        },
        Target::Process { .. } => "oom_score_adj",
        Target::Sysctl(sysctl) => match sysctl {
            Sysctl::MinFreeKbytes => "min_free_kbytes",
            Sysctl::WatermarkScaleFactor => "watermark_scale_factor",
            Sysctl::SchedGroupIdentityEnabled => "sched_group_identity_enabled",
            Sysctl::SchedIdleSaverWmark => "sched_idle_saver_wmark",
            Sysctl::SchedCore => "sched_core",
            Sysctl::MemcgReaper => "reap_background",
            Sysctl::PageCacheLimit => "enabled",
            Sysctl::KidledScanPeriod => "scan_period_in_seconds",
            Sysctl::KidledUseHierarchy => "use_hierarchy",
            Sysctl::SchedFeature(_) => "sched_features",
        },
    }
}

/// The v1 controller, and the file's name in v1 and v2.
fn names(
    knob: Knob,
) -> (
    Option<Controller>,
    Option<&'static str>,
    Option<&'static str>,
) {
    use Controller::{Blkio, Cpu, Cpuset, Freezer, Memory};
    let same = |controller, name| (Some(controller), Some(name), Some(name));
    let both = |controller, v1, v2| (Some(controller), Some(v1), Some(v2));
    match knob {
        Knob::CpuShares => both(Cpu, "cpu.shares", "cpu.weight"),
        Knob::CpuQuota => both(Cpu, "cpu.cfs_quota_us", "cpu.max"),
        Knob::CpuBurst => both(Cpu, "cpu.cfs_burst_us", "cpu.max.burst"),
        Knob::CpuIdle => same(Cpu, "cpu.idle"),
        Knob::GroupIdentity => same(Cpu, "cpu.bvt_warp_ns"),
        Knob::Cpuset => same(Cpuset, "cpuset.cpus"),
        Knob::MemoryMin => same(Memory, "memory.min"),
        Knob::MemoryLow => same(Memory, "memory.low"),
        Knob::MemoryHigh => same(Memory, "memory.high"),
        Knob::MemoryMax => both(Memory, "memory.limit_in_bytes", "memory.max"),
        Knob::OomGroup => same(Memory, "memory.oom.group"),
        Knob::WmarkRatio => same(Memory, "memory.wmark_ratio"),
        Knob::WmarkScaleFactor => same(Memory, "memory.wmark_scale_factor"),
        Knob::WmarkMinAdj => same(Memory, "memory.wmark_min_adj"),
        Knob::MemoryPriority => same(Memory, "memory.priority"),
        Knob::UsePriorityOom => same(Memory, "memory.use_priority_oom"),
        Knob::PageCacheLimitEnable => same(Memory, "memory.pagecache_limit.enable"),
        Knob::PageCacheLimitSize => same(Memory, "memory.pagecache_limit.size"),
        Knob::PageCacheLimitSync => same(Memory, "memory.pagecache_limit.sync"),
        Knob::MemoryReclaim => (Some(Memory), None, Some("memory.reclaim")),
        Knob::NetClass => (None, Some("net_cls.classid"), None),
        Knob::Freeze => both(Freezer, "freezer.state", "cgroup.freeze"),
        Knob::Io { knob, .. } => match knob {
            IoKnob::ReadBps => both(Blkio, "blkio.throttle.read_bps_device", "io.max"),
            IoKnob::WriteBps => both(Blkio, "blkio.throttle.write_bps_device", "io.max"),
            IoKnob::ReadIops => both(Blkio, "blkio.throttle.read_iops_device", "io.max"),
            IoKnob::WriteIops => both(Blkio, "blkio.throttle.write_iops_device", "io.max"),
            IoKnob::Weight => both(Blkio, "blkio.cost.weight", "io.weight"),
            IoKnob::CostQos => both(Blkio, "blkio.cost.qos", "io.cost.qos"),
            IoKnob::CostModel => both(Blkio, "blkio.cost.model", "io.cost.model"),
        },
    }
}

/// Runtimes write containers' weights; the kubelet writes those of pods and tiers.
pub fn is_container(path: &str) -> bool {
    let mut names = path.rsplit('/');
    let (Some(_), Some(pod)) = (names.next(), names.next()) else {
        return false;
    };
    let pod = pod.strip_suffix(".slice").unwrap_or(pod);
    let is_pod = match pod.rsplit_once("-pod") {
        Some((_, uid)) => !uid.is_empty(),
        None => pod.len() > "pod".len() && pod.starts_with("pod"),
    };
    is_pod && path.contains("kubepods")
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_plan::BlockDevice;

    fn v1() -> Machine {
        let mounts = [
            Controller::Cpu,
            Controller::Cpuset,
            Controller::Memory,
            Controller::Blkio,
        ]
        .map(|controller| {
            (
                controller,
                PathBuf::from("/sys/fs/cgroup").join(controller.name()),
            )
        });
        Machine::new(HostRoot::new("/"), Hierarchies::v1(mounts))
    }

    fn v2() -> Machine {
        Machine::new(HostRoot::new("/"), Hierarchies::v2("/sys/fs/cgroup"))
    }

    #[track_caller]
    fn check(machine: &Machine, target: &Target, expected: Option<&str>) {
        let found = machine.place(target).map(|place| place.file.to_string());
        assert_eq!(found.as_deref(), expected, "{target:?}");
    }

    #[test]
    fn cgroup_files_of_both_versions() {
        let path = "/kubepods/pod1".into();
        let io = Knob::Io {
            device: BlockDevice { major: 8, minor: 0 },
            knob: IoKnob::ReadBps,
        };
        for (knob, in_v1, in_v2) in [
            (
                Knob::CpuShares,
                Some("cpu/kubepods/pod1/cpu.shares"),
                Some("kubepods/pod1/cpu.weight"),
            ),
            (
                Knob::CpuQuota,
                Some("cpu/kubepods/pod1/cpu.cfs_quota_us"),
                Some("kubepods/pod1/cpu.max"),
            ),
            (
                Knob::MemoryMax,
                Some("memory/kubepods/pod1/memory.limit_in_bytes"),
                Some("kubepods/pod1/memory.max"),
            ),
            (
                io,
                Some("blkio/kubepods/pod1/blkio.throttle.read_bps_device"),
                Some("kubepods/pod1/io.max"),
            ),
            (
                Knob::MemoryReclaim,
                None,
                Some("kubepods/pod1/memory.reclaim"),
            ),
            (
                Knob::NetClass,
                Some("net_cls/kubepods/pod1/net_cls.classid"),
                None,
            ),
            // This v1 machine has no freezer.
            (Knob::Freeze, None, Some("kubepods/pod1/cgroup.freeze")),
        ] {
            let target = Target::cgroup(&path, knob);
            let full = |below: &str| format!("/sys/fs/cgroup/{below}");
            check(&v1(), &target, in_v1.map(full).as_deref());
            check(&v2(), &target, in_v2.map(full).as_deref());
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_no_names() {
        for path in ["", "kubepods", "/a/../b", "/a//b", "/./a", "/a\0"] {
            check(&v2(), &Target::cgroup(&path.into(), Knob::CpuIdle), None);
        }
        for group in ["info", "a/b", "..", "/a"] {
            let target = Target::Resctrl {
                group: group.into(),
                knob: ResctrlKnob::Tasks,
            };
            check(&v2(), &target, None);
        }
    }

    #[test]
    fn other_files() {
        let resctrl = |group: &str, knob| Target::Resctrl {
            group: group.into(),
            knob,
        };
        check(
            &v1(),
            &resctrl("BE", ResctrlKnob::L3),
            Some("/sys/fs/resctrl/BE/schemata"),
        );
        check(
            &v1(),
            &resctrl("", ResctrlKnob::Tasks),
            Some("/sys/fs/resctrl/tasks"),
        );
        check(
            &v1(),
            &Target::Sysctl(Sysctl::MinFreeKbytes),
            Some("/proc/sys/vm/min_free_kbytes"),
        );
        check(
            &v1(),
            &Target::Sysctl(Sysctl::KidledScanPeriod),
            Some("/sys/kernel/mm/kidled/scan_period_in_seconds"),
        );
        let process = Target::Process {
            pid: 7,
            start_ticks: 1,
            file: ProcFile::OomScoreAdj,
        };
        check(&v1(), &process, Some("/proc/7/oom_score_adj"));
    }

    #[test]
    fn containers_are_below_pods() {
        for (path, expected) in [
            ("/kubepods/burstable/pod12-3/abc", true),
            (
                "/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-a.scope",
                true,
            ),
            ("/kubepods.slice/kubepods-pod1_2.slice", false),
            ("/kubepods/besteffort/pod1", false),
            ("/kubepods/besteffort", false),
            ("/kubepods.slice/kubepods-besteffort.slice", false),
            ("/system.slice/podman.service", false),
            ("/", false),
        ] {
            assert_eq!(is_container(path), expected, "{path}");
        }
    }
}
