//! The agent in a cluster: its flags, and the states and reports they describe.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use futures::FutureExt;
use futures::future::select_all;
use plimsoll_agent::states::{Access, AddressType, PodSource, READ_ONLY_PORT};
use plimsoll_agent::{ClusterHealth, NodeHandle, World, reports, states};
use plimsoll_client::shutdown;

use crate::{Called, go};

/// Who the API server and the kubelet are asked for, and how often.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Follow this cluster and report to it; the node's name is --node-name
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Follow the cluster that this runs in, and report to it [default under the name koordlet]
    #[arg(long, conflicts_with = "kubeconfig")]
    in_cluster: bool,
    /// Requests to the API server a second
    #[arg(long, value_name = "N", default_value_t = 20.0)]
    kube_api_qps: f64,
    /// Requests to the API server in a row
    #[arg(long, value_name = "N", default_value_t = 30)]
    kube_api_burst: u32,
    /// Who says which pods there are
    #[arg(long, value_name = "WHO", default_value = "kubelet")]
    pods_from: PodsFrom,
    /// Where the kubelet is [default: as the node's addresses say]
    #[arg(long, value_name = "ADDRESS")]
    kubelet_address: Option<String>,
    /// Which of the node's addresses the kubelet is asked by: InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS
    #[arg(long, value_name = "TYPE", default_value = "InternalIP")]
    kubelet_preferred_address_type: String,
    /// Ask the kubelet's read-only port, without TLS and credentials
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    kubelet_insecure_tls: bool,
    /// With --kubelet-insecure-tls: that port
    #[arg(long, value_name = "PORT", default_value_t = READ_ONLY_PORT)]
    kubelet_read_only_port: u16,
    /// Ask the kubelet for its pods this often, and whenever a pod's cgroup appears
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "10s")]
    kubelet_sync_interval: Duration,
    /// How long the kubelet may take to answer
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "3s")]
    kubelet_sync_timeout: Duration,
    /// Do not ask the kubelet how it manages CPUs
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    disable_query_kubelet_config: bool,
    /// The kubelet's folder on the machine
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    var_lib_kubelet_dir: String,
    /// Report what the node uses, as its NodeMetric asks for
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true")]
    enable_node_metric_report: bool,
    /// Report before the time when CPU or memory have moved by more than this share of the node; 0: never
    ///
    /// What is reported are averages (of five minutes unless the NodeMetric asks otherwise), and it is those that have to
    /// move. However much moves, there are no more than six reports a minute.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    report_early_percent: f64,
    /// Tell how CPUs and memory lie (NodeResourceTopology), looking no more often than this; 0s: do not
    #[arg(long, value_name = "DURATION", value_parser = go::duration, default_value = "3s")]
    node_topology_sync_interval: Duration,
    /// With Accelerators: where files tell of devices that are no GPUs of NVIDIA's
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/koordlet/xpu-device-infos"
    )]
    xpu_device_infos_dir: String,
    /// With Accelerators: tell of nothing but what those files tell
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    xpu_enforce_collect_from_device_infos: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PodsFrom {
    /// Static pods included, and without the API server
    Kubelet,
    Apiserver,
}

/// What is switched on.
#[derive(Debug, Clone, Copy)]
pub struct Gates {
    pub topology: bool,
    pub hugepages: bool,
    pub volumes: bool,
    pub accelerators: bool,
    pub rdma: bool,
}

/// Where a pod has its service account's.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

pub fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

impl ClusterArgs {
    /// `None`: there is no cluster to follow.
    pub fn source(&self, called: Called) -> Option<plimsoll_client::Config> {
        let inside = called == Called::Koordlet && is_in_pod();
        let wanted = self.kubeconfig.is_some() || self.in_cluster || inside;
        wanted.then(|| {
            let mut config = plimsoll_client::Config::from_flag(self.kubeconfig.clone());
            config.rate = Some((self.kube_api_qps, self.kube_api_burst));
            config.user_agent = "koordlet".to_owned();
            config
        })
    }

    /// Whom to ask who may look: the cluster that is followed, or that of the pod this runs in.
    pub fn judge(&self, called: Called) -> Option<plimsoll_client::Config> {
        let inside = is_in_pod() && Path::new(TOKEN).exists();
        self.source(called)
            .or_else(|| inside.then(|| plimsoll_client::Config::from_flag(None)))
    }

    /// What is no type of address is taken for the default, as koordlet does.
    fn address_type(&self) -> AddressType {
        let asked = self.kubelet_preferred_address_type.as_str();
        AddressType::named(asked).unwrap_or_else(|| {
            tracing::warn!(
                asked,
                "--kubelet-preferred-address-type is no type of address, using InternalIP"
            );
            AddressType::default()
        })
    }

    /// Whether the kubelet is asked how it is set up.
    pub fn asks_kubelet_for_settings(&self) -> bool {
        self.pods_from == PodsFrom::Kubelet && !self.disable_query_kubelet_config
    }

    pub fn check(&self) -> Result<()> {
        if self.kubelet_sync_interval < Duration::from_secs(1) {
            bail!("--kubelet-sync-interval must be at least 1s; new pods are seen at once anyway");
        }
        if !(0.0..=100.0).contains(&self.report_early_percent) {
            bail!("--report-early-percent is a share of the node, 5 for five per cent");
        }
        if !(self.kube_api_qps > 0.0 && self.kube_api_burst > 0) {
            bail!("--kube-api-qps and --kube-api-burst must be more than 0");
        }
        Ok(())
    }

    pub fn states(
        &self,
        name: &str,
        gates: Gates,
        clients: &plimsoll_client::Clients,
    ) -> states::Config {
        let access = Access {
            clients: clients.clone(),
            plain_port: self
                .kubelet_insecure_tls
                .then_some(self.kubelet_read_only_port),
            address: self.kubelet_address.clone(),
            address_type: self.address_type(),
            timeout: self.kubelet_sync_timeout,
        };
        states::Config {
            pods: match self.pods_from {
                PodsFrom::Apiserver => PodSource::ApiServer,
                PodsFrom::Kubelet => PodSource::Kubelet {
                    access: Box::new(access),
                    every: self.kubelet_sync_interval,
                },
            },
            volumes: gates.volumes,
            kubelet_settings: !self.disable_query_kubelet_config,
            ..states::Config::new(name)
        }
    }

    pub fn reports(&self, name: &str, gates: Gates) -> reports::Config {
        let topology = Some(self.node_topology_sync_interval);
        reports::Config {
            early: self.report_early_percent / 100.0,
            metrics: self.enable_node_metric_report,
            topology: topology.filter(|every| gates.topology && !every.is_zero()),
            hugepages: gates.hugepages,
            devices: reports::Devices {
                gpus: gates.accelerators,
                rdma: gates.rdma,
                xpu_dir: self.xpu_device_infos_dir.clone(),
                only_xpu_files: self.xpu_enforce_collect_from_device_infos,
            },
            kubelet_folder: self.var_lib_kubelet_dir.clone(),
            ..reports::Config::new(name)
        }
    }
}

/// The agent as a member of a cluster.
#[derive(Debug)]
pub struct Member {
    states: states::Running,
    reports: Option<reports::Running>,
    stopper: Option<shutdown::ShutdownTrigger>,
    /// Evictions and the socket of protection.
    protection: Option<shutdown::ShutdownTrigger>,
}

impl Member {
    /// Without a memory there is nothing to report.
    pub fn start(
        client: kube::Client,
        mut states: states::Config,
        mut reports: reports::Config,
        view: &NodeHandle,
        world: &World,
    ) -> Self {
        states.pod_hint = view.pod_hint();
        // They are missed together, and that is said once.
        reports.absence = states.absence.clone();
        let cluster_state = view.cluster_state().clone();
        let states = states.build(client.clone(), cluster_state.clone()).spawn();
        let protection = view
            .protection()
            .map(|started| started.serve(client.clone(), cluster_state.clone(), &reports.name));
        let reports = view.history().map(|history| {
            let sources = reports::Sources {
                cluster_state,
                figures: history.clone(),
                clock: world.clock.clone(),
                root: world.root.clone(),
            };
            reports.build(client, sources).spawn()
        });
        view.show(ClusterHealth {
            states: states.counters(),
            rounds: states.rounds().to_vec(),
            reports: reports.as_ref().map(reports::Running::counters),
            reporting_check: states.reporting_check(),
        });
        Self {
            states,
            reports,
            stopper: None,
            protection,
        }
    }

    /// By flags; `None`: there is no cluster.
    pub async fn by_flags(
        args: &ClusterArgs,
        source: plimsoll_client::Config,
        name: &str,
        gates: Gates,
        view: &NodeHandle,
        world: &World,
    ) -> Result<Self> {
        let clients = source.build().await.context("the cluster")?;
        let (stopper, shutdown) = shutdown::channel();
        clients.spawn_reload(shutdown);
        let (states, reports) = (
            args.states(name, gates, &clients),
            args.reports(name, gates),
        );
        tracing::info!(
            node = name,
            api_server = clients.address(),
            "following the cluster"
        );
        let member = Self::start(clients.client(), states, reports, view, world);
        Ok(Self {
            stopper: Some(stopper),
            ..member
        })
    }

    /// Waits for a failure of what must not fail.
    pub async fn failure(&self) -> shutdown::Failure {
        let all = [
            self.stopper.as_ref().map(|one| one.failure().boxed()),
            self.protection.as_ref().map(|one| one.failure().boxed()),
            self.reports.as_ref().map(|one| one.failure().boxed()),
            Some(self.states.failure().boxed()),
        ];
        select_all(all.into_iter().flatten()).await.0
    }

    pub async fn drain(self, deadline: Duration) {
        if let Some(reports) = self.reports {
            reports.drain(deadline).await;
        }
        if let Some(protection) = self.protection {
            protection.stop();
        }
        self.states.drain(deadline).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &[&str]) -> ClusterArgs {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ClusterArgs,
        }
        let line = [&["koordlet"], line].concat();
        <Line as clap::Parser>::try_parse_from(line).unwrap().args
    }

    #[test]
    fn any_type_of_address_is_accepted() {
        for (asked, expected) in [
            ("InternalIP", AddressType::InternalIp),
            ("ExternalIP", AddressType::ExternalIp),
            ("Hostname", AddressType::Hostname),
            ("InternalDNS", AddressType::InternalDns),
            ("ExternalDNS", AddressType::ExternalDns),
            // Koordinator's agent goes on with its default.
            ("Nonsense", AddressType::InternalIp),
            ("", AddressType::InternalIp),
        ] {
            let args = args(&["--kubelet-preferred-address-type", asked]);
            args.check().unwrap();
            assert_eq!(args.address_type(), expected, "{asked}");
        }
    }
}
