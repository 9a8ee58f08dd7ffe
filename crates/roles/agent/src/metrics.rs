//! `/metrics/self`: metrics of the agent itself.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_actuate::Mode;
use plimsoll_cadvisor::exposition::Kind::{Counter, Gauge};
use plimsoll_cadvisor::exposition::Text;
use plimsoll_cadvisor::exposition::number::Number::{self, Float, Whole};
use plimsoll_client::reflector::ReflectorStatus;
use plimsoll_host::proc::net::parse_ip_octets;
use plimsoll_host::proc::stat::SelfUsage;
use plimsoll_host::{ReadBuf, Timestamp, parse_file};

use rustix::process::{Resource, getrlimit};

use crate::NodeHandle;
use crate::protect::{EvictionCounters, Shown};

/// Always of this very process, whatever machine is being observed.
const OWN_NETSTAT: &str = "/proc/self/net/netstat";

fn load(counter: &AtomicU64) -> Number {
    Whole(counter.load(Ordering::Relaxed))
}

impl NodeHandle {
    /// The families about sampling, discovery, runtimes and the kernel log.
    pub(crate) fn own_families(&self) -> Text {
        let mut text = Text::default();
        self.sampling(&mut text);
        self.discovery(&mut text);
        self.runtimes(&mut text);
        self.labels(&mut text);
        self.kernel_log(&mut text);
        self.usage_history(&mut text);
        self.membership(&mut text);
        if let Some(started) = &self.protection {
            let shown = started.protection.shown();
            protection(&mut text, &shown, &started.evictions);
        }
        process(&mut text, self.started);
        text
    }

    fn labels(&self, text: &mut Text) {
        let left_out = self.exporter.left_out();
        text.single(
            "plimsoll_label_names_left_out",
            Gauge,
            "Names of containers' labels that are on no line of the page of metrics, because there are too many.",
            Whole(left_out.names as u64),
        )
        .single(
            "plimsoll_label_values_cut",
            Gauge,
            "Values of containers' labels of which only the beginning is on the page of metrics.",
            Whole(left_out.values as u64),
        );
    }

    fn sampling(&self, text: &mut Text) {
        let c = &self.sampling;
        let containers = self.observer.store.len() as u64;
        let stretch = c.stretch_milli.load(Ordering::Relaxed) as f64 / 1000.0;
        let round = c.last_round_ns.load(Ordering::Relaxed) as f64 / 1e9;
        text.single(
            "plimsoll_containers",
            Gauge,
            "Containers that are being sampled.",
            Whole(containers),
        )
        .single(
            "plimsoll_samples_total",
            Counter,
            "Samples taken.",
            load(&c.samples),
        )
        .single(
            "plimsoll_usage_readings_total",
            Counter,
            "Readings of CPU time and memory alone, between two samples.",
            load(&c.usage),
        )
        .single(
            "plimsoll_sample_errors_total",
            Counter,
            "UsageSource that could not be read or understood.",
            load(&c.errors),
        )
        .single(
            "plimsoll_sample_containers_gone_total",
            Counter,
            "Containers that ended while they were being read.",
            load(&c.gone),
        )
        .single(
            "plimsoll_on_demand_passes_total",
            Counter,
            "Passes made because a request wanted fresh figures.",
            load(&c.on_demand),
        )
        .single(
            "plimsoll_rounds_total",
            Counter,
            "Times the sampler woke up to sample.",
            load(&c.rounds),
        )
        .single(
            "plimsoll_last_round_seconds",
            Gauge,
            "How long the last round took.",
            Float(round),
        )
        .single(
            "plimsoll_sampling_interval_factor",
            Gauge,
            "What intervals are multiplied by to stay within the CPU budget; 1 is not at all.",
            Float(stretch),
        )
        .single(
            "plimsoll_descriptors_free",
            Gauge,
            "Kernel files that may still be held open.",
            Whole(self.descriptors.free() as u64),
        )
        .single(
            "plimsoll_events_total",
            Counter,
            "Events recorded.",
            Whole(self.observer.events.added()),
        );
    }

    fn discovery(&self, text: &mut Text) {
        let d = &self.containers.counters().discovery;
        text.single(
            "plimsoll_discovery_cgroups",
            Gauge,
            "Cgroups known to discovery.",
            load(&d.cgroups),
        )
        .single(
            "plimsoll_discovery_watches",
            Gauge,
            "Directories watched by inotify.",
            load(&d.watches),
        )
        .single(
            "plimsoll_discovery_polled_directories",
            Gauge,
            "Directories that the kernel refuses to watch; they are listed regularly instead.",
            load(&d.unwatched),
        )
        .single(
            "plimsoll_discovery_events_total",
            Counter,
            "Changes told by inotify.",
            load(&d.events),
        )
        .single(
            "plimsoll_discovery_rescans_total",
            Counter,
            "Walks over all cgroups.",
            load(&d.rescans),
        )
        .single(
            "plimsoll_discovery_overflows_total",
            Counter,
            "Times inotify lost events and a walk made up for it.",
            load(&d.overflows),
        )
        .single(
            "plimsoll_discovery_failures_total",
            Counter,
            "Directories that could not be listed or watched.",
            load(&d.failures),
        )
        .single(
            "plimsoll_discovery_invalid_names_total",
            Counter,
            "Times a directory was left out because its name is not UTF-8.",
            load(&d.nameless),
        );
    }

    fn runtimes(&self, text: &mut Text) {
        let runtimes = &self.containers.counters().runtimes;
        let mut each =
            |name: &str,
             kind,
             help: &str,
             value: &dyn Fn(&plimsoll_containers::runtime::Counters) -> u64| {
                text.family(name, kind, help);
                for (index, runtime) in runtimes.iter().enumerate() {
                    // Two sockets of one kind are told apart by their place on the command line.
                    let twin = runtimes[..index]
                        .iter()
                        .filter(|r| r.kind == runtime.kind)
                        .count();
                    let label = match twin {
                        0 => runtime.kind.to_owned(),
                        n => format!("{}-{}", runtime.kind, n + 1),
                    };
                    text.series(&[("runtime", &label)], Whole(value(runtime)), None);
                }
            };
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        each(
            "plimsoll_runtime_up",
            Gauge,
            "Whether the runtime answers.",
            &|r| u64::from(r.up.load(Ordering::Relaxed)),
        );
        each(
            "plimsoll_runtime_calls_total",
            Counter,
            "Questions asked.",
            &|r| get(&r.calls),
        );
        each(
            "plimsoll_runtime_errors_total",
            Counter,
            "Questions that failed.",
            &|r| get(&r.errors),
        );
        each(
            "plimsoll_runtime_timeouts_total",
            Counter,
            "Questions that were not answered in time.",
            &|r| get(&r.timeouts),
        );
        each(
            "plimsoll_runtime_malformed_total",
            Counter,
            "Answers that made no sense.",
            &|r| get(&r.malformed),
        );
        each(
            "plimsoll_runtime_connects_total",
            Counter,
            "Connections made.",
            &|r| get(&r.connects),
        );
    }

    fn usage_history(&self, text: &mut Text) {
        let Some(history) = &self.history else {
            return;
        };
        let (c, stats) = (history.counters(), history.stats());
        let gauges = [
            (
                "plimsoll_history_series",
                "Series in the usage history.",
                stats.series as u64,
            ),
            (
                "plimsoll_history_blocks",
                "Block files of the usage history.",
                stats.blocks as u64,
            ),
            (
                "plimsoll_history_block_bytes",
                "Size of the block files of the usage history.",
                stats.block_bytes,
            ),
            (
                "plimsoll_history_bytes",
                "Samples of the usage history that are held in memory, in bytes.",
                stats.memory_bytes as u64,
            ),
            (
                "plimsoll_history_models",
                "Models that forecasts are made of.",
                history.models() as u64,
            ),
        ];
        for (name, help, value) in gauges {
            text.single(name, Gauge, help, Whole(value));
        }
        let counters = [
            (
                "plimsoll_history_samples_total",
                "Samples recorded.",
                &c.appended,
            ),
            (
                "plimsoll_history_out_of_order_samples_total",
                "Samples refused because a later sample of the series was there.",
                &c.refused,
            ),
            (
                "plimsoll_history_block_samples_total",
                "Samples written to block files.",
                &c.sealed,
            ),
            (
                "plimsoll_history_dropped_samples_total",
                "Samples dropped because there was no room.",
                &c.lost,
            ),
            (
                "plimsoll_history_write_errors_total",
                "Failed writes to the disk.",
                &c.problems,
            ),
            (
                "plimsoll_history_clock_jumps_total",
                "Times that the clock was set back.",
                &c.clock_jumps,
            ),
            (
                "plimsoll_history_trainings_total",
                "Times that the models were trained.",
                &c.trained,
            ),
            (
                "plimsoll_history_checkpoints_total",
                "Models saved.",
                &c.checkpoints,
            ),
            (
                "plimsoll_history_checkpoint_errors_total",
                "Models that could not be saved.",
                &c.checkpoint_failures,
            ),
        ];
        for (name, help, counter) in counters {
            text.single(name, Counter, help, load(counter));
        }
        text.single(
            "plimsoll_history_corrupt_columns_total",
            Counter,
            "Columns of block files that could not be read.",
            Whole(stats.bad_columns),
        );
    }

    fn membership(&self, text: &mut Text) {
        let Some(member) = self.cluster.get() else {
            return;
        };
        let mut each =
            |name: &str, kind, help: &str, value: &dyn Fn(&ReflectorStatus) -> Number| {
                text.family(name, kind, help);
                for (followed, rounds) in &member.rounds {
                    text.series(&[("kind", followed)], value(rounds), None);
                }
            };
        each(
            "plimsoll_cluster_lists_total",
            Counter,
            "Whole lists fetched of objects that are followed.",
            &|rounds| Whole(rounds.lists()),
        );
        each(
            "plimsoll_cluster_failures_total",
            Counter,
            "WriteCounters to follow objects that failed.",
            &|rounds| Whole(rounds.failures()),
        );
        each(
            "plimsoll_cluster_stale_seconds",
            Gauge,
            "For how long objects could not be followed; 0 while all is well.",
            &|rounds| Float(rounds.stale_for().as_secs_f64()),
        );
        let states = &member.states;
        let mut counters = vec![
            (
                "plimsoll_kubelet_pod_lists_total",
                "Lists of pods that the kubelet gave.",
                &states.pod_lists,
            ),
            (
                "plimsoll_kubelet_pod_list_failures_total",
                "Lists of pods that the kubelet did not give.",
                &states.pod_list_failures,
            ),
            (
                "plimsoll_kubelet_settings_failures_total",
                "Times that the kubelet did not tell its configuration.",
                &states.kubelet_settings_failures,
            ),
            (
                "plimsoll_volume_failures_total",
                "Volume claims that could not be looked at.",
                &states.volume_failures,
            ),
        ];
        if let Some(reports) = &member.reports {
            counters.extend([
                (
                    "plimsoll_reports_total",
                    "Reports of what the node uses.",
                    &reports.reports,
                ),
                (
                    "plimsoll_reports_early_total",
                    "Reports that were sent before their time.",
                    &reports.early,
                ),
                (
                    "plimsoll_node_metric_missing_total",
                    "Reports that there was no object for.",
                    &reports.absent,
                ),
                (
                    "plimsoll_report_failures_total",
                    "Reports that could not be sent.",
                    &reports.failures,
                ),
                (
                    "plimsoll_topology_writes_total",
                    "Times that the topology object was written.",
                    &reports.topology.written,
                ),
                (
                    "plimsoll_topology_failures_total",
                    "Times that it could not be.",
                    &reports.topology.failures,
                ),
                (
                    "plimsoll_device_writes_total",
                    "Times that the device object was written.",
                    &reports.devices.written,
                ),
                (
                    "plimsoll_device_failures_total",
                    "Times that it could not be.",
                    &reports.devices.failures,
                ),
            ]);
        }
        for (name, help, counter) in counters {
            text.single(name, Counter, help, Whole(counter.get()));
        }
        if let Some(reporting) = self.tells_cluster() {
            text.single(
                "plimsoll_reporting",
                Gauge,
                "Whether the cluster is told what the node uses; why not is in the log.",
                Whole(reporting.into()),
            );
        }
    }

    fn kernel_log(&self, text: &mut Text) {
        let Some(c) = &self.kernel_log else {
            text.single(
                "plimsoll_kernel_log_up",
                Gauge,
                "Whether the kernel log can be read.",
                Whole(0),
            );
            return;
        };
        text.single(
            "plimsoll_kernel_log_up",
            Gauge,
            "Whether the kernel log can be read.",
            Whole(1),
        )
        .single(
            "plimsoll_oom_kills_total",
            Counter,
            "Out of memory kills seen.",
            load(&c.kills),
        )
        .single(
            "plimsoll_kernel_log_overruns_total",
            Counter,
            "Times the kernel overwrote records before they were read.",
            load(&c.overruns),
        )
        .single(
            "plimsoll_kernel_log_missed_total",
            Counter,
            "Records lost that way.",
            load(&c.missed),
        )
        .single(
            "plimsoll_kernel_log_errors_total",
            Counter,
            "Records that could not be read.",
            load(&c.errors),
        )
        .single(
            "plimsoll_oom_save_errors_total",
            Counter,
            "Failures to save the out of memory counts.",
            load(&c.save_errors),
        );
    }
}

/// Listing thousands of handles takes longer than rendering a page; kernels since 6.2 tell their number as a size.
fn open_files() -> u64 {
    const OWN: &str = "/proc/self/fd";
    match std::fs::metadata(OWN).map_or(0, |dir| dir.len()) {
        0 => std::fs::read_dir(OWN).map_or(0, |dir| dir.count() as u64),
        told => told,
    }
}

/// The families every exporter of this ecosystem has about its own process.
/// What protection does.
fn protection(text: &mut Text, shown: &Shown, evictions: &EvictionCounters) {
    let name = "plimsoll_protection_mode";
    text.family(name, Gauge, "1: protection is in this mode.");
    for mode in [Mode::Off, Mode::Observe, Mode::Enforce] {
        let is = u64::from(mode == shown.mode);
        text.series(&[("mode", mode.as_str())], Whole(is), None);
    }
    text.single(
        "plimsoll_protection_gate_open",
        Gauge,
        "1: pods, node, processors and usage have been known, so that something may be written.",
        Whole(u64::from(shown.gate.open)),
    )
    .single(
        "plimsoll_protection_second_agent",
        Gauge,
        "1: another agent changes the same files, so that ours only observes.",
        Whole(u64::from(shown.second_agent)),
    );
    let counters = &shown.counters;
    for (name, help, count) in [
        (
            "plimsoll_protection_writes_total",
            "Writes to kernel files.",
            counters.writes,
        ),
        (
            "plimsoll_protection_restored_total",
            "Values that were given back.",
            counters.restored,
        ),
        (
            "plimsoll_protection_repaired_total",
            "Values that somebody else had changed and that were put right.",
            counters.repaired,
        ),
        (
            "plimsoll_protection_refused_total",
            "Writes that the kernel refused.",
            counters.refused,
        ),
    ] {
        text.single(name, Counter, help, Whole(count));
    }
    let name = "plimsoll_protection_evictions_total";
    text.family(name, Counter, "Evictions, by how they ended.");
    for (outcome, count) in [
        ("asked", evictions.asked()),
        ("failed", evictions.failed()),
        ("succeeded", evictions.succeeded()),
    ] {
        text.series(&[("outcome", outcome)], Whole(count), None);
    }
}

pub fn process(text: &mut Text, started: Timestamp) {
    let mut buf = ReadBuf::default();
    let Ok(usage) = SelfUsage::now(&mut buf) else {
        return;
    };
    // "No limit" is the largest number there is, as the Go client has it.
    let limit = |of| Whole(getrlimit(of).current.unwrap_or(u64::MAX));
    let traffic = parse_file(Path::new(OWN_NETSTAT), &mut buf, parse_ip_octets);
    text.single(
        "process_cpu_seconds_total",
        Counter,
        "CPU time this process has used.",
        Float(usage.cpu.as_secs_f64()),
    )
    .single(
        "process_max_fds",
        Gauge,
        "Files this process may have open.",
        limit(Resource::Nofile),
    );
    if let Ok(Some(traffic)) = traffic {
        text.single(
            "process_network_receive_bytes_total",
            Counter,
            "IP bytes received in the network namespace of this process.",
            Whole(traffic.received),
        )
        .single(
            "process_network_transmit_bytes_total",
            Counter,
            "IP bytes sent from the network namespace of this process.",
            Whole(traffic.sent),
        );
    }
    text.single(
        "process_open_fds",
        Gauge,
        "Files this process has open.",
        Whole(open_files()),
    )
    .single(
        "process_resident_memory_bytes",
        Gauge,
        "Memory this process holds.",
        Whole(usage.rss_bytes),
    )
    .single(
        "process_start_time_seconds",
        Gauge,
        "When this process was started, in Unix seconds.",
        Float(started.nanos() as f64 / 1e9),
    )
    .single(
        "process_virtual_memory_bytes",
        Gauge,
        "Address space of this process.",
        Whole(usage.virtual_bytes),
    )
    .single(
        "process_virtual_memory_max_bytes",
        Gauge,
        "Address space this process may have.",
        limit(Resource::As),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the Go client's process collector shows on Linux, in the page's order.
    const FAMILIES: [&str; 9] = [
        "process_cpu_seconds_total counter",
        "process_max_fds gauge",
        "process_network_receive_bytes_total counter",
        "process_network_transmit_bytes_total counter",
        "process_open_fds gauge",
        "process_resident_memory_bytes gauge",
        "process_start_time_seconds gauge",
        "process_virtual_memory_bytes gauge",
        "process_virtual_memory_max_bytes gauge",
    ];

    #[test]
    fn what_protection_does() {
        let mut shown = Shown {
            mode: Mode::Enforce,
            ..Shown::default()
        };
        shown.gate.open = true;
        (shown.counters.writes, shown.counters.repaired) = (7, 2);
        let mut text = Text::default();
        protection(&mut text, &shown, &EvictionCounters::default());
        let page = plimsoll_cadvisor::exposition::Gathered::from(text).to_string();
        for line in [
            "plimsoll_protection_mode{mode=\"observe\"} 0\n",
            "plimsoll_protection_mode{mode=\"enforce\"} 1\n",
            "plimsoll_protection_gate_open 1\n",
            "plimsoll_protection_second_agent 0\n",
            "plimsoll_protection_writes_total 7\n",
            "plimsoll_protection_repaired_total 2\n",
            "plimsoll_protection_evictions_total{outcome=\"failed\"} 0\n",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn every_family_of_a_process_is_there() {
        let mut text = Text::default();
        process(&mut text, Timestamp::from_secs(1_700_000_000));
        let page = plimsoll_cadvisor::exposition::Gathered::from(text).to_string();
        let types: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        assert_eq!(types, FAMILIES, "{page}");
        for family in FAMILIES {
            let name = family.split(' ').next().unwrap();
            assert!(page.contains(&format!("# HELP {name} ")), "{page}");
            let value = page
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value: f64 = value.expect(name).parse().expect(name);
            // A namespace that has seen no packet yet has no bytes either.
            assert!(value > 0.0 || name.contains("network"), "{page}");
        }
    }
}
