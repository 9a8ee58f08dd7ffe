//! Cache occupancy and memory bandwidth of groups of tasks, `/sys/fs/resctrl`.
//!
//! A task is in one control group, and within it in at most one monitoring group, whose counters the hardware keeps.
//! Groups are only read here.

use std::path::{Path, PathBuf};

use crate::fs::read_mounts;
use crate::parse::{self, Malformed};
use crate::proc::process::parse_pids;
use crate::{HostError, HostRoot, ReadBuf, Result, list_dir, read_file};

/// Groups of this prefix are ours to remove.
pub const GROUP_PREFIX: &str = "cadvisor";
const MON_GROUPS: &str = "mon_groups";
/// Directories of a control group that are not groups.
const NOT_GROUPS: [&str; 3] = ["info", "mon_data", MON_GROUPS];

/// What the hardware can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    pub llc_occupancy: bool,
    pub mbm_total: bool,
    pub mbm_local: bool,
}

impl Features {
    pub fn any(&self) -> bool {
        self.llc_occupancy || self.mbm_total || self.mbm_local
    }
}

/// Counters of one cache domain (as a rule, a socket). `None`: not counted, or not available just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DomainStats {
    pub domain: u32,
    pub llc_occupancy: Option<u64>,
    pub mbm_total_bytes: Option<u64>,
    pub mbm_local_bytes: Option<u64>,
}

/// The mounted resctrl file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resctrl {
    path: PathBuf,
}

impl Resctrl {
    /// `Ok(None)`: not mounted, or this machine has no such hardware.
    pub fn detect(root: &HostRoot, buf: &mut ReadBuf) -> Result<Option<Self>> {
        let mounts = read_mounts(root, buf)?;
        let mounted = mounts.iter().find(|mount| mount.kind == "resctrl");
        let path = match mounted {
            Some(mount) => root.path(&mount.point),
            None => root.sys("fs/resctrl"),
        };
        Ok(path.join("info").is_dir().then_some(Self { path }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn features(&self, buf: &mut ReadBuf) -> Result<Features> {
        let text = read_file(&self.path.join("info/L3_MON/mon_features"), buf)?;
        let mut features = Features::default();
        for line in text.into_iter().flat_map(parse::lines) {
            match parse::trim(line) {
                b"llc_occupancy" => features.llc_occupancy = true,
                b"mbm_total_bytes" => features.mbm_total = true,
                b"mbm_local_bytes" => features.mbm_local = true,
                _ => {}
            }
        }
        Ok(features)
    }

    /// The control group that holds all of `pids`, the root group included. Processes that have ended meanwhile are
    /// in none and do not matter. `Ok(None)`: they are all gone. An error: they are in different groups, so no group
    /// counts for all of them.
    pub fn control_group(&self, pids: &[u32], buf: &mut ReadBuf) -> Result<Option<PathBuf>> {
        let mut candidates = vec![self.path.clone()];
        candidates.extend(groups_in(&self.path)?);
        only_holder(&candidates, pids, buf)
    }

    /// The monitoring group of `control` that counts for a cgroup's `threads`: ours from before, or one that somebody
    /// else made. An error: that other group counts for more than this cgroup, and moving threads out would spoil it.
    pub fn monitoring_group(
        &self,
        control: &Path,
        cgroup: &str,
        threads: &[u32],
        buf: &mut ReadBuf,
    ) -> Result<Option<PathBuf>> {
        let groups = control.join(MON_GROUPS);
        let ours = groups.join(group_name(cgroup));
        if ours.is_dir() {
            return Ok(Some(ours));
        }
        let Some(group) = only_holder(&groups_in(&groups)?, threads, buf)? else {
            return Ok(None);
        };
        let tasks = read_tasks(&group, buf)?;
        if tasks.iter().all(|task| threads.contains(task)) {
            return Ok(Some(group));
        }
        Err(HostError::Unsupported(
            format!("{} counts for other tasks too", group.display()).into(),
        ))
    }

    /// The counters of a group, domain by domain in order. `false`: the group has gone.
    pub fn read(
        &self,
        group: &Path,
        features: Features,
        buf: &mut ReadBuf,
        out: &mut Vec<DomainStats>,
    ) -> Result<bool> {
        out.clear();
        let data = group.join("mon_data");
        for name in list_dir(&data)? {
            let Some(domain) = name
                .strip_prefix("mon_L3_")
                .and_then(|digits| digits.parse().ok())
            else {
                continue;
            };
            let dir = data.join(&name);
            let mut counter = |file: &str, counted: bool| match counted {
                true => read_counter(&dir.join(file), buf),
                false => Ok(None),
            };
            out.push(DomainStats {
                domain,
                llc_occupancy: counter("llc_occupancy", features.llc_occupancy)?,
                mbm_total_bytes: counter("mbm_total_bytes", features.mbm_total)?,
                mbm_local_bytes: counter("mbm_local_bytes", features.mbm_local)?,
            });
        }
        Ok(!out.is_empty())
    }
}

/// `cadvisor-kubepods-pod1-abc` for `/kubepods/pod1/abc`.
pub fn group_name(cgroup: &str) -> String {
    let path = cgroup.strip_prefix('/').unwrap_or(cgroup);
    format!("{GROUP_PREFIX}-{}", path.replace('/', "-"))
}

fn groups_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let names = list_dir(dir)?;
    let groups = names
        .iter()
        .filter(|name| !NOT_GROUPS.contains(&name.as_str()))
        .map(|name| dir.join(name))
        .filter(|path| path.is_dir());
    Ok(groups.collect())
}

fn only_holder(groups: &[PathBuf], pids: &[u32], buf: &mut ReadBuf) -> Result<Option<PathBuf>> {
    let mut holder: Option<&PathBuf> = None;
    for group in groups {
        let tasks = read_tasks(group, buf)?;
        if !pids.iter().any(|pid| tasks.contains(pid)) {
            continue;
        }
        if let Some(other) = holder {
            return Err(HostError::Unsupported(
                format!(
                    "tasks of one container are in both {} and {}",
                    other.display(),
                    group.display()
                )
                .into(),
            ));
        }
        holder = Some(group);
    }
    Ok(holder.cloned())
}

/// A group without the file was removed meanwhile: it has none.
fn read_tasks(group: &Path, buf: &mut ReadBuf) -> Result<Vec<u32>> {
    let path = group.join("tasks");
    let mut tasks = Vec::new();
    if let Some(text) = read_file(&path, buf)? {
        parse_pids(text, &mut tasks).map_err(|at| HostError::malformed(&path, at))?;
    }
    Ok(tasks)
}

fn read_counter(path: &Path, buf: &mut ReadBuf) -> Result<Option<u64>> {
    match read_file(path, buf)? {
        Some(text) => parse_counter(text).map_err(|at| HostError::malformed(path, at)),
        None => Ok(None),
    }
}

/// A number, or a word that says why there is none.
fn parse_counter(text: &[u8]) -> Result<Option<u64>, Malformed> {
    match parse::trim(text) {
        b"Unavailable" | b"Unassigned" | b"Error" => Ok(None),
        _ => parse::single(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Option<Resctrl>) {
        let temp = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = temp.path().join("sys/fs/resctrl").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = HostRoot::new(temp.path());
        let found = Resctrl::detect(&root, &mut ReadBuf::default()).unwrap();
        (temp, found)
    }

    #[test]
    fn features_and_counters() {
        let (_temp, found) = tree(&[
            (
                "info/L3_MON/mon_features",
                "llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\n",
            ),
            ("mon_data/mon_L3_00/llc_occupancy", "1111\n"),
            ("mon_data/mon_L3_00/mbm_total_bytes", "2222\n"),
            ("mon_data/mon_L3_00/mbm_local_bytes", "3333\n"),
            ("mon_data/mon_L3_01/llc_occupancy", "Unavailable\n"),
            ("mon_data/mon_L3_01/mbm_total_bytes", "7\n"),
        ]);
        let resctrl = found.unwrap();
        let mut buf = ReadBuf::default();
        let features = resctrl.features(&mut buf).unwrap();
        assert!(features.any() && !features.mbm_local);
        let mut out = Vec::new();
        assert!(
            resctrl
                .read(resctrl.path(), features, &mut buf, &mut out)
                .unwrap()
        );
        let rows: Vec<_> = out
            .iter()
            .map(|d| {
                (
                    d.domain,
                    d.llc_occupancy,
                    d.mbm_total_bytes,
                    d.mbm_local_bytes,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [(0, Some(1111), Some(2222), None), (1, None, Some(7), None)]
        );
        let gone = resctrl.path().join("mon_groups/none");
        assert!(!resctrl.read(&gone, features, &mut buf, &mut out).unwrap());
    }

    #[test]
    fn groups_of_processes() {
        let (_temp, found) = tree(&[
            ("info/last_cmd_status", "ok\n"),
            ("tasks", "1\n2\n"),
            ("batch/tasks", "10\n11\n12\n"),
            ("batch/mon_groups/m1/tasks", "10\n11\n"),
            ("batch/mon_data/mon_L3_00/llc_occupancy", "1\n"),
            ("mon_groups/cadvisor-x/tasks", "2\n"),
        ]);
        let resctrl = found.unwrap();
        let mut buf = ReadBuf::default();
        let batch = resctrl.path().join("batch");
        let mut control = |pids: &[u32]| resctrl.control_group(pids, &mut buf);
        assert_eq!(control(&[10, 99]).unwrap(), Some(batch.clone()));
        assert_eq!(control(&[1]).unwrap(), Some(resctrl.path().to_owned()));
        assert_eq!(control(&[99]).unwrap(), None);
        assert!(control(&[1, 10]).unwrap_err().to_string().contains("both"));
        let mut of = |control: &Path, cgroup: &str, threads: &[u32]| {
            resctrl.monitoring_group(control, cgroup, threads, &mut buf)
        };
        let m1 = batch.join("mon_groups/m1");
        assert_eq!(of(&batch, "/a", &[10, 11, 13]).unwrap(), Some(m1));
        assert!(
            of(&batch, "/a", &[10])
                .unwrap_err()
                .to_string()
                .contains("other tasks")
        );
        let ours = resctrl.path().join("mon_groups/cadvisor-x");
        assert_eq!(of(resctrl.path(), "/x", &[77]).unwrap(), Some(ours));
        let none = of(&batch, "/a", &[12]).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn not_mounted() {
        assert_eq!(tree(&[]).1, None);
        assert_eq!(group_name("/"), "cadvisor-");
    }

    proptest! {
        #[test]
        fn any_counter_survives(value: u64) {
            prop_assert_eq!(parse_counter(format!("{value}\n").as_bytes()).unwrap(), Some(value));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_counter(&text);
        }
    }
}
