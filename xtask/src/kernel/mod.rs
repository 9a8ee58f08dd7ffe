//! Rung 3: a real kernel, booted in an emulator, with the agent and the kernel tests as its only programs.

mod cpio;
mod modules;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use plimsoll_test_support::report::Line;
use plimsoll_test_support::{janitor, log};

use crate::ladder::{LeaveOut, Progress};
use crate::packages::{self, Need};
use crate::workspace;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Boot takes seconds and the tests two minutes; an emulator on a busy machine gets some more.
const TIMEOUT: Duration = Duration::from_secs(480);
const NEEDS: &[Need] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("/bin/busybox", "busybox-static"),
    ("mkfs.ext4", "e2fsprogs"),
];
/// What the cloud kernel has as modules and the tests use: the disk and the network card.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk", "virtio_net"];
const DISK_BYTES: u64 = 128 << 20;

/// Which cgroup file system the guest mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cgroups {
    V1,
    V2,
}

impl Cgroups {
    fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// Boots one kernel and runs its tests.
pub fn test(cgroups: Cgroups, filter: Option<&str>, progress: &mut Progress) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(LeaveOut(
            "kernel tests boot an amd64 kernel with programs of this machine".into(),
        )
        .into());
    }
    packages::ensure(NEEDS).map_err(LeaveOut::because)?;
    let kernel = Kernel::get().map_err(LeaveOut::because)?;
    let programs = build_static()?;

    let folder = workspace::target()?
        .join("kernel-tests")
        .join(cgroups.name());
    fs::create_dir_all(&folder)?;
    let initramfs = folder.join("initramfs.cpio");
    write_initramfs(&initramfs, &kernel, &programs)?;
    let disk = make_disk(&folder)?;
    let console = folder.join("console.log");

    let filter = filter.map_or(String::new(), |name| format!(" plimsoll.filter={name}"));
    let command_line = format!(
        "console=ttyS0 quiet panic=-1 psi=1 plimsoll.cgroups={}{filter}",
        cgroups.name()
    );
    let guest = janitor::command_in(None, "qemu-system-x86_64")
        // Never KVM: inside a virtual machine it may exist and hang.
        .args(["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "768"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&initramfs)
        .args(["-append", &command_line])
        // The kernel's console and the tests' lines are kept apart: a kernel message may break into any line.
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args(["-serial", "stdio"])
        .arg("-drive")
        .arg(format!(
            "file={},if=virtio,format=raw,cache=unsafe",
            disk.display()
        ))
        .args(["-nic", "user,restrict=on,model=virtio-net-pci"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start qemu-system-x86_64")?;
    watch(guest, progress).with_context(|| {
        format!(
            "end of the kernel's console ({}):\n{}",
            console.display(),
            log::tail(&console, 25)
        )
    })
}

/// Shows the guest's lines as they come, until it powers off.
fn watch(mut guest: Child, progress: &mut Progress) -> Result<()> {
    let output = guest.stdout.take().context("no output of the emulator")?;
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + TIMEOUT;
    let mut timed_out = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => match Line::parse(&line) {
                Some(parsed) => progress.line(&parsed),
                None => println!("    {}", line.trim_end()),
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                timed_out = true;
                guest.kill()?;
                break;
            }
        }
    }
    let status = guest.wait()?;
    drop(lines);
    let _ = reader.join();
    if timed_out {
        bail!("the guest was still running after {} s", TIMEOUT.as_secs());
    }
    if !progress.has_verdict() {
        bail!("the guest ended without a verdict; the emulator ended with {status}");
    }
    Ok(())
}

/// A sparse file with an empty file system.
fn make_disk(folder: &Path) -> Result<PathBuf> {
    let disk = folder.join("disk.img");
    File::create(&disk)?.set_len(DISK_BYTES)?;
    let mkfs = ["/sbin/mkfs.ext4", "/usr/sbin/mkfs.ext4"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("mkfs.ext4");
    workspace::run(Command::new(mkfs).args(["-q", "-F"]).arg(&disk)).context("format the disk")?;
    Ok(disk)
}

struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// From the cache, else from the distribution.
    fn get() -> Result<Self> {
        let cache = workspace::cache()?.join("kernel");
        fs::create_dir_all(&cache)?;
        // A kernel in the cache serves as it is: a run without a network is as good as one with.
        for entry in fs::read_dir(&cache)?.flatten() {
            if let Ok(kernel) = Self::find(&entry.path()) {
                return Ok(kernel);
            }
        }
        let package = packages::points_at("linux-image-cloud-amd64")?;
        Self::find(&packages::unpack(&package, &cache)?)
    }

    fn find(folder: &Path) -> Result<Self> {
        let image = fs::read_dir(folder.join("boot"))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().starts_with("vmlinuz-")
            })
            .with_context(|| format!("no vmlinuz in {}", folder.display()))?;
        // Newer releases have everything below /usr.
        let modules = ["lib/modules", "usr/lib/modules"]
            .map(|path| folder.join(path))
            .into_iter()
            .find(|path| path.is_dir())
            .with_context(|| format!("no modules in {}", folder.display()))?;
        Ok(Self { image, modules })
    }
}

struct Programs {
    plimsoll: PathBuf,
    tests: PathBuf,
}

/// Builds what runs in the guest, without shared libraries.
fn build_static() -> Result<Programs> {
    // A folder of its own: other flags in the common one would rebuild everything at each change of mind.
    let target = workspace::target()?.join("static");
    let mut cargo = workspace::cargo()?;
    cargo
        .args([
            "build",
            "--package",
            "plimsoll",
            "--package",
            "plimsoll-kernel-tests",
        ])
        // Naming the target keeps the flags from build scripts and procedural macros.
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target)
        // This variable wins over every other source of flags, so a caller's RUSTFLAGS cannot undo it.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
        // Emulation is slow and the archive is unpacked into the guest's memory: some optimisation, no debug
        // information, but overflow checks and debug assertions stay on.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    workspace::run(&mut cargo).context("build the guest's programs")?;
    let programs = target.join(TARGET).join("debug");
    Ok(Programs {
        plimsoll: programs.join("plimsoll"),
        tests: programs.join("plimsoll-kernel-tests"),
    })
}

fn write_initramfs(path: &Path, kernel: &Kernel, programs: &Programs) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    let mut archive = cpio::Archive::new(std::io::BufWriter::new(File::create(path)?));
    for directory in [
        "bin", "dev", "proc", "sys", "tmp", "run", "etc", "data", "modules",
    ] {
        archive.directory(directory)?;
    }
    archive.character_device("dev/console", 5, 1)?;
    archive.file("init", &read(&programs.tests)?)?;
    archive.file("bin/plimsoll", &read(&programs.plimsoll)?)?;
    archive.file("bin/busybox", &read(Path::new("/bin/busybox"))?)?;
    for (index, module) in modules::load_order(&kernel.modules, MODULES)?
        .iter()
        .enumerate()
    {
        // The guest loads them in the order of their names.
        archive.file(&format!("modules/{index:02}.ko"), &read(module)?)?;
    }
    archive.finish()?;
    Ok(())
}
