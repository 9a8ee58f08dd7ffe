//! Flags of the original that change nothing here: a command line that has them must still work.

use anyhow::{Result, ensure};
use clap::Args;

use crate::go;

/// They take a value.
const VALUES: [&str; 39] = [
    "advertise-address",
    "external-hostname",
    "feature-gates",
    "emulated-version",
    "min-compatibility-version",
    "tls-curve-preferences",
    "audit-log-batch-buffer-size",
    "audit-log-batch-max-size",
    "audit-log-batch-max-wait",
    "audit-log-batch-throttle-burst",
    "audit-log-batch-throttle-qps",
    "audit-log-mode",
    "audit-log-truncate-max-batch-size",
    "audit-log-truncate-max-event-size",
    "audit-webhook-batch-buffer-size",
    "audit-webhook-batch-max-size",
    "audit-webhook-batch-max-wait",
    "audit-webhook-batch-throttle-burst",
    "audit-webhook-batch-throttle-qps",
    "audit-webhook-config-file",
    "audit-webhook-initial-backoff",
    "audit-webhook-mode",
    "audit-webhook-truncate-max-batch-size",
    "audit-webhook-truncate-max-event-size",
    "audit-webhook-version",
    "debug-socket-path",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "vmodule",
    "log_backtrace_at",
    "log-backtrace-at",
    "log_dir",
    "log-dir",
    "log_file",
    "log-file",
    "log_file_max_size",
    "log-file-max-size",
    "stderrthreshold",
];

/// They are on or off.
const SWITCHES: [&str; 25] = [
    "emulation-forward-compatible",
    "runtime-config-emulation-forward-compatible",
    "shutdown-send-retry-after",
    "permit-address-sharing",
    "permit-port-sharing",
    "audit-log-batch-throttle-enable",
    "audit-log-truncate-enabled",
    "audit-webhook-batch-throttle-enable",
    "audit-webhook-truncate-enabled",
    "contention-profiling",
    "enable-priority-and-fairness",
    "profiling",
    "log-json-split-stream",
    "log-text-split-stream",
    "logtostderr",
    "alsologtostderr",
    "add_dir_header",
    "add-dir-header",
    "one_output",
    "one-output",
    "skip_headers",
    "skip-headers",
    "skip_log_headers",
    "skip-log-headers",
    "legacy_stderr_threshold_behavior",
];

#[derive(Debug, Args)]
pub struct InertArgs {
    /// klog's verbosity; from 4 on it means debug.
    #[arg(short = 'v', long = "v", allow_hyphen_values = true, hide = true)]
    pub verbosity: Option<i32>,
    /// `json` is the same as --log-format json.
    #[arg(long, default_value = "text", hide = true)]
    pub logging_format: String,
    #[arg(long = "inert-value", aliases = VALUES, allow_hyphen_values = true, hide = true)]
    values: Vec<String>,
    #[arg(
        long = "inert-switch",
        aliases = SWITCHES,
        value_parser = go::boolean, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Append, hide = true,
    )]
    switches: Vec<bool>,
}

impl InertArgs {
    pub fn validate(&self) -> Result<()> {
        let format = self.logging_format.as_str();
        ensure!(
            matches!(format, "text" | "json" | ""),
            "format: Invalid value: {format:?}: Unsupported log format"
        );
        Ok(())
    }
}

/// Those of the command line that will make no difference.
pub fn given(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: Vec<String> = arguments
        .filter_map(|argument| {
            let name = argument.trim_start_matches('-');
            let is_flag = argument.starts_with('-');
            let name = name.split('=').next().unwrap_or_default();
            let known = VALUES.iter().chain(&SWITCHES).any(|one| *one == name);
            (is_flag && known).then(|| format!("--{name}"))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_make_no_difference() {
        let line =
            "--profiling=false --secure-port 443 --audit-webhook-mode x -vmodule=a=1 profiling";
        let found = given(line.split(' ').map(str::to_owned));
        assert_eq!(found, ["--audit-webhook-mode", "--profiling", "--vmodule"]);
    }
}
