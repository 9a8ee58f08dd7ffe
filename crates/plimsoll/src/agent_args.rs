//! `plimsoll agent`: its flags, and the agent they describe.
//!
//! Flags that cAdvisor has keep its names and meaning, underscores and all; ours have dashes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use plimsoll_agent::Config;
use plimsoll_cadvisor::exposition::LabelPolicy;
use plimsoll_cadvisor::http;
use plimsoll_containers::Rules;
use plimsoll_containers::runtime::{Endpoint, socket_path};
use plimsoll_host::HostRoot;
use plimsoll_host::machine::IdFiles;
use plimsoll_observe::GroupSet;
use plimsoll_observe::events::{EventType, Limits};
use plimsoll_observe::sampler;

use crate::agent_doors::{Open, Situation};
use crate::cluster_args::{self, ClusterArgs};
use crate::koordlet_args::KoordletArgs;
use crate::{Called, go, perf_config};

/// How long protection waits for the kubelet's word about its cgroups. A kubelet that may not be asked never gives it.
const KUBELET_WITHIN: Duration = Duration::from_secs(30);

/// Watches every container on this machine and serves what it sees.
#[derive(Debug, Args)]
pub struct AgentArgs {
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    containers: ContainerArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    koordlet: KoordletArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    accepted: AcceptedArgs,
    #[arg(skip)]
    pace: ReportSchedule,
    /// The command line is written for one of those who are replaced.
    #[arg(skip)]
    as_original: bool,
}

/// How often everything is read where nobody says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReportSchedule {
    /// Seldom, and when it is asked for.
    #[default]
    OnDemand,
    /// As cAdvisor does.
    Original,
}

impl ReportSchedule {
    fn interval(self) -> Duration {
        Duration::from_secs(match self {
            Self::OnDemand => 10,
            Self::Original => 1,
        })
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Address to serve on [default: 127.0.0.1:9120; under the names cadvisor and koordlet: port 8080 or 9316 of all
    /// addresses]. In a cluster this is HTTPS, for those whom the cluster lets in; see --open-to-all
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// cAdvisor's way to say where: serve on this port (all addresses unless --listen_ip says otherwise)
    #[arg(long = "port", value_name = "PORT")]
    port: Option<u16>,
    /// With --port: serve on this address only
    #[arg(
        long = "listen_ip",
        value_name = "IP",
        default_value = "",
        hide_default_value = true
    )]
    listen_ip: String,
    /// Path of the Prometheus page
    #[arg(
        long = "prometheus_endpoint",
        value_name = "PATH",
        default_value = "/metrics"
    )]
    pub prometheus_endpoint: String,
    /// Serve everything below this path
    #[arg(
        long = "url_base_prefix",
        value_name = "PATH",
        default_value = "",
        hide_default_value = true
    )]
    pub url_base_prefix: String,
    /// Certificate (PEM); with --tls-key, serve HTTPS. Read again when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Only let in clients with a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Only let in requests that bear the token in this file (health checks excepted)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Ask for a password of this htpasswd file on the pages for people; the API and metrics stay open (see --token-file)
    #[arg(
        long = "http_auth_file",
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    pub http_auth_file: String,
    /// Realm shown when a password is asked for
    #[arg(
        long = "http_auth_realm",
        value_name = "REALM",
        default_value = "localhost"
    )]
    pub http_auth_realm: String,
    /// What is shown to anybody who reaches the agent, without HTTPS unless --tls-cert is given
    ///
    /// [default: everything; in a cluster: nothing, and under the names cadvisor and koordlet, or with --addr or flags of
    /// cAdvisor's: metrics, so that scrapes go on. With --token-file or --client-ca: everything, to whom has those]
    #[arg(long, value_name = "WHAT")]
    open_to_all: Option<Open>,
    /// Where everything is served by HTTPS to those whom the cluster lets in
    ///
    /// They need the right to get, of the node, nodes/metrics for pages of metrics, nodes/stats for /stats/summary, and
    /// nodes/agent for everything else.
    ///
    /// [default: as --listen; with --open-to-all=metrics: port 9121 of the same address]. The certificate is that of
    /// --tls-cert, or one of its own making.
    #[arg(long, value_name = "IP:PORT")]
    secure_listen: Option<SocketAddr>,
    /// How long requests under way may take to finish when the agent is stopped
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "10s")]
    pub drain_timeout: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Time between two samples of everything about a container [default: 10s, and whenever a page is asked for; under
    /// the name cadvisor, or with any flag of cAdvisor's: 1s]. What the node uses is noted each second all the same
    #[arg(long = "housekeeping_interval", value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true)]
    housekeeping_interval: Option<Duration>,
    /// Read again for a page what is older than this; 0: pages show what was read last [default: 1s; under the name
    /// cadvisor, or with any flag of cAdvisor's: 0]
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    page_max_age: Option<Duration>,
    /// Longest time between two samples of an idle container
    #[arg(long = "max_housekeeping_interval", value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "1m0s")]
    max_housekeeping_interval: Duration,
    /// Sample idle containers less often, up to the longest interval
    #[arg(long = "allow_dynamic_housekeeping", value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    allow_dynamic_housekeeping: bool,
    /// Lengthen each wait by a random share of the interval, up to this
    #[arg(
        long = "jitter_factor",
        value_name = "SHARE",
        allow_hyphen_values = true,
        default_value_t = 0.0
    )]
    jitter_factor: f64,
    /// Share of one core that the agent may use; before it would use more, it samples less often. 0: no limit
    #[arg(
        long,
        value_name = "SHARE",
        allow_hyphen_values = true,
        default_value_t = 0.25
    )]
    cpu_budget: f64,
    /// How much history to keep of each container
    #[arg(long = "storage_duration", value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "2m0s")]
    storage_duration: Duration,
    /// Metric groups to read, all others off: cpu,percpu,memory,…
    #[arg(
        long = "enable_metrics",
        value_name = "GROUPS",
        default_value = "",
        hide_default_value = true
    )]
    enable_metrics: String,
    /// Metric groups to leave out; given, it replaces the default list [default: advtcp,cpu_topology,cpuset,hugetlb,memory_numa,process,referenced_memory,resctrl,sched,tcp,udp]
    #[arg(long = "disable_metrics", value_name = "GROUPS")]
    disable_metrics: Option<String>,
    /// Do not sample the root cgroup
    #[arg(long = "disable_root_cgroup_stats", value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    disable_root_cgroup_stats: bool,
    /// Count tasks by state and average the load
    #[arg(long = "enable_load_reader", value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    enable_load_reader: bool,
    /// With the referenced_memory group: clear referenced bits every so many samples; 0: never
    #[arg(
        long = "referenced_reset_interval",
        value_name = "SAMPLES",
        default_value_t = 0
    )]
    referenced_reset_interval: u64,
    /// Perf events to count, as JSON
    #[arg(
        long = "perf_events_config",
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    perf_events_config: String,
    /// How long events are kept, by type: oom=24h,default=1h
    #[arg(
        long = "event_storage_age_limit",
        value_name = "LIST",
        default_value = "default=24h"
    )]
    event_storage_age_limit: String,
    /// How many events are kept, by type; 0 keeps none
    #[arg(
        long = "event_storage_event_limit",
        value_name = "LIST",
        default_value = "default=100000"
    )]
    event_storage_event_limit: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Containers")]
pub struct ContainerArgs {
    /// Only report containers of a runtime, and the machine itself
    #[arg(long = "docker_only", value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    docker_only: bool,
    /// Only report other cgroups whose path starts with one of these
    #[arg(
        long = "raw_cgroup_prefix_whitelist",
        value_name = "LIST",
        default_value = "",
        hide_default_value = true
    )]
    raw_cgroup_prefix_whitelist: String,
    /// Put every container label on every series
    #[arg(long = "store_container_labels", value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true")]
    store_container_labels: bool,
    /// With --store_container_labels=false: the labels to put on series all the same
    #[arg(
        long = "whitelisted_container_labels",
        value_name = "LIST",
        default_value = "",
        hide_default_value = true
    )]
    whitelisted_container_labels: String,
    /// Environment variables (prefixes) to put on series
    #[arg(
        long = "env_metadata_whitelist",
        value_name = "LIST",
        default_value = "",
        hide_default_value = true
    )]
    env_metadata_whitelist: String,
    /// Docker's socket; empty: do not ask Docker
    #[arg(
        long = "docker",
        value_name = "SOCKET",
        default_value = "unix:///var/run/docker.sock"
    )]
    docker: String,
    /// Podman's socket; empty: do not ask Podman
    #[arg(
        long = "podman",
        value_name = "SOCKET",
        default_value = "unix:///var/run/podman/podman.sock"
    )]
    podman: String,
    /// containerd's socket; empty: do not ask containerd
    #[arg(
        long = "containerd",
        value_name = "SOCKET",
        default_value = "/run/containerd/containerd.sock"
    )]
    containerd: String,
    /// containerd namespace to ask about
    #[arg(
        long = "containerd-namespace",
        value_name = "NAME",
        default_value = "k8s.io"
    )]
    containerd_namespace: String,
    /// CRI sockets to ask (CRI-O and others), comma separated; empty: none
    #[arg(
        long,
        value_name = "SOCKETS",
        default_value = "unix:///var/run/crio/crio.sock"
    )]
    cri: String,
    /// Walk the whole cgroup tree again this often
    #[arg(long = "global_housekeeping_interval", value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "1m0s")]
    global_housekeeping_interval: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Where the observed machine's files are [default: /rootfs if mounted, else /]
    #[arg(long, value_name = "DIR")]
    host_root: Option<PathBuf>,
    /// What the cluster calls this machine, for /stats/summary [default: the host name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,
    /// Keep here what outlasts a restart: what the node used, forecasts, out of memory counts
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The kubelet's directory, where pods have their volumes
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_root_dir: PathBuf,
    /// Read the machine's facts again this often
    #[arg(long = "update_machine_info_interval", value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "5m0s")]
    update_machine_info_interval: Duration,
    /// Files to look for the machine's id in
    #[arg(
        long = "machine_id_file",
        value_name = "LIST",
        default_value = "/etc/machine-id,/var/lib/dbus/machine-id"
    )]
    machine_id_file: String,
    /// Files to look for the boot id in
    #[arg(
        long = "boot_id_file",
        value_name = "LIST",
        default_value = "/proc/sys/kernel/random/boot_id"
    )]
    boot_id_file: String,
    /// Threads that serve requests, as many as there are CPUs at most; less than 1: two
    #[arg(
        long = "max_procs",
        value_name = "N",
        allow_hyphen_values = true,
        default_value_t = 0
    )]
    pub max_procs: i64,
}

impl MachineArgs {
    pub fn node_name(&self) -> Option<&str> {
        self.node_name.as_deref().filter(|name| !name.is_empty())
    }
}

/// Flags of cAdvisor that mean nothing here, or that are refused with a reason.
#[derive(Debug, Args)]
pub struct AcceptedArgs {
    /// klog's verbosity; from 4 on it means debug.
    #[arg(short = 'v', long = "v", hide = true)]
    pub verbosity: Option<i32>,
    #[arg(long = "storage_driver", default_value = "", hide = true)]
    storage_driver: String,
    #[arg(long = "http_digest_file", default_value = "", hide = true)]
    http_digest_file: String,
    /// Everything else that a cAdvisor command line may carry.
    #[arg(
        long = "container_hints",
        aliases = [
            "initial_splay_factor", "docker_root", "docker-tls-cert", "docker-tls-key", "docker-tls-ca",
            "crio_client_timeout", "docker_env_metadata_whitelist", "containerd_env_metadata_whitelist",
            "resctrl_interval", "application_metrics_count_limit", "collector_cert", "collector_key",
            "http_digest_realm", "storage_driver_user", "storage_driver_password", "storage_driver_host",
            "storage_driver_db", "storage_driver_table", "storage_driver_buffer_duration", "log_file",
            "log_file_max_size", "log_backtrace_at", "log_dir", "stderrthreshold", "vmodule",
            // Of single stores; with a store named, it is that one which is refused.
            "bq_account", "bq_credentials_file", "bq_id", "bq_project_id", "bq_secret", "storage_driver_es_host",
            "storage_driver_es_index", "storage_driver_es_type", "storage_driver_influxdb_retention_policy",
            "storage_driver_kafka_broker_list", "storage_driver_kafka_topic", "storage_driver_kafka_ssl_ca",
            "storage_driver_kafka_ssl_cert", "storage_driver_kafka_ssl_key", "mesos_agent", "mesos_agent_timeout",
        ],
        hide = true,
    )]
    ignored: Vec<String>,
    #[arg(
        long = "logtostderr",
        aliases = [
            "alsologtostderr", "skip_headers", "skip_log_headers", "add_dir_header", "one_output",
            "log_cadvisor_usage", "profiling", "docker-tls", "storage_driver_secure", "legacy_stderr_threshold_behavior",
            "storage_driver_es_enable_sniffer", "storage_driver_kafka_ssl_verify",
        ],
        value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Append, hide = true,
    )]
    ignored_switches: Vec<bool>,
}

/// Limits are read with everything else, but the original has them within five seconds, however often it samples.
const LIMITS_AT_MOST_EVERY: Duration = Duration::from_secs(4);
const LIMITS_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

impl AgentArgs {
    /// As if no flag were given.
    pub fn defaults() -> Result<Self> {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            agent: AgentArgs,
        }
        let line = <Line as clap::Parser>::try_parse_from(["plimsoll"])?;
        Ok(line.agent)
    }

    /// The pace of whoever has that name, or has these flags.
    pub fn keep_pace(&mut self, pace: ReportSchedule) {
        self.pace = pace;
    }

    /// Scrapes of whoever is replaced go on.
    pub fn keep_scrapes(&mut self) {
        self.as_original = true;
    }

    /// `in_cluster`: a pod, or a member; `can_ask`: with credentials.
    pub fn situation(&self, called: Called, in_cluster: bool, can_ask: bool) -> Result<Situation> {
        let serving = &self.serving;
        Ok(Situation {
            listen: self.listen(called)?,
            secure: serving.secure_listen,
            open: serving.open_to_all,
            in_cluster,
            can_ask,
            as_original: self.as_original
                || called != Called::Plimsoll
                || self.koordlet.address()?.is_some(),
            has_secrets: serving.token_file.is_some() || serving.client_ca.is_some(),
        })
    }

    fn page_age(&self) -> Option<Duration> {
        let told = self.sampling.page_max_age;
        let told = told.unwrap_or(match self.pace {
            ReportSchedule::OnDemand => Duration::from_secs(1),
            ReportSchedule::Original => Duration::ZERO,
        });
        (!told.is_zero()).then_some(told)
    }

    /// How often everything is read.
    fn housekeeping(&self) -> Duration {
        let told = self.sampling.housekeeping_interval;
        told.unwrap_or_else(|| self.pace.interval())
    }

    pub fn serving(&self) -> &ServingArgs {
        &self.serving
    }

    pub fn cluster(&self) -> &ClusterArgs {
        &self.cluster
    }

    /// What the cluster knows this node by.
    pub fn node_name(&self) -> Result<&str> {
        self.machine
            .node_name()
            .context("in a cluster the node's name must be told: --node-name, or NODE_NAME in the environment")
    }

    /// Protection, if the machine is part of a cluster.
    pub fn protection(&self, called: Called) -> Result<Option<plimsoll_agent::protect::Config>> {
        let data_dir = self.machine.data_dir.as_ref();
        let mut config = self.koordlet.protection(called, data_dir)?;
        if let Some(config) = &mut config
            && self.cluster.asks_kubelet_for_settings()
        {
            config.kubelet_within = KUBELET_WITHIN;
        }
        Ok(config)
    }

    /// Where the machine's files are.
    pub fn root(&self) -> Result<HostRoot> {
        self.koordlet.root(self.machine.host_root.as_deref())
    }

    pub fn gates(&self) -> Result<cluster_args::Gates> {
        Ok(cluster_args::Gates {
            topology: self.koordlet.gate("NodeTopologyReport")?,
            hugepages: self.koordlet.gate("HugePageReport")?,
            volumes: self.koordlet.gate("BlkIOReconcile")?,
            accelerators: self.koordlet.gate("Accelerators")?,
            rdma: self.koordlet.gate("RDMADevices")?,
        })
    }

    /// Whether a usage history was asked for, which the original does not have.
    pub fn wants_usage_history(&self) -> bool {
        self.koordlet.asked_interval().is_some()
    }

    pub fn verbosity(&self) -> i32 {
        self.accepted.verbosity.unwrap_or(0)
    }

    pub fn machine(&self) -> &MachineArgs {
        &self.machine
    }

    /// Where to listen, by the flags or the defaults of whoever has that name.
    pub fn listen(&self, called: Called) -> Result<SocketAddr> {
        let serving = &self.serving;
        if let Some(address) = self.koordlet.address()? {
            if serving.listen.is_some() || serving.port.is_some() {
                bail!("--addr and --listen or --port say the same thing; give one of them");
            }
            return Ok(address);
        }
        if let Some(listen) = serving.listen {
            if serving.port.is_some() || !serving.listen_ip.is_empty() {
                bail!("--listen and --port/--listen_ip say the same thing; give one of them");
            }
            return Ok(listen);
        }
        let port = match (serving.port, called) {
            (Some(port), _) => port,
            (None, Called::Cadvisor) => 8080,
            (None, Called::Koordlet) => 9316,
            (None, Called::Plimsoll) if !serving.listen_ip.is_empty() => 9120,
            (None, Called::Plimsoll) => return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 9120))),
        };
        let ip: IpAddr = match serving.listen_ip.as_str() {
            "" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            text => text
                .parse()
                .with_context(|| format!("--listen_ip {text:?} is not an IP address"))?,
        };
        Ok(SocketAddr::new(ip, port))
    }

    /// The flag that named the file or directory which an error speaks of: people look for what they wrote.
    pub fn flag_behind(&self, error: &anyhow::Error) -> Option<&'static str> {
        let (serving, machine) = (&self.serving, &self.machine);
        let auth_file = Some(&serving.http_auth_file).filter(|file| !file.is_empty());
        let auth_file = auth_file.map(PathBuf::from);
        let said = format!("{error:#}");
        [
            ("--tls-cert", &serving.tls_cert),
            ("--tls-key", &serving.tls_key),
            ("--client-ca", &serving.client_ca),
            ("--token-file", &serving.token_file),
            ("--http_auth_file", &auth_file),
            ("--data-dir", &machine.data_dir),
        ]
        .into_iter()
        .find(|(_, file)| {
            let file = file.as_ref().map(|file| file.display().to_string());
            file.is_some_and(|file| said.contains(&file))
        })
        .map(|(flag, _)| flag)
    }

    pub fn http(&self, listen: SocketAddr) -> http::Config {
        let serving = &self.serving;
        let tls = serving.tls_cert.clone().zip(serving.tls_key.clone());
        http::Config {
            url_base_prefix: serving.url_base_prefix.clone(),
            prometheus_endpoint: serving.prometheus_endpoint.clone(),
            tls: tls.map(|(cert, key)| http::TlsFiles {
                cert,
                key,
                client_ca: serving.client_ca.clone(),
            }),
            token_file: serving.token_file.clone(),
            basic: (!serving.http_auth_file.is_empty()).then(|| http::BasicConfig {
                file: PathBuf::from(&serving.http_auth_file),
                realm: serving.http_auth_realm.clone(),
                // As in the original, whose scrapers send no password; --token-file guards everything.
                everything: false,
            }),
            ..http::Config::new(listen)
        }
    }

    pub fn config(&self) -> Result<Config> {
        self.refuse_what_is_missing()?;
        let sampling = &self.sampling;
        let housekeeping = self.housekeeping();
        if housekeeping < Duration::from_millis(10) {
            bail!("--housekeeping_interval must be at least 10ms");
        }
        if self.containers.global_housekeeping_interval < Duration::from_secs(1) {
            bail!(
                "--global_housekeeping_interval must be at least 1s; changes in between are seen at once anyway"
            );
        }
        if self.machine.update_machine_info_interval < Duration::from_secs(1) {
            bail!("--update_machine_info_interval must be at least 1s");
        }
        if sampling.jitter_factor.is_nan() || sampling.jitter_factor > 100.0 {
            bail!("--jitter_factor is a share of the interval, 0.1 for up to ten per cent");
        }
        if !(0.0..=1024.0).contains(&sampling.cpu_budget) {
            bail!("--cpu-budget is a share of one core, 0.05 for five per cent");
        }
        self.serving.check_endpoint()?;
        self.cluster.check()?;
        let enable = Some(sampling.enable_metrics.as_str());
        let disable = sampling.disable_metrics.as_deref();
        let groups = GroupSet::from_flags(enable, disable)?;
        let containers = &self.containers;
        let rules = Rules {
            docker_only: containers.docker_only,
            raw_prefixes: containers
                .raw_cgroup_prefix_whitelist
                .split(',')
                .map(str::to_owned)
                .collect(),
            // Its quirks only matter where it runs.
            crio_sockets: list(&containers.cri)
                .filter_map(|cri| socket_path(&cri))
                .collect(),
        };
        Ok(Config {
            sampling: sampler::Config {
                interval: housekeeping,
                page_age: self.page_age(),
                spec_refresh: housekeeping.clamp(LIMITS_AT_MOST_EVERY, LIMITS_AT_LEAST_EVERY),
                max_interval: sampling.max_housekeeping_interval,
                back_off: sampling.allow_dynamic_housekeeping,
                // The original takes a negative factor for its default of one.
                jitter: if sampling.jitter_factor < 0.0 {
                    1.0
                } else {
                    sampling.jitter_factor
                },
                cpu_budget: sampling.cpu_budget,
                no_root_stats: sampling.disable_root_cgroup_stats,
                load_reader: sampling.enable_load_reader,
                referenced_reset: sampling.referenced_reset_interval,
                perf: match sampling.perf_events_config.as_str() {
                    "" => None,
                    file => {
                        Some(perf_config::read(Path::new(file)).context("--perf_events_config")?)
                    }
                },
                rules: rules.clone(),
                ..sampler::Config::default()
            },
            groups,
            storage_duration: sampling.storage_duration,
            events: self.event_limits()?,
            labels: LabelPolicy {
                store_all: containers.store_container_labels,
                whitelist: list(&containers.whitelisted_container_labels).collect(),
            },
            rules,
            runtimes: containers.runtimes()?,
            env_whitelist: list(&containers.env_metadata_whitelist).collect(),
            rescan: containers.global_housekeeping_interval,
            machine_refresh: self.machine.update_machine_info_interval,
            kubelet_dir: self.machine.kubelet_root_dir.clone(),
            id_files: IdFiles {
                machine_id: self.machine.machine_id_file.clone(),
                boot_id: self.machine.boot_id_file.clone(),
            },
            node_name: self.machine.node_name.clone(),
            data_dir: self.machine.data_dir.clone(),
            usage_history: self.koordlet.usage_history()?,
            protect: None,
            audit: self.koordlet.audit()?,
            unavailable_features: self.koordlet.unavailable_features()?,
        })
    }

    fn refuse_what_is_missing(&self) -> Result<()> {
        if !self.accepted.storage_driver.is_empty() {
            bail!(
                "--storage_driver={}: this agent pushes to no store; scrape /metrics, or leave the flag out",
                self.accepted.storage_driver
            );
        }
        if !self.accepted.http_digest_file.is_empty() {
            bail!(
                "--http_digest_file: digest passwords are not supported; use --token-file, --client-ca or --http_auth_file"
            );
        }
        if !self.accepted.ignored.is_empty() || !self.accepted.ignored_switches.is_empty() {
            tracing::debug!("some flags are accepted for cAdvisor's sake and change nothing");
        }
        Ok(())
    }

    fn event_limits(&self) -> Result<Limits> {
        let types = EventType::ALL.map(EventType::name);
        let day = Duration::from_secs(24 * 3600);
        let age = go::by_type(
            &self.sampling.event_storage_age_limit,
            &types,
            day,
            go::duration,
        )
        .map_err(|e| anyhow!("--event_storage_age_limit: {e}"))?;
        let number = |text: &str| {
            let count: i64 = text
                .parse()
                .map_err(|_| format!("{text:?} is not a number"))?;
            // Below zero is no limit in the original.
            Ok(usize::try_from(count).unwrap_or(usize::MAX))
        };
        let count = go::by_type(
            &self.sampling.event_storage_event_limit,
            &types,
            100_000,
            number,
        )
        .map_err(|e| anyhow!("--event_storage_event_limit: {e}"))?;
        let mut limits = Limits::default();
        limits.age.copy_from_slice(&age);
        limits.count.copy_from_slice(&count);
        Ok(limits)
    }
}

impl ServingArgs {
    /// The page of metrics must not take the place of another.
    fn check_endpoint(&self) -> Result<()> {
        const TAKEN: [&str; 15] = [
            "/api",
            "/containers",
            "/debug",
            "/docker",
            "/events",
            "/external-metrics",
            "/healthz",
            "/internal-metrics",
            "/metrics/cadvisor",
            "/metrics/resource",
            "/metrics/self",
            "/podman",
            "/readyz",
            "/stats",
            "/validate",
        ];
        let path = self.prometheus_endpoint.as_str();
        if !path.starts_with('/') || path == "/" || path.ends_with('/') {
            bail!("--prometheus_endpoint {path:?} is no path of a page; write it like /metrics");
        }
        let below = |taken: &str| {
            path == taken || path.strip_prefix(taken).is_some_and(|r| r.starts_with('/'))
        };
        if let Some(taken) = TAKEN.into_iter().find(|taken| below(taken)) {
            bail!("--prometheus_endpoint {path:?} would hide {taken}; choose another path");
        }
        Ok(())
    }
}

impl ContainerArgs {
    fn runtimes(&self) -> Result<Vec<Endpoint>> {
        let socket = |flag: &str, address: &str| -> Result<Option<PathBuf>> {
            if address.is_empty() {
                return Ok(None);
            }
            let path = socket_path(address).ok_or_else(|| {
                anyhow!("--{flag} {address:?} is not a unix socket; write unix:///path/to.sock")
            })?;
            Ok(Some(path))
        };
        let mut runtimes = Vec::new();
        runtimes.extend(socket("docker", &self.docker)?.map(|socket| Endpoint::Docker { socket }));
        runtimes.extend(socket("podman", &self.podman)?.map(|socket| Endpoint::Podman { socket }));
        let containerd = socket("containerd", &self.containerd)?;
        runtimes.extend(containerd.map(|socket| Endpoint::Containerd {
            socket,
            namespace: self.containerd_namespace.clone(),
        }));
        for address in list(&self.cri) {
            runtimes.extend(socket("cri", &address)?.map(|socket| Endpoint::Cri { socket }));
        }
        Ok(runtimes)
    }
}

fn list(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(',')
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
}
