//! Lists that a request asks for and that are read at once: the processes of a cgroup, the cgroups below one.

use std::collections::BTreeSet;
use std::fs;

use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::proc::ps::{Process, list_processes};
use plimsoll_host::{HostRoot, ReadBuf, Timestamp};

/// Processes of one cgroup, or of the machine for `/`, each with the number of its open files. A process that has ended
/// meanwhile, or whose files may not be counted, is left out.
pub fn processes(
    root: &HostRoot,
    now: Timestamp,
    utc_offset_secs: i64,
    cgroup: &str,
) -> plimsoll_host::Result<Vec<(Process, usize)>> {
    let all = list_processes(root, now, utc_offset_secs, &mut ReadBuf::default())?;
    let own = all.into_iter().filter(|p| belongs(p, cgroup));
    let counted = own.filter_map(|process| {
        let open_files = fs::read_dir(root.proc(format!("{}/fd", process.pid))).ok()?;
        Some((process, open_files.count()))
    });
    Ok(counted.collect())
}

fn belongs(process: &Process, cgroup: &str) -> bool {
    cgroup == "/" || process.cgroup == cgroup
}

/// Every cgroup directly below `path`, as the directories have it: also those that are not shown as containers, such as
/// mount units. Clients walk the tree by these names.
pub fn child_cgroups(hierarchies: &Hierarchies, path: &str) -> Vec<String> {
    let prefix = path.trim_end_matches('/');
    let mut found = BTreeSet::new();
    for dir in hierarchies.watched_dirs(path) {
        // A tree that does not have this cgroup has nothing to add.
        let Ok(entries) = fs::read_dir(dir) else {
            continue;
        };
        let directories = entries
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(directories.map(|e| format!("{prefix}/{}", e.file_name().to_string_lossy())));
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_has_its_own_processes_and_the_root_has_all() {
        let process = Process {
            user: "root".to_owned(),
            pid: 4,
            ppid: 2,
            start_time: "21:08".to_owned(),
            percent_cpu_tenths: 3,
            percent_mem_tenths: 0,
            rss_bytes: 1,
            virtual_bytes: 1,
            status: "I<".to_owned(),
            running_time: "00:00:06".to_owned(),
            command: "kworker/R-rcu_g".to_owned(),
            processor: 1,
            cgroup: "/a".to_owned(),
        };
        for (cgroup, own) in [("/", true), ("/a", true), ("/ab", false)] {
            assert_eq!(belongs(&process, cgroup), own, "{cgroup}");
        }
    }

    #[test]
    fn of_this_machine() {
        let all = processes(&HostRoot::new("/"), Timestamp::ZERO, 0, "/").unwrap();
        let own = all.iter().find(|(p, _)| p.pid == std::process::id());
        assert!(own.unwrap().1 > 0);
    }
}
