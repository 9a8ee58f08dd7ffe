//! How much is remembered, how often, and where.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_observe::needs::{Need, What, Which};
use plimsoll_predict::reclaim;

#[derive(Debug, Clone)]
pub struct Config {
    /// How often what was used is noted.
    pub interval: Duration,
    /// Figures older than this are not subtracted from newer ones.
    pub outdated: Duration,
    /// What to collect beyond what everybody needs.
    pub collect: Collect,
    pub store: plimsoll_tsdb::Config,
    pub forecast: Forecast,
    /// There is no cluster to say what pods there are: the cgroups' names do.
    pub alone: bool,
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
    /// Keep the gauges of the node's and the system's usage that reports are made of.
    pub report_gauges: bool,
}

/// Counting cycles is not for free, so it is done for a while now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpi {
    pub every: Duration,
    pub window: Duration,
}

#[derive(Debug, Clone)]
pub struct Forecast {
    /// Where models outlast the process; `None`: they do not.
    pub checkpoints: Option<PathBuf>,
    pub train_every: Duration,
    pub models: plimsoll_predict::Config,
    pub reclaim: reclaim::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            outdated: Duration::from_secs(10),
            collect: Collect::default(),
            store: plimsoll_tsdb::Config::default(),
            forecast: Forecast::default(),
            alone: true,
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
    /// What has to be read so that there is something to remember.
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

    /// Counters not looked at for this long are not compared with.
    pub fn forget(&self) -> Duration {
        self.interval * 20
    }
}
