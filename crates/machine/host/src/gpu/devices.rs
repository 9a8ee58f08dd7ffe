//! The GPUs of this machine, through the open library.

use std::path::Path;

use super::library::{Handle, Library};
use super::{Device, ProcessUse};
use crate::machine::PciLocation;
use crate::{HostError, HostRoot, Result};

/// Errors that a program causes, not the hardware.
const HARMLESS_XIDS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// The open library and the GPUs that it knows.
#[derive(Debug)]
pub struct Gpus {
    library: Library,
    handles: Vec<Handle>,
    devices: Vec<Device>,
}

impl Gpus {
    /// `Ok(None)`: there is no such library, or it knows of no GPU.
    pub fn open(root: &HostRoot, path: &Path) -> Result<Option<Self>> {
        let Some(library) = Library::open(path)? else {
            return Ok(None);
        };
        let driver = library.driver_version()?;
        let mut handles = Vec::new();
        let mut devices = Vec::new();
        for index in 0..library.count()? {
            let handle = library.handle(index)?;
            let bus = sysfs_address(&library.bus_id(&handle)?);
            let place = PciLocation::of(root, &bus);
            devices.push(Device {
                minor: library.minor(&handle)?,
                uuid: library.uuid(&handle)?,
                model: library.name(&handle)?,
                driver: driver.clone(),
                memory: library.memory(&handle)?,
                numa_node: place.numa_node,
                pcie: place.root,
                bus,
                fault: None,
            });
            handles.push(handle);
        }
        library.listen_for_errors(&handles);
        Ok((!devices.is_empty()).then_some(Self {
            library,
            handles,
            devices,
        }))
    }

    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Processes that use a GPU, with those that have a figure of both kinds. A GPU that does not answer is left out; why
    /// is said in `problems`.
    pub fn processes(&self, problems: &mut Vec<HostError>) -> Vec<ProcessUse> {
        let mut found = Vec::new();
        for (device, handle) in self.handles.iter().enumerate() {
            let looked = self
                .library
                .running(handle)
                .and_then(|running| Ok((running, self.library.utilization(handle)?)));
            let (running, busy) = match looked {
                Ok(looked) => looked,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            for (pid, memory) in running {
                if let Some(&(_, cores)) = busy.iter().find(|(of, _)| *of == pid) {
                    found.push(ProcessUse {
                        pid,
                        device,
                        cores,
                        memory,
                    });
                }
            }
        }
        found
    }

    /// Takes in what errors were reported since the last time. `true`: a GPU turned bad.
    pub fn poll_xid_events(&mut self) -> bool {
        let mut news = false;
        while let Some((handle, xid)) = self.library.next_error() {
            if HARMLESS_XIDS.contains(&xid) {
                continue;
            }
            let bad = self.handles.iter().position(|known| *known == handle);
            for (index, device) in self.devices.iter_mut().enumerate() {
                // An error of no GPU in particular may be of any.
                if bad.is_none_or(|bad| bad == index) && device.fault.is_none() {
                    device.fault = Some(xid);
                    news = true;
                }
            }
        }
        news
    }
}

/// `00000000:3B:00.0` as sysfs has it: `0000:3b:00.0`.
fn sysfs_address(bus_id: &str) -> String {
    let lower = bus_id.to_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 => format!("{}:{rest}", &domain[4..]),
        _ => lower,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
