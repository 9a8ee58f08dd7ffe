//! The floor: what the kernel itself takes for the same files, with handles already open and nothing parsed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::time::ClockId;

/// Larger than any of the files, so that each is one call.
const BUFFER: usize = 64 * 1024;

#[derive(Debug)]
pub struct Floor {
    files: Vec<File>,
    containers: usize,
}

impl Floor {
    /// Opens every container's files.
    pub fn open(containers: &[Vec<PathBuf>]) -> Result<Self> {
        let mut files = Vec::new();
        for path in containers.iter().flatten() {
            let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
            files.push(file);
        }
        ensure!(!files.is_empty(), "the agent named no files");
        Ok(Self {
            files,
            containers: containers.len(),
        })
    }

    pub fn files_per_container(&self) -> f64 {
        self.files.len() as f64 / self.containers as f64
    }

    /// CPU time and container-samples of some rounds at the agent's own pace, one a second. A loop without pauses would
    /// find everything in the caches and be a floor that no sampler can reach.
    pub fn measure(&self, rounds: u32) -> (Duration, u32) {
        let mut buffer = vec![0; BUFFER];
        let mut spent = Duration::ZERO;
        let started = Instant::now();
        for round in 0..rounds {
            let due = started + Duration::from_secs(u64::from(round));
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let before = thread_time();
            for file in &self.files {
                // What a file that its kernel refuses at the moment costs the agent, it costs here.
                let _ = std::hint::black_box(file.read_at(&mut buffer, 0));
            }
            spent += thread_time().saturating_sub(before);
        }
        (spent, self.containers as u32 * rounds)
    }
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
