//! Small programs that use one resource each, inside a cgroup.
//!
//! Each says `ready` when what it uses is in use, and ends when its standard input closes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::cgroup::Group;
use plimsoll_test_support::janitor;
use rustix::fs::OFlags;

/// The tests' side: a running workload, killed when dropped.
#[derive(Debug)]
pub struct Workload {
    child: Child,
}

impl Workload {
    /// Starts one and waits until it is ready.
    pub fn start(group: &Group, arguments: &[&str]) -> Result<Self> {
        let mut workload = Self::spawn(group, arguments)?;
        let output = workload.child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "ready\n", "workload {arguments:?} said {line:?}");
        Ok(workload)
    }

    /// Starts one that may never become ready.
    pub fn spawn(group: &Group, arguments: &[&str]) -> Result<Self> {
        let child = janitor::command_in(Some(group), "/proc/self/exe")
            .arg("workload")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start workload {arguments:?}"))?;
        Ok(Self { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The workload's own side.
pub fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["burn"] => burn(),
        ["alloc", bytes] => alloc(bytes.parse()?),
        ["cache", file, bytes] => cache(file, bytes.parse()?),
        ["fork", children] => fork(children.parse()?),
        ["io", file, bytes] => direct_io(file, bytes.parse()?),
        ["sleep"] => ready(),
        ["actuate", journal] => crate::cases::actuate::work(journal),
        other => bail!("no workload {other:?}"),
    }
}

fn ready() -> Result<()> {
    println!("ready");
    // The parent never writes: this returns when it closes its end.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Uses one cpu, mostly in user mode but with system calls in between, so that both figures grow.
fn burn() -> Result<()> {
    println!("ready");
    let mut value = 1_u64;
    loop {
        for _ in 0..2_000_000 {
            value = std::hint::black_box(
                value
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
        for _ in 0..200 {
            let _ = std::fs::metadata("/proc/self/status");
        }
    }
}

/// Holds anonymous memory, every page of it written.
fn alloc(bytes: usize) -> Result<()> {
    let memory = vec![0x5a_u8; bytes];
    std::hint::black_box(&memory);
    ready()?;
    drop(memory);
    Ok(())
}

/// Holds page cache: the pages of a file that was read.
fn cache(path: &str, bytes: usize) -> Result<()> {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.write_all(&vec![1; bytes])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    std::io::copy(&mut file, &mut std::io::sink())?;
    ready()
}

/// Children that sleep, each a process of its own.
fn fork(children: usize) -> Result<()> {
    let mut running = Vec::new();
    for _ in 0..children {
        let mut child = std::process::Command::new("/proc/self/exe")
            .args(["workload", "sleep"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        running.push(child);
    }
    ready()?;
    for mut child in running {
        drop(child.stdin.take());
        child.wait()?;
    }
    Ok(())
}

/// Transfers go past the page cache: only then is the writer's own cgroup charged, and at once.
fn direct_io(path: &str, bytes: usize) -> Result<()> {
    /// Direct transfers need memory and lengths that are multiples of the block size.
    #[repr(align(4096))]
    struct Block([u8; 64 * 1024]);

    let mut block = Box::new(Block([7; 64 * 1024]));
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(path)
        .with_context(|| format!("open {path} for direct transfers"))?;
    let blocks = bytes.div_ceil(block.0.len());
    for _ in 0..blocks {
        file.write_all(&block.0)?;
    }
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    for _ in 0..blocks {
        file.read_exact(&mut block.0)?;
    }
    ready()
}
