//! `plimsoll metrics-server`: its flags, and the server they describe.
//!
//! Flags that metrics-server has keep its names, defaults and meaning; those of ours are the last group of the help.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use plimsoll_ground::auth::{DelegationConfig, FrontProxyFiles, FrontProxyRules};
use plimsoll_ground::serve::{KeyPairFiles, NamedFiles, Suites};
use plimsoll_metrics_server::api::Announced;
use plimsoll_metrics_server::config::{Authentication, Authorization, Config, Serving};

use super::generic::GenericArgs;
use super::inert::InertArgs;
use super::kubelet::KubeletArgs;
use super::sni;
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
    pub metric_resolution: go::Span,
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
#[command(next_help_heading = "Serving")]
struct ServingArgs {
    /// Address to listen on; 0.0.0.0 is all of them, IPv6 too
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// Port to serve HTTPS on
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    secure_port: u16,
    /// Where a certificate of its own making is kept when none is given
    #[arg(
        long,
        value_name = "DIR",
        default_value = "apiserver.local.config/certificates"
    )]
    cert_dir: PathBuf,
    /// Certificate to serve with (PEM, with its chain); read again when it changes
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    tls_cert_file: String,
    /// Private key of --tls-cert-file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    tls_private_key_file: String,
    /// A further certificate for clients that call the server by other names: CERT,KEY or CERT,KEY:name,*.name
    #[arg(long, value_name = "CERT,KEY[:NAMES]", value_parser = sni::parse)]
    tls_sni_cert_key: Vec<NamedFiles>,
    /// Oldest TLS that is spoken: VersionTLS12 or VersionTLS13
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true
    )]
    tls_min_version: String,
    /// Cipher suites of TLS 1.2 to speak, by Go's names; those of TLS 1.3 are always spoken
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Speak HTTP/1.1 only
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    disable_http2_serving: bool,
    /// Requests at once on one HTTP/2 connection; 0 is 100
    #[arg(long, value_name = "N", default_value_t = 0)]
    http2_max_streams_per_connection: u32,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Who asks")]
struct AuthenticationArgs {
    /// Kubeconfig to have tokens reviewed with [default: that of --kubeconfig, or the cluster's]
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    authentication_kubeconfig: String,
    /// Do not ask the cluster for its client authority and front proxy
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    authentication_skip_lookup: bool,
    /// Start even if the cluster does not tell them; everybody may be anonymous then
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    authentication_tolerate_lookup_failure: bool,
    /// How long a reviewed token counts
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "10s")]
    authentication_token_webhook_cache_ttl: Duration,
    /// Authority of clients' certificates, instead of the cluster's
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    client_ca_file: String,
    /// Authority of front proxies' certificates, instead of the cluster's
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    requestheader_client_ca_file: String,
    /// Names that a front proxy's certificate may have; none given allows any
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers in which a front proxy tells the user
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    requestheader_username_headers: Vec<String>,
    /// Headers in which it tells the groups
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    requestheader_group_headers: Vec<String>,
    /// Beginnings of headers in which it tells anything else
    #[arg(
        long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "x-remote-extra-"
    )]
    requestheader_extra_headers_prefix: Vec<String>,
    /// Headers in which it tells the user's UID
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Who may")]
struct AuthorizationArgs {
    /// Kubeconfig to have access reviewed with [default: that of --kubeconfig, or the cluster's]
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    authorization_kubeconfig: String,
    /// Paths that are open to everybody; a * at the end matches the rest. Given, it replaces the default
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    authorization_always_allow_paths: Vec<String>,
    /// How long a yes counts
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "10s")]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// How long a no counts
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "10s")]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Beyond metrics-server")]
pub struct AdditionArgs {
    /// Show a pod even if some of its containers have no figures yet; those are left out
    #[arg(long)]
    pub lenient_pods: bool,
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
            self.serving.secure_port != 0,
            "--secure-port 0 makes no sense: nobody could be told where to ask"
        );
        let allowed = &self.authorization;
        let mut config = Config::new(self.serving.listen());
        config.serving = self.serving.config()?;
        config.authentication = self.authentication.config();
        config.authorization = Authorization {
            kubeconfig: go::path(&allowed.authorization_kubeconfig),
            rules: plimsoll_ground::auth::AuthorizerConfig {
                always_allow_paths: filled(&allowed.authorization_always_allow_paths),
                allowed_lasts: allowed.authorization_webhook_cache_authorized_ttl,
                refused_lasts: allowed.authorization_webhook_cache_unauthorized_ttl,
            },
        };
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
        config.shutdown_delay = self
            .generic
            .shutdown_delay_duration
            .positive()
            .unwrap_or_default();
        Ok(config)
    }
}

/// An empty flag empties the list.
fn filled(list: &[String]) -> Vec<String> {
    list.iter().filter(|one| !one.is_empty()).cloned().collect()
}

impl ServingArgs {
    fn listen(&self) -> SocketAddr {
        let has_ipv6 = std::path::Path::new("/proc/net/if_inet6").exists();
        let ip = match self.bind_address {
            IpAddr::V4(ip) if ip.is_unspecified() && has_ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            ip => ip,
        };
        SocketAddr::new(ip, self.secure_port)
    }

    fn config(&self) -> Result<Serving> {
        let files = (
            go::path(&self.tls_cert_file),
            go::path(&self.tls_private_key_file),
        );
        let certificate = match files {
            (Some(cert), Some(key)) => Some(KeyPairFiles { cert, key }),
            (None, None) => None,
            _ => bail!("--tls-cert-file and --tls-private-key-file must be specified together"),
        };
        let tls13_only = match self.tls_min_version.as_str() {
            "" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            "VersionTLS10" | "VersionTLS11" => {
                tracing::warn!(
                    "nothing older than TLS 1.2 is spoken, whatever --tls-min-version says"
                );
                false
            }
            other => bail!("unknown tls version {other:?}; use VersionTLS12 or VersionTLS13"),
        };
        Ok(Serving {
            listen: self.listen(),
            cert_dir: self.cert_dir.clone(),
            certificate,
            names: Vec::new(),
            named: self.tls_sni_cert_key.clone(),
            http2: !self.disable_http2_serving,
            streams: match self.http2_max_streams_per_connection {
                0 => 100,
                streams => streams,
            },
            tls13_only,
            suites: match filled(&self.tls_cipher_suites).as_slice() {
                [] => None,
                names => Some(Suites::named(names)?),
            },
        })
    }
}

impl AuthenticationArgs {
    fn config(&self) -> Authentication {
        let front_proxy = go::path(&self.requestheader_client_ca_file).map(|ca_file| {
            let rules = FrontProxyRules {
                allowed_names: filled(&self.requestheader_allowed_names),
                username_headers: filled(&self.requestheader_username_headers),
                uid_headers: filled(&self.requestheader_uid_headers),
                group_headers: filled(&self.requestheader_group_headers),
                extra_prefixes: filled(&self.requestheader_extra_headers_prefix),
            };
            FrontProxyFiles { ca_file, rules }
        });
        Authentication {
            kubeconfig: go::path(&self.authentication_kubeconfig),
            delegation: DelegationConfig {
                skip_lookup: self.authentication_skip_lookup,
                tolerate_lookup_failure: self.authentication_tolerate_lookup_failure,
                client_ca_file: go::path(&self.client_ca_file),
                front_proxy,
            },
            tokens_last: self.authentication_token_webhook_cache_ttl,
        }
    }
}
