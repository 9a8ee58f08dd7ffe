//! What the sampler holds for one container between readings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::Identity;
use plimsoll_host::cgroup::{CgroupReader, SpecReader};
use plimsoll_host::proc::SchedstatSum;
use plimsoll_host::proc::net::NetFiles;

use super::collect::Collector;
use super::hardware::HardwareFiles;
use crate::sample::Processes;
use crate::store::Container;

#[derive(Debug)]
pub struct Tracked {
    pub container: Arc<Container>,
    pub reader: CgroupReader,
    pub spec: SpecReader,
    pub net: Option<NetFiles>,
    /// The container's first process: whose limits and whose network count.
    pub pid: Option<u32>,
    pub hardware: HardwareFiles,
    pub schedstat: SchedstatSum,
    pub load: LoadAverage,
    pub samples: u64,
    pub due: Duration,
    pub interval: Duration,
    /// Tells the newest entry in the queue from those it replaced.
    pub epoch: u64,
    pub sampled_at: Option<Duration>,
    /// When its lists of pages were last read.
    pub lists_read: Duration,
    pub hidden_until: Option<Duration>,
    /// Its creation has been told.
    pub announced: bool,
    /// When groups beyond the standing ones were last read, and what they said.
    pub extra_read: Option<Duration>,
    pub processes: Processes,
    /// What its writable layer takes is part of the sample.
    pub has_layer: bool,
    pub pids_wanted: bool,
    /// Files that were complained about of late, and when.
    pub recent_warnings: Vec<(PathBuf, Duration)>,
}

impl Tracked {
    pub fn is_root(&self) -> bool {
        self.container.path().as_ref() == "/"
    }

    /// The runtime says which process and whose network; `/` is the machine's own.
    pub fn set_identity(&mut self, identity: Option<&Arc<Identity>>, collector: &Collector) {
        if self.is_root() {
            self.pid = Some(1);
            self.net = Some(collector.net_files(1));
            return;
        }
        let Some(identity) = identity else {
            return;
        };
        self.pid = identity.pid;
        self.has_layer = identity.shows_files();
        self.net = identity
            .pid
            .filter(|_| identity.owns_network)
            .map(|pid| collector.net_files(pid));
    }

    pub fn sources(&self) -> Vec<String> {
        self.reader
            .sources()
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }
}

/// Runnable tasks averaged over about ten seconds, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadAverage {
    running: Option<f64>,
    uninterruptible: f64,
}

impl LoadAverage {
    const SPAN_SECS: f64 = 10.0;

    /// Folds in what was seen after `elapsed`; returns both averages in thousandths.
    pub fn add(&mut self, elapsed: Duration, running: u64, uninterruptible: u64) -> (u64, u64) {
        let (running, uninterruptible) = (running as f64, uninterruptible as f64);
        let decay = (-elapsed.as_secs_f64() / Self::SPAN_SECS).exp();
        match self.running {
            // The first reading is the average, rather than a slow climb from zero.
            None => {
                self.running = Some(running);
                self.uninterruptible = uninterruptible;
            }
            Some(before) => {
                self.running = Some(before * decay + running * (1.0 - decay));
                self.uninterruptible =
                    self.uninterruptible * decay + uninterruptible * (1.0 - decay);
            }
        }
        let milli = |value: f64| (value * 1000.0) as u64;
        (
            milli(self.running.unwrap_or(0.0)),
            milli(self.uninterruptible),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_starts_at_what_is_seen_and_decays() {
        let mut load = LoadAverage::default();
        assert_eq!(load.add(Duration::ZERO, 4, 1), (4000, 1000));
        let (after, _) = load.add(Duration::from_secs(10), 0, 0);
        assert_eq!(after, (4000.0 / std::f64::consts::E) as u64);
    }
}
