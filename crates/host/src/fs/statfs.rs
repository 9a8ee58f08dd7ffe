//! How full a mounted file system is, asked in a way that a dead server cannot stall.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::{HostError, Result};

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsUsage {
    pub capacity: u64,
    /// Unused, the part reserved for root included.
    pub free: u64,
    pub available: u64,
    /// All and free; `None` for pools that do not count them.
    pub inodes: Option<(u64, u64)>,
}

impl FsUsage {
    pub fn used(&self) -> u64 {
        self.capacity.saturating_sub(self.free)
    }

    pub fn has_inodes(&self) -> bool {
        self.inodes.is_some()
    }
}

/// Asks the kernel in the calling thread: for file systems that cannot hang.
pub fn statfs(path: &Path) -> Result<FsUsage> {
    let stat = rustix::fs::statvfs(path).map_err(|e| HostError::io("statfs", path, e))?;
    let bytes = |blocks: u64| stat.f_frsize.saturating_mul(blocks);
    Ok(FsUsage {
        capacity: bytes(stat.f_blocks),
        free: bytes(stat.f_bfree),
        available: bytes(stat.f_bavail),
        inodes: Some((stat.f_files, stat.f_ffree)),
    })
}

type Reply = (PathBuf, Result<FsUsage>);
type Ask = Box<dyn Fn(&Path) -> Result<FsUsage> + Send + Sync>;

/// Asks on a thread of its own and waits no longer than a deadline.
///
/// `statfs` on an unreachable NFS server blocks for minutes and cannot be interrupted. A mount that missed its
/// deadline is refused at once until its thread comes back, so there are never more threads than stuck mounts and one.
pub struct Prober {
    deadline: Duration,
    ask: std::sync::Arc<Ask>,
    worker: Option<Sender<PathBuf>>,
    replies: Receiver<Reply>,
    reply: Sender<Reply>,
    stuck: BTreeSet<PathBuf>,
}

impl std::fmt::Debug for Prober {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prober")
            .field("deadline", &self.deadline)
            .field("stuck", &self.stuck)
            .finish_non_exhaustive()
    }
}

impl Default for Prober {
    fn default() -> Self {
        Self::new(Self::DEADLINE)
    }
}

impl Prober {
    pub const DEADLINE: Duration = Duration::from_secs(2);

    pub fn new(deadline: Duration) -> Self {
        Self::asking(deadline, statfs)
    }

    /// With another way to ask, for pools whose figures come from elsewhere, and for tests.
    pub fn asking(
        deadline: Duration,
        ask: impl Fn(&Path) -> Result<FsUsage> + Send + Sync + 'static,
    ) -> Self {
        let (reply, replies) = channel();
        Self {
            deadline,
            ask: std::sync::Arc::new(Box::new(ask)),
            worker: None,
            replies,
            reply,
            stuck: BTreeSet::new(),
        }
    }

    /// The usage of the file system at `path`; an error of kind `TimedOut` where it does not answer.
    pub fn usage(&mut self, path: &Path) -> Result<FsUsage> {
        while let Ok((late, _)) = self.replies.try_recv() {
            self.stuck.remove(&late);
        }
        if self.stuck.contains(path) {
            return Err(timed_out(path));
        }
        self.send(path.to_owned())?;
        let until = Instant::now() + self.deadline;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.replies.recv_timeout(left) {
                Ok((answered, usage)) if answered == path => return usage,
                Ok((late, _)) => {
                    self.stuck.remove(&late);
                }
                // We hold a sender ourselves, so the channel is never closed.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.stuck.insert(path.to_owned());
                    // Left behind: it ends by itself once its question is answered.
                    self.worker = None;
                    return Err(timed_out(path));
                }
            }
        }
    }

    /// Mounts that owe an answer.
    pub fn stuck(&self) -> impl Iterator<Item = &Path> {
        self.stuck.iter().map(PathBuf::as_path)
    }

    fn send(&mut self, path: PathBuf) -> Result<()> {
        let unsent = match &self.worker {
            Some(worker) => match worker.send(path) {
                Ok(()) => return Ok(()),
                Err(unsent) => unsent.0,
            },
            None => path,
        };
        let (worker, questions) = channel::<PathBuf>();
        let (reply, ask) = (self.reply.clone(), std::sync::Arc::clone(&self.ask));
        std::thread::Builder::new()
            .name("statfs".to_owned())
            .spawn(move || {
                for path in questions {
                    let usage = ask(&path);
                    if reply.send((path, usage)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|source| HostError::io("start a thread for", &unsent, source))?;
        if let Err(unsent) = worker.send(unsent) {
            return Err(timed_out(&unsent.0));
        }
        self.worker = Some(worker);
        Ok(())
    }
}

fn timed_out(path: &Path) -> HostError {
    HostError::io("statfs", path, std::io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    #[test]
    fn this_machine() {
        let direct = statfs(Path::new("/")).unwrap();
        assert!(direct.capacity > 0 && direct.used() <= direct.capacity);
        let probed = Prober::default().usage(Path::new("/")).unwrap();
        assert_eq!(probed.capacity, direct.capacity);
        let error = Prober::default().usage(Path::new("/no/such/dir"));
        assert!(error.unwrap_err().is_gone());
    }

    #[test]
    fn a_dead_server_costs_one_thread_and_no_more() {
        let gate = Arc::new(Mutex::new(()));
        let asked = Arc::new(AtomicUsize::new(0));
        let closed = gate.lock().unwrap();
        let mut prober = {
            let (gate, asked) = (Arc::clone(&gate), Arc::clone(&asked));
            Prober::asking(Duration::from_millis(20), move |path| {
                asked.fetch_add(1, Ordering::SeqCst);
                if path == Path::new("/dead") {
                    drop(gate.lock());
                }
                Ok(FsUsage {
                    capacity: 7,
                    ..FsUsage::default()
                })
            })
        };
        for _ in 0..5 {
            let error = prober.usage(Path::new("/dead")).unwrap_err();
            assert!(matches!(
                error,
                HostError::Io { cause, .. } if cause.kind() == std::io::ErrorKind::TimedOut
            ));
        }
        assert!(asked.load(Ordering::SeqCst) <= 1);
        assert_eq!(prober.stuck().count(), 1);
        // Others are answered meanwhile. The deadline is short, so a busy machine may need a second try.
        let answered = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            prober.usage(Path::new("/alive")).is_ok()
        });
        assert!(answered);
        drop(closed);
        let back = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            prober.usage(Path::new("/dead")).is_ok()
        });
        assert!(back);
    }
}
