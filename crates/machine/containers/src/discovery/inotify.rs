//! inotify watches and directory listings. Holds no state about cgroups.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::tree::{InotifyEvent, TreeDir, WatchId};

/// Room for some hundred notices, or for the entries of a cgroup directory in one go.
const BUFFER: usize = 32 * 1024;

pub(super) struct Inotify {
    trees: Vec<Tree>,
    /// `None` where no inotify instance could be had: everything is then found by rescans.
    inotify: Option<OwnedFd>,
    buffer: Box<[MaybeUninit<u8>]>,
    nameless: Nameless,
}

/// Directories whose names are no UTF-8: they cannot be told to anyone, and no runtime or systemd makes them.
#[derive(Debug, Default)]
struct Nameless {
    /// How often one was met.
    met: u64,
    warned: bool,
}

#[derive(Debug)]
struct Tree {
    root: PathBuf,
    /// A directory's link count tells how many directories are in it. cgroupfs keeps that promise; imitations of it
    /// say two for everything.
    counts_links: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    As(WatchId),
    /// The directory has gone.
    Gone,
    /// `fs.inotify.max_user_watches` is used up.
    NoRoom,
    Failed(Errno),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    Done,
    Gone,
    /// The listing failed; keep what is known of this directory.
    Failed(Errno),
}

/// How reading events ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    Empty,
    /// The limit was reached; there may be more.
    More,
    /// The kernel dropped events because they were not read in time.
    Overflowed,
}

impl std::fmt::Debug for Inotify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inotify")
            .field("trees", &self.trees)
            .field("inotify", &self.inotify)
            .finish()
    }
}

impl Inotify {
    pub fn new(trees: Vec<PathBuf>) -> (Self, Option<Errno>) {
        let (inotify, error) = match inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
            Ok(fd) => (Some(fd), None),
            Err(error) => (None, Some(error)),
        };
        let trees = trees.into_iter().map(|root| Tree {
            counts_links: is_cgroupfs(&root),
            root,
        });
        let kernel = Self {
            trees: trees.collect(),
            inotify,
            buffer: vec![MaybeUninit::uninit(); BUFFER].into_boxed_slice(),
            nameless: Nameless::default(),
        };
        (kernel, error)
    }

    #[cfg(test)]
    pub fn without_inotify(trees: Vec<PathBuf>) -> Self {
        let (mut kernel, _) = Self::new(trees);
        kernel.inotify = None;
        kernel
    }

    pub fn trees(&self) -> u8 {
        u8::try_from(self.trees.len()).unwrap_or(u8::MAX)
    }

    pub fn inotify(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    fn dir(&self, place: &TreeDir) -> PathBuf {
        let tree = self.trees.get(usize::from(place.tree));
        let root = tree.map_or(Path::new(""), |tree| &tree.root);
        root.join(place.path.trim_start_matches('/'))
    }

    pub fn watch(&self, place: &TreeDir) -> Watched {
        let Some(inotify) = &self.inotify else {
            return Watched::NoRoom;
        };
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            // A removed directory that someone still holds open would go on sending.
            | WatchFlags::EXCL_UNLINK;
        match inotify::add_watch(inotify, self.dir(place), flags) {
            Ok(watch) => Watched::As(watch),
            Err(error) if is_gone(error) => Watched::Gone,
            Err(Errno::NOSPC) => Watched::NoRoom,
            Err(error) => Watched::Failed(error),
        }
    }

    pub fn unwatch(&self, watch: WatchId) {
        if let Some(inotify) = &self.inotify {
            // Fails where the directory is gone already, and with it the watch.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    /// The directories inside one.
    pub fn list(&mut self, place: &TreeDir, names: &mut Vec<String>) -> Listed {
        names.clear();
        let path = self.dir(place);
        let tree = self.trees.get(usize::from(place.tree));
        if tree.is_some_and(|tree| tree.counts_links) {
            match rustix::fs::stat(&path) {
                // Its own two: this spares the reading of dozens of control files in every leaf.
                Ok(stat) if stat.st_nlink == 2 => return Listed::Done,
                Ok(_) => {}
                Err(error) if is_gone(error) => return Listed::Gone,
                Err(error) => return Listed::Failed(error),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(error) if is_gone(error) => return Listed::Gone,
            Err(error) => return Listed::Failed(error),
        };
        let mut entries = RawDir::new(&dir, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if is_gone(error) => return Listed::Gone,
                Err(error) => return Listed::Failed(error),
            };
            let name = entry.file_name();
            let is_dir = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => is_dir(&dir, name),
                _ => false,
            };
            if is_dir && let Some(name) = self.nameless.sort_out(name) {
                names.push(name.to_owned());
            }
        }
        Listed::Done
    }

    /// How often a directory was left out because its name is no UTF-8, since this was last asked.
    pub fn take_nameless(&mut self) -> u64 {
        std::mem::take(&mut self.nameless.met)
    }

    /// Hands over up to `most` notices about directories, without waiting for any.
    pub fn drain(
        &mut self,
        most: usize,
        mut each: impl FnMut(WatchId, InotifyEvent<'_>),
    ) -> Drained {
        let Some(inotify) = &self.inotify else {
            return Drained::Empty;
        };
        let mut reader = inotify::Reader::new(inotify, &mut self.buffer);
        let mut seen = 0;
        let mut overflowed = false;
        loop {
            // What one read brought must be handed over entirely: the reader forgets it when it is dropped.
            if seen >= most && reader.is_buffer_empty() {
                return if overflowed {
                    Drained::Overflowed
                } else {
                    Drained::More
                };
            }
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) if overflowed => return Drained::Overflowed,
                Err(_) => return Drained::Empty,
            };
            seen += 1;
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                overflowed = true;
            } else if flags.contains(ReadFlags::IGNORED) {
                each(event.wd(), InotifyEvent::Unwatched);
            } else if flags.contains(ReadFlags::ISDIR)
                && let Some(name) = event.file_name()
                && let Some(name) = self.nameless.sort_out(name)
            {
                if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    each(event.wd(), InotifyEvent::Arrived(name));
                } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                    each(event.wd(), InotifyEvent::Left(name));
                }
            }
        }
    }
}

impl Nameless {
    /// The name, if it can be used.
    fn sort_out<'a>(&mut self, name: &'a CStr) -> Option<&'a str> {
        let Ok(text) = name.to_str() else {
            self.met += 1;
            if !std::mem::replace(&mut self.warned, true) {
                tracing::warn!(name = %name.to_string_lossy(), "ignoring cgroups whose names are not UTF-8");
            }
            return None;
        };
        (text != "." && text != "..").then_some(text)
    }
}

fn is_cgroupfs(root: &Path) -> bool {
    const CGROUP: u32 = 0x0027_e0eb;
    const CGROUP2: u32 = 0x6367_7270;
    rustix::fs::statfs(root)
        .is_ok_and(|fs| u32::try_from(fs.f_type).is_ok_and(|t| t == CGROUP || t == CGROUP2))
}

fn is_dir(dir: &OwnedFd, name: &CStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn is_gone(error: Errno) -> bool {
    // ENODEV: a cgroup directory that was removed while it was open.
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::NODEV)
}
