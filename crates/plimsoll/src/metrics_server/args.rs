//! `plimsoll metrics-server`: its flags, and the server they describe.
//!
//! Flags that metrics-server has keep its names, defaults and meaning; those of ours are the last group of the help.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use plimsoll_golang::GoDuration;
use plimsoll_metrics_server::api::Announced;
use plimsoll_metrics_server::config::Config;

use super::audit::AuditArgs;
use super::generic::GenericArgs;
use super::inert::InertArgs;
use super::kubelet::KubeletArgs;
use crate::front_args::{AuthenticationArgs, AuthorizationArgs, ServingArgs};
use crate::go;

/// What `kubectl top`, HorizontalPodAutoscalers and VerticalPodAutoscalers ask (metrics-server's job)
///
/// Asks every node's kubelet for the CPU and memory that its pods use, keeps the last two answers, and serves what they
/// amount to as metrics.k8s.io behind the cluster's API server. Command lines written for metrics-server 0.9 work as
/// they are.
#[derive(Debug, Args)]
#[command(after_long_help = "\
In a cluster:

  kubectl apply -f deploy/metrics-server/components.yaml
  kubectl top nodes

Outside, to try it on a cluster that you administer:

  plimsoll metrics-server --kubeconfig ~/.kube/config --secure-port 4443 --cert-dir /tmp/ms \\
    --kubelet-insecure-tls --metric-resolution 15s
  curl -k -H \"Authorization: Bearer $TOKEN\" https://127.0.0.1:4443/apis/metrics.k8s.io/v1beta1/nodes

What to look at when figures are missing: /readyz?verbose says what it waits for, /metrics counts failed
scrapes by reason, and the log names the nodes.")]
pub struct MetricsServerArgs {
    #[command(flatten)]
    pub figures: FigureArgs,
    #[command(flatten)]
    pub kubelet: KubeletArgs,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    authentication: AuthenticationArgs,
    #[command(flatten)]
    authorization: AuthorizationArgs,
    #[command(flatten)]
    generic: GenericArgs,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    pub additions: AdditionArgs,
    #[command(flatten)]
    pub inert: InertArgs,
    /// The original passes over words that belong to no flag, and so do we: `--kubelet-insecure-tls true` is often meant
    /// to be `--kubelet-insecure-tls=true`.
    #[arg(value_name = "WORD", hide = true)]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Figures")]
pub struct FigureArgs {
    /// Time between two scrapes of a node, at least 10s (see --allow-fast-resolution)
    ///
    /// CPU usage is an average over about this time. Kubelets measure every 10 to 15 seconds themselves, so asking more
    /// often than every 15s mostly brings the same figures again.
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true, default_value = "1m0s")]
    pub metric_resolution: GoDuration,
    /// Kubeconfig for the API server and the kubelets; inside a cluster it goes without
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    pub kubeconfig: String,
    /// Only scrape and list nodes whose labels match: disktype=ssd, !virtual, zone in (a,b)
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    pub node_selector: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "ExtraReads metrics-server")]
pub struct AdditionArgs {
    /// Show a pod even if some of its containers have no figures yet; those are left out
    #[arg(long)]
    pub lenient_pods: bool,
    /// Show how much swap is used as well, where kubelets tell (kubectl top --show-swap)
    #[arg(long)]
    pub swap: bool,
    /// How long a node's last figures are shown when it cannot be scraped any more [default: four resolutions]
    ///
    /// They keep their true timestamp. With 0s a node and its pods vanish when one scrape fails, as they do with
    /// metrics-server.
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true)]
    pub keep_last_good: Option<Duration>,
    /// Remember what workloads used for this long: 24h
    ///
    /// Least, mean, most and 95th percentile of each container of each workload, in 288 steps, in memory; read them at
    /// /apis/history.plimsoll.dev/v1alpha1/workloads. About 10 KiB a container, for at most 4096 of them.
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true)]
    pub history: Option<Duration>,
    /// Accept a --metric-resolution of down to 1s
    #[arg(long)]
    pub allow_fast_resolution: bool,
    /// Tell of metrics.k8s.io/v1 in discovery, beside v1beta1
    ///
    /// Both are always served. Register the APIService v1.metrics.k8s.io as well, or clients that prefer v1 will ask
    /// for it in vain.
    #[arg(long)]
    pub announce_v1: bool,
}

const PORT: u16 = 443;
const FOLDER: &str = "apiserver.local.config/certificates";
const SHORTEST: Duration = Duration::from_secs(10);
const SHORTEST_IF_ALLOWED: Duration = Duration::from_secs(1);

impl MetricsServerArgs {
    /// What is wrong first, in the words of the original where it has some.
    fn validate(&self) -> Result<()> {
        self.kubelet.validate()?;
        let resolution = &self.figures.metric_resolution;
        let shortest = match self.additions.allow_fast_resolution {
            true => SHORTEST_IF_ALLOWED,
            false => SHORTEST,
        };
        let long_enough = resolution.positive().is_some_and(|span| span >= shortest);
        ensure!(
            long_enough,
            "metric-resolution should be a time duration at least {}s, but value {resolution} provided",
            shortest.as_secs()
        );
        let timeout = &self.kubelet.kubelet_request_timeout;
        ensure!(
            resolution.nanos() / 10 * 9 >= timeout.nanos(),
            "metric-resolution should be larger than kubelet-request-timeout, but metric-resolution value {resolution} \
             kubelet-request-timeout value {timeout} provided"
        );
        self.inert.validate()?;
        self.generic.validate()
    }

    pub fn resolution(&self) -> Result<Duration> {
        let resolution = self.figures.metric_resolution.positive();
        resolution.context("--metric-resolution")
    }

    pub fn kubeconfig(&self) -> Option<PathBuf> {
        go::path(&self.figures.kubeconfig)
    }

    pub fn config(&self) -> Result<Config> {
        self.validate()?;
        ensure!(
            self.serving.port() != Some(0),
            "--secure-port 0 makes no sense: nobody could be told where to ask"
        );
        let mut config = Config::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)));
        config.front.serving = self.serving.config(PORT, Some(FOLDER))?;
        config.front.authentication = self.authentication.config(false);
        config.front.authorization = self.authorization.config();
        config.browsers = self.generic.browsers()?;
        config.announced = Announced {
            v1: self.additions.announce_v1,
            ..Announced::default()
        };
        let count = |number: i64| usize::try_from(number).unwrap_or(0);
        config.max_in_flight = (
            count(self.generic.max_requests_inflight),
            count(self.generic.max_mutating_requests_inflight),
        );
        config.request_timeout = self.generic.request_timeout();
        config.audit = self.audit.audit()?;
        config.shutdown_delay = self
            .generic
            .shutdown_delay_duration
            .positive()
            .unwrap_or_default();
        Ok(config)
    }
}
