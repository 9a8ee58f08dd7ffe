//! Programs that the tests need, from the distribution.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A program and the Debian package that has it.
pub type Need = (&'static str, &'static str);

/// Installs what is missing. The error says what is missing and why it could not be had.
pub fn ensure(needs: &[Need]) -> Result<()> {
    // The packages' own lock does not cover their lists: two at once get in each other's way.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let missing: Vec<Need> = needs
        .iter()
        .copied()
        .filter(|(program, _)| !present(program))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    let list = packages.join(" ");
    may_install(&list)?;
    println!("installing {list}");
    refresh_lists(false)?;
    let _no_daemons = NoDaemons::start()?;
    if install(&packages).is_err() {
        // Lists of last month name packages that the mirror no longer has.
        refresh_lists(true)?;
        install(&packages).with_context(|| format!("could not install {list}"))?;
    }
    for (program, package) in missing {
        if !present(program) {
            bail!("package {package} is installed but has no {program}");
        }
    }
    Ok(())
}

/// A need is a program's name, or a file's path.
fn present(need: &str) -> bool {
    if need.starts_with('/') {
        return Path::new(need).exists();
    }
    workspace::has_program(need)
}

fn may_install(list: &str) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("{list} missing, and only root can install them");
    }
    if !workspace::has_program("apt-get") {
        bail!("{list} missing, and this is no Debian: install them by hand");
    }
    Ok(())
}

fn install(packages: &[&str]) -> Result<()> {
    workspace::run(
        apt_get()
            .args(["install", "--yes", "--no-install-recommends", "-qq"])
            .args(packages),
    )
}

fn refresh_lists(always: bool) -> Result<()> {
    let lists = fs::read_dir("/var/lib/apt/lists")
        .map(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
        })
        .unwrap_or(false);
    if lists && !always {
        return Ok(());
    }
    workspace::run(apt_get().args(["update", "-qq"])).context("update the package lists")
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Someone else may be installing: wait for them instead of failing.
        .args(["-o", "DPkg::Lock::Timeout=300"]);
    command
}

/// 101: "action forbidden by policy", the answer that invoke-rc.d knows.
const POLICY: &str = "#!/bin/sh\n# No daemons while plimsoll's tests install packages.\nexit 101\n";

/// While this lives, packages that bring a daemon do not start it: the tests run their own, with their own sockets.
struct NoDaemons {
    /// Ours to remove; `None` where the machine has a policy already.
    policy: Option<PathBuf>,
}

impl NoDaemons {
    fn start() -> Result<Self> {
        let path = PathBuf::from("/usr/sbin/policy-rc.d");
        // One of an interrupted run is ours as well.
        let is_ours = fs::read_to_string(&path).is_ok_and(|text| text == POLICY);
        if path.exists() && !is_ours {
            return Ok(Self { policy: None });
        }
        fs::write(&path, POLICY).context("write policy-rc.d")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self { policy: Some(path) })
    }
}

impl Drop for NoDaemons {
    fn drop(&mut self) {
        if let Some(path) = self.policy.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Downloads a package and unpacks it into a folder of the cache without installing it: a kernel in `/boot` would
/// concern the machine's boot loader. Gives the folder.
pub fn unpack(package: &str, into: &Path) -> Result<PathBuf> {
    let folder = into.join(package);
    if folder.exists() {
        return Ok(folder);
    }
    if !workspace::has_program("apt-get") || !workspace::has_program("dpkg-deb") {
        bail!("{package} can only be had on Debian");
    }
    println!("downloading {package}");
    let partial = into.join(format!("{package}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    // Anyone may download, and the lists are there: whoever asked for this package read its name from them.
    let download = || {
        workspace::run(
            apt_get()
                .current_dir(&partial)
                .args(["download", "-qq", package]),
        )
    };
    if download().is_err() {
        refresh_lists(true)?;
        download().with_context(|| format!("download {package}"))?;
    }
    let archive = fs::read_dir(&partial)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get download left no {package}"))?;
    let contents = partial.join("contents");
    workspace::run(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(&archive)
            .arg(&contents),
    )?;
    // The rename is what makes it complete: an interrupted run leaves only the partial folder.
    fs::rename(&contents, &folder)?;
    fs::remove_dir_all(&partial)?;
    Ok(folder)
}

/// What a package that only points at another one points at.
pub fn points_at(package: &str) -> Result<String> {
    let ask = || {
        let text = workspace::output(Command::new("apt-cache").args(["depends", package]))?;
        first_dependency(&text).with_context(|| format!("what does {package} depend on?"))
    };
    ask().or_else(|_| {
        may_install(package)?;
        refresh_lists(true)?;
        ask()
    })
}

fn first_dependency(text: &str) -> Option<String> {
    text.lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_of_a_meta_package() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-54-cloud-amd64\n";
        assert_eq!(
            first_dependency(text).as_deref(),
            Some("linux-image-6.1.0-54-cloud-amd64")
        );
        assert_eq!(first_dependency("nothing\n"), None);
    }
}
