//! Flags of every role that serves behind the cluster's authentication and authorization.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use plimsoll_serving::auth::{
    AuthorizerConfig, DelegatedAuthConfig, FrontProxyFiles, RequestHeaderConfig,
};
use plimsoll_serving::secure_serving::{Authentication, Authorization, Serving};
use plimsoll_serving::{CipherSuites, KeyPairFiles, NamedFiles};

use crate::go;
use crate::metrics_server::sni;

#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Address to listen on; 0.0.0.0 is all of them, IPv6 too
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// Port to serve HTTPS on [default: 443; scheduler: 10259]
    #[arg(long, value_name = "PORT")]
    secure_port: Option<u16>,
    /// Where a certificate of its own making is kept when none is given [default: apiserver.local.config/certificates;
    /// scheduler: nowhere]
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
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
pub struct AuthenticationArgs {
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
    /// Start even if the cluster does not tell them; everybody may be anonymous then [default: false; scheduler: true]
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    authentication_tolerate_lookup_failure: Option<bool>,
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
pub struct AuthorizationArgs {
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

/// An empty flag empties the list.
fn filled(list: &[String]) -> Vec<String> {
    list.iter().filter(|one| !one.is_empty()).cloned().collect()
}

/// To listen at all addresses of both families, as far as this machine has them.
pub fn all_addresses() -> IpAddr {
    match std::path::Path::new("/proc/net/if_inet6").exists() {
        true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

impl ServingArgs {
    /// What was asked for, if anything.
    pub fn port(&self) -> Option<u16> {
        self.secure_port
    }

    fn listen(&self, port: u16) -> SocketAddr {
        let ip = match self.bind_address {
            IpAddr::V4(ip) if ip.is_unspecified() => all_addresses(),
            ip => ip,
        };
        SocketAddr::new(ip, self.secure_port.unwrap_or(port))
    }

    /// `port` and `folder` are a role's defaults.
    pub fn config(&self, port: u16, folder: Option<&str>) -> Result<Serving> {
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
            listen: self.listen(port),
            cert_dir: match &self.cert_dir {
                Some(given) => Some(given.clone()).filter(|dir| !dir.as_os_str().is_empty()),
                None => folder.map(PathBuf::from),
            },
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
                names => Some(CipherSuites::named(names)?),
            },
        })
    }
}

impl AuthenticationArgs {
    /// `tolerate`: a role's default for starting without the cluster's word.
    pub fn config(&self, tolerate: bool) -> Authentication {
        let front_proxy = go::path(&self.requestheader_client_ca_file).map(|ca_file| {
            let rules = RequestHeaderConfig {
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
            delegation: DelegatedAuthConfig {
                skip_lookup: self.authentication_skip_lookup,
                tolerate_lookup_failure: self
                    .authentication_tolerate_lookup_failure
                    .unwrap_or(tolerate),
                client_ca_file: go::path(&self.client_ca_file),
                front_proxy,
            },
            tokens_last: self.authentication_token_webhook_cache_ttl,
        }
    }
}

impl AuthorizationArgs {
    pub fn config(&self) -> Authorization {
        Authorization {
            kubeconfig: go::path(&self.authorization_kubeconfig),
            rules: AuthorizerConfig {
                always_allow_paths: filled(&self.authorization_always_allow_paths),
                allowed_lasts: self.authorization_webhook_cache_authorized_ttl,
                refused_lasts: self.authorization_webhook_cache_unauthorized_ttl,
            },
        }
    }
}
