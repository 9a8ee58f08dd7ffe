//! Flags of Koordinator's agent, under its names and with its meaning.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::SignedDuration;
use plimsoll_host::HostRoot;

use crate::folder_args::FolderArgs;
use crate::inert::{Flags, PassedOver, Takes};
use crate::protect_args::ProtectArgs;
use crate::{Called, go};

/// How far a gate has come in Koordinator. Alpha gates are off unless told otherwise, beta gates are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
}

/// Whether there is something behind a gate here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Cycles are always counted without libpfm4, and CPUs of shared pools are always listed.
    Built,
    NotBuilt,
}

use Stage::{Alpha, Beta};
use Status::{Built, NotBuilt};

/// Koordinator's gates.
const GATES: [(&str, Stage, Status); 39] = [
    ("BECPUSuppress", Beta, Built),
    ("CPUBurst", Beta, Built),
    ("RdtResctrl", Beta, Built),
    ("NodeTopologyReport", Beta, Built),
    ("GroupIdentity", Beta, NotBuilt),
    ("CPUSetAllocator", Beta, NotBuilt),
    ("BatchResource", Beta, NotBuilt),
    ("AuditEvents", Alpha, Built),
    ("AuditEventsHTTPHandler", Alpha, Built),
    ("BECPUManager", Alpha, Built),
    ("BECPUEvict", Alpha, Built),
    ("BEMemoryEvict", Alpha, Built),
    ("SystemConfig", Alpha, Built),
    ("CgroupReconcile", Alpha, Built),
    ("Accelerators", Alpha, Built),
    ("CPICollector", Alpha, Built),
    ("Libpfm4", Alpha, Built),
    ("PSICollector", Alpha, Built),
    ("BlkIOReconcile", Alpha, Built),
    ("ColdPageCollector", Alpha, Built),
    ("HugePageReport", Alpha, Built),
    ("GPUEnvInject", Alpha, NotBuilt),
    ("CPUNormalization", Alpha, NotBuilt),
    ("CoreSched", Alpha, NotBuilt),
    ("CPUEvict", Alpha, Built),
    ("MemoryEvict", Alpha, Built),
    ("CPUAllocatableEvict", Alpha, Built),
    ("MemoryAllocatableEvict", Alpha, Built),
    ("RDMADevices", Alpha, Built),
    ("ResctrlCollector", Alpha, Built),
    ("PodResourcesProxy", Alpha, NotBuilt),
    ("HamiCoreVGPUMonitor", Alpha, NotBuilt),
    ("PerCPUMetric", Alpha, Built),
    ("NodeMetricPromMetrics", Alpha, Built),
    ("RDMADeviceInject", Alpha, NotBuilt),
    ("TerwayQoS", Alpha, NotBuilt),
    ("TCNetworkQoS", Alpha, NotBuilt),
    ("Resctrl", Alpha, NotBuilt),
    ("OOMScoreAdj", Alpha, NotBuilt),
];
/// Gates that stand for all of a stage.
const ALL: [(&str, Stage); 2] = [("AllAlpha", Alpha), ("AllBeta", Beta)];

#[derive(Debug, Args)]
pub struct KoordletArgs {
    /// Koordinator's way to say where to serve: `:9316` is that port of all addresses
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<String>,
    #[command(flatten)]
    collect: CollectArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    prediction: PredictionArgs,
    #[command(flatten)]
    protect: ProtectArgs,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    folders: FolderArgs,
    #[command(flatten)]
    unheard: PassedOver<Unheard>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub struct CollectArgs {
    /// Note what the node, its pods and containers use this often; less than 1s: do not [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true)]
    collect_res_used_interval: Option<Duration>,
    /// What is older than this is not subtracted from newer figures
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "10s")]
    collect_sys_metric_outdated_interval: Duration,
    /// Read the processors' and NUMA nodes' facts this often
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "60s")]
    collect_node_cpu_info_interval: Duration,
    /// With BlkIOReconcile: look this often which disks there are
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "1s")]
    collect_node_storage_info_interval: Duration,
    /// With CPICollector: count cycles and instructions this often
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "60s")]
    cpi_collector_interval: Duration,
    /// With CPICollector: and for this long
    #[arg(long = "collect-cpi-timewindow", value_name = "DURATION", value_parser = go::duration, default_value = "10s")]
    collect_cpi_timewindow: Duration,
    /// With PSICollector: note pressure this often
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "10s")]
    psi_collector_interval: Duration,
    /// With ColdPageCollector: note cold pages this often
    #[arg(long = "coldpage-collector-interval", value_name = "DURATION", value_parser = go::duration, default_value = "5s")]
    coldpage_collector_interval: Duration,
    /// Note memory with the page cache, too
    #[arg(long = "enable-pagecache-collector", value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    enable_pagecache_collector: bool,
    /// With ResctrlCollector: note cache occupancy and memory bandwidth by class
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    enable_resctrl_collector: bool,
    /// With --enable-resctrl-collector: this often
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "10s")]
    resctrl_collector_interval: Duration,
    /// What to switch on and off: CPICollector=true,PSICollector=true
    #[arg(
        long,
        value_name = "LIST",
        default_value = "",
        hide_default_value = true
    )]
    feature_gates: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub struct StoreArgs {
    /// Keep samples here [default: a folder of --data-dir]
    #[arg(long, value_name = "DIR")]
    tsdb_path: Option<PathBuf>,
    /// Keep samples this long
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "12h0m0s")]
    tsdb_retention_duration: Duration,
    /// Keep at most this much, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100 << 20)]
    tsdb_max_bytes: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub struct PredictionArgs {
    /// Keep models here [default: a folder of --data-dir]
    #[arg(long, value_name = "DIR")]
    prediction_checkpoint_filepath: Option<PathBuf>,
    /// Pods younger than this lend nothing
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "24h0m0s")]
    prediction_cold_start_duration: Duration,
    /// What is added to every forecast, in percent of it
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    prediction_safety_margin_percent: u32,
    /// How soon the past of memory fades by half
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "24h0m0s")]
    prediction_memory_histogram_decay_halflife: Duration,
    /// How soon the past of CPU fades by half
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "12h0m0s")]
    prediction_cpu_histogram_decay_halflife: Duration,
    /// Models learn this often
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "1m0s")]
    prediction_training_interval: Duration,
    /// Models that learned nothing for this long are dropped
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "30m0s")]
    prediction_model_expiration_duration: Duration,
    /// A model is saved at most this often
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "10m0s")]
    prediction_model_checkpoint_interval: Duration,
    /// So many models are saved at a time
    #[arg(long, value_name = "N", default_value_t = 12)]
    prediction_model_checkpoint_max_per_step: usize,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Protection")]
pub struct AuditArgs {
    /// With AuditEventsHTTPHandler: what /events shows. Below 3, evictions and no changes of values
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        allow_hyphen_values = true
    )]
    audit_verbose: i64,
    /// So many may read /events at the same time; then the oldest one has to begin anew
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        allow_hyphen_values = true
    )]
    audit_max_concurrent_readers: i64,
    /// The most events of one page
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2048,
        allow_hyphen_values = true
    )]
    audit_max_events_limit: i64,
}

/// What else a command line of Koordinator's agent may carry: of what is not there yet, or of what is not needed.
#[derive(Debug)]
pub struct Unheard;

impl Flags for Unheard {
    const FLAGS: &'static [(Takes, &'static [&'static str])] = &[
        (
            Takes::Text,
            &[
                "pprof-addr",
                "configmap-name",
                "configmap-namespace",
                "cgroup-kube-dir",
                "containerd-endpoint",
                "docker-endpoint",
                "pouch-endpoint",
                "default-runtime-type",
                "hami-core-library-directory-path",
                "pod-resources-proxy-path",
                "qos-extension-plugins",
                "runtime-hooks-network",
                "runtime-hooks-addr",
                "runtime-hooks-host-endpoint",
                "runtime-hooks-failure-policy",
                "runtime-hooks-plugin-failure-policy",
                "runtime-hooks-config-path",
                "runtime-hooks-disable-stages",
                "runtime-hooks-nri-socket-path",
                "runtime-hooks-nri-plugin-name",
                "runtime-hooks-nri-plugin-index",
                "audit-log-dir",
            ],
        ),
        (
            Takes::Integer,
            &[
                "runtime-hooks-nri-backoff-steps",
                "audit-max-disk-space-mb",
                "resource-force-update-seconds",
                "metric-gc-interval-seconds",
                "metric-expire-seconds",
                "tsdb-stripe-size",
                "tsdb-wal-segment-size",
                "tsdb-max-block-chunk-segment-size",
                "tsdb-head-chunks-write-buffer-size",
            ],
        ),
        (Takes::Number, &["runtime-hooks-nri-backoff-factor"]),
        (
            Takes::Duration,
            &[
                "report-interval",
                "runtime-hooks-reconcile-interval",
                "runtime-hooks-nri-connect-timeout",
                "runtime-hooks-nri-backoff-duration",
                "runtime-hooks-nri-backoff-cap",
                "tsdb-min-block-duration",
                "tsdb-max-block-duration",
            ],
        ),
        (
            Takes::Switch,
            &[
                "enable-pprof",
                "enable-nri-runtime-hook",
                "enable-pod-taskids",
                "disable-unset-cpu-quota",
                "tsdb-enable-prometheus-metric",
            ],
        ),
    ];
}

impl KoordletArgs {
    pub fn address(&self) -> Result<Option<SocketAddr>> {
        let Some(text) = &self.addr else {
            return Ok(None);
        };
        let whole = match text.strip_prefix(':') {
            Some(port) => format!("[::]:{port}"),
            None => text.clone(),
        };
        let address = whole
            .parse()
            .with_context(|| format!("--addr {text:?} is not an address and port"))?;
        Ok(Some(address))
    }

    /// The page of events; `None`: it is off.
    pub fn audit(&self) -> Result<Option<plimsoll_agent::protect::audit::Config>> {
        let gates = Gates::parse(&self.collect.feature_gates)?;
        let number = |number: i64| usize::try_from(number).unwrap_or(0);
        let config = plimsoll_agent::protect::audit::Config {
            recorded: gates.on("AuditEvents"),
            verbose: self.audit.audit_verbose,
            readers: number(self.audit.audit_max_concurrent_readers),
            most: number(self.audit.audit_max_events_limit),
        };
        Ok(gates.on("AuditEventsHTTPHandler").then_some(config))
    }

    /// Where the machine's files are.
    pub fn root(&self, prefix: Option<&Path>) -> Result<HostRoot> {
        self.folders.root(prefix)
    }

    /// Whether something is switched on.
    pub fn gate(&self, name: &str) -> Result<bool> {
        Ok(Gates::parse(&self.collect.feature_gates)?.on(name))
    }

    /// Gates that were switched on without anything behind them.
    pub fn unavailable_features(&self) -> Result<Vec<&'static str>> {
        Ok(Gates::parse(&self.collect.feature_gates)?.unavailable())
    }

    /// `None`: protection is off. It needs the usage history.
    pub fn protection(
        &self,
        called: Called,
        data_dir: Option<&PathBuf>,
    ) -> Result<Option<plimsoll_agent::protect::Config>> {
        let asked = Gates::parse(&self.collect.feature_gates)?;
        let mut gates = plimsoll_qos::Gates::default();
        for name in plimsoll_qos::Gates::NAMES {
            gates.set(name, asked.on(name));
        }
        let interval = self.collect.collect_res_used_interval;
        let interval = interval.unwrap_or(Duration::from_secs(1));
        if interval < Duration::from_secs(1) {
            return Ok(None);
        }
        self.protect.config(called, gates, interval, data_dir)
    }

    /// How often to take notes, if that was said, and if it is to be done.
    pub fn asked_interval(&self) -> Option<Duration> {
        let asked = self.collect.collect_res_used_interval;
        asked.filter(|interval| *interval >= Duration::from_secs(1))
    }

    /// `None`: the usage history is off.
    pub fn usage_history(&self) -> Result<Option<plimsoll_history::Config>> {
        self.unheard.warn();
        let gates = Gates::parse(&self.collect.feature_gates)?;
        let interval = match self.collect.collect_res_used_interval {
            Some(asked) if asked < Duration::from_secs(1) => return Ok(None),
            Some(asked) => asked,
            None => Duration::from_secs(1),
        };
        Ok(Some(plimsoll_history::Config {
            interval,
            max_sample_age: self.collect.collect_sys_metric_outdated_interval,
            collect: self.collect.what(&gates)?,
            store: self.store.config(),
            forecast: self.prediction.config()?,
            standalone: true,
        }))
    }
}

/// Samples and models are kept where Koordinator's manifests have its agent keep them, if that is there.
pub fn keep_where_mounted(history: &mut plimsoll_history::Config, root: &Path) {
    let mounted = |name: &str| Some(root.join(name)).filter(|folder| folder.is_dir());
    for (kept, name) in [
        (&mut history.store.folder, "metric-data"),
        (&mut history.forecast.checkpoints, "prediction-checkpoints"),
    ] {
        *kept = kept.take().or_else(|| mounted(name));
    }
}

impl CollectArgs {
    fn what(&self, gates: &Gates) -> Result<plimsoll_history::Collect> {
        let seconds = |flag: &str, every: Duration| {
            if every < Duration::from_secs(1) {
                bail!("--{flag} must be at least 1s");
            }
            Ok(every)
        };
        let cpi = plimsoll_history::Cpi {
            every: seconds("cpi-collector-interval", self.cpi_collector_interval)?,
            window: seconds("collect-cpi-timewindow", self.collect_cpi_timewindow)?,
        };
        let pressure = seconds("psi-collector-interval", self.psi_collector_interval)?;
        let cold = seconds(
            "coldpage-collector-interval",
            self.coldpage_collector_interval,
        )?;
        let storage = seconds(
            "collect-node-storage-info-interval",
            self.collect_node_storage_info_interval,
        )?;
        let resctrl = seconds(
            "resctrl-collector-interval",
            self.resctrl_collector_interval,
        )?;
        let wants_resctrl = self.enable_resctrl_collector && gates.on("ResctrlCollector");
        Ok(plimsoll_history::Collect {
            node_info_every: seconds(
                "collect-node-cpu-info-interval",
                self.collect_node_cpu_info_interval,
            )?,
            hugepages: gates.on("HugePageReport"),
            storage_info_every: gates.on("BlkIOReconcile").then_some(storage),
            page_cache: self.enable_pagecache_collector,
            pressure_every: gates.on("PSICollector").then_some(pressure),
            cpi: gates.on("CPICollector").then_some(cpi),
            cold_pages_every: gates.on("ColdPageCollector").then_some(cold),
            resctrl_every: wants_resctrl.then_some(resctrl),
            gpu: gates.on("Accelerators"),
            report_gauges: gates.on("NodeMetricPromMetrics"),
        })
    }
}

impl StoreArgs {
    fn config(&self) -> plimsoll_history::StoreConfig {
        plimsoll_history::StoreConfig {
            folder: self.tsdb_path.clone(),
            keep_for: self.tsdb_retention_duration,
            keep_bytes: self.tsdb_max_bytes,
            ..Default::default()
        }
    }
}

impl PredictionArgs {
    fn config(&self) -> Result<plimsoll_history::Forecast> {
        let signed = |flag: &str, duration: Duration| {
            SignedDuration::try_from(duration).with_context(|| format!("--prediction-{flag}"))
        };
        if self.prediction_training_interval < Duration::from_secs(1) {
            bail!("--prediction-training-interval must be at least 1s");
        }
        Ok(plimsoll_history::Forecast {
            checkpoints: self.prediction_checkpoint_filepath.clone(),
            train_every: self.prediction_training_interval,
            models: plimsoll_history::ModelsConfig {
                forget_after: signed(
                    "model-expiration-duration",
                    self.prediction_model_expiration_duration,
                )?,
                save_every: signed(
                    "model-checkpoint-interval",
                    self.prediction_model_checkpoint_interval,
                )?,
                save_at_most: self.prediction_model_checkpoint_max_per_step,
                half_lives: plimsoll_history::HalfLives {
                    cpu: signed(
                        "cpu-histogram-decay-halflife",
                        self.prediction_cpu_histogram_decay_halflife,
                    )?,
                    memory: signed(
                        "memory-histogram-decay-halflife",
                        self.prediction_memory_histogram_decay_halflife,
                    )?,
                },
            },
            reclaim: plimsoll_history::ReclaimConfig {
                margin: f64::from(self.prediction_safety_margin_percent) / 100.0,
                cold_for: signed("cold-start-duration", self.prediction_cold_start_duration)?,
            },
        })
    }
}

/// `A=true,B=false`.
#[derive(Debug, Default)]
struct Gates(Vec<(String, bool)>);

impl Gates {
    fn parse(lists: &[String]) -> Result<Self> {
        let mut said = Vec::new();
        let parts = lists.iter().flat_map(|list| list.split(','));
        for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                bail!(
                    "--feature-gates: {part:?} is not a gate and what to do with it, like PSICollector=true"
                );
            };
            let mut known = GATES.iter().map(|(gate, ..)| *gate);
            if !known.any(|gate| gate == name) && !ALL.iter().any(|(all, _)| *all == name) {
                bail!("--feature-gates: there is no gate {name:?}");
            }
            let on = go::boolean(value)
                .map_err(|error| anyhow::anyhow!("--feature-gates: {name}: {error}"))?;
            said.push((name.to_owned(), on));
        }
        Ok(Self(said))
    }

    fn on(&self, name: &str) -> bool {
        let stage = GATES.iter().find(|(gate, ..)| *gate == name);
        let stage = stage.map_or(Alpha, |(_, stage, _)| *stage);
        self.asked(name, stage).unwrap_or(stage == Beta)
    }

    /// The last word counts, and the gate's own before that for all of its stage. `None`: nothing was said.
    fn asked(&self, name: &str, stage: Stage) -> Option<bool> {
        let last = |wanted: &str| {
            let said = self.0.iter().rev().find(|(gate, _)| gate == wanted)?;
            Some(said.1)
        };
        let all = ALL.iter().find(|(_, of)| *of == stage);
        last(name).or_else(|| last(all?.0))
    }

    /// Gates that were switched on, and have nothing behind them here.
    fn unavailable(&self) -> Vec<&'static str> {
        let asked = GATES
            .iter()
            .filter(|(name, stage, status)| {
                *status == NotBuilt && self.asked(name, *stage) == Some(true)
            })
            .map(|(name, ..)| *name);
        let mut asked: Vec<&str> = asked.collect();
        asked.sort_unstable();
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[&str], look: impl Fn(Option<plimsoll_history::Config>)) {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: KoordletArgs,
        }
        let line = [&["koordlet"], line].concat();
        let line = <Line as clap::Parser>::try_parse_from(line).unwrap();
        look(line.args.usage_history().unwrap());
    }

    #[test]
    fn defaults_are_the_originals() {
        check(&[], |history| {
            let history = history.unwrap();
            assert_eq!(history.interval, Duration::from_secs(1));
            assert_eq!(history.store.keep_for, Duration::from_hours(12));
            assert_eq!(history.store.keep_bytes, 100 << 20);
            assert_eq!(history.forecast.models, Default::default());
            assert_eq!(history.forecast.reclaim, Default::default());
            assert_eq!(history.collect.pressure_every, None);
        });
    }

    #[test]
    fn an_interval_below_a_second_is_none() {
        check(&["--collect-res-used-interval=0s"], |history| {
            assert!(history.is_none());
        });
        check(&["--collect-res-used-interval", "5s"], |history| {
            assert_eq!(history.unwrap().interval, Duration::from_secs(5));
        });
    }

    #[test]
    fn gates_and_flags_go_together() {
        let line = [
            "--feature-gates=PSICollector=true,CPICollector=true,ResctrlCollector=true",
            "--psi-collector-interval=20s",
            "--enable-pagecache-collector",
            "--tsdb-wal-segment-size=1048576",
            "--audit-verbose=3",
            "--prediction-safety-margin-percent=20",
        ];
        check(&line, |history| {
            let history = history.unwrap();
            let collect = history.collect;
            assert_eq!(collect.pressure_every, Some(Duration::from_secs(20)));
            assert!(collect.cpi.is_some() && collect.page_cache);
            // The gate alone does not do.
            assert_eq!(collect.resctrl_every, None);
            assert_eq!(history.forecast.reclaim.margin, 0.2);
        });
    }

    #[test]
    fn gates_that_do_not_exist_are_refused() {
        for (bad, named) in [
            ("PSICollector=true,Nonsense=true", "Nonsense"),
            ("Nonsense=false", "Nonsense"),
            ("PSICollector", "PSICollector"),
            ("PSICollector=perhaps", "PSICollector"),
        ] {
            let error = Gates::parse(&[bad.to_owned()]).unwrap_err();
            assert!(error.to_string().contains(named), "{bad}: {error}");
        }
        let gates = Gates::parse(&["CPUBurst=true,CPUBurst=false".to_owned()]).unwrap();
        assert!(!gates.on("CPUBurst") && gates.on("BatchResource") && !gates.on("PSICollector"));
    }

    #[test]
    fn what_is_kept_under_the_originals_name() {
        let root = tempfile::tempdir().unwrap();
        let samples = root.path().join("metric-data");
        std::fs::create_dir(&samples).unwrap();
        let mut history = plimsoll_history::Config::default();
        keep_where_mounted(&mut history, root.path());
        assert_eq!(history.store.folder.as_deref(), Some(samples.as_path()));
        assert_eq!(history.forecast.checkpoints, None);
        history.store.folder = Some("elsewhere".into());
        keep_where_mounted(&mut history, root.path());
        assert_eq!(history.store.folder, Some("elsewhere".into()));
    }

    #[test]
    fn many_gates_at_once() {
        let check = |list: &str, alpha: bool, beta: bool| {
            let gates = Gates::parse(&[list.to_owned()]).unwrap();
            let found = (gates.on("PSICollector"), gates.on("NodeTopologyReport"));
            assert_eq!(found, (alpha, beta), "{list}");
        };
        check("AllAlpha=true", true, true);
        check("AllAlpha=false", false, true);
        check("AllBeta=false", false, false);
        check("PSICollector=false,AllAlpha=true", false, true);
    }

    #[test]
    fn gates_without_anything_behind_them() {
        let unavailable = |list: &str| Gates::parse(&[list.to_owned()]).unwrap().unavailable();
        // Nobody asked for those that are on by default.
        assert_eq!(unavailable(""), [""; 0]);
        assert_eq!(unavailable("PSICollector=true,CPUBurst=false"), [""; 0]);
        assert_eq!(
            unavailable("CoreSched=true,PSICollector=true,CPUBurst=true"),
            ["CoreSched"]
        );
        let all = unavailable("AllAlpha=true,AllBeta=true,CoreSched=false");
        assert!(
            all.contains(&"GroupIdentity") && all.contains(&"GPUEnvInject"),
            "{all:?}"
        );
        assert!(
            !all.contains(&"CoreSched") && !all.contains(&"PSICollector"),
            "{all:?}"
        );
        assert!(all.is_sorted());
    }

    #[test]
    fn flags_of_what_is_not_there_are_named() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: KoordletArgs,
        }
        let line = [
            "koordlet",
            "--cgroup-root-dir=/host-cgroup/",
            "--runtime-hooks-network=unix",
            "--only-evict-by-api",
        ];
        let line = <Line as clap::Parser>::try_parse_from(line).unwrap();
        let named = ["--runtime-hooks-network"];
        assert_eq!(line.args.unheard.names, named);
    }
}
