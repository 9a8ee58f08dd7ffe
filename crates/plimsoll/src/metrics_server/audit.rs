//! `--audit-…`: who asked for what, written down.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use plimsoll_metrics_server::audit::{Audit, Log, LogConfig, Policy};

use crate::go;

const MIB: u64 = 1 << 20;
const DAY: u64 = 24 * 3600;

#[derive(Debug, Args)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// What to write down: an audit.k8s.io/v1 Policy; without one nothing is
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    audit_policy_file: String,
    /// Where to write events, a line of JSON each; - is standard output
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    audit_log_path: String,
    /// Size after which the log begins anew, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Logs that are kept beside the current one; 0 is any number
    #[arg(long, value_name = "N", default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Days that they are kept; 0 is for ever
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    audit_log_maxage: u64,
    /// Compress them
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    audit_log_compress: bool,
    #[arg(long, value_name = "FORMAT", default_value = "json", hide = true)]
    audit_log_format: String,
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "audit.k8s.io/v1",
        hide = true
    )]
    audit_log_version: String,
}

impl AuditArgs {
    /// `None`: nobody wants to know.
    pub fn audit(&self) -> Result<Option<Audit>> {
        let (policy, path) = (go::path(&self.audit_policy_file), &self.audit_log_path);
        let (Some(policy), false) = (policy, path.is_empty()) else {
            return Ok(None);
        };
        ensure!(
            self.audit_log_format == "json",
            "--audit-log-format: only json is written"
        );
        ensure!(
            self.audit_log_version == "audit.k8s.io/v1",
            "--audit-log-version: only audit.k8s.io/v1 is written"
        );
        let text = std::fs::read_to_string(&policy);
        let text =
            text.with_context(|| format!("loading audit policy file: {}", policy.display()))?;
        let policy = Policy::parse(&text).context("loading audit policy file")?;
        let log = Log::open(LogConfig {
            path: PathBuf::from(path),
            longest: self.audit_log_maxsize * MIB,
            backups: self.audit_log_maxbackup,
            kept_for: Duration::from_secs(self.audit_log_maxage * DAY),
            compress: self.audit_log_compress,
        });
        let log = log.with_context(|| format!("--audit-log-path {path}"))?;
        Ok(Some(Audit::new(policy, log)))
    }
}
