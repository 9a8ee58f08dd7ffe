//! Where things are, and how cargo is called.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, WaitId, WaitIdOptions};

/// The root of the checkout. Taken from the environment at run time, so that no machine's path is compiled in.
pub fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set: start this with `cargo xtask`")?;
    let root = PathBuf::from(manifest).join("..");
    root.canonicalize().context("root of the workspace")
}

/// Downloads and other slow things to make, kept outside the checkout so that `cargo clean` and a fresh clone do not
/// cost them again.
pub fn cache() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = if let Some(own) = set("PLIMSOLL_CACHE") {
        PathBuf::from(own)
    } else if let Some(shared) = set("XDG_CACHE_HOME") {
        PathBuf::from(shared).join("plimsoll")
    } else {
        let home = set("HOME").context("neither PLIMSOLL_CACHE, XDG_CACHE_HOME nor HOME is set")?;
        PathBuf::from(home).join(".cache/plimsoll")
    };
    std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    Ok(path)
}

pub fn target() -> Result<PathBuf> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => Ok(root()?.join(path)),
        None => Ok(root()?.join("target")),
    }
}

pub fn cargo() -> Result<Command> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()?);
    Ok(command)
}

/// Runs to the end with its output shown.
pub fn run(command: &mut Command) -> Result<()> {
    measured(command).map(|_| ())
}

/// The same; gives the CPU time of the command and of everything that it waited for.
pub fn measured(command: &mut Command) -> Result<Duration> {
    let mut child = command
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let (status, cpu) = reap(&mut child)?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(cpu)
}

/// Waits for the end of a child. Gives the CPU time that the kernel adds to this process's account for it.
pub fn reap(child: &mut Child) -> Result<(ExitStatus, Duration)> {
    // One child at a time: the account does not say whose time it is.
    static ACCOUNT: Mutex<()> = Mutex::new(());
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.context("a child without a pid")?;
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(error) = rustix::process::waitid(WaitId::Pid(pid), ended) {
        ensure!(
            error == rustix::io::Errno::INTR,
            "wait for a child: {error}"
        );
    }
    let _one_at_a_time = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let before = children_cpu()?;
    let status = child.wait().context("wait for a child")?;
    Ok((status, children_cpu()?.saturating_sub(before)))
}

/// CPU time of all children that this process has waited for.
fn children_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
    let ticks = children_ticks(&stat).with_context(|| format!("/proc/self/stat: {stat:?}"))?;
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_millis(ticks.saturating_mul(1000) / a_second))
}

/// `cutime` and `cstime`, fields 16 and 17.
fn children_ticks(stat: &str) -> Option<u64> {
    // The name is in parentheses and may hold anything, so fields are counted from the last one.
    let after_name = stat.rsplit_once(") ")?.1;
    let mut fields = after_name.split(' ').skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user.saturating_add(system))
}

/// Runs to the end and gives what it wrote to standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).with_context(|| format!("output of {command:?}"))
}

/// Whether a program is found in the search path or where distributions keep system programs.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|directory| directory.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_ticks_are_fields_16_and_17() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 130 7 20 0 1 0 100";
        assert_eq!(children_ticks(stat), Some(137));
        assert_eq!(children_ticks("7 (a) R 1"), None);
    }
}
