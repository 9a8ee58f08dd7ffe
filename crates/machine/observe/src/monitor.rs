//! What must be changed on the machine so that some figures can be counted. Others do that: nothing here writes.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use plimsoll_host::Result;
use plimsoll_host::resctrl::Resctrl;

/// Makes the few writes that some figures need. Without it, those figures are not counted.
pub trait MonitorWrites: Debug + Send + Sync {
    /// Clears the referenced bits of a process. `false`: it has ended.
    fn clear_refs(&self, pid: u32) -> Result<bool>;
    /// Makes a monitoring group for a cgroup below a control group, with these threads in it.
    fn create_group(
        &self,
        resctrl: &Resctrl,
        control: &Path,
        cgroup: &str,
        threads: &[u32],
    ) -> Result<PathBuf>;
    /// Has the kernel look for cold pages.
    fn scan_cold_pages(&self) -> Result<()>;
    /// Removes a group that was made so. `false`: it was another, or is gone.
    fn remove_group(&self, resctrl: &Resctrl, group: &Path) -> Result<bool>;
}
