//! Flags of the original that change nothing here: a command line that has them must still work.

use anyhow::{Result, ensure};
use clap::Args;

use crate::go;

/// They take a text.
const TEXTS: [&str; 19] = [
    "advertise-address",
    "external-hostname",
    "feature-gates",
    "emulated-version",
    "min-compatibility-version",
    "audit-log-mode",
    "audit-webhook-config-file",
    "audit-webhook-mode",
    "audit-webhook-version",
    "debug-socket-path",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "log_backtrace_at",
    "log-backtrace-at",
    "log_dir",
    "log-dir",
    "log_file",
    "log-file",
    "stderrthreshold",
];

/// They take a whole number.
const INTEGERS: [&str; 12] = [
    "audit-log-batch-buffer-size",
    "audit-log-batch-max-size",
    "audit-log-batch-throttle-burst",
    "audit-log-truncate-max-batch-size",
    "audit-log-truncate-max-event-size",
    "audit-webhook-batch-buffer-size",
    "audit-webhook-batch-max-size",
    "audit-webhook-batch-throttle-burst",
    "audit-webhook-truncate-max-batch-size",
    "audit-webhook-truncate-max-event-size",
    "log_file_max_size",
    "log-file-max-size",
];

/// They take a number.
const NUMBERS: [&str; 2] = [
    "audit-log-batch-throttle-qps",
    "audit-webhook-batch-throttle-qps",
];

/// They take a time.
const DURATIONS: [&str; 4] = [
    "audit-log-batch-max-wait",
    "audit-webhook-batch-max-wait",
    "audit-webhook-initial-backoff",
    "log-flush-frequency",
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
    #[arg(long, value_parser = go::modules, hide = true)]
    vmodule: Option<String>,
    /// By their numbers in the protocol.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, hide = true)]
    tls_curve_preferences: Vec<i32>,
    #[arg(long = "inert-text", aliases = TEXTS, allow_hyphen_values = true, hide = true)]
    texts: Vec<String>,
    #[arg(long = "inert-integer", aliases = INTEGERS, allow_hyphen_values = true, hide = true)]
    integers: Vec<i64>,
    #[arg(long = "inert-number", aliases = NUMBERS, allow_hyphen_values = true, hide = true)]
    numbers: Vec<f32>,
    #[arg(
        long = "inert-duration", aliases = DURATIONS, value_parser = go::signed_duration,
        allow_hyphen_values = true, hide = true,
    )]
    durations: Vec<go::Span>,
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
    const NAMED: [&str; 2] = ["vmodule", "tls-curve-preferences"];
    let lists: [&[&str]; 6] = [&TEXTS, &INTEGERS, &NUMBERS, &DURATIONS, &SWITCHES, &NAMED];
    let mut found: Vec<String> = arguments
        .filter_map(|argument| {
            let name = argument.trim_start_matches('-');
            let is_flag = argument.starts_with('-');
            let name = name.split('=').next().unwrap_or_default();
            let known = lists.iter().any(|list| list.contains(&name));
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

    #[test]
    fn what_makes_no_sense_is_refused_all_the_same() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            _inert: InertArgs,
        }
        let check = |argument: &str, good: bool| {
            let read = <Line as clap::Parser>::try_parse_from(["x", argument]);
            assert_eq!(read.is_ok(), good, "{argument}: {read:?}");
        };
        check("--audit-webhook-batch-max-size=4", true);
        check("--audit-webhook-batch-max-size=-1", true);
        check("--audit-webhook-batch-max-size=x", false);
        check("--audit-log-batch-throttle-qps=1.5", true);
        check("--audit-log-batch-throttle-qps=x", false);
        check("--log-flush-frequency=5s", true);
        check("--log-flush-frequency=5", false);
        check("--tls-curve-preferences=29,23", true);
        check("--tls-curve-preferences=X25519", false);
        check("--vmodule=a=1,b=2", true);
        check("--vmodule=a", false);
        check("--profiling=maybe", false);
        check("--audit-webhook-mode=x", true);
    }
}
