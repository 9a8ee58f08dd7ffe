//! Flags of the original that change nothing here: a command line that has them must still work.

use anyhow::{Result, ensure};
use clap::Args;

use crate::inert::{Flags, PassedOver, Takes};

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
    #[command(flatten)]
    pub passed_over: PassedOver<Inert>,
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

#[derive(Debug)]
pub struct Inert;

impl Flags for Inert {
    const FLAGS: &'static [(Takes, &'static [&'static str])] = &[
        (Takes::Text, &TEXTS),
        (Takes::Integer, &INTEGERS),
        (Takes::Number, &NUMBERS),
        (Takes::Duration, &DURATIONS),
        (Takes::Switch, &SWITCHES),
        (Takes::Modules, &["vmodule"]),
        (Takes::Integer, &["tls-curve-preferences"]),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::go;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        inert: InertArgs,
    }

    fn read(line: &str) -> Result<Line, clap::Error> {
        let words = line.split(' ').map(str::to_owned).map(go::double_dashes);
        <Line as clap::Parser>::try_parse_from(std::iter::once("x".to_owned()).chain(words))
    }

    #[test]
    fn which_make_no_difference() {
        let line =
            read("--profiling=false --audit-webhook-mode x -vmodule=a=1 --logging-format json");
        let found = line.unwrap().inert.passed_over.names;
        assert_eq!(found, ["--audit-webhook-mode", "--profiling", "--vmodule"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_all_the_same() {
        #[track_caller]
        fn check(line: &str, good: bool) {
            let read = read(line);
            assert_eq!(read.is_ok(), good, "{line}: {read:?}");
            if let Err(error) = read {
                let flag = line.split('=').next().unwrap();
                assert!(error.to_string().contains(flag), "{error}");
            }
        }
        check("--audit-webhook-batch-max-size=4", true);
        check("--audit-webhook-batch-max-size -1", true);
        check("--audit-webhook-batch-max-size=x", false);
        check("--audit-log-batch-throttle-qps=1.5", true);
        check("--audit-log-batch-throttle-qps=x", false);
        check("--log-flush-frequency=5s", true);
        check("--log-flush-frequency=5", false);
        check("--tls-curve-preferences=29,23", true);
        check("--tls-curve-preferences=X25519", false);
        check("--vmodule=a=1,b=2", true);
        check("--vmodule=a", false);
        check("--profiling", true);
        check("--profiling=maybe", false);
        check("--audit-webhook-mode=x", true);
    }
}
