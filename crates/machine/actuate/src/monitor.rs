//! Writes that change what the kernel counts, and nothing that a pod notices: monitoring groups of resctrl, referenced
//! bits, the search for cold pages. They have no base and are in no journal. Monitoring groups are removed by their
//! makers.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_host::HostRoot;
use plimsoll_host::resctrl::{GROUP_PREFIX, Resctrl, group_name};

use crate::files::{Files, KernelFile, MachineFiles, is_gone};

const MON_GROUPS: &str = "mon_groups";
/// Kidled scans so often, and counts what is below a cgroup with it.
const KIDLED: [(&str, &str); 2] = [("scan_period_in_seconds", "5"), ("use_hierarchy", "1")];

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path}: {cause}")]
pub struct MonitorError {
    pub operation: &'static str,
    pub path: PathBuf,
    pub cause: io::Error,
}

/// Who makes these writes.
#[derive(Debug)]
pub struct Monitor {
    root: HostRoot,
    files: MachineFiles,
}

impl Monitor {
    pub fn new(root: HostRoot) -> Self {
        Self {
            root,
            files: MachineFiles::default(),
        }
    }

    /// Clears the referenced bits of all pages of a process, which also makes the kernel take them for cold when it
    /// reclaims memory. `false`: the process has ended.
    pub fn clear_refs(&self, pid: u32) -> Result<bool, MonitorError> {
        let file = KernelFile::new(&self.root.path("/proc"), format!("{pid}/clear_refs"));
        match self.files.write(&file, "1") {
            Ok(()) => Ok(true),
            Err(error) if is_gone(&error) => Ok(false),
            Err(cause) => Err(failed("write", &file, cause)),
        }
    }

    /// Has the kernel look for cold pages. The files must be there (`plimsoll_host::kidled::is_supported`).
    pub fn scan_cold_pages(&self) -> Result<(), MonitorError> {
        let dir = self.root.sys("kernel/mm/kidled");
        for (name, value) in KIDLED {
            let file = KernelFile::new(&dir, name);
            self.files
                .write(&file, value)
                .map_err(|cause| failed("write", &file, cause))?;
        }
        Ok(())
    }

    /// Makes a monitoring group for a cgroup below the group `control`, and moves `threads` into it. Threads started
    /// later follow their parents. The hardware has few groups; ENOSPC means that none is left.
    pub fn create_group(
        &self,
        resctrl: &Resctrl,
        control: &Path,
        cgroup: &str,
        threads: &[u32],
    ) -> Result<PathBuf, MonitorError> {
        let group = control.join(MON_GROUPS).join(group_name(cgroup));
        let dir = below(resctrl, &group)?;
        self.files
            .make_dir(&dir)
            .map_err(|cause| failed("create", &dir, cause))?;
        let tasks = KernelFile::new(&dir.top, dir.below.join("tasks"));
        for thread in threads {
            match self.files.append(&tasks, &thread.to_string()) {
                Ok(()) => {}
                // A thread that ended needs no counter.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                Err(cause) => {
                    // Half a group would count half a container.
                    let _ = self.files.remove_dir(&dir);
                    return Err(failed("write", &tasks, cause));
                }
            }
        }
        Ok(group)
    }

    /// Removes a monitoring group that [`Self::create_group`] made. Any other is left alone, and `false` returned.
    pub fn remove_group(&self, resctrl: &Resctrl, group: &Path) -> Result<bool, MonitorError> {
        let ours = group
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(GROUP_PREFIX));
        let in_groups = group.parent().is_some_and(|dir| dir.ends_with(MON_GROUPS));
        if !ours || !in_groups || !group.starts_with(resctrl.path()) {
            return Ok(false);
        }
        let dir = below(resctrl, group)?;
        let there = self
            .files
            .inode(&dir)
            .map_err(|cause| failed("look for", &dir, cause))?;
        if there.is_none() {
            return Ok(false);
        }
        self.files
            .remove_dir(&dir)
            .map_err(|cause| failed("remove", &dir, cause))?;
        Ok(true)
    }
}

fn failed(operation: &'static str, file: &KernelFile, cause: io::Error) -> MonitorError {
    MonitorError {
        operation,
        path: file.path(),
        cause,
    }
}

fn below(resctrl: &Resctrl, group: &Path) -> Result<KernelFile, MonitorError> {
    let relative = group.strip_prefix(resctrl.path());
    relative
        .map(|relative| KernelFile::new(resctrl.path(), relative))
        .map_err(|_| MonitorError {
            operation: "find",
            path: group.to_owned(),
            cause: io::ErrorKind::InvalidInput.into(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_host::ReadBuf;

    #[test]
    fn making_and_removing_groups() {
        let temp = tempfile::tempdir().unwrap();
        let root = HostRoot::new(temp.path());
        let top = temp.path().join("sys/fs/resctrl");
        for dir in ["info", "mon_groups/own"] {
            std::fs::create_dir_all(top.join(dir)).unwrap();
        }
        let resctrl = Resctrl::detect(&root, &mut ReadBuf::default())
            .unwrap()
            .unwrap();
        let monitor = Monitor::new(root);
        let group = top.join("mon_groups/cadvisor-kubepods-pod1-a");
        // The kernel puts the file there; a plain directory needs help.
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("tasks"), "").unwrap();
        let made = monitor
            .create_group(&resctrl, resctrl.path(), "/kubepods/pod1/a", &[5, 6])
            .unwrap();
        assert_eq!(made, group);
        assert_eq!(std::fs::read_to_string(group.join("tasks")).unwrap(), "56");

        std::fs::remove_file(group.join("tasks")).unwrap();
        let remove = |path: &Path| monitor.remove_group(&resctrl, path).unwrap();
        assert!(!remove(&top.join("mon_groups/own")));
        assert!(!remove(&top.join("cadvisor-fake")));
        assert!(remove(&group));
        assert!(!remove(&group));
        assert!(top.join("mon_groups/own").exists());
    }

    #[test]
    fn settings_and_bits() {
        let temp = tempfile::tempdir().unwrap();
        let root = HostRoot::new(temp.path());
        let kidled = temp.path().join("sys/kernel/mm/kidled");
        std::fs::create_dir_all(&kidled).unwrap();
        std::fs::create_dir_all(temp.path().join("proc/7")).unwrap();
        std::fs::write(temp.path().join("proc/7/clear_refs"), "").unwrap();
        let monitor = Monitor::new(root);
        monitor.scan_cold_pages().unwrap_err();
        for (file, _) in KIDLED {
            std::fs::write(kidled.join(file), "0\n").unwrap();
        }
        monitor.scan_cold_pages().unwrap();
        let read = |file: &str| std::fs::read_to_string(kidled.join(file)).unwrap();
        assert_eq!(read("scan_period_in_seconds"), "5");
        assert_eq!(read("use_hierarchy"), "1");
        assert!(monitor.clear_refs(7).unwrap());
        assert!(!monitor.clear_refs(8).unwrap());
    }
}
