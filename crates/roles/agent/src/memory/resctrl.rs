//! Cache occupancy and memory bandwidth of the classes that pods are sorted into.

use plimsoll_host::resctrl::{DomainStats, Features, Resctrl};
use plimsoll_host::{HostRoot, ReadBuf};

use super::round::Batch;
use super::{Memory, catalogue as c};

/// The control groups that are made for the classes.
const GROUPS: [&str; 3] = ["LSR", "LS", "BE"];

#[derive(Debug, Default)]
pub struct ResctrlCollector {
    found: Option<(Resctrl, Features)>,
    absence_said: bool,
    domains: Vec<DomainStats>,
}

/// One figure, for pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResctrlGauge {
    pub qos: &'static str,
    pub cache: u32,
    /// `None`: the occupancy of the cache, in bytes.
    pub bandwidth: Option<&'static str>,
    pub value: u64,
}

impl ResctrlCollector {
    pub fn note(&mut self, batch: &mut Batch, memory: &Memory, root: &HostRoot, buf: &mut ReadBuf) {
        if self.found.is_none() {
            self.found = detect(root, buf);
        }
        let Some((resctrl, features)) = &self.found else {
            if !std::mem::replace(&mut self.absence_said, true) {
                tracing::warn!(
                    "no resctrl file system is mounted, or this machine counts nothing there"
                );
            }
            return;
        };
        let mut figures = Vec::new();
        for qos in GROUPS {
            let group = resctrl.path().join(qos);
            // A group that nobody has made yet has no figures.
            let Ok(true) = resctrl.read(&group, *features, buf, &mut self.domains) else {
                continue;
            };
            for domain in &self.domains {
                let counters = [
                    (None, domain.llc_occupancy),
                    (Some("mbm_local_bytes"), domain.mbm_local_bytes),
                    (Some("mbm_total_bytes"), domain.mbm_total_bytes),
                ];
                for (bandwidth, value) in counters {
                    if let Some(value) = value {
                        figures.push(ResctrlGauge {
                            qos,
                            cache: domain.domain,
                            bandwidth,
                            value,
                        });
                    }
                }
            }
        }
        for figure in &figures {
            let cache = figure.cache.to_string();
            let value = figure.value as f64;
            match figure.bandwidth {
                None => batch.put(
                    memory,
                    c::RESCTRL_RESOURCE_LLC,
                    &[figure.qos, &cache],
                    value,
                ),
                Some(kind) => {
                    let properties = [figure.qos, &*cache, kind];
                    batch.put(memory, c::RESCTRL_RESOURCE_MB, &properties, value);
                }
            }
        }
        memory.gauges().lock().resctrl = figures;
    }
}

fn detect(root: &HostRoot, buf: &mut ReadBuf) -> Option<(Resctrl, Features)> {
    let resctrl = Resctrl::detect(root, buf).ok()??;
    let features = resctrl.features(buf).ok()?;
    features.any().then_some((resctrl, features))
}
