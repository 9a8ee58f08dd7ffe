//! `/stats/summary`.

use std::io::{self, Write};
use std::path::Path;

use plimsoll_containers::runtime::cri::{FsUse, ImageFs};
use plimsoll_host::Timestamp;
use rustc_hash::FxHashMap;

use super::pods::{self, latest, snapshot};
use super::shapes::{
    Container, Cpu, Fs, Interface, Io, Memory, Network, Node, Pod, PodRef, ProcessCount, Rlimit,
    Runtime, Swap, Volume,
};
use super::{UNLIMITED, swap_limit};
use crate::rest::json::{self, Seconds};
use crate::rest::{RenderContext, Snapshot, psi};
use plimsoll_observe::disk_usage::PodDisk;
use plimsoll_observe::machine::{Storage, Written};
use plimsoll_observe::{Group, Observer, Sample};

/// The interface whose figures stand for the pod's.
const MAIN_INTERFACE: &str = "eth0";

/// `image_fs`: what the runtime says of its disk usage. `brief`: only CPU, memory and swap.
pub fn write_summary(
    observer: &Observer,
    node_name: &str,
    image_fs: Option<&ImageFs>,
    brief: bool,
    mut out: impl Write,
) -> io::Result<()> {
    let view = View::new(observer, brief);
    let Some(root) = snapshot(&observer.store, "/") else {
        return Err(io::Error::other("failed to get root cgroup stats"));
    };
    let services = view.services();
    let node = view.node(node_name, &root, image_fs, &services);
    out.write_all(b"{\"node\":")?;
    json::write(&node, &mut out)?;
    out.write_all(b",\"pods\":[")?;
    for (index, members) in pods::pods(&observer.store).iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        let pod = members.take();
        let disk = observer.machine.pod_disk(&pod.key.uid);
        let disk = disk.as_deref().filter(|_| !brief);
        json::write(&view.pod(&pod, disk), &mut out)?;
    }
    out.write_all(b"]}")
}

struct View<'a> {
    observer: &'a Observer,
    context: RenderContext,
    storage: std::sync::Arc<Vec<Storage>>,
    /// Positions in `storage`.
    by_device: FxHashMap<String, usize>,
    brief: bool,
}

impl<'a> View<'a> {
    fn new(observer: &'a Observer, brief: bool) -> Self {
        let machine = observer.machine.info();
        let storage = observer.machine.storage();
        let devices = storage.iter().enumerate();
        Self {
            by_device: devices
                .map(|(index, fs)| (fs.device.clone(), index))
                .collect(),
            observer,
            context: RenderContext {
                memory_capacity: machine.memory_capacity,
                swap_capacity: machine.swap_capacity,
                devices: observer.store.devices(),
                groups: observer.groups,
            },
            storage,
            brief,
        }
    }

    /// The cgroups that the node itself needs, by the kubelet's names for them.
    fn services(&self) -> Vec<(&'static str, Snapshot)> {
        const SERVICES: [(&str, &[&str]); 3] = [
            ("kubelet", &["/system.slice/kubelet.service", "/kubelet"]),
            (
                "runtime",
                &[
                    "/system.slice/containerd.service",
                    "/system.slice/crio.service",
                    "/system.slice/docker.service",
                ],
            ),
            ("pods", &["/kubepods", "/kubepods.slice"]),
        ];
        let first = |paths: &[&str]| {
            paths
                .iter()
                .find_map(|path| snapshot(&self.observer.store, path))
        };
        SERVICES
            .iter()
            .filter_map(|(name, paths)| Some((*name, first(paths)?)))
            .collect()
    }

    fn node<'n>(
        &self,
        name: &'n str,
        root: &Snapshot,
        image_fs: Option<&ImageFs>,
        services: &[(&'n str, Snapshot)],
    ) -> Node<'n> {
        let boot = self.observer.machine.fixed().started;
        let full = !self.brief;
        let fs = self.labelled("root");
        Node {
            node_name: name,
            system_containers: services
                .iter()
                .map(|(name, snapshot)| self.service(name, snapshot))
                .collect(),
            start_time: if full {
                boot.into()
            } else {
                root.created.into()
            },
            cpu: self.cpu(root),
            memory: self.memory(root),
            io: full.then(|| self.io(root)).flatten(),
            network: full.then(|| network(root)).flatten(),
            fs: fs.filter(|_| full).map(whole_fs),
            runtime: self.runtime(image_fs).filter(|_| full),
            rlimit: full.then(|| rlimit(self.observer)),
            swap: self.swap(root),
        }
    }

    fn service<'n>(&self, name: &'n str, snapshot: &Snapshot) -> Container<'n> {
        Container {
            name,
            start_time: snapshot.created.into(),
            cpu: self.cpu(snapshot),
            memory: self.memory(snapshot),
            io: self.io(snapshot).filter(|_| !self.brief),
            rootfs: None,
            logs: None,
            swap: self.swap(snapshot),
        }
    }

    fn pod<'p>(&self, pod: &'p pods::Pod, disk: Option<&'p PodDisk>) -> Pod<'p> {
        let containers: Vec<Container<'p>> = pod
            .containers
            .iter()
            .map(|(name, snapshot)| self.container(name, snapshot))
            .collect();
        let cgroup = pod.cgroup.as_ref();
        let network = pod.sandbox.as_ref().and_then(network);
        Pod {
            pod_ref: PodRef {
                name: &pod.key.name,
                namespace: &pod.key.namespace,
                uid: &pod.key.uid,
            },
            start_time: Seconds(pod.created()),
            cpu: cgroup.and_then(|c| self.cpu(c)),
            memory: cgroup.and_then(|c| self.memory(c)),
            io: cgroup.and_then(|c| self.io(c)).filter(|_| !self.brief),
            network: network.filter(|_| !self.brief),
            volume: disk.map(volumes).unwrap_or_default(),
            ephemeral_storage: self.ephemeral(&containers, disk).filter(|_| !self.brief),
            process_stats: process_count(pod).filter(|_| !self.brief),
            swap: cgroup.and_then(|c| self.swap(c)),
            containers,
        }
    }

    fn container<'p>(&self, name: &'p str, snapshot: &Snapshot) -> Container<'p> {
        let (rootfs, logs) = match self.brief {
            true => (None, None),
            false => self.layers(snapshot),
        };
        Container {
            name,
            start_time: snapshot.created.into(),
            cpu: self.cpu(snapshot),
            memory: self.memory(snapshot),
            io: self.io(snapshot).filter(|_| !self.brief),
            rootfs,
            logs,
            swap: self.swap(snapshot),
        }
    }

    fn cpu(&self, snapshot: &Snapshot) -> Option<Cpu> {
        let (sample, rate) = latest(snapshot)?;
        sample.has(Group::Cpu).then(|| Cpu {
            time: sample.at.into(),
            usage_nano_cores: rate.map(|rate| rate.usage.total),
            usage_core_nano_seconds: sample.cpu.total_ns,
            psi: sample.has(Group::Pressure).then(|| psi(&sample.cpu_psi)),
        })
    }

    fn io(&self, snapshot: &Snapshot) -> Option<Io> {
        let (sample, _) = latest(snapshot)?;
        sample.has(Group::DiskIo).then(|| Io {
            time: sample.at.into(),
            psi: sample.has(Group::Pressure).then(|| psi(&sample.io_psi)),
        })
    }

    fn memory(&self, snapshot: &Snapshot) -> Option<Memory> {
        let (sample, _) = latest(snapshot)?;
        let limit = snapshot.limits(&self.context).memory_limit;
        let m = &sample.memory;
        sample.has(Group::Memory).then(|| Memory {
            time: sample.at.into(),
            available_bytes: (limit <= UNLIMITED).then(|| limit.saturating_sub(m.working_set)),
            usage_bytes: m.usage,
            working_set_bytes: m.working_set,
            rss_bytes: m.rss,
            page_faults: m.pgfault,
            major_page_faults: m.pgmajfault,
            psi: sample.has(Group::Pressure).then(|| psi(&sample.memory_psi)),
        })
    }

    fn swap(&self, snapshot: &Snapshot) -> Option<Swap> {
        let (sample, _) = latest(snapshot)?;
        let limit = swap_limit(snapshot.limits(&self.context).memory_swap_limit);
        let used = sample.memory.swap;
        sample.has(Group::Memory).then(|| Swap {
            time: sample.at.into(),
            swap_available_bytes: limit.map(|limit| limit.saturating_sub(used)),
            swap_usage_bytes: used,
        })
    }

    fn labelled(&self, label: &str) -> Option<&Storage> {
        self.storage.iter().find(|fs| fs.labels.contains(&label))
    }

    /// Where images and writable layers live; how much of it is theirs only the runtime knows.
    fn runtime(&self, told: Option<&ImageFs>) -> Option<Runtime> {
        if let Some(told) = told {
            return Some(Runtime {
                image_fs: self.taken(&told.images),
                container_fs: self.taken(&told.containers),
            });
        }
        let images = ["crio-images", "docker-images", "root"];
        let layers = ["crio-containers", "docker-images", "root"];
        let of = |labels: &[&str]| labels.iter().find_map(|label| self.labelled(label));
        Some(Runtime {
            image_fs: place(of(&images)?),
            container_fs: place(of(&layers)?),
        })
    }

    fn taken(&self, by: &FsUse) -> Fs {
        let dir = Path::new(&by.dir);
        // The innermost mount that the directory lies on.
        let on = self
            .storage
            .iter()
            .filter(|fs| dir.starts_with(&fs.mount_point))
            .max_by_key(|fs| fs.mount_point.len());
        Fs {
            used_bytes: by.bytes,
            inodes_used: by.inodes,
            ..self.base(on, by.at)
        }
    }

    /// The writable layer and the logs, where their bytes have been counted.
    fn layers(&self, snapshot: &Snapshot) -> (Option<Fs>, Option<Fs>) {
        let Some((sample, _)) = latest(snapshot) else {
            return (None, None);
        };
        let Some(layer) = self.observer.machine.layer(&snapshot.path) else {
            return (None, None);
        };
        // There are more mounts than containers, so no container looks through all of them.
        let on = self.by_device.get(layer.usage.device.as_str());
        let on = on.map(|index| &self.storage[*index]);
        let rootfs = Fs {
            used_bytes: Some(layer.usage.base_usage),
            inodes_used: Some(layer.usage.inodes),
            ..self.base(on, sample.at)
        };
        let logs = layer.logs.map(|logs| Fs {
            used_bytes: Some(logs.bytes),
            inodes_used: Some(logs.inodes),
            ..self.base(self.labelled("root"), sample.at)
        });
        (Some(rootfs), logs)
    }

    fn base(&self, on: Option<&Storage>, at: Timestamp) -> Fs {
        Fs {
            time: at.into(),
            available_bytes: on.map(|fs| fs.available),
            capacity_bytes: on.map(|fs| fs.capacity),
            used_bytes: None,
            inodes_free: on.and_then(|fs| fs.inodes).map(|(_, free)| free),
            inodes: on.and_then(|fs| fs.inodes).map(|(total, _)| total),
            inodes_used: None,
        }
    }

    /// All that the pod takes of the node's disk.
    fn ephemeral(&self, containers: &[Container<'_>], disk: Option<&PodDisk>) -> Option<Fs> {
        let mut newest = disk.map(|disk| disk.at);
        let mut used = disk.map(|disk| disk.own).unwrap_or_default();
        for fs in containers
            .iter()
            .flat_map(|c| c.rootfs.iter().chain(&c.logs))
        {
            newest = newest.max(fs.time.0);
            used += Written {
                bytes: fs.used_bytes.unwrap_or_default(),
                inodes: fs.inodes_used.unwrap_or_default(),
            };
        }
        let volumes = disk.into_iter().flat_map(|disk| &disk.volumes);
        for volume in volumes.filter(|volume| volume.is_ephemeral) {
            used += volume.used;
        }
        Some(Fs {
            used_bytes: Some(used.bytes),
            inodes_used: Some(used.inodes),
            ..self.base(self.labelled("root"), newest?)
        })
    }
}

fn volumes(disk: &PodDisk) -> Vec<Volume<'_>> {
    disk.volumes
        .iter()
        .map(|volume| Volume {
            name: &volume.name,
            fs: Fs {
                time: disk.at.into(),
                available_bytes: volume.on.map(|on| on.available),
                capacity_bytes: volume.on.map(|on| on.capacity),
                used_bytes: Some(volume.used.bytes),
                inodes_free: volume.on.and_then(|on| on.inodes).map(|(_, free)| free),
                inodes: volume.on.and_then(|on| on.inodes).map(|(total, _)| total),
                inodes_used: Some(volume.used.inodes),
            },
        })
        .collect()
}

fn network(snapshot: &Snapshot) -> Option<Network> {
    let (sample, _): (&Sample, _) = latest(snapshot)?;
    if !snapshot.owns_network || !sample.has_network {
        return None;
    }
    let interfaces: Vec<Interface> = sample
        .network
        .interfaces
        .iter()
        .map(|i| Interface {
            name: i.name.as_str(),
            rx_bytes: Some(i.rx_bytes),
            rx_errors: Some(i.rx_errors),
            tx_bytes: Some(i.tx_bytes),
            tx_errors: Some(i.tx_errors),
        })
        .collect();
    let main = interfaces.iter().find(|i| i.name == MAIN_INTERFACE);
    Some(Network {
        time: sample.at.into(),
        main: main.cloned().unwrap_or_default(),
        interfaces,
    })
}

/// Of the pod's own containers: the kubelet does not count the sandbox.
fn process_count(pod: &pods::Pod) -> Option<ProcessCount> {
    let counted = pod.containers.values().filter_map(|snapshot| {
        let (sample, _) = latest(snapshot)?;
        sample.has(Group::Process).then_some(sample.processes.count)
    });
    let counts: Vec<u64> = counted.collect();
    (!counts.is_empty()).then(|| ProcessCount {
        process_count: counts
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(*one)),
    })
}

fn whole_fs(fs: &Storage) -> Fs {
    Fs {
        used_bytes: Some(fs.usage),
        inodes_used: fs.inodes.map(|(total, free)| total.saturating_sub(free)),
        ..place(fs)
    }
}

fn place(fs: &Storage) -> Fs {
    Fs {
        time: fs.at.into(),
        available_bytes: Some(fs.available),
        capacity_bytes: Some(fs.capacity),
        used_bytes: None,
        inodes_free: fs.inodes.map(|(_, free)| free),
        inodes: fs.inodes.map(|(total, _)| total),
        inodes_used: None,
    }
}

fn rlimit(observer: &Observer) -> Rlimit {
    let tasks = observer.tasks();
    Rlimit {
        time: observer.clock.now().into(),
        maxpid: tasks.limit,
        curproc: tasks.current,
    }
}
