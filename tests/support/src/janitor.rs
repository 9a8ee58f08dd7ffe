//! Cleaning up after tests, whatever ends them.
//!
//! A second process of the same program waits on a pipe. Its parent tells it what was started and made; when the pipe
//! closes (the parent ended, panicked, was interrupted or killed) it ends those processes and removes those cgroups,
//! mounts and directories. Destructors cannot promise that: Ctrl-C and SIGKILL run none.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit, Signal};

use crate::cgroup::{self, Group, Mounts};
use crate::{poll, proc};

const JANITOR: &str = "__janitor";
const ENTER: &str = "__enter";
const WAIT: &str = "__wait";
/// What a daemon gets to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(60);

/// Must be the first call of `main`: runs the helper that this process was started as, if it was.
pub fn helper() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let outcome = match arguments.next()?.to_str()? {
        JANITOR => clean_after_parent(),
        ENTER => enter(arguments.collect()),
        WAIT => wait_for_parent(),
        _ => return None,
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// The parent's side.
#[derive(Debug)]
pub struct Janitor {
    child: Child,
}

impl Janitor {
    pub fn start() -> Result<Self> {
        let child = Command::new(own_program())
            .arg(JANITOR)
            .stdin(Stdio::piped())
            // Ctrl-C goes to the terminal's whole process group, and the janitor has to outlive it.
            .process_group(0)
            .spawn()
            .context("start the janitor")?;
        Ok(Self { child })
    }

    /// A cgroup, with everything below it and every process in it.
    pub fn cgroup(&mut self, path: &str) -> Result<()> {
        self.tell("cgroup", path)
    }

    /// A directory, with the mounts below it.
    pub fn directory(&mut self, path: &Path) -> Result<()> {
        self.tell("directory", &path.display().to_string())
    }

    /// A file that something is mounted on, as network namespaces are.
    pub fn mount_point(&mut self, path: &Path) -> Result<()> {
        self.tell("mount-point", &path.display().to_string())
    }

    /// A kernel setting that others may change meanwhile: it gets back the value that it has now.
    pub fn setting(&mut self, path: &Path) -> Result<()> {
        let value = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        self.tell("setting", &format!("{} {}", path.display(), value.trim()))
    }

    pub fn process(&mut self, pid: u32) -> Result<()> {
        let start = proc::start_time(pid).with_context(|| format!("process {pid} has ended"))?;
        self.tell("process", &format!("{pid} {start}"))
    }

    /// Has everything cleaned now, and waits for it.
    pub fn finish(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().context("wait for the janitor")?;
        if !status.success() {
            bail!("the janitor could not clean up: {status}");
        }
        Ok(())
    }

    fn tell(&mut self, what: &str, which: &str) -> Result<()> {
        let pipe = self.child.stdin.as_mut().context("janitor is closed")?;
        writeln!(pipe, "{what} {which}").context("tell the janitor")
    }
}

/// A command that runs inside a cgroup from its first instruction, ends with its parent and may open many files.
///
/// The cgroup is entered by the program itself between fork and exec, through a helper that is this same program:
/// moving it afterwards would charge its first pages to the wrong cgroup.
pub fn command_in(group: Option<&Group>, program: impl Into<OsString>) -> Command {
    let mut command = Command::new(own_program());
    command.arg(ENTER);
    for directory in group.into_iter().flat_map(Group::directories) {
        command.arg(directory.join("cgroup.procs"));
    }
    command.arg("--").arg(program.into());
    command
}

/// A process that does nothing inside a cgroup until its standard input closes.
pub fn sleeper(group: &Group) -> Result<Child> {
    command_in(Some(group), own_program())
        .arg(WAIT)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("start a process in {}", group.path()))
}

fn wait_for_parent() -> Result<()> {
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// `/proc/self/exe` rather than the path: the file may have been rebuilt or renamed meanwhile.
fn own_program() -> &'static str {
    "/proc/self/exe"
}

fn enter(arguments: Vec<OsString>) -> Result<()> {
    let mut arguments = arguments.into_iter();
    for file in arguments.by_ref() {
        if file == "--" {
            break;
        }
        fs::write(&file, "0").with_context(|| format!("enter {}", file.display()))?;
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    raise_file_limit();
    let program = arguments.next().context("no program to run")?;
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("run {}", program.display()))
}

/// The soft limit up to the hard one: five hundred cgroups with a dozen open files each need it.
pub fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Not fatal: the program under test has to live with a low limit, too.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

fn clean_after_parent() -> Result<()> {
    let mut processes = BTreeMap::new();
    let mut cgroups = Vec::new();
    let mut directories = Vec::new();
    let mut mount_points = Vec::new();
    let mut settings = Vec::new();
    for line in BufReader::new(std::io::stdin()).lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("cgroup", path)) => cgroups.push(path.to_owned()),
            Some(("directory", path)) => directories.push(PathBuf::from(path)),
            Some(("mount-point", path)) => mount_points.push(PathBuf::from(path)),
            Some(("setting", setting)) => {
                let (path, value) = setting.split_once(' ').context("setting line")?;
                settings.push((PathBuf::from(path), value.to_owned()));
            }
            Some(("process", process)) => {
                let (pid, start) = process.split_once(' ').context("process line")?;
                processes.insert(pid.parse::<u32>()?, start.parse::<u64>()?);
            }
            _ => bail!("janitor does not know {line:?}"),
        }
    }

    end_processes(&processes);
    let mut left = Vec::new();
    for path in &cgroups {
        left.extend(clear_cgroup(path)?);
    }
    for path in mount_points.iter().filter(|path| path.exists()) {
        unmount_below(path)?;
        fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    }
    for (path, value) in &settings {
        fs::write(path, value).with_context(|| format!("restore {}", path.display()))?;
    }
    // Newest first: a later directory may be mounted inside an earlier one.
    for directory in directories.iter().rev() {
        unmount_below(directory)?;
        let removed = fs::remove_dir_all(directory);
        if removed.is_err() && directory.exists() {
            left.push(directory.clone());
        }
    }
    if !left.is_empty() {
        bail!("left behind: {left:?}");
    }
    Ok(())
}

fn end_processes(processes: &BTreeMap<u32, u64>) {
    let alive = || {
        processes
            .iter()
            .filter(|(pid, start)| proc::start_time(**pid) == Some(**start))
            .map(|(pid, _)| *pid)
            .collect::<Vec<u32>>()
    };
    for (sign, timeout) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
        let pids = alive();
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            proc::signal(pid, sign);
        }
        // Whoever stays after the last round is beyond signals; the cgroup sweep names what it held.
        let _ = poll::until("processes end", timeout, || {
            Ok(alive().is_empty().then_some(()))
        });
    }
}

/// Kills what is in the cgroup and removes it; gives the directories that stayed.
fn clear_cgroup(path: &str) -> Result<Vec<PathBuf>> {
    let mounts = Mounts::detect()?;
    let emptied = poll::until(&format!("cgroup {path} empties"), GRACE, || {
        let pids = cgroup::processes_below(&mounts, path);
        for pid in &pids {
            proc::signal(*pid, Signal::KILL);
        }
        Ok(pids.is_empty().then_some(()))
    });
    let mut refused = Vec::new();
    // A cgroup stays busy for a moment after its last process is gone.
    let _ = poll::until("cgroups can be removed", GRACE, || {
        refused = cgroup::remove_below(&mounts, path);
        Ok(refused.is_empty().then_some(()))
    });
    if refused.is_empty() {
        return Ok(refused);
    }
    emptied.map(|()| refused)
}

fn unmount_below(directory: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mounts").context("read the mount table")?;
    let mounted: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|mount| Path::new(mount).starts_with(directory))
        .collect();
    for mount in mounted.iter().rev() {
        rustix::mount::unmount(*mount, UnmountFlags::DETACH)
            .with_context(|| format!("unmount {mount}"))?;
    }
    Ok(())
}
