//! What is logged, and how.

use std::io::IsTerminal;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Args)]
pub struct LogArgs {
    /// How much to log: error, warn, info, debug, trace, or a filter like plimsoll_containers=debug [default: info; up:
    /// warn]
    #[arg(long, global = true, value_name = "FILTER", env = "PLIMSOLL_LOG")]
    log: Option<String>,
    /// How log lines look
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Print the version
    #[arg(long, global = true, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Of klog's numbers, those from 4 on are for whoever looks for a mistake.
pub fn level(verbosity: i32) -> &'static str {
    match verbosity >= 4 {
        true => "debug",
        false => "info",
    }
}

/// The log, once it is being written.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(EnvFilter) + Send + Sync>);

impl Log {
    /// From now on this is logged, in klog's numbers.
    pub fn set_verbosity(&self, verbosity: u32) {
        let level = level(i32::try_from(verbosity).unwrap_or(i32::MAX));
        (self.0)(EnvFilter::new(quieted(level)));
        tracing::info!(verbosity, "how much is logged was changed");
    }
}

/// The client library's words on failures are told by whoever asked, with what to do about them.
fn quieted(level: &str) -> String {
    format!("{level},kube_client=off,kube_runtime::watcher=off")
}

impl LogArgs {
    pub fn start(&self, unless_told: &str, json: bool) -> Log {
        let quieted = quieted(unless_told);
        let wanted = match self.log.as_deref() {
            None => quieted,
            // A level and nothing else.
            Some(level @ ("error" | "warn" | "info" | "debug")) => self::quieted(level),
            Some(filter) => filter.to_owned(),
        };
        let (filter, complaint) = match EnvFilter::try_new(wanted) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new("info"), Some(error)),
        };
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        // It fails only when the log is gone, and then there is nobody to tell.
        let log = match json || self.log_format == LogFormat::Json {
            true => {
                let builder = builder.json().with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                Log(Arc::new(move |filter| drop(handle.reload(filter))))
            }
            false => {
                let builder = builder.with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                Log(Arc::new(move |filter| drop(handle.reload(filter))))
            }
        };
        if let Some(error) = complaint {
            tracing::warn!(%error, "--log makes no sense, logging at info");
        }
        log
    }
}
