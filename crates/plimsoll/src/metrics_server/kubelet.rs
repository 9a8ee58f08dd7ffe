//! How kubelets are asked.

use anyhow::{Result, bail, ensure};
use clap::Args;
use plimsoll_golang::GoDuration;

use crate::go;

#[derive(Debug, Args)]
#[command(next_help_heading = "Kubelets")]
pub struct KubeletArgs {
    /// Port of kubelets whose nodes do not tell, or are not asked
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    pub kubelet_port: u16,
    /// Use the port that a node's status names
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub kubelet_use_node_status_port: bool,
    /// Which of a node's addresses to use, best first
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    pub kubelet_preferred_address_types: Vec<String>,
    /// How long one kubelet may take to answer
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true, default_value = "10s")]
    pub kubelet_request_timeout: GoDuration,
    /// Do not check kubelets' certificates
    ///
    /// For clusters whose kubelets sign their own. Whoever gets between the server and a kubelet can then read the
    /// token and tell any figures; better have the kubelets use serverTLSBootstrap.
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub kubelet_insecure_tls: bool,
    /// Authority of kubelets' certificates, instead of the cluster's
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    pub kubelet_certificate_authority: String,
    /// Certificate to show to kubelets; with --kubelet-client-key
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    pub kubelet_client_certificate: String,
    /// Its private key
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    pub kubelet_client_key: String,
    /// Ask over plain HTTP, without any credentials
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub deprecated_kubelet_completely_insecure: bool,
}

impl KubeletArgs {
    pub fn validate(&self) -> Result<()> {
        let has_ca = !self.kubelet_certificate_authority.is_empty();
        let has_key = !self.kubelet_client_key.is_empty();
        let has_certificate = !self.kubelet_client_certificate.is_empty();
        ensure!(
            !(has_ca && self.kubelet_insecure_tls),
            "cannot use both --kubelet-certificate-authority and --kubelet-insecure-tls"
        );
        ensure!(
            has_key == has_certificate,
            "need both --kubelet-client-key and --kubelet-client-certificate"
        );
        if self.deprecated_kubelet_completely_insecure {
            for (given, flag) in [
                (has_key, "kubelet-client-key"),
                (has_certificate, "kubelet-client-certificate"),
                (self.kubelet_insecure_tls, "kubelet-insecure-tls"),
                (has_ca, "kubelet-certificate-authority"),
            ] {
                if given {
                    bail!("cannot use both --{flag} and --deprecated-kubelet-completely-insecure");
                }
            }
        }
        ensure!(
            self.kubelet_request_timeout.nanos() > 0,
            "kubelet-request-timeout should be positive"
        );
        Ok(())
    }
}
