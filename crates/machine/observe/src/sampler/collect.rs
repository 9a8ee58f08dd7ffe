//! Reads one container: every group that is on, and nothing else.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_containers::names;
use plimsoll_host::cgroup::{
    CgroupReader, Controller, Hierarchies, SpecReader, Wanted, procs_file,
};
use plimsoll_host::proc::Procfs;
use plimsoll_host::proc::meminfo::Meminfo;
use plimsoll_host::proc::net::{AdvancedTcp, Interface as HostInterface, NetFiles};
use plimsoll_host::proc::process::{UNLIMITED, parse_pids};
use plimsoll_host::proc::taskstats::{TaskStates, TaskstatsSocket, count_states};
use plimsoll_host::{Clock, Descriptors, HostError, HostRoot, ReadBuf, read_file};

use super::hardware::Hardware;
use super::machine::MachineReader;
use super::tracked::Tracked;
use super::{Config, Counters, EXTRA_EVERY};
use crate::machine::MachineState;
use crate::sample::{Interface, Load, Processes, Schedstat, Udp};
use crate::store::{Container, UsageSample};
use crate::{Group, GroupSet, MonitorWrites, Sample, Symbol};

/// Errors about one file are logged at most this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Collector {
    hierarchies: Arc<Hierarchies>,
    root: HostRoot,
    descriptors: Arc<Descriptors>,
    pub(super) groups: GroupSet,
    pub(super) wanted: Wanted,
    machine: Arc<MachineState>,
    pub(super) counters: Arc<Counters>,
    procfs: Option<Procfs>,
    writes: Option<Arc<dyn MonitorWrites>>,
    taskstats: Option<TaskstatsSocket>,
    load_reader: bool,
    referenced_reset: u64,
    back_off: bool,
    hardware: Hardware,
    /// Where the machine's own figures are wanted.
    machine_reader: Option<MachineReader>,
    pod_numa: bool,
    // Scratch, reused for every container.
    pub(super) buf: ReadBuf,
    pub(super) sample: Sample,
    pub(super) usage: UsageSample,
    interfaces: Vec<HostInterface>,
    advanced: AdvancedTcp,
    pids: Vec<u32>,
}

impl Collector {
    pub fn new(
        hierarchies: Arc<Hierarchies>,
        root: &HostRoot,
        descriptors: Arc<Descriptors>,
        groups: GroupSet,
        config: &Config,
        machine: Arc<MachineState>,
        counters: Arc<Counters>,
    ) -> Self {
        let wanted = Wanted {
            cpu: groups.has(Group::Cpu),
            per_cpu: groups.has(Group::PerCpu),
            memory: groups.has(Group::Memory),
            io: groups.has(Group::DiskIo),
            pressure: groups.has(Group::Pressure) || config.extra_reads.pressure,
            pids: groups.has(Group::Process),
            hugetlb: groups.has(Group::Hugetlb),
            numa: groups.has(Group::MemoryNuma),
            cpuset: groups.has(Group::Cpuset),
        };
        let load_reader = config.load_reader && groups.has(Group::CpuLoad);
        let mut buf = ReadBuf::default();
        let perf = config.perf.clone().filter(|_| groups.has(Group::PerfEvent));
        let resctrl = groups.has(Group::Resctrl);
        Self {
            hardware: Hardware::new(
                root,
                &descriptors,
                perf,
                resctrl,
                config.writes.clone(),
                &mut buf,
            ),
            machine_reader: config
                .extra_reads
                .machine
                .then(|| MachineReader::new(root, &descriptors)),
            pod_numa: config.extra_reads.pod_numa,
            taskstats: (load_reader && !hierarchies.is_v2())
                .then(|| TaskstatsSocket::open().ok().flatten())
                .flatten(),
            procfs: Procfs::open(root).ok(),
            writes: config.writes.clone(),
            hierarchies,
            root: root.clone(),
            descriptors,
            groups,
            wanted,
            machine,
            counters,
            load_reader,
            referenced_reset: config.referenced_reset,
            back_off: config.back_off,
            buf,
            sample: Sample::default(),
            usage: UsageSample::default(),
            interfaces: Vec::new(),
            advanced: AdvancedTcp::default(),
            pids: Vec::new(),
        }
    }

    pub fn net_files(&self, pid: u32) -> NetFiles {
        NetFiles::of(&self.root, pid)
    }

    pub fn open(&mut self, container: Arc<Container>, now: Duration) -> Tracked {
        let path = Arc::clone(container.path());
        if self.hardware.has_resctrl() {
            self.own_pids(&path);
        }
        Tracked {
            hardware: self
                .hardware
                .open(&self.hierarchies, &path, &self.pids, &mut self.buf),
            reader: self.reader(&path),
            spec: SpecReader::new(&self.hierarchies, &path, self.wanted, &self.descriptors),
            net: None,
            pid: None,
            schedstat: Default::default(),
            load: Default::default(),
            samples: 0,
            due: now,
            interval: Duration::ZERO,
            epoch: 0,
            sampled_at: None,
            lists_read: now,
            hidden_until: None,
            announced: false,
            extra_read: None,
            processes: Processes::default(),
            has_layer: false,
            pids_wanted: self.wanted.pids,
            recent_warnings: Vec::new(),
            container,
        }
    }

    fn reader(&mut self, path: &str) -> CgroupReader {
        let wanted = Wanted {
            numa: self.wanted.numa || (self.pod_numa && names::is_pod(path)),
            ..self.wanted
        };
        CgroupReader::new(
            &self.hierarchies,
            &self.root,
            path,
            wanted,
            &self.descriptors,
            &mut self.buf,
        )
    }

    /// Looks again for files that were missing, ever more seldom: after one, two, four, eight… samples. A young
    /// cgroup is still being made by its runtime; in an old one a controller may have been enabled.
    pub fn complete(&mut self, tracked: &mut Tracked) {
        if tracked.samples.is_power_of_two() && tracked.reader.is_incomplete() {
            self.reopen(tracked);
        }
    }

    /// Looks again for what was missing: a controller may have been enabled since.
    pub fn retry_absent(&self, tracked: &mut Tracked) {
        tracked.spec.retry_absent();
        tracked.reader.retry_absent();
    }

    fn reopen(&mut self, tracked: &mut Tracked) {
        tracked.reader = self.reader(tracked.container.path());
        tracked.pids_wanted = self.wanted.pids;
    }

    /// Whether the cgroup is still there, whatever became of the files we hold.
    fn exists(&self, tracked: &Tracked) -> bool {
        let dirs = self.hierarchies.watched_dirs(tracked.container.path());
        dirs.iter().any(|dir| dir.exists())
    }

    pub fn close(&self, tracked: &Tracked) {
        self.hardware.close(&tracked.hardware);
    }

    /// Reads the limits, and of a new cgroup when it was made.
    pub fn read_spec(&mut self, tracked: &mut Tracked, now: Duration) {
        let mut errors = Vec::new();
        let all_cpus = &self.machine.fixed().all_cpus;
        let spec = tracked.spec.read(&mut self.buf, all_cpus, &mut errors);
        for error in &errors {
            self.warn_limited(tracked, now, error);
        }
        let mut state = tracked.container.lock();
        // A v1 cgroup's directories are made one after the other; until they are all there, look again.
        if tracked.samples <= 1 {
            state.created = tracked
                .spec
                .created(self.machine.now(), self.machine.fixed().boot);
        }
        state.spec = spec;
        if tracked.is_root() {
            // Whatever the root's own files say (v1) or lack (v2): its limit is the machine.
            let machine = self.machine.info();
            if machine.memory_capacity > 0 {
                state.spec.has_memory = true;
                state.spec.memory_limit = machine.memory_capacity;
                state.spec.memory_swap_limit = machine.swap_capacity;
            }
        }
    }

    /// Takes one sample and puts it in the store. True: nothing moved since the last one.
    pub fn sample(
        &mut self,
        tracked: &mut Tracked,
        extra: GroupSet,
        now: Duration,
        clock: &Clock,
    ) -> bool {
        self.sample.clear();
        self.sample.at = clock.now();
        let mut errors = self.read_cgroup(tracked);
        if errors.iter().any(HostError::is_gone) && self.exists(tracked) {
            // A controller was switched off or on: the files we hold are dead, the cgroup is not.
            self.reopen(tracked);
            let at = self.sample.at;
            self.sample.clear();
            self.sample.at = at;
            errors = self.read_cgroup(tracked);
        }
        if errors.iter().any(HostError::is_gone) {
            // It ended while being read; discovery will say so.
            self.counters.gone.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        for error in &errors {
            self.warn_limited(tracked, now, error);
        }
        self.read_network(tracked, now);
        self.read_tasks(tracked, extra, now);
        if self.hardware.has_perf() || self.hardware.has_resctrl() {
            self.hardware
                .read(&tracked.hardware, &mut self.sample, &mut self.buf);
            if self.hardware.has_perf() {
                self.sample.groups = self.sample.groups.with(Group::PerfEvent);
            }
            if self.hardware.has_resctrl() {
                self.sample.groups = self.sample.groups.with(Group::Resctrl);
            }
        }
        if self.groups.has(Group::Disk) {
            self.read_filesystems(tracked);
        }
        if tracked.is_root() {
            // The root's memory on v2 is read from the same file.
            let memory = tracked.reader.meminfo();
            self.read_machine(tracked, memory, now, clock);
        }

        tracked.samples += 1;
        tracked.sampled_at = Some(now);
        tracked.lists_read = now;
        self.counters.samples.fetch_add(1, Ordering::Relaxed);
        let mut state = tracked.container.lock();
        let state = &mut *state;
        let quiet = self.back_off && state.sampled && same_figures(&state.latest, &self.sample);
        self.usage_of_sample(&mut state.usage);
        state.history.push(&mut self.sample);
        // Changing places costs no copy, and both keep the room of their lists.
        std::mem::swap(&mut state.latest, &mut self.sample);
        state.sampled = true;
        // Zeros of what could not be read would look like a restart, and like a burst after it.
        let read = |wanted: bool, group| !wanted || state.latest.has(group);
        if read(self.wanted.cpu, Group::Cpu) && read(self.wanted.memory, Group::Memory) {
            state.derived.add(
                state.latest.at,
                state.latest.cpu.total_ns,
                state.latest.memory.working_set,
            );
        }
        quiet
    }

    /// The cgroup's own files. A group that cannot be understood is left out; the others still count.
    fn read_cgroup(&mut self, tracked: &mut Tracked) -> Vec<HostError> {
        let (reader, buf, sample) = (&mut tracked.reader, &mut self.buf, &mut self.sample);
        let mut errors = Vec::new();
        let mut note =
            |group: Group, sample: &mut Sample, outcome: Result<bool, HostError>| match outcome {
                // A cgroup that a controller does not have (v1 trees differ, v2 enables them one by one) counts as one
                // that used nothing, as in the original: queries that join families keep their rows.
                // What is read for others than the pages is on none of them.
                Ok(_) if self.groups.has(group) => sample.groups = sample.groups.with(group),
                Ok(_) => {}
                Err(error) => errors.push(error),
            };
        if self.wanted.cpu {
            let outcome = reader.cpu(buf, &mut sample.cpu);
            note(Group::Cpu, sample, outcome);
        }
        if self.wanted.memory {
            let outcome = reader.memory(buf, &mut sample.memory);
            note(Group::Memory, sample, outcome);
        }
        if self.wanted.io {
            let outcome = reader.io(buf, &mut sample.io);
            note(Group::DiskIo, sample, outcome);
        }
        if self.wanted.pressure {
            let outcome = reader.pressure(buf).map(|(cpu, memory, io)| {
                sample.cpu_psi = cpu;
                sample.memory_psi = memory;
                sample.io_psi = io;
                true
            });
            note(Group::Pressure, sample, outcome);
        }
        if self.wanted.hugetlb {
            let outcome = reader.hugetlb(buf, &mut sample.hugetlb).map(|()| true);
            note(Group::Hugetlb, sample, outcome);
        }
        if reader.has_numa() {
            let outcome = reader.numa(buf, &mut sample.numa);
            note(Group::MemoryNuma, sample, outcome);
        }
        if self.wanted.cpuset {
            let outcome = reader.memory_migrate(buf).map(|value| {
                sample.memory_migrate = value;
                true
            });
            note(Group::Cpuset, sample, outcome);
        }
        errors
    }

    /// The machine's own figures, where they are wanted.
    pub fn read_machine(
        &mut self,
        tracked: &mut Tracked,
        memory: Option<Meminfo>,
        now: Duration,
        clock: &Clock,
    ) {
        let Some(reader) = &mut self.machine_reader else {
            return;
        };
        match reader.read(clock.now(), memory, &mut self.buf) {
            Ok(figures) => self.machine.replace_usage(figures),
            Err(error) => self.warn_limited(tracked, now, &error),
        }
    }

    fn read_network(&mut self, tracked: &mut Tracked, now: Duration) {
        let Some(net) = &tracked.net else { return };
        let (buf, sample) = (&mut self.buf, &mut self.sample);
        let mut errors = Vec::new();
        sample.has_network = true;
        if self.groups.has(Group::Network) {
            match net.interfaces(buf, &mut self.interfaces) {
                Ok(_) => {
                    let rows = self.interfaces.iter().map(interface);
                    sample.network.interfaces.extend(rows);
                    sample.groups = sample.groups.with(Group::Network);
                }
                Err(error) => errors.push(error),
            }
        }
        if self.groups.has(Group::Tcp) {
            for (outcome, into) in [
                (net.tcp(buf), &mut sample.network.tcp),
                (net.tcp6(buf), &mut sample.network.tcp6),
            ] {
                match outcome {
                    Ok(states) => *into = states.unwrap_or_default().each().map(|(_, n)| n),
                    Err(error) => errors.push(error),
                }
            }
            sample.groups = sample.groups.with(Group::Tcp);
        }
        if self.groups.has(Group::Udp) {
            for (outcome, into) in [
                (net.udp(buf), &mut sample.network.udp),
                (net.udp6(buf), &mut sample.network.udp6),
            ] {
                match outcome.map(Option::unwrap_or_default) {
                    Ok(udp) => {
                        *into = Udp {
                            listen: udp.listen,
                            dropped: udp.dropped,
                            rx_queued: udp.rx_queued,
                            tx_queued: udp.tx_queued,
                        }
                    }
                    Err(error) => errors.push(error),
                }
            }
            sample.groups = sample.groups.with(Group::Udp);
        }
        if self.groups.has(Group::AdvancedTcp) {
            match net.advanced_tcp(buf, &mut self.advanced) {
                Ok(_) => {
                    let values = self.advanced.values.iter().map(|v| *v as u64);
                    sample.network.advanced_tcp.extend(values);
                    sample.groups = sample.groups.with(Group::AdvancedTcp);
                }
                Err(error) => errors.push(error),
            }
        }
        for error in errors {
            self.warn_limited(tracked, now, &error);
        }
    }

    /// The machine's file systems on the root; on others the writable layer, for the runtimes of which the original
    /// tells it. (The kubelet's summary tells it for all.)
    fn read_filesystems(&mut self, tracked: &Tracked) {
        if tracked.is_root() {
            self.machine.filesystems(&mut self.sample.filesystems);
        } else if tracked.has_layer {
            let layer = self.machine.layer_row(tracked.container.path());
            self.sample.filesystems.extend(layer);
        }
        self.sample.groups = self.sample.groups.with(Group::Disk);
    }

    /// Whatever is counted process by process.
    fn read_tasks(&mut self, tracked: &mut Tracked, extra: GroupSet, now: Duration) {
        let standing = self.groups.has(Group::Process);
        if standing || extra.has(Group::Process) {
            let due = tracked
                .extra_read
                .is_none_or(|at| now.saturating_sub(at) >= EXTRA_EVERY);
            if standing || due {
                tracked.processes = self.processes(tracked);
                tracked.extra_read = Some(now);
            }
            self.sample.processes = tracked.processes;
            self.sample.groups = self.sample.groups.with(Group::Process);
        }
        if self.groups.has(Group::Sched) {
            self.subtree_pids(tracked.container.path(), "cgroup.procs");
            if let Some(procfs) = &self.procfs {
                let sum = tracked.schedstat.read(procfs, &self.pids, &mut self.buf);
                self.sample.schedstat = Schedstat {
                    run_ns: sum.run_ns,
                    wait_ns: sum.wait_ns,
                    slices: sum.slices,
                };
                self.sample.groups = self.sample.groups.with(Group::Sched);
            }
        }
        if self.groups.has(Group::ReferencedMemory) {
            self.sample.referenced_bytes = self.referenced(tracked);
            self.sample.groups = self.sample.groups.with(Group::ReferencedMemory);
        }
        if self.load_reader {
            let states = self.task_states(tracked.container.path());
            let elapsed = tracked
                .sampled_at
                .map_or(Duration::ZERO, |at| now.saturating_sub(at));
            let (average, average_uninterruptible) =
                tracked
                    .load
                    .add(elapsed, states.running, states.uninterruptible);
            self.sample.load = Load {
                average,
                average_uninterruptible,
                sleeping: states.sleeping,
                running: states.running,
                stopped: states.stopped,
                uninterruptible: states.uninterruptible,
                io_wait: states.io_wait,
            };
            self.sample.groups = self.sample.groups.with(Group::CpuLoad);
        }
    }

    fn processes(&mut self, tracked: &mut Tracked) -> Processes {
        if !tracked.pids_wanted {
            tracked.pids_wanted = true;
            tracked.reader.want_pids(
                &self.hierarchies,
                tracked.container.path(),
                &self.descriptors,
            );
        }
        let mut out = Processes::default();
        if let Ok(Some(pids)) = tracked.reader.pids(&mut self.buf) {
            out.threads = pids.current;
            out.threads_max = pids.max.unwrap_or(0);
        }
        self.own_pids(tracked.container.path());
        out.count = self.pids.len() as u64;
        let Some(procfs) = &self.procfs else {
            return out;
        };
        for &pid in &self.pids {
            if let Ok(Some(fds)) = procfs.fd_count(pid) {
                out.fds += fds.fds;
                out.sockets += fds.sockets;
            }
        }
        if let Some(pid) = tracked.pid
            && let Ok(Some(limit)) = procfs.open_files_limit(pid, &mut self.buf)
        {
            let wire = |value: i64| {
                if value == UNLIMITED {
                    u64::MAX
                } else {
                    value as u64
                }
            };
            out.max_open_files = Some((wire(limit.soft), wire(limit.hard)));
        }
        out
    }

    /// The processes of the cgroup itself, into the scratch list.
    fn own_pids(&mut self, path: &str) {
        self.pids.clear();
        let Ok(file) = procs_file(&self.hierarchies, path) else {
            return;
        };
        if let Ok(Some(text)) = read_file(&file, &mut self.buf) {
            // A cgroup being torn down may list nothing sensible; then it has no processes worth counting.
            let _ = parse_pids(text, &mut self.pids);
        }
    }

    /// The processes (or threads) of the cgroup and everything below it.
    fn subtree_pids(&mut self, path: &str, file: &str) {
        self.pids.clear();
        let Some(top) = self.hierarchies.dir(Controller::Cpu, path) else {
            return;
        };
        let mut found = Vec::new();
        let mut queue: VecDeque<PathBuf> = VecDeque::from([top]);
        while let Some(dir) = queue.pop_front() {
            if let Ok(Some(text)) = read_file(&dir.join(file), &mut self.buf)
                && parse_pids(text, &mut found).is_ok()
            {
                self.pids.extend_from_slice(&found);
            }
            // Cgroup directories hold hundreds of files; the entry's type says which are directories without a look.
            let Ok(entries) = std::fs::read_dir(&dir) else {
                continue;
            };
            let children = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            queue.extend(children.map(|entry| entry.path()));
        }
    }

    fn referenced(&mut self, tracked: &Tracked) -> u64 {
        self.own_pids(tracked.container.path());
        let Some(procfs) = &self.procfs else { return 0 };
        let mut total = 0;
        for &pid in &self.pids {
            if let Ok(Some(bytes)) = procfs.referenced_bytes(pid, &mut self.buf) {
                total = bytes.saturating_add(total);
            }
        }
        let reset = self.referenced_reset;
        if let Some(writes) = &self.writes
            && reset > 0
            && tracked.samples % reset == reset - 1
        {
            for &pid in &self.pids {
                // A process that ended has nothing left to clear.
                let _ = writes.clear_refs(pid);
            }
        }
        total
    }

    fn task_states(&mut self, path: &str) -> TaskStates {
        if self.hierarchies.is_v2() {
            self.subtree_pids(path, "cgroup.threads");
            return match &self.procfs {
                Some(procfs) => count_states(procfs, &self.pids, &mut self.buf),
                None => TaskStates::default(),
            };
        }
        let dir = self.hierarchies.dir(Controller::Cpu, path);
        match (&mut self.taskstats, dir) {
            (Some(socket), Some(dir)) => socket.states(&dir).ok().flatten().unwrap_or_default(),
            _ => TaskStates::default(),
        }
    }

    pub(super) fn warn_limited(&self, tracked: &mut Tracked, now: Duration, error: &HostError) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        tracked
            .recent_warnings
            .retain(|(_, at)| now.saturating_sub(*at) < COMPLAIN_EVERY);
        let file = error.path().map(Path::to_owned).unwrap_or_default();
        if tracked
            .recent_warnings
            .iter()
            .any(|(about, _)| *about == file)
        {
            return;
        }
        tracked.recent_warnings.push((file, now));
        let error: &dyn std::error::Error = error;
        tracing::warn!(container = %tracked.container.path(), error, "cannot read all figures of a container");
    }
}

fn interface(found: &HostInterface) -> Interface {
    Interface {
        name: Symbol::new(found.name.as_str()),
        rx_bytes: found.rx_bytes,
        rx_packets: found.rx_packets,
        rx_errors: found.rx_errors,
        rx_dropped: found.rx_dropped,
        tx_bytes: found.tx_bytes,
        tx_packets: found.tx_packets,
        tx_errors: found.tx_errors,
        tx_dropped: found.tx_dropped,
    }
}

/// Whether the container was active. Decaying averages do not count.
fn same_figures(a: &Sample, b: &Sample) -> bool {
    a.cpu == b.cpu
        && a.memory == b.memory
        && a.io == b.io
        && a.network == b.network
        && a.processes == b.processes
        && a.filesystems == b.filesystems
        && a.hugetlb == b.hugetlb
}
