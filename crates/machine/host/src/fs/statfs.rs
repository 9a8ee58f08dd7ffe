//! Usage of mounted file systems, with a deadline: a dead server cannot block the caller.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};

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

/// Major and minor number, as the mount table has them.
pub type DeviceNumber = (u32, u32);

/// Like [`statfs`], for a mount of this device. A mount that has gone, or that our own mount namespace does not have, is
/// an error: the kernel would tell the figures of the file system around the empty directory.
pub fn statfs_mounted(point: &Path, device: DeviceNumber) -> Result<FsUsage> {
    // In this order: figures that were read before the mount was seen there are the mount's own.
    let usage = statfs(point)?;
    let found = device_at(point)?;
    // Subvolumes have numbers other than the table's, but others than their parents, too.
    let is_around = |parent| device_at(parent).is_ok_and(|around| around == found);
    if found != device && point.parent().is_some_and(is_around) {
        return Err(HostError::io(
            "find a mount at",
            point,
            rustix::io::Errno::NOENT,
        ));
    }
    Ok(usage)
}

fn device_at(path: &Path) -> Result<DeviceNumber> {
    let stat = rustix::fs::stat(path).map_err(|e| HostError::io("stat", path, e))?;
    Ok((major(stat.st_dev), minor(stat.st_dev)))
}

/// `None`: whatever is there.
type Question = (PathBuf, Option<DeviceNumber>);
type Reply = (PathBuf, Result<FsUsage>);
type Ask = Box<dyn Fn(&Path, Option<DeviceNumber>) -> Result<FsUsage> + Send + Sync>;

/// Asks on a thread of its own and waits no longer than a deadline.
///
/// `statfs` on an unreachable NFS server blocks for minutes and cannot be interrupted. A mount that missed its
/// deadline is refused at once until its thread comes back, so there are never more threads than stuck mounts and one.
pub struct StatfsWorker {
    deadline: Duration,
    ask: std::sync::Arc<Ask>,
    worker: Option<Sender<Question>>,
    replies: Receiver<Reply>,
    reply: Sender<Reply>,
    stuck: BTreeSet<PathBuf>,
}

impl std::fmt::Debug for StatfsWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatfsWorker")
            .field("deadline", &self.deadline)
            .field("stuck", &self.stuck)
            .finish_non_exhaustive()
    }
}

impl Default for StatfsWorker {
    fn default() -> Self {
        Self::new(Self::DEADLINE)
    }
}

impl StatfsWorker {
    pub const DEADLINE: Duration = Duration::from_secs(2);

    pub fn new(deadline: Duration) -> Self {
        Self::asking(deadline, |path, device| match device {
            Some(device) => statfs_mounted(path, device),
            None => statfs(path),
        })
    }

    /// With another way to ask, for pools whose figures come from elsewhere, and for tests.
    pub fn asking(
        deadline: Duration,
        ask: impl Fn(&Path, Option<DeviceNumber>) -> Result<FsUsage> + Send + Sync + 'static,
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
        self.answer(path, None)
    }

    /// The usage of the mount of this device at `path`; an error where it is not there.
    pub fn usage_mounted(&mut self, path: &Path, device: DeviceNumber) -> Result<FsUsage> {
        self.answer(path, Some(device))
    }

    fn answer(&mut self, path: &Path, device: Option<DeviceNumber>) -> Result<FsUsage> {
        while let Ok((late, _)) = self.replies.try_recv() {
            self.stuck.remove(&late);
        }
        if self.stuck.contains(path) {
            return Err(timed_out(path));
        }
        self.send((path.to_owned(), device))?;
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

    fn send(&mut self, question: Question) -> Result<()> {
        let unsent = match &self.worker {
            Some(worker) => match worker.send(question) {
                Ok(()) => return Ok(()),
                Err(unsent) => unsent.0,
            },
            None => question,
        };
        let (worker, questions) = channel::<Question>();
        let (reply, ask) = (self.reply.clone(), std::sync::Arc::clone(&self.ask));
        std::thread::Builder::new()
            .name("statfs".to_owned())
            .spawn(move || {
                for (path, device) in questions {
                    let usage = ask(&path, device);
                    if reply.send((path, usage)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|source| HostError::io("start a thread for", &unsent.0, source))?;
        if let Err(unsent) = worker.send(unsent) {
            return Err(timed_out(&unsent.0.0));
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
    use std::sync::Mutex;

    const SOON: Duration = Duration::from_millis(20);
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn this_machine() {
        let direct = statfs(Path::new("/")).unwrap();
        assert!(direct.capacity > 0 && direct.used() <= direct.capacity);
        let probed = StatfsWorker::default().usage(Path::new("/")).unwrap();
        assert_eq!(probed.capacity, direct.capacity);
        let error = StatfsWorker::default().usage(Path::new("/no/such/dir"));
        assert!(error.unwrap_err().is_gone());
    }

    #[test]
    fn a_mount_that_has_gone_has_no_figures() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().join("shm");
        std::fs::create_dir(&point).unwrap();
        let (major, minor) = device_at(&point).unwrap();
        assert!(statfs_mounted(&point, (major, minor)).is_ok());
        // The table says that another device is here, but the directory is part of the file system around it.
        let gone = statfs_mounted(&point, (major, minor + 1)).unwrap_err();
        assert!(gone.is_gone(), "{gone}");
        let gone = StatfsWorker::default().usage_mounted(&point, (major, minor + 1));
        assert!(gone.unwrap_err().is_gone());
        // A mount point whose number is not the table's, as those of subvolumes are not.
        assert!(statfs_mounted(Path::new("/proc"), (major, minor + 1)).is_ok());
    }

    #[test]
    fn a_dead_server_costs_one_thread_and_no_more() {
        let (open, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let (asked, questions) = channel();
        let mut prober = StatfsWorker::asking(SOON, move |path, _| {
            let _ = asked.send(path.to_owned());
            if path == Path::new("/dead") {
                let _ = gate.lock().map(|gate| gate.recv());
            }
            Ok(FsUsage {
                capacity: 7,
                ..FsUsage::default()
            })
        });
        let dead = Path::new("/dead");
        let is_late = |outcome: Result<FsUsage>| {
            matches!(
                outcome,
                Err(HostError::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::TimedOut
            )
        };
        assert!(is_late(prober.usage(dead)));
        // The thread may need longer than the deadline to begin.
        assert_eq!(questions.recv_timeout(PATIENCE).as_deref(), Ok(dead));
        for _ in 0..5 {
            assert!(is_late(prober.usage(dead)));
        }
        assert!(questions.try_recv().is_err(), "it was asked again");
        assert_eq!(prober.stuck().count(), 1);
        // Others are answered meanwhile, however long that takes.
        prober.deadline = PATIENCE;
        assert!(prober.usage(Path::new("/alive")).is_ok());
        assert_eq!(prober.stuck().count(), 1);
        // The gate lets one through, and then everybody.
        drop(open);
        let given_up = Instant::now() + PATIENCE;
        while prober.usage(dead).is_err() {
            assert!(
                Instant::now() < given_up,
                "the mount is back, and is not asked"
            );
            std::thread::yield_now();
        }
        assert_eq!(prober.stuck().count(), 0);
    }
}
