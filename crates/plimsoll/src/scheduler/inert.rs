//! Flags of the original that change nothing here: a command line that has them must still work, and what makes no sense
//! in them is refused.

use clap::Args;

use crate::go;

/// What 1.36 lets one ask for in metrics: what it has hidden since the version before.
const PREVIOUS: &str = "1.35";

#[derive(Debug, Args)]
pub struct InertArgs {
    /// klog's verbosity; from 4 on it means debug.
    #[arg(short = 'v', long = "v", hide = true)]
    pub verbosity: Option<i32>,
    /// `json` is the same as --log-format json.
    #[arg(long, default_value = "text", value_parser = format, hide = true)]
    pub logging_format: String,
    /// There is nothing to profile, but whoever reads the configuration finds what was said.
    #[arg(
        long, value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, default_value = "true", hide = true,
    )]
    pub profiling: bool,
    #[arg(
        long, value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, default_value = "true", hide = true,
    )]
    pub contention_profiling: bool,
    #[arg(
        long, value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, default_value = "false", hide = true,
    )]
    permit_address_sharing: bool,
    #[arg(
        long, value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, default_value = "false", hide = true,
    )]
    permit_port_sharing: bool,
    #[arg(
        long, value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, default_value = "false", hide = true,
    )]
    log_json_split_stream: bool,
    #[arg(
        long, value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, default_value = "false", hide = true,
    )]
    log_text_split_stream: bool,
    #[arg(long, default_value = "0", hide = true)]
    log_json_info_buffer_size: String,
    #[arg(long, default_value = "0", hide = true)]
    log_text_info_buffer_size: String,
    #[arg(long, default_value = "5s", hide = true)]
    log_flush_frequency: String,
    #[arg(long, default_value = "", value_parser = go::modules, hide = true)]
    vmodule: String,
    #[arg(long, default_value = "", value_parser = hidden, hide = true)]
    show_hidden_metrics_for_version: String,
    #[arg(long, hide = true)]
    disabled_metrics: Vec<String>,
    #[arg(long, value_parser = pair, hide = true)]
    allow_metric_labels: Vec<String>,
    #[arg(long, default_value = "", hide = true)]
    allow_metric_labels_manifest: String,
    #[arg(long, hide = true)]
    emulated_version: Vec<String>,
    #[arg(long, hide = true)]
    min_compatibility_version: Vec<String>,
    #[arg(long, value_delimiter = ',', hide = true)]
    tls_curve_preferences: Vec<i32>,
}

fn format(text: &str) -> Result<String, String> {
    match text {
        "text" | "json" => Ok(text.to_owned()),
        _ => Err("Unsupported log format".to_owned()),
    }
}

fn hidden(text: &str) -> Result<String, String> {
    match text {
        "" | PREVIOUS => Ok(text.to_owned()),
        _ => Err(format!(
            "must be omitted or have the value '{PREVIOUS}'; only the previous minor version is allowed"
        )),
    }
}

fn pair(text: &str) -> Result<String, String> {
    match text.contains('=') {
        true => Ok(text.to_owned()),
        false => Err(format!("{text} must be formatted as key=value")),
    }
}
