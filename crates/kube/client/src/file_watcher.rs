//! Watches files that change while the program runs: certificates, keys, tokens.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// How often files are looked at although the kernel reported nothing: it cannot for some file systems.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Tells when files have changed, by what the file system says of them. A mounted secret changes by a link being moved,
/// which shows as another file behind the same name.
#[derive(Debug)]
pub struct FileStamps {
    paths: Vec<PathBuf>,
    seen: Mutex<Vec<Stamp>>,
}

type Stamp = Option<(SystemTime, u64, u64)>;

impl FileStamps {
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let seen = Mutex::new(paths.iter().map(|path| stamp(path)).collect());
        Self { paths, seen }
    }

    /// Changed since the last time this was asked?
    pub fn changed(&self) -> bool {
        let now: Vec<Stamp> = self.paths.iter().map(|path| stamp(path)).collect();
        let mut seen = self.seen.lock();
        let changed = *seen != now;
        *seen = now;
        changed
    }

    /// What was found was of no use: the files count as changed until they are looked at again.
    pub fn doubt(&self) {
        self.seen.lock().clear();
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}

/// Waits for files to change: told by the kernel where it can, and by looking every now and then.
#[derive(Debug)]
pub struct Watcher {
    watched: FileStamps,
    kernel: Option<Receiver>,
    every: Duration,
}

impl Watcher {
    /// Must be called within a tokio runtime.
    pub fn new(paths: Vec<PathBuf>, every: Duration) -> Self {
        let kernel = watch_folders(&paths).inspect_err(|error| {
            tracing::debug!(%error, "no inotify for watched files, they are looked at regularly");
        });
        Self {
            watched: FileStamps::new(paths),
            kernel: kernel.ok(),
            every,
        }
    }

    /// Returns after a change. May be dropped and called again at any time.
    pub async fn changed(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.every) => {}
                () = self.told() => {}
            }
            if self.watched.changed() {
                return;
            }
        }
    }

    /// The new content is of no use (half of a pair was replaced, say): [`Self::changed`] returns again at the next look.
    pub fn doubt(&self) {
        self.watched.doubt();
    }

    /// Something happened in one of the folders.
    async fn told(&self) {
        let Some(kernel) = &self.kernel else {
            return std::future::pending().await;
        };
        if kernel.readable().await.is_err() {
            return std::future::pending().await;
        }
        // What happened matters little, the files are looked at anyway: the events only have to be out of the way.
        let mut events = [0; 4096];
        while kernel.try_read(&mut events).is_ok_and(|read| read > 0) {}
    }
}

/// Folders rather than files: files are replaced by renaming another over them.
fn watch_folders(paths: &[PathBuf]) -> std::io::Result<Receiver> {
    let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    // Not MODIFY: a file that is being written is not ready to be read.
    let flags = WatchFlags::CLOSE_WRITE
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO;
    let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    for folder in folders {
        let folder = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        inotify::add_watch(&fd, folder, flags)?;
    }
    // Reads like a pipe, and tokio has no other safe way to wait for it.
    Receiver::from_owned_fd_unchecked(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    async fn soon(watcher: &Watcher) {
        let changed = tokio::time::timeout(Duration::from_secs(60), watcher.changed());
        changed.await.expect("the change is told");
    }

    #[tokio::test]
    async fn a_written_file_and_a_moved_link() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, data) = (dir.path().join("plain"), dir.path().join("..data"));
        fs::write(&plain, "1").unwrap();
        for version in ["v1", "v2"] {
            fs::create_dir(dir.path().join(version)).unwrap();
            fs::write(dir.path().join(version).join("token"), version).unwrap();
        }
        std::os::unix::fs::symlink("v1", &data).unwrap();
        std::os::unix::fs::symlink("..data/token", dir.path().join("token")).unwrap();
        let paths = vec![plain.clone(), dir.path().join("token")];
        let watcher = Watcher::new(paths, LONG);
        fs::write(&plain, "22").unwrap();
        soon(&watcher).await;
        // As the kubelet replaces a mounted secret.
        let moving = dir.path().join("..data_tmp");
        std::os::unix::fs::symlink("v2", &moving).unwrap();
        fs::rename(&moving, &data).unwrap();
        soon(&watcher).await;
        // Neighbours do not matter.
        fs::write(dir.path().join("other"), "x").unwrap();
        let nothing = tokio::time::timeout(Duration::from_millis(100), watcher.changed());
        nothing.await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_kernel_files_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("late").join("token");
        let watcher = Watcher::new(vec![path.clone()], LOOK_EVERY);
        assert!(watcher.kernel.is_none(), "there is no folder to watch");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "t").unwrap();
        let began = tokio::time::Instant::now();
        watcher.changed().await;
        assert_eq!(began.elapsed(), LOOK_EVERY);
        watcher.doubt();
        watcher.changed().await;
        assert_eq!(began.elapsed(), 2 * LOOK_EVERY);
    }
}
