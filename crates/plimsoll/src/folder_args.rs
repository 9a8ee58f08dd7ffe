//! koordlet's flags for where the machine's folders are mounted.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use plimsoll_host::HostRoot;

/// In the environment of a koordlet that runs on the machine itself, and not in a container.
const AGENT_MODE: &str = "agent_mode";
const HOST_MODE: &str = "hostMode";

#[derive(Debug, Args)]
#[command(next_help_heading = "Machine")]
pub struct FolderArgs {
    /// Where the machine's /sys/fs/cgroup is mounted [default: /host-cgroup if it is there]
    #[arg(long, value_name = "DIR")]
    cgroup_root_dir: Option<PathBuf>,
    /// Where the machine's /sys is mounted [default: /host-sys if it is there]
    #[arg(long, value_name = "DIR")]
    sys_root_dir: Option<PathBuf>,
    /// Where the machine's /sys/fs is mounted [default: /host-sys-fs if it is there]
    #[arg(long, value_name = "DIR")]
    sys_fs_root_dir: Option<PathBuf>,
    /// Where the machine's /proc is mounted
    #[arg(long, value_name = "DIR")]
    proc_root_dir: Option<PathBuf>,
    /// Where the machine's /var/run is mounted [default: /host-var-run if it is there]
    #[arg(long, value_name = "DIR")]
    var_run_root_dir: Option<PathBuf>,
    /// Where the machine's /run is mounted [default: /host-run if it is there]
    #[arg(long, value_name = "DIR")]
    run_root_dir: Option<PathBuf>,
}

impl FolderArgs {
    /// `prefix`: what stands for `/` of the machine, if that was told.
    pub fn root(&self, prefix: Option<&Path>) -> Result<HostRoot> {
        let on_machine = std::env::var_os(AGENT_MODE).is_some_and(|mode| mode == HOST_MODE);
        let found = match prefix {
            Some(prefix) => HostRoot::new(prefix),
            None if on_machine => HostRoot::new("/"),
            None => HostRoot::detect(),
        };
        self.applied(found)
    }

    fn applied(&self, found: HostRoot) -> Result<HostRoot> {
        // What nothing works without, and what only a part of the agent needs.
        let folders = [
            (
                "cgroup-root-dir",
                "/sys/fs/cgroup",
                &self.cgroup_root_dir,
                true,
            ),
            ("proc-root-dir", "/proc", &self.proc_root_dir, true),
            ("sys-root-dir", "/sys", &self.sys_root_dir, false),
            ("sys-fs-root-dir", "/sys/fs", &self.sys_fs_root_dir, false),
            (
                "var-run-root-dir",
                "/var/run",
                &self.var_run_root_dir,
                false,
            ),
            ("run-root-dir", "/run", &self.run_root_dir, false),
        ];
        let mut root = found;
        for (flag, of, at, needed) in folders {
            let Some(at) = at else { continue };
            if at.is_dir() {
                root = root.with_folder(of, at);
                continue;
            }
            let at = at.display();
            if needed {
                bail!("--{flag} {at}: there is no such folder; mount the machine's {of} there");
            }
            tracing::warn!(flag, folder = %at, "there is no such folder; the flag is ignored");
        }
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(line: &[String]) -> Result<HostRoot> {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: FolderArgs,
        }
        let line = std::iter::once("koordlet".to_owned()).chain(line.iter().cloned());
        let line = <Line as clap::Parser>::try_parse_from(line).unwrap();
        line.args.applied(HostRoot::new("/"))
    }

    #[test]
    fn folders_that_are_told() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for name in ["cgroup", "sys-fs", "run"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let flag = |flag: &str, name: &str| format!("--{flag}={}/", at(name).display());
        let root = root(&[
            flag("cgroup-root-dir", "cgroup"),
            flag("sys-fs-root-dir", "sys-fs"),
            flag("run-root-dir", "run"),
            flag("var-run-root-dir", "missing"),
        ])
        .unwrap();
        assert_eq!(root.sys("fs/cgroup/cpu"), at("cgroup/cpu"));
        assert_eq!(root.sys("fs/resctrl"), at("sys-fs/resctrl"));
        assert_eq!(root.path("/run/a.sock"), at("run/a.sock"));
        assert_eq!(root.path("/var/run/a.sock"), Path::new("/var/run/a.sock"));
        assert_eq!(root.proc("stat"), Path::new("/proc/stat"));
    }

    #[test]
    fn without_cgroups_nothing_works() {
        let error = root(&["--cgroup-root-dir=/no/such".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("--cgroup-root-dir /no/such"));
    }
}
