//! Where things are, and how cargo is called.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

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
    let status = command
        .status()
        .with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
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
