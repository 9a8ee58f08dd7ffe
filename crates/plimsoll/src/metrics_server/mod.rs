//! `plimsoll metrics-server`.

mod args;
mod audit;
mod generic;
mod inert;
mod kubelet;
pub mod sni;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use plimsoll_apimachinery::selector::parse_labels;
use plimsoll_client::reflector::CacheSync;
use plimsoll_client::shutdown;
use plimsoll_metrics_server::api::Verbosity;
use plimsoll_metrics_server::collector::{self, Collector};
use plimsoll_metrics_server::config::Config;
use plimsoll_metrics_server::scrape::{self, Rules, Trust};
use plimsoll_metrics_server::server::{self, Figures};

pub use args::MetricsServerArgs;

use crate::logging::Log;
use crate::signals::Signals;
use crate::{Failure, go, raise_descriptor_limit, runtime};

/// For requests to finish after a signal.
const DRAIN: Duration = Duration::from_secs(60);

impl MetricsServerArgs {
    pub fn wants_json_log(&self) -> bool {
        self.inert.logging_format == "json"
    }

    pub fn verbosity(&self) -> i32 {
        self.inert.verbosity.unwrap_or(0)
    }

    fn collector(&self) -> Result<collector::Config> {
        let kubelet = &self.kubelet;
        let plain = kubelet.deprecated_kubelet_completely_insecure;
        let defaults = collector::Config::default();
        let selector = self.figures.node_selector.trim();
        Ok(collector::Config {
            resolution: self.resolution()?,
            keep: self.additions.keep_last_good,
            lenient_pods: self.additions.lenient_pods,
            swap: self.additions.swap,
            history: self.additions.history.filter(|span| !span.is_zero()),
            node_selector: parse_labels(selector)
                .map_err(|error| anyhow!("--node-selector: {error}"))?,
            scrape: scrape::Config {
                rules: Rules {
                    port: kubelet.kubelet_port,
                    use_status_port: kubelet.kubelet_use_node_status_port,
                    address_types: kubelet.kubelet_preferred_address_types.clone(),
                    plain,
                },
                trust: Trust {
                    insecure: kubelet.kubelet_insecure_tls,
                    authority: go::path(&kubelet.kubelet_certificate_authority),
                    client: go::path(&kubelet.kubelet_client_certificate)
                        .zip(go::path(&kubelet.kubelet_client_key)),
                    nothing: plain,
                },
                request_timeout: kubelet
                    .kubelet_request_timeout
                    .positive()
                    .context("--kubelet-request-timeout")?,
                ..defaults.scrape
            },
        })
    }
}

pub fn run(args: &MetricsServerArgs, log: Log) -> Result<(), Failure> {
    args.inert.passed_over.warn();
    if !args.words.is_empty() {
        tracing::warn!(
            words = args.words.join(" "),
            "these words belong to no flag and are passed over: a value follows its flag with =, as in --flag=true"
        );
    }
    let mut config = args.config().map_err(Failure::Usage)?;
    config.verbosity = Some(Verbosity::new(move |level| log.set_verbosity(level)));
    let collector = args.collector().map_err(Failure::Usage)?;
    let clients = plimsoll_client::Config::from_flag(args.kubeconfig());
    raise_descriptor_limit();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime(cpus.min(4)).map_err(Failure::Run)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let roles = Roles::start(config, collector, clients).await?;
        let outcome = tokio::select! {
            failure = roles.failure() => Err(failure.into()),
            () = signals.next() => Ok(()),
        };
        tracing::info!("stopping");
        tokio::select! {
            () = roles.drain(DRAIN) => outcome,
            () = signals.next() => Err(anyhow!("stopped at once, by a second signal")),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map_err(Failure::Run)
}

/// Both halves: who collects, and who answers.
#[derive(Debug)]
pub struct Roles {
    collecting: collector::Running,
    pub serving: server::Running,
}

impl Roles {
    pub async fn start(
        config: Config,
        collector: collector::Config,
        clients: plimsoll_client::Config,
    ) -> Result<Self> {
        let clients = clients.build().await?;
        let identity = clients.clone();
        let source: scrape::Source = Arc::new(move || identity.config());
        let collector: Collector = collector.build(clients.client(), source)?;
        let figures = Figures {
            view: collector.view(),
            history: collector.history(),
            telemetry: collector.telemetry(),
            known: collector.gate(),
        };
        let gate = collector.gate();
        let server = config.build(clients, figures).await?;
        let collecting = collector.spawn().context("start scraping")?;
        tokio::spawn(tell_what_is_missing(gate));
        Ok(Self {
            collecting,
            serving: server.spawn(),
        })
    }

    /// Waits for a failure of what must not fail.
    pub fn failure(&self) -> impl Future<Output = shutdown::Failure> + Send + use<> {
        let (collecting, serving) = (self.collecting.failure(), self.serving.failure());
        async {
            tokio::select! {
                failure = collecting => failure,
                failure = serving => failure,
            }
        }
    }

    pub async fn drain(self, within: Duration) {
        self.serving.drain(within).await;
        self.collecting.drain(within).await;
    }
}

async fn tell_what_is_missing(gate: CacheSync) {
    gate.opens_at_last().await;
    tracing::info!("all nodes and pods are known");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(args_override_self = true)]
    struct Line {
        #[command(flatten)]
        args: MetricsServerArgs,
    }

    fn args(line: &str) -> Result<MetricsServerArgs, clap::Error> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[track_caller]
    fn check_refused(line: &str, expected: &str) {
        let args = args(line).unwrap();
        let error = args.config().err().or_else(|| args.collector().err());
        assert_eq!(error.unwrap().to_string(), expected, "{line}");
    }

    #[test]
    fn what_is_refused_and_in_which_words() {
        for (line, expected) in [
            (
                "--kubelet-insecure-tls --kubelet-certificate-authority x",
                "cannot use both --kubelet-certificate-authority and --kubelet-insecure-tls",
            ),
            (
                "--kubelet-client-key x",
                "need both --kubelet-client-key and --kubelet-client-certificate",
            ),
            (
                "--kubelet-client-key x --kubelet-client-certificate y --deprecated-kubelet-completely-insecure",
                "cannot use both --kubelet-client-key and --deprecated-kubelet-completely-insecure",
            ),
            (
                "--kubelet-insecure-tls=true --deprecated-kubelet-completely-insecure=true",
                "cannot use both --kubelet-insecure-tls and --deprecated-kubelet-completely-insecure",
            ),
            (
                "--kubelet-certificate-authority=x --deprecated-kubelet-completely-insecure",
                "cannot use both --kubelet-certificate-authority and --deprecated-kubelet-completely-insecure",
            ),
            (
                "--kubelet-request-timeout=-1s",
                "kubelet-request-timeout should be positive",
            ),
            (
                "--metric-resolution=5s",
                "metric-resolution should be a time duration at least 10s, but value 5s provided",
            ),
            (
                "--metric-resolution=500ms --allow-fast-resolution --kubelet-request-timeout 100ms",
                "metric-resolution should be a time duration at least 1s, but value 500ms provided",
            ),
            (
                "--metric-resolution=10s",
                "metric-resolution should be larger than kubelet-request-timeout, but metric-resolution value 10s kubelet-request-timeout value 10s provided",
            ),
            (
                "--goaway-chance 0.5",
                "--goaway-chance can not be less than 0 or greater than 0.02",
            ),
            (
                "--max-requests-inflight=-1",
                "--max-requests-inflight can not be negative value",
            ),
            (
                "--livez-grace-period=-1s",
                "--livez-grace-period can not be a negative value",
            ),
            (
                "--storage-initialization-timeout=-1s",
                "--storage-initialization-timeout can not be negative value",
            ),
            (
                "--cors-allowed-origins //a$,foo",
                "--cors-allowed-origins has an invalid regular expression: regular expression does not pin to \
                 start/end of host in the origin header, help: write //example\\.com(:|$) instead of \"foo\"",
            ),
            (
                "--cors-allowed-origins //a$,,//b$",
                "empty value in --cors-allowed-origins, help: write //example\\.com(:|$)",
            ),
            (
                "--strict-transport-security-directives max-age=1,x,y=2,,",
                "[--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, \
                 preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information, empty value in \
                 strict-transport-security-directives]",
            ),
            (
                "--min-request-timeout=-1 --livez-grace-period=-1s --goaway-chance=1",
                "--livez-grace-period can not be a negative value",
            ),
            (
                "--tls-cipher-suites TLS_AES_128_GCM_SHA256,foo",
                "Cipher suite foo not supported or doesn't exist",
            ),
            (
                "--logging-format xml",
                "format: Invalid value: \"xml\": Unsupported log format",
            ),
            (
                "--node-selector a===",
                "--node-selector: unable to parse requirement: found '=', expected: identifier",
            ),
        ] {
            check_refused(line, expected);
        }
    }

    #[test]
    fn the_command_line_of_the_manifests() {
        let args = args(
            "--cert-dir=/tmp --secure-port=10250 --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname \
             --kubelet-use-node-status-port --metric-resolution=15s -l zone=1 --profiling=false -v=2 \
             --authorization-always-allow-paths=/livez,/metrics --tls-sni-cert-key a.crt,a.key:x.y --requestheader-allowed-names=",
        )
        .unwrap();
        let config = args.config().unwrap();
        assert_eq!(config.front.serving.listen.port(), 10250);
        assert_eq!(
            config.front.authorization.rules.always_allow_paths,
            ["/livez", "/metrics"]
        );
        assert_eq!(config.front.serving.named[0].names, ["x.y"]);
        let collector = args.collector().unwrap();
        assert_eq!(collector.resolution, Duration::from_secs(15));
        assert!(collector.scrape.rules.use_status_port);
        assert_eq!(collector.scrape.rules.address_types[0], "InternalIP");
        assert_eq!(collector.node_selector.len(), 1);
    }

    #[test]
    fn words_that_belong_to_no_flag() {
        let args = args("--kubelet-insecure-tls true --metric-resolution 15s extra").unwrap();
        assert_eq!(args.words, ["true", "extra"]);
        assert!(args.kubelet.kubelet_insecure_tls);
        args.config().unwrap();
    }

    #[test]
    fn how_long_requests_may_take() {
        let limit = |line| args(line).unwrap().config().unwrap().request_timeout;
        assert_eq!(limit(""), Duration::from_secs(60));
        assert_eq!(limit("--request-timeout=5s"), Duration::from_secs(5));
        assert!(limit("--request-timeout=0") > Duration::from_secs(1 << 20));
    }

    #[test]
    fn defaults_are_the_originals() {
        let args = args("").unwrap();
        let config = args.config().unwrap();
        assert_eq!(config.front.serving.listen.port(), 443);
        assert_eq!(config.max_in_flight, (400, 200));
        assert_eq!(config.front.authorization.rules.always_allow_paths.len(), 3);
        let collector = args.collector().unwrap();
        assert_eq!(collector.resolution, Duration::from_secs(60));
        assert_eq!(collector.scrape.rules.port, 10250);
        assert_eq!(collector.scrape.rules.address_types.len(), 5);
        assert_eq!(collector.scrape.request_timeout, Duration::from_secs(10));
    }
}
