//! What is recorded, how often, and where it is stored.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_observe::needs::{Need, What, Which};
use plimsoll_predict::reclaim;

#[derive(Debug, Clone)]
pub struct Config {
    /// Interval of recording usage.
    pub interval: Duration,
    /// The system's usage is computed only from parts that are not older than this.
    pub max_sample_age: Duration,
    /// Optional collectors.
    pub collect: Collect,
    pub store: plimsoll_tsdb::Config,
    pub forecast: Forecast,
    /// Without a cluster, cgroup paths tell which pods there are.
    pub standalone: bool,
}

#[derive(Debug, Clone)]
pub struct Collect {
    pub node_info_every: Duration,
    pub hugepages: bool,
    pub storage_info_every: Option<Duration>,
    pub page_cache: bool,
    pub pressure_every: Option<Duration>,
    pub cpi: Option<Cpi>,
    pub cold_pages_every: Option<Duration>,
    pub resctrl_every: Option<Duration>,
    pub gpu: bool,
    /// Show the metrics of the node and system usage that reports are made of.
    pub report_gauges: bool,
}

/// Counting cycles costs CPU time, so it runs for `window` once every `every`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpi {
    pub every: Duration,
    pub window: Duration,
}

#[derive(Debug, Clone)]
pub struct Forecast {
    /// Folder of the checkpoints; `None`: models are lost with the process.
    pub checkpoints: Option<PathBuf>,
    pub train_every: Duration,
    pub models: plimsoll_predict::Config,
    pub reclaim: reclaim::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            max_sample_age: Duration::from_secs(10),
            collect: Collect::default(),
            store: plimsoll_tsdb::Config::default(),
            forecast: Forecast::default(),
            standalone: true,
        }
    }
}

impl Default for Collect {
    fn default() -> Self {
        Self {
            node_info_every: Duration::from_secs(60),
            hugepages: false,
            storage_info_every: None,
            page_cache: false,
            pressure_every: None,
            cpi: None,
            cold_pages_every: None,
            resctrl_every: None,
            gpu: false,
            report_gauges: false,
        }
    }
}

impl Default for Forecast {
    fn default() -> Self {
        Self {
            checkpoints: None,
            train_every: Duration::from_secs(60),
            models: plimsoll_predict::Config::default(),
            reclaim: reclaim::Config::default(),
        }
    }
}

impl Config {
    /// What the sampler must read for the history.
    pub fn needs(&self) -> Vec<Need> {
        let need = |what, every| Need {
            consumer: "history",
            what,
            which: Which::Marked,
            every,
        };
        let pressure = self.collect.pressure_every;
        let pressure = pressure.map(|every| need(What::Pressure, every));
        let usage = need(What::Usage, self.interval);
        std::iter::once(usage).chain(pressure).collect()
    }

    /// A rate is not computed over a longer gap than this.
    pub fn counter_reset_after(&self) -> Duration {
        self.interval * 20
    }
}
