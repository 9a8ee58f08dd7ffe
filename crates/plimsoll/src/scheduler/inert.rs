//! Flags of the original that change nothing here: a command line that has them must still work.

use clap::Args;

use crate::go;

/// They take a value.
const VALUES: [&str; 11] = [
    "emulated-version",
    "min-compatibility-version",
    "show-hidden-metrics-for-version",
    "disabled-metrics",
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "tls-curve-preferences",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "vmodule",
];

/// They are on or off.
const SWITCHES: [&str; 6] = [
    "profiling",
    "contention-profiling",
    "permit-address-sharing",
    "permit-port-sharing",
    "log-json-split-stream",
    "log-text-split-stream",
];

#[derive(Debug, Args)]
pub struct InertArgs {
    /// klog's verbosity; from 4 on it means debug.
    #[arg(short = 'v', long = "v", hide = true)]
    pub verbosity: Option<i32>,
    /// `json` is the same as --log-format json.
    #[arg(long, default_value = "text", hide = true)]
    pub logging_format: String,
    #[arg(long = "inert-value", aliases = VALUES, allow_hyphen_values = true, hide = true)]
    values: Vec<String>,
    #[arg(
        long = "inert-switch",
        aliases = SWITCHES,
        value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Append, hide = true,
    )]
    switches: Vec<bool>,
}
