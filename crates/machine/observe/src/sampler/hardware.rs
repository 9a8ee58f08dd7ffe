//! Figures that come from the processor rather than from cgroup files: perf events and resctrl monitoring.
//!
//! Both are off unless asked for. On a machine without them (most virtual ones) this is logged once and costs nothing.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_host::cgroup::{Controller, Hierarchies};
use plimsoll_host::machine::Topology;
use plimsoll_host::perf::{
    CgroupCounters, PerfConfig, Reading, Refused, UncoreCounters, UncoreReading,
};
use plimsoll_host::resctrl::{DomainStats, Features, Resctrl};
use plimsoll_host::{Descriptors, HostRoot, ReadBuf};

use crate::sample::{PerfCount, PerfUncoreCount, ResctrlDomain};
use crate::{MonitorWrites, Sample, Symbol};

/// What this machine can count.
#[derive(Debug)]
pub struct Hardware {
    root: HostRoot,
    descriptors: Arc<Descriptors>,
    perf: Option<(PerfConfig, Vec<u32>)>,
    resctrl: Option<(Resctrl, Features)>,
    writes: Option<Arc<dyn MonitorWrites>>,
    readings: Vec<Reading>,
    uncore_readings: Vec<UncoreReading>,
    domains: Vec<DomainStats>,
}

/// The counters of one container.
#[derive(Debug, Default)]
pub struct HardwareFiles {
    perf: Option<(CgroupCounters, Vec<Symbol>)>,
    uncore: Option<(UncoreCounters, Vec<Symbol>, Vec<Symbol>)>,
    group: Option<PathBuf>,
}

impl Hardware {
    /// `perf`: the events to count, if any; `resctrl`: whether that group is on.
    pub fn new(
        root: &HostRoot,
        descriptors: &Arc<Descriptors>,
        perf: Option<PerfConfig>,
        resctrl: bool,
        writes: Option<Arc<dyn MonitorWrites>>,
        buf: &mut ReadBuf,
    ) -> Self {
        let perf = perf.and_then(|config| match Topology::read(root, buf) {
            Ok(topology) => Some((config, topology.online())),
            Err(error) => {
                tracing::warn!(%error, "perf events are off: cannot read which CPUs are online");
                None
            }
        });
        let resctrl = resctrl.then(|| detect_resctrl(root, buf)).flatten();
        Self {
            root: root.clone(),
            descriptors: Arc::clone(descriptors),
            perf,
            resctrl,
            writes,
            readings: Vec::new(),
            uncore_readings: Vec::new(),
            domains: Vec::new(),
        }
    }

    pub fn has_perf(&self) -> bool {
        self.perf.is_some()
    }

    pub fn has_resctrl(&self) -> bool {
        self.resctrl.is_some()
    }

    /// Starts counting for a container.
    pub fn open(
        &mut self,
        hierarchies: &Hierarchies,
        path: &str,
        pids: &[u32],
        buf: &mut ReadBuf,
    ) -> HardwareFiles {
        let mut files = HardwareFiles::default();
        if let Some((config, cpus)) = &self.perf {
            let dir = hierarchies.dir(Controller::PerfEvent, path);
            let opened = dir.map(|dir| {
                CgroupCounters::open(&self.root, &dir, &config.core, cpus, &self.descriptors, buf)
            });
            match opened {
                Some(Ok(opened)) => {
                    say_refused(path, &opened.refused);
                    let names = symbols(opened.counters.events());
                    files.perf = (!opened.counters.is_empty()).then_some((opened.counters, names));
                }
                Some(Err(error)) => tracing::debug!(path, %error, "no perf events for a container"),
                None => {}
            }
            if path == "/" {
                files.uncore = self.open_uncore(buf);
            }
        }
        if let Some((resctrl, _)) = &self.resctrl {
            files.group = self.monitoring_group(resctrl, path, pids, buf);
        }
        files
    }

    fn open_uncore(&self, buf: &mut ReadBuf) -> Option<(UncoreCounters, Vec<Symbol>, Vec<Symbol>)> {
        let (config, _) = self.perf.as_ref()?;
        if config.uncore.groups.is_empty() {
            return None;
        }
        let topology = Topology::read(&self.root, buf).ok()?;
        match UncoreCounters::open(
            &self.root,
            &config.uncore,
            &topology,
            &self.descriptors,
            buf,
        ) {
            Ok(Some(opened)) => {
                say_refused("/", &opened.refused);
                let events = symbols(opened.counters.events());
                let pmus = symbols(opened.counters.pmus());
                Some((opened.counters, events, pmus))
            }
            Ok(None) => {
                tracing::warn!("no uncore events: this machine has no such units");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "no uncore events");
                None
            }
        }
    }

    /// Adds this container's counts to its sample.
    pub fn read(&mut self, files: &HardwareFiles, sample: &mut Sample, buf: &mut ReadBuf) {
        if let Some((counters, names)) = &files.perf
            && counters.read(&mut self.readings).is_ok()
        {
            sample.perf.extend(self.readings.iter().map(|r| PerfCount {
                event: names.get(r.event).copied().unwrap_or_default(),
                cpu: u64::from(r.cpu),
                value: r.value,
                scaling_ratio: r.scaling_ratio,
            }));
        }
        if let Some((counters, names, pmus)) = &files.uncore
            && counters.read(&mut self.uncore_readings).is_ok()
        {
            let counts = self.uncore_readings.iter().map(|r| PerfUncoreCount {
                event: names.get(r.event).copied().unwrap_or_default(),
                pmu: pmus.get(r.pmu).copied().unwrap_or_default(),
                socket: r.socket.max(0) as u64,
                value: r.value,
                scaling_ratio: r.scaling_ratio,
            });
            sample.perf_uncore.extend(counts);
        }
        if let (Some(group), Some((resctrl, features))) = (&files.group, &self.resctrl)
            && resctrl
                .read(group, *features, buf, &mut self.domains)
                .is_ok()
        {
            sample
                .resctrl
                .extend(self.domains.iter().map(|d| ResctrlDomain {
                    mbm_total_bytes: d.mbm_total_bytes.unwrap_or(0),
                    mbm_local_bytes: d.mbm_local_bytes.unwrap_or(0),
                    llc_occupancy: d.llc_occupancy.unwrap_or(0),
                }));
        }
    }

    /// The group that counts for this container; made where there is none. The root is counted by the root group.
    fn monitoring_group(
        &self,
        resctrl: &Resctrl,
        path: &str,
        pids: &[u32],
        buf: &mut ReadBuf,
    ) -> Option<PathBuf> {
        if path == "/" {
            return Some(resctrl.path().to_owned());
        }
        let control = resctrl.control_group(pids, buf).ok().flatten()?;
        let group = match resctrl.monitoring_group(&control, path, pids, buf) {
            Ok(Some(group)) => Ok(group),
            Ok(None) => {
                let writes = self.writes.as_ref()?;
                writes.create_group(resctrl, &control, path, pids)
            }
            Err(error) => Err(error),
        };
        group
            .inspect_err(
                |error| tracing::debug!(path, %error, "no resctrl figures for a container"),
            )
            .ok()
    }

    /// Removes the monitoring group of a container.
    pub fn close(&self, files: &HardwareFiles) {
        if let (Some(group), Some((resctrl, _)), Some(writes)) =
            (&files.group, &self.resctrl, &self.writes)
            && let Err(error) = writes.remove_group(resctrl, group)
        {
            tracing::debug!(%error, "cannot remove a monitoring group");
        }
    }
}

fn detect_resctrl(root: &HostRoot, buf: &mut ReadBuf) -> Option<(Resctrl, Features)> {
    let found = Resctrl::detect(root, buf).and_then(|found| match found {
        Some(resctrl) => resctrl
            .features(buf)
            .map(|features| Some((resctrl, features))),
        None => Ok(None),
    });
    match found {
        Ok(Some((resctrl, features))) if features.any() => Some((resctrl, features)),
        Ok(_) => {
            tracing::warn!(
                "no resctrl figures: this machine has no monitoring, or resctrl is not mounted"
            );
            None
        }
        Err(error) => {
            tracing::warn!(%error, "no resctrl figures");
            None
        }
    }
}

fn say_refused(path: &str, refused: &[Refused]) {
    for group in refused {
        tracing::warn!(path, events = ?group.events, why = %group.why, "events that cannot be counted");
    }
}

fn symbols(names: &[String]) -> Vec<Symbol> {
    names.iter().map(|name| Symbol::new(name)).collect()
}
