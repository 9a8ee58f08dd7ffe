//! The container metric families: names, types and label keys are cAdvisor's contract; help texts are ours.

use std::sync::LazyLock;

use plimsoll_host::cgroup::{IoOp, IoRow};
use plimsoll_host::proc::net::ADVANCED_TCP_NAMES;

use super::number::Number;
use super::page::{ContainerView, Extra, Out};
use plimsoll_observe::Group;
use plimsoll_observe::sample::{Filesystem, Interface};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
}

/// When a family is on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// For every container, sampled yet or not.
    Always,
    /// For every container that has a sample.
    Sampled,
    /// For every container with a sample, if the group is on.
    Group(Group),
}

pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub when: When,
    pub emit: fn(&ContainerView<'_>, &mut Out<'_>),
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

use Kind::{Counter, Gauge};
use Number::{Float, Micros, Nanos, Whole};

const fn family(
    name: &'static str,
    kind: Kind,
    when: When,
    help: &'static str,
    emit: fn(&ContainerView<'_>, &mut Out<'_>),
) -> Family {
    Family {
        name,
        kind,
        help,
        when,
        emit,
    }
}

const CPU: When = When::Group(Group::Cpu);
const MEMORY: When = When::Group(Group::Memory);
const DISK: When = When::Group(Group::Disk);
const DISK_IO: When = When::Group(Group::DiskIo);
const NETWORK: When = When::Group(Group::Network);
const PROCESS: When = When::Group(Group::Process);
const LOAD: When = When::Group(Group::CpuLoad);
const HUGETLB: When = When::Group(Group::Hugetlb);
const PRESSURE: When = When::Group(Group::Pressure);
const PERF: When = When::Group(Group::PerfEvent);
const RESCTRL: When = When::Group(Group::Resctrl);
const SCHED: When = When::Group(Group::Sched);

/// A limit above this is the kernel's way of saying "none".
const UNLIMITED_MEMORY: u64 = 1 << 62;

fn memory_limit(bytes: u64) -> Number {
    Whole(if bytes > UNLIMITED_MEMORY { 0 } else { bytes })
}

/// Sorted by name, as the page is.
#[rustfmt::skip]
pub static CONTAINER_FAMILIES: &[Family] = &[
    family("container_blkio_device_usage_total", Counter, DISK_IO, "Bytes moved by the block layer for the container, by device and operation.", blkio_usage),
    family("container_cpu_cfs_burst_periods_total", Counter, CPU, "Enforcement periods in which the container spent saved-up quota.", |c, o| if c.has_quota() { o.plain(Whole(c.sample.cpu.cfs.burst_periods)) }),
    family("container_cpu_cfs_burst_seconds_total", Counter, CPU, "Time the container ran on saved-up quota.", |c, o| if c.has_quota() { o.plain(Nanos(c.sample.cpu.cfs.burst_ns)) }),
    family("container_cpu_cfs_periods_total", Counter, CPU, "Quota enforcement periods that have passed.", |c, o| if c.has_quota() { o.plain(Whole(c.sample.cpu.cfs.periods)) }),
    family("container_cpu_cfs_throttled_periods_total", Counter, CPU, "Enforcement periods in which the container was held back.", |c, o| if c.has_quota() { o.plain(Whole(c.sample.cpu.cfs.throttled_periods)) }),
    family("container_cpu_cfs_throttled_seconds_total", Counter, CPU, "Time the container was held back by its quota.", |c, o| if c.has_quota() { o.plain(Nanos(c.sample.cpu.cfs.throttled_ns)) }),
    family("container_cpu_load_average_10s", Gauge, LOAD, "Runnable tasks, averaged over about ten seconds, in thousandths.", |c, o| o.plain(Whole(c.sample.load.average))),
    family("container_cpu_load_d_average_10s", Gauge, LOAD, "Tasks in uninterruptible sleep, averaged over about ten seconds, in thousandths.", |c, o| o.plain(Whole(c.sample.load.average_uninterruptible))),
    family("container_cpu_schedstat_run_periods_total", Counter, SCHED, "Time slices that the container's tasks were given.", |c, o| o.plain(Whole(c.sample.schedstat.slices))),
    family("container_cpu_schedstat_run_seconds_total", Counter, SCHED, "Time the container's tasks spent on a CPU.", |c, o| o.plain(Nanos(c.sample.schedstat.run_ns))),
    family("container_cpu_schedstat_runqueue_seconds_total", Counter, SCHED, "Time the container's tasks spent waiting for a CPU.", |c, o| o.plain(Nanos(c.sample.schedstat.wait_ns))),
    family("container_cpu_system_seconds_total", Counter, CPU, "CPU time the container spent in the kernel.", |c, o| o.plain(Nanos(c.sample.cpu.system_ns))),
    family("container_cpu_usage_seconds_total", Counter, CPU, "CPU time the container has used.", cpu_usage),
    family("container_cpu_user_seconds_total", Counter, CPU, "CPU time the container spent in user mode.", |c, o| o.plain(Nanos(c.sample.cpu.user_ns))),
    family("container_creation_time_seconds", Gauge, When::Always, "When the container was created, in Unix seconds.", |c, o| o.untimed(Whole(c.created_secs()))),
    family("container_file_descriptors", Gauge, PROCESS, "Files that the container's processes hold open.", |c, o| o.plain(Whole(c.sample.processes.fds))),
    family("container_fs_inodes_free", Gauge, DISK, "Inodes left on the file system.", |c, o| filesystems(c, o, |f| Whole(f.inodes_free))),
    family("container_fs_inodes_total", Gauge, DISK, "Inodes of the file system.", |c, o| filesystems(c, o, |f| Whole(f.inodes))),
    family("container_fs_io_cost_indebt_seconds_total", Counter, DISK_IO, "Time the container was in debt to the block I/O cost controller.", |c, o| io(c, o, &c.sample.io.cost_indebt_us, IoOp::Count, Micros, None)),
    family("container_fs_io_cost_indelay_seconds_total", Counter, DISK_IO, "Time the block I/O cost controller delayed the container.", |c, o| io(c, o, &c.sample.io.cost_indelay_us, IoOp::Count, Micros, None)),
    family("container_fs_io_cost_usage_seconds_total", Counter, DISK_IO, "Device time the block I/O cost controller charged to the container.", |c, o| io(c, o, &c.sample.io.cost_usage_us, IoOp::Count, Micros, None)),
    family("container_fs_io_cost_wait_seconds_total", Counter, DISK_IO, "Time the container's I/O waited for the block I/O cost controller.", |c, o| io(c, o, &c.sample.io.cost_wait_us, IoOp::Count, Micros, None)),
    family("container_fs_io_current", Gauge, DISK_IO, "I/O requests in flight.", |c, o| io(c, o, &c.sample.io.queued, IoOp::Total, Whole, Some(|f| Whole(f.disk.io_in_progress)))),
    family("container_fs_io_time_seconds_total", Counter, DISK_IO, "Time the device spent on I/O.", |c, o| io(c, o, &c.sample.io.service_time_ns, IoOp::Total, Nanos, Some(|f| Number::Millis(f.disk.io_ms)))),
    family("container_fs_io_time_weighted_seconds_total", Counter, DISK_IO, "Time the device spent on I/O, times the requests in flight.", |c, o| filesystems(c, o, |f| Number::Millis(f.disk.weighted_io_ms))),
    family("container_fs_limit_bytes", Gauge, DISK, "Size of the file system.", |c, o| filesystems(c, o, |f| Whole(f.capacity))),
    family("container_fs_read_seconds_total", Counter, DISK_IO, "Time spent reading.", |c, o| io(c, o, &c.sample.io.service_time_ns, IoOp::Read, Nanos, Some(|f| Number::Millis(f.disk.read_ms)))),
    family("container_fs_reads_bytes_total", Counter, DISK_IO, "Bytes read.", |c, o| io(c, o, &c.sample.io.service_bytes, IoOp::Read, Whole, None)),
    family("container_fs_reads_merged_total", Counter, DISK_IO, "Reads merged with neighbours before they reached the device.", |c, o| io(c, o, &c.sample.io.merged, IoOp::Read, Whole, Some(|f| Whole(f.disk.reads_merged)))),
    family("container_fs_reads_total", Counter, DISK_IO, "Reads completed.", |c, o| io(c, o, &c.sample.io.serviced, IoOp::Read, Whole, Some(|f| Whole(f.disk.reads_completed)))),
    family("container_fs_sector_reads_total", Counter, DISK_IO, "Sectors read.", |c, o| io(c, o, &c.sample.io.sectors, IoOp::Read, Whole, Some(|f| Whole(f.disk.sectors_read)))),
    family("container_fs_sector_writes_total", Counter, DISK_IO, "Sectors written.", |c, o| io(c, o, &c.sample.io.sectors, IoOp::Write, Whole, Some(|f| Whole(f.disk.sectors_written)))),
    family("container_fs_usage_bytes", Gauge, DISK, "Bytes in use on the file system.", |c, o| filesystems(c, o, |f| Whole(f.usage))),
    family("container_fs_write_seconds_total", Counter, DISK_IO, "Time spent writing.", |c, o| io(c, o, &c.sample.io.service_time_ns, IoOp::Write, Nanos, Some(|f| Number::Millis(f.disk.write_ms)))),
    family("container_fs_writes_bytes_total", Counter, DISK_IO, "Bytes written.", |c, o| io(c, o, &c.sample.io.service_bytes, IoOp::Write, Whole, None)),
    family("container_fs_writes_merged_total", Counter, DISK_IO, "Writes merged with neighbours before they reached the device.", |c, o| io(c, o, &c.sample.io.merged, IoOp::Write, Whole, Some(|f| Whole(f.disk.writes_merged)))),
    family("container_fs_writes_total", Counter, DISK_IO, "Writes completed.", |c, o| io(c, o, &c.sample.io.serviced, IoOp::Write, Whole, Some(|f| Whole(f.disk.writes_completed)))),
    family("container_health_state", Gauge, When::Sampled, "The container's health check: 1 healthy, 0 not (yet), -1 none defined.", |c, o| o.plain(Float(c.health()))),
    family("container_hugetlb_failcnt", Counter, HUGETLB, "Huge page allocations refused by the limit.", |c, o| for h in &c.sample.hugetlb { o.with(&[(Extra::Pagesize, &h.size_name())], Whole(h.failcnt)) }),
    family("container_hugetlb_max_usage_bytes", Gauge, HUGETLB, "Most huge page memory ever used.", |c, o| for h in &c.sample.hugetlb { o.with(&[(Extra::Pagesize, &h.size_name())], Whole(h.max_usage)) }),
    family("container_hugetlb_usage_bytes", Gauge, HUGETLB, "Huge page memory in use.", |c, o| for h in &c.sample.hugetlb { o.with(&[(Extra::Pagesize, &h.size_name())], Whole(h.usage)) }),
    family("container_last_seen", Gauge, When::Sampled, "When the agent last saw the container, in Unix seconds.", |c, o| o.at_now(Whole(c.now.secs().max(0) as u64))),
    family("container_llc_occupancy_bytes", Gauge, RESCTRL, "Last-level cache held by the container, by node.", |c, o| for (n, d) in c.sample.resctrl.iter().enumerate() { o.with(&[(Extra::NodeId, &n.to_string())], Whole(d.llc_occupancy)) }),
    family("container_memory_bandwidth_bytes", Gauge, RESCTRL, "Memory traffic of the container, by node.", |c, o| for (n, d) in c.sample.resctrl.iter().enumerate() { o.with(&[(Extra::NodeId, &n.to_string())], Whole(d.mbm_total_bytes)) }),
    family("container_memory_bandwidth_local_bytes", Gauge, RESCTRL, "Memory traffic of the container to its own node, by node.", |c, o| for (n, d) in c.sample.resctrl.iter().enumerate() { o.with(&[(Extra::NodeId, &n.to_string())], Whole(d.mbm_local_bytes)) }),
    family("container_memory_cache", Gauge, MEMORY, "Page cache in bytes.", |c, o| o.plain(Whole(c.sample.memory.cache))),
    family("container_memory_events_high_total", Counter, MEMORY, "Times the container was slowed for exceeding memory.high.", |c, o| o.plain(Whole(c.sample.memory.events.high))),
    family("container_memory_events_max_total", Counter, MEMORY, "Times the container ran into memory.max.", |c, o| o.plain(Whole(c.sample.memory.events.max))),
    family("container_memory_failcnt", Counter, MEMORY, "Times the container ran into its memory limit.", |c, o| o.plain(Whole(c.sample.memory.failcnt))),
    family("container_memory_failures_total", Counter, MEMORY, "Page faults, by kind and scope.", memory_failures),
    family("container_memory_file_dirty_bytes", Gauge, MEMORY, "Page cache that still has to be written to disk.", |c, o| o.plain(Whole(c.sample.memory.dirty))),
    family("container_memory_file_writeback_bytes", Gauge, MEMORY, "Page cache on its way to disk.", |c, o| o.plain(Whole(c.sample.memory.writeback))),
    family("container_memory_kernel_usage", Gauge, MEMORY, "Kernel memory charged to the container, in bytes.", |c, o| o.plain(Whole(c.sample.memory.kernel))),
    family("container_memory_mapped_file", Gauge, MEMORY, "Memory-mapped files, in bytes.", |c, o| o.plain(Whole(c.sample.memory.mapped_file))),
    family("container_memory_max_usage_bytes", Gauge, MEMORY, "Most memory ever used.", |c, o| o.plain(Whole(c.sample.memory.max_usage))),
    family("container_memory_migrate", Gauge, When::Group(Group::Cpuset), "Whether memory follows the container's tasks to another node.", |c, o| o.plain(Whole(c.sample.memory_migrate))),
    family("container_memory_numa_pages", Gauge, When::Group(Group::MemoryNuma), "Pages in use, by node, type and scope.", numa_pages),
    family("container_memory_pgscan_total", Counter, MEMORY, "Pages that reclaim has looked at.", |c, o| o.plain(Whole(c.sample.memory.pgscan))),
    family("container_memory_pgsteal_total", Counter, MEMORY, "Pages that reclaim has freed.", |c, o| o.plain(Whole(c.sample.memory.pgsteal))),
    family("container_memory_rss", Gauge, MEMORY, "Anonymous memory in bytes.", |c, o| o.plain(Whole(c.sample.memory.rss))),
    family("container_memory_swap", Gauge, MEMORY, "Swap in use, in bytes.", |c, o| o.plain(Whole(c.sample.memory.swap))),
    family("container_memory_total_active_file_bytes", Gauge, MEMORY, "Page cache on the active list.", |c, o| o.plain(Whole(c.sample.memory.active_file))),
    family("container_memory_total_inactive_file_bytes", Gauge, MEMORY, "Page cache on the inactive list.", |c, o| o.plain(Whole(c.sample.memory.inactive_file))),
    family("container_memory_usage_bytes", Gauge, MEMORY, "Memory in use, page cache included.", |c, o| o.plain(Whole(c.sample.memory.usage))),
    family("container_memory_working_set_bytes", Gauge, MEMORY, "Memory in use that reclaim cannot easily take back: usage less inactive page cache.", |c, o| o.plain(Whole(c.sample.memory.working_set))),
    family("container_memory_workingset_refault_anon_total", Counter, MEMORY, "Anonymous pages that were needed again after they had been reclaimed.", |c, o| o.plain(Whole(c.sample.memory.refault_anon))),
    family("container_memory_workingset_refault_file_total", Counter, MEMORY, "File pages that were needed again after they had been reclaimed.", |c, o| o.plain(Whole(c.sample.memory.refault_file))),
    family("container_network_advance_tcp_stats_total", Gauge, When::Group(Group::AdvancedTcp), "The kernel's TCP counters of the container's network namespace.", advanced_tcp),
    family("container_network_receive_bytes_total", Counter, NETWORK, "Bytes received.", |c, o| interfaces(c, o, |i| i.rx_bytes)),
    family("container_network_receive_errors_total", Counter, NETWORK, "Receive errors.", |c, o| interfaces(c, o, |i| i.rx_errors)),
    family("container_network_receive_packets_dropped_total", Counter, NETWORK, "Packets dropped on receiving.", |c, o| interfaces(c, o, |i| i.rx_dropped)),
    family("container_network_receive_packets_total", Counter, NETWORK, "Packets received.", |c, o| interfaces(c, o, |i| i.rx_packets)),
    family("container_network_tcp6_usage_total", Gauge, When::Group(Group::Tcp), "TCP connections over IPv6, by state.", |c, o| tcp(c, o, &c.sample.network.tcp6)),
    family("container_network_tcp_usage_total", Gauge, When::Group(Group::Tcp), "TCP connections over IPv4, by state.", |c, o| tcp(c, o, &c.sample.network.tcp)),
    family("container_network_transmit_bytes_total", Counter, NETWORK, "Bytes sent.", |c, o| interfaces(c, o, |i| i.tx_bytes)),
    family("container_network_transmit_errors_total", Counter, NETWORK, "Transmit errors.", |c, o| interfaces(c, o, |i| i.tx_errors)),
    family("container_network_transmit_packets_dropped_total", Counter, NETWORK, "Packets dropped on sending.", |c, o| interfaces(c, o, |i| i.tx_dropped)),
    family("container_network_transmit_packets_total", Counter, NETWORK, "Packets sent.", |c, o| interfaces(c, o, |i| i.tx_packets)),
    family("container_network_udp6_usage_total", Gauge, When::Group(Group::Udp), "UDP sockets over IPv6, their drops and queues.", |c, o| udp(c, o, c.sample.network.udp6)),
    family("container_network_udp_usage_total", Gauge, When::Group(Group::Udp), "UDP sockets over IPv4, their drops and queues.", |c, o| udp(c, o, c.sample.network.udp)),
    family("container_oom_events_total", Counter, When::Group(Group::OomEvent), "Times a process of the container was killed for want of memory.", |c, o| o.plain(Whole(c.oom_events))),
    family("container_perf_events_scaling_ratio", Gauge, PERF, "Share of the time for which the event was really counted.", |c, o| perf(c, o, |p| Float(p.1), f64::min)),
    family("container_perf_events_total", Counter, PERF, "Hardware and software events counted for the container.", |c, o| perf(c, o, |p| Float(p.0), |a, b| a + b)),
    family("container_perf_uncore_events_scaling_ratio", Gauge, PERF, "Share of the time for which the uncore event was really counted.", |c, o| perf_uncore(c, o, |p| Float(p.scaling_ratio))),
    family("container_perf_uncore_events_total", Counter, PERF, "Uncore events of the machine.", |c, o| perf_uncore(c, o, |p| Whole(p.value))),
    family("container_pressure_cpu_stalled_seconds_total", Counter, PRESSURE, "Time in which no task of the container could go on for want of CPU.", |c, o| o.plain(Micros(c.sample.cpu_psi.full.total_us))),
    family("container_pressure_cpu_waiting_seconds_total", Counter, PRESSURE, "Time in which some task of the container waited for CPU.", |c, o| o.plain(Micros(c.sample.cpu_psi.some.total_us))),
    family("container_pressure_io_stalled_seconds_total", Counter, PRESSURE, "Time in which no task of the container could go on for waiting on I/O.", |c, o| if c.sample.has(Group::DiskIo) { o.plain(Micros(c.sample.io_psi.full.total_us)) }),
    family("container_pressure_io_waiting_seconds_total", Counter, PRESSURE, "Time in which some task of the container waited on I/O.", |c, o| if c.sample.has(Group::DiskIo) { o.plain(Micros(c.sample.io_psi.some.total_us)) }),
    family("container_pressure_memory_stalled_seconds_total", Counter, PRESSURE, "Time in which no task of the container could go on for want of memory.", |c, o| o.plain(Micros(c.sample.memory_psi.full.total_us))),
    family("container_pressure_memory_waiting_seconds_total", Counter, PRESSURE, "Time in which some task of the container waited for memory.", |c, o| o.plain(Micros(c.sample.memory_psi.some.total_us))),
    family("container_processes", Gauge, PROCESS, "Processes in the container.", |c, o| o.plain(Whole(c.sample.processes.count))),
    family("container_referenced_bytes", Gauge, When::Group(Group::ReferencedMemory), "Memory touched since the last reset.", |c, o| o.plain(Whole(c.sample.referenced_bytes))),
    family("container_sockets", Gauge, PROCESS, "Sockets that the container's processes hold open.", |c, o| o.plain(Whole(c.sample.processes.sockets))),
    family("container_spec_cpu_period", Gauge, When::Always, "Length of a quota enforcement period in microseconds.", |c, o| if c.spec.has_cpu { o.untimed(Whole(c.spec.cpu_period_us)) }),
    family("container_spec_cpu_quota", Gauge, When::Always, "CPU time a period allows, in microseconds.", |c, o| if c.spec.has_cpu && c.has_quota() { o.untimed(Whole(c.spec.cpu_quota_us)) }),
    family("container_spec_cpu_shares", Gauge, When::Always, "Weight of the container when CPU is scarce.", |c, o| if c.spec.has_cpu { o.untimed(Whole(c.spec.cpu_shares)) }),
    family("container_spec_memory_limit_bytes", Gauge, When::Always, "Memory limit; 0 is none.", |c, o| if c.spec.has_memory { o.untimed(memory_limit(c.spec.memory_limit)) }),
    family("container_spec_memory_reservation_limit_bytes", Gauge, When::Always, "Memory the container is promised; 0 is none.", |c, o| if c.spec.has_memory { o.untimed(memory_limit(c.spec.memory_reservation)) }),
    family("container_spec_memory_swap_limit_bytes", Gauge, When::Always, "Swap limit; 0 is none.", |c, o| if c.spec.has_memory { o.untimed(memory_limit(c.spec.memory_swap_limit)) }),
    family("container_start_time_seconds", Gauge, When::Always, "When the container was started, in Unix seconds.", |c, o| o.untimed(Whole(c.started_secs()))),
    family("container_tasks_state", Gauge, LOAD, "Tasks of the container, by state.", tasks_state),
    family("container_threads", Gauge, PROCESS, "Threads in the container.", |c, o| o.plain(Whole(c.sample.processes.threads))),
    family("container_threads_max", Gauge, PROCESS, "Most threads the container may have; 0 is no limit.", |c, o| o.plain(Whole(c.sample.processes.threads_max))),
    family("container_ulimits_soft", Gauge, PROCESS, "Soft resource limits of the container's first process; -1 is none.", ulimits),
];

fn cpu_usage(c: &ContainerView<'_>, o: &mut Out<'_>) {
    let cpu = &c.sample.cpu;
    if c.per_cpu && !cpu.per_cpu_ns.is_empty() {
        // `cpuNN` with at least two digits; large machines simply get a third.
        let mut label = *b"cpu\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        for (index, &ns) in cpu.per_cpu_ns.iter().enumerate() {
            if ns == 0 {
                continue;
            }
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(index);
            let pad = usize::from(index < 10);
            label[3] = b'0';
            let end = 3 + pad + digits.len();
            label[3 + pad..end].copy_from_slice(digits.as_bytes());
            let text = std::str::from_utf8(&label[..end]).unwrap_or_default();
            o.with(&[(Extra::Cpu, text)], Nanos(ns));
        }
    } else if cpu.total_ns > 0 {
        o.with(&[(Extra::Cpu, "total")], Nanos(cpu.total_ns));
    }
}

fn memory_failures(c: &ContainerView<'_>, o: &mut Out<'_>) {
    let memory = &c.sample.memory;
    for (kind, count) in [
        ("pgfault", memory.pgfault),
        ("pgmajfault", memory.pgmajfault),
    ] {
        for scope in ["container", "hierarchy"] {
            o.with(
                &[(Extra::FailureType, kind), (Extra::Scope, scope)],
                Whole(count),
            );
        }
    }
}

fn numa_pages(c: &ContainerView<'_>, o: &mut Out<'_>) {
    for (scope, nodes) in [
        ("container", &c.sample.numa.own),
        ("hierarchy", &c.sample.numa.hierarchical),
    ] {
        for node in nodes {
            let id = node.node.to_string();
            for (kind, pages) in [
                ("file", node.file),
                ("anon", node.anon),
                ("unevictable", node.unevictable),
            ] {
                let labels = [
                    (Extra::Node, id.as_str()),
                    (Extra::Scope, scope),
                    (Extra::Type, kind),
                ];
                o.with(&labels, Whole(pages));
            }
        }
    }
}

fn filesystems(c: &ContainerView<'_>, o: &mut Out<'_>, value: fn(&Filesystem) -> Number) {
    for fs in &c.sample.filesystems {
        o.with(&[(Extra::Device, fs.device.as_str())], value(fs));
    }
}

/// The cgroup's own rows, then the disks of its file systems that no row has named yet.
fn io(
    c: &ContainerView<'_>,
    o: &mut Out<'_>,
    rows: &[IoRow],
    op: IoOp,
    unit: fn(u64) -> Number,
    of_disk: Option<fn(&Filesystem) -> Number>,
) {
    for row in rows {
        c.device(row, |device| {
            o.with(&[(Extra::Device, device)], unit(row.get(op).unwrap_or(0)));
        });
    }
    let Some(of_disk) = of_disk else { return };
    for fs in &c.sample.filesystems {
        let device = fs.device.as_str();
        let named = rows.iter().any(|row| {
            let mut same = false;
            c.device(row, |name| same = name == device);
            same
        });
        if !named {
            o.with(&[(Extra::Device, device)], of_disk(fs));
        }
    }
}

fn blkio_usage(c: &ContainerView<'_>, o: &mut Out<'_>) {
    for row in &c.sample.io.service_bytes {
        let (major, minor) = (row.major.to_string(), row.minor.to_string());
        for op in IoOp::ALL {
            let Some(bytes) = row.get(op) else { continue };
            c.device(row, |device| {
                let labels = [
                    (Extra::Device, device),
                    (Extra::Major, major.as_str()),
                    (Extra::Minor, minor.as_str()),
                    (Extra::Operation, op.name()),
                ];
                o.with(&labels, Whole(bytes));
            });
        }
    }
}

fn interfaces(c: &ContainerView<'_>, o: &mut Out<'_>, value: fn(&Interface) -> u64) {
    for interface in &c.sample.network.interfaces {
        o.with(
            &[(Extra::Interface, interface.name.as_str())],
            Whole(value(interface)),
        );
    }
}

/// In the order of [`plimsoll_observe::sample::Network::tcp`].
pub const TCP_STATES: [&str; 11] = [
    "established",
    "synsent",
    "synrecv",
    "finwait1",
    "finwait2",
    "timewait",
    "close",
    "closewait",
    "lastack",
    "listen",
    "closing",
];

fn tcp(c: &ContainerView<'_>, o: &mut Out<'_>, states: &[u64; 11]) {
    if c.sample.has_network {
        for (name, count) in TCP_STATES.iter().zip(states) {
            o.with(&[(Extra::TcpState, name)], Whole(*count));
        }
    }
}

fn udp(c: &ContainerView<'_>, o: &mut Out<'_>, udp: plimsoll_observe::sample::Udp) {
    if c.sample.has_network {
        for (name, count) in [
            ("listen", udp.listen),
            ("dropped", udp.dropped),
            ("rxqueued", udp.rx_queued),
            ("txqueued", udp.tx_queued),
        ] {
            o.with(&[(Extra::UdpState, name)], Whole(count));
        }
    }
}

/// The names as label values have them.
static ADVANCED_TCP_STATES: LazyLock<[String; ADVANCED_TCP_NAMES.len()]> =
    LazyLock::new(|| ADVANCED_TCP_NAMES.map(str::to_ascii_lowercase));

fn advanced_tcp(c: &ContainerView<'_>, o: &mut Out<'_>) {
    for (state, count) in ADVANCED_TCP_STATES
        .iter()
        .zip(&c.sample.network.advanced_tcp)
    {
        // MaxConn is -1 where there is no limit.
        let value = *count as i64;
        o.with(&[(Extra::TcpState, state)], Float(value as f64));
    }
}

fn tasks_state(c: &ContainerView<'_>, o: &mut Out<'_>) {
    let load = &c.sample.load;
    for (state, count) in [
        ("sleeping", load.sleeping),
        ("running", load.running),
        ("stopped", load.stopped),
        ("uninterruptible", load.uninterruptible),
        ("iowaiting", load.io_wait),
    ] {
        o.with(&[(Extra::State, state)], Whole(count));
    }
}

fn ulimits(c: &ContainerView<'_>, o: &mut Out<'_>) {
    if let Some((soft, _)) = c.sample.processes.max_open_files {
        let value = if soft == u64::MAX {
            Float(-1.0)
        } else {
            Whole(soft)
        };
        o.with(&[(Extra::Ulimit, "max_open_files")], value);
    }
}

/// One series a CPU, or, where per-CPU figures are off, one series an event with the CPUs folded together.
fn perf(
    c: &ContainerView<'_>,
    o: &mut Out<'_>,
    value: fn((f64, f64)) -> Number,
    fold: fn(f64, f64) -> f64,
) {
    let counts = &c.sample.perf;
    if c.per_cpu {
        for count in counts {
            let cpu = count.cpu.to_string();
            let labels = [
                (Extra::Cpu, cpu.as_str()),
                (Extra::Event, count.event.as_str()),
            ];
            o.with(&labels, value((count.value as f64, count.scaling_ratio)));
        }
        return;
    }
    let mut folded: Vec<(plimsoll_observe::Symbol, f64, f64)> = Vec::new();
    for count in counts {
        match folded.iter_mut().find(|f| f.0 == count.event) {
            Some(seen) => {
                seen.1 = fold(seen.1, count.value as f64);
                seen.2 = fold(seen.2, count.scaling_ratio);
            }
            None => folded.push((count.event, count.value as f64, count.scaling_ratio)),
        }
    }
    for (event, total, ratio) in folded {
        let labels = [(Extra::Cpu, ""), (Extra::Event, event.as_str())];
        o.with(&labels, value((total, ratio)));
    }
}

fn perf_uncore(
    c: &ContainerView<'_>,
    o: &mut Out<'_>,
    value: fn(&plimsoll_observe::sample::PerfUncoreCount) -> Number,
) {
    for count in &c.sample.perf_uncore {
        let socket = count.socket.to_string();
        let labels = [
            (Extra::Event, count.event.as_str()),
            (Extra::Pmu, count.pmu.as_str()),
            (Extra::Socket, socket.as_str()),
        ];
        o.with(&labels, value(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_every_name_once() {
        assert!(CONTAINER_FAMILIES.windows(2).all(|w| w[0].name < w[1].name));
        // 97 from samples and 8 from specs in the original; its error gauge and version line are not a container's.
        assert_eq!(CONTAINER_FAMILIES.len(), 105);
    }

    #[test]
    fn counters_are_named_as_counters() {
        for family in CONTAINER_FAMILIES {
            let counts = family.name.ends_with("_total") || family.name.ends_with("failcnt");
            // The original types these as gauges, and dashboards go by type.
            let exception = family.name.contains("_usage_total") && family.name.contains("network")
                || family.name.contains("advance_tcp")
                || family.name == "container_fs_inodes_total";
            assert_eq!(
                family.kind == Counter,
                counts && !exception,
                "{}",
                family.name
            );
        }
    }
}
