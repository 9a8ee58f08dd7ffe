//! Reads the facts about the machine that its Node object has.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use plimsoll_host::fs::{FsUsage, StatfsWorker};
use plimsoll_host::machine::{IdFiles, MachineInfo, kernel_version, os_version};
use plimsoll_host::proc::meminfo::read_meminfo;
use plimsoll_host::proc::tasks::Tasks;
use plimsoll_host::{Clock, HostRoot, ReadBuf};

use crate::NodeHandle;

/// File system of pods' files: the first of these that exists.
const STORAGE: [&str; 2] = ["/var/lib/kubelet", "/"];

/// Bytes, unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub cpus: usize,
    pub memory: u64,
    pub memory_available: u64,
    pub swap: u64,
    /// Size of a page, and how many are set aside.
    pub hugepages: Vec<(u64, u64)>,
    /// `None`: the file system did not answer.
    pub storage: Option<FsUsage>,
    /// Threads there are, and how many there may be.
    pub threads: Option<(u64, u64)>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// `containerd://2.1.4`; empty where the agent found none.
    pub runtime: String,
    pub address: IpAddr,
    /// The port of this machine's loopback address where its agent tells what is used; `None`: it has none.
    pub pages: Option<u16>,
}

/// Where the facts come from.
#[derive(Debug)]
pub struct Machine {
    root: HostRoot,
    /// What does not change, as read at first; a running agent reads it again from time to time.
    info: Arc<MachineInfo>,
    view: Option<Arc<NodeHandle>>,
    prober: StatfsWorker,
    pages: Option<u16>,
    buf: ReadBuf,
}

impl Machine {
    /// Without an agent that watches it, the machine is read once.
    pub fn new(
        root: HostRoot,
        clock: &Clock,
        view: Option<Arc<NodeHandle>>,
    ) -> plimsoll_host::Result<Self> {
        let mut buf = ReadBuf::default();
        let info = match &view {
            Some(view) => view.machine_info(),
            None => {
                let info = MachineInfo::read(&root, &IdFiles::default(), clock.now(), &mut buf)?;
                Arc::new(info)
            }
        };
        Ok(Self {
            root,
            info,
            view,
            prober: StatfsWorker::default(),
            pages: None,
            buf,
        })
    }

    /// With an agent that serves its pages on this port of the loopback address.
    pub fn with_pages(mut self, port: Option<u16>) -> Self {
        self.pages = port;
        self
    }

    /// Current facts. A value that cannot be read is left out or keeps its last value.
    pub fn facts(&mut self) -> Facts {
        if let Some(view) = &self.view {
            self.info = view.machine_info();
        }
        let memory = read_meminfo(&self.root, &mut self.buf).ok().flatten();
        let hugepages = self.info.hugepages.iter();
        Facts {
            pages: self.pages,
            cpus: self.info.num_cores,
            memory: self.info.memory_capacity,
            memory_available: memory
                .map_or(self.info.memory_capacity, |m| m.available_or_estimate()),
            swap: self.info.swap_capacity,
            hugepages: hugepages
                .map(|pages| (pages.page_size_kib * 1024, pages.num_pages))
                .collect(),
            storage: STORAGE
                .iter()
                .find_map(|dir| self.prober.usage(&self.root.path(dir)).ok()),
            threads: self.threads(),
            machine_id: self.info.machine_id.clone(),
            system_uuid: self.info.system_uuid.clone(),
            boot_id: self.info.boot_id.clone(),
            kernel_version: kernel_version(&self.root, &mut self.buf),
            os_image: os_version(&self.root, &mut self.buf),
            runtime: self
                .view
                .as_ref()
                .map(|view| view.runtime_version())
                .unwrap_or_default(),
            address: address(),
        }
    }

    fn threads(&mut self) -> Option<(u64, u64)> {
        let tasks = Tasks::read(&self.root, &mut self.buf);
        Some((tasks.current?, tasks.limit?))
    }
}

/// The source address of packets to other machines. Nothing is sent.
fn address() -> IpAddr {
    const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
    let ask = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(ELSEWHERE)?;
        socket.local_addr()
    };
    // A machine without a way out is reached by itself alone.
    ask().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixture_tree_is_a_machine() {
        let temp = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = temp.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/meminfo",
            "MemTotal: 1024 kB\nMemFree: 256 kB\nMemAvailable: 512 kB\nSwapTotal: 64 kB\n",
        );
        write(
            "proc/cpuinfo",
            "processor : 0\nprocessor : 1\nprocessor : 2\n",
        );
        write("proc/loadavg", "0.20 0.18 0.12 1/80 11206\n");
        write("proc/sys/kernel/pid_max", "32768\n");
        write("proc/sys/kernel/threads-max", "9000\n");
        write("etc/os-release", "PRETTY_NAME=\"Test Linux\"\n");
        write(
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            "3\n",
        );
        std::fs::create_dir_all(temp.path().join("var/lib/kubelet")).unwrap();
        let root = HostRoot::new(temp.path());
        let mut machine = Machine::new(root, &Clock::Real, None).unwrap();
        let facts = machine.facts();
        assert_eq!(facts.cpus, 3);
        assert_eq!((facts.memory, facts.memory_available), (1 << 20, 1 << 19));
        assert_eq!(facts.swap, 64 << 10);
        assert_eq!(facts.hugepages, [(2 << 20, 3)]);
        assert_eq!(facts.threads, Some((80, 9000)));
        assert_eq!(facts.os_image, "Test Linux");
        assert!(facts.storage.is_some_and(|storage| storage.capacity > 0));
        assert_eq!(facts.runtime, "");
    }
}
