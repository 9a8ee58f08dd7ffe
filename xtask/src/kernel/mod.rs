//! Rung 3: a real kernel, booted in an emulator, with the agent and the kernel tests as its only programs.

mod cpio;
mod modules;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use plimsoll_test_support::report::Filter;
use plimsoll_test_support::{janitor, log};

use crate::packages::{self, Need};
use crate::test::{Built, LeaveOut, Progress, follow};
use crate::workspace;

/// A guest that shows no test for so long hangs. Longer than the waits of any one case in all, on a busy machine.
const SILENCE: Duration = Duration::from_secs(900);
pub const NEEDS: &[Need] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("/bin/busybox", "busybox-static"),
    ("mkfs.ext4", "e2fsprogs"),
];
/// What a kernel has to know in an emulator. It must not look whether its timer runs in time, which on a busy machine it
/// does not, and then there is no boot. And it must take its time from the processor: left to itself it takes it from an
/// emulated chip, and each look at the clock leaves the guest.
const EMULATED: &str = "no_timer_check tsc=reliable mitigations=off";
/// Programs use whatever a processor has, and wide registers are slow where they are emulated.
const PROCESSOR: &str = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt";
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
pub fn test(cgroups: Cgroups, built: &Built, filter: &Filter, progress: &Progress) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(LeaveOut(
            "kernel tests boot an amd64 kernel with programs of this machine".into(),
        )
        .into());
    }
    packages::ensure(NEEDS).map_err(LeaveOut::because)?;
    let kernel = Kernel::get().map_err(LeaveOut::because)?;

    let folder = workspace::target()?
        .join("kernel-tests")
        .join(cgroups.name());
    fs::create_dir_all(&folder)?;
    let initramfs = folder.join("initramfs.cpio");
    write_initramfs(&initramfs, &kernel, built)?;
    let disk = make_disk(&folder)?;
    let console = folder.join("console.log");

    let filter = filter.text();
    let filter = filter.map_or(String::new(), |name| format!(" plimsoll.filter={name}"));
    let command_line = format!(
        "console=ttyS0 quiet panic=-1 psi=1 {EMULATED} plimsoll.cgroups={}{filter}",
        cgroups.name()
    );
    let mut guest = janitor::command_in(None, "qemu-system-x86_64");
    guest
        // Never KVM: inside a virtual machine it may exist and hang.
        .args(["-accel", "tcg,thread=multi,tb-size=256"])
        .args(["-cpu", PROCESSOR, "-smp", "2", "-m", "768"])
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
        .args(["-nic", "user,restrict=on,model=virtio-net-pci"]);
    follow::protocol(&mut guest, SILENCE, progress).with_context(|| {
        format!(
            "end of the kernel's console ({}):\n{}",
            console.display(),
            log::tail(&console, 25)
        )
    })
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

fn write_initramfs(path: &Path, kernel: &Kernel, built: &Built) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    let mut archive = cpio::Archive::new(std::io::BufWriter::new(File::create(path)?));
    for directory in [
        "bin", "dev", "proc", "sys", "tmp", "run", "etc", "data", "modules",
    ] {
        archive.directory(directory)?;
    }
    archive.character_device("dev/console", 5, 1)?;
    archive.file("init", &read(&built.program("plimsoll-kernel-tests"))?)?;
    archive.file("bin/plimsoll", &read(&built.program("plimsoll"))?)?;
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
