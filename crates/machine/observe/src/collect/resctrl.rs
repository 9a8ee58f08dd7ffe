//! Cache occupancy and memory bandwidth of the QoS classes, from resctrl.

use plimsoll_host::resctrl::{DomainStats, Features, Resctrl};
use plimsoll_host::{HostRoot, ReadBuf};

/// The control groups of the QoS classes.
const GROUPS: [&str; 3] = ["LSR", "LS", "BE"];

#[derive(Debug, Default)]
pub struct ResctrlCollector {
    found: Option<(Resctrl, Features)>,
    absence_logged: bool,
    domains: Vec<DomainStats>,
}

/// One value of one cache (L3 domain).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResctrlValue {
    pub qos: &'static str,
    pub cache: u32,
    /// The file of a bandwidth counter. `None`: the occupancy of the cache, in bytes.
    pub bandwidth: Option<&'static str>,
    pub value: u64,
}

impl ResctrlCollector {
    /// `None`: this machine has no resctrl monitoring.
    pub fn read(&mut self, root: &HostRoot, buf: &mut ReadBuf) -> Option<Vec<ResctrlValue>> {
        if self.found.is_none() {
            self.found = detect(root, buf);
        }
        let Some((resctrl, features)) = &self.found else {
            if !std::mem::replace(&mut self.absence_logged, true) {
                tracing::warn!(
                    "resctrl metrics are off: no resctrl file system is mounted, or the CPU has no monitoring"
                );
            }
            return None;
        };
        let mut values = Vec::new();
        for qos in GROUPS {
            let group = resctrl.path().join(qos);
            // A group that does not exist yet has no values.
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
                        values.push(ResctrlValue {
                            qos,
                            cache: domain.domain,
                            bandwidth,
                            value,
                        });
                    }
                }
            }
        }
        Some(values)
    }
}

fn detect(root: &HostRoot, buf: &mut ReadBuf) -> Option<(Resctrl, Features)> {
    let resctrl = Resctrl::detect(root, buf).ok()??;
    let features = resctrl.features(buf).ok()?;
    features.any().then_some((resctrl, features))
}
