//! Opens files below a directory that others write to (container layers, pod volumes, logs), without following links.
//!
//! We may read everything, they may not. A name that was a directory a moment ago can be a symbolic link now, which leads to
//! what they may not see. So nothing below such a directory is opened by its whole path: the kernel resolves it beneath
//! the directory, without links (`openat2`, since Linux 5.6), or we do, name by name.

use std::io;
use std::path::{Component, Path};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Names below the directory that are resolved at most. Whoever nests deeper is not followed.
pub const DEEPEST: usize = 256;
/// `openat2` gives up when something is renamed meanwhile.
const TRIES: usize = 8;

const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A way to open something below a directory.
type Way = fn(&OwnedFd, &Path, OFlags) -> rustix::io::Result<OwnedFd>;

/// Something at a path of ours; what is below is not.
#[derive(Debug)]
pub struct Beneath {
    top: OwnedFd,
}

impl Beneath {
    /// The last name of `path` must be no link; those before it are not in others' hands.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            top: rustix::fs::openat(CWD, path, HOLD, Mode::empty())?,
        })
    }

    pub fn top(&self) -> &OwnedFd {
        &self.top
    }

    /// A directory below, to be listed; an empty path is the top itself.
    pub fn list(&self, below: &Path) -> io::Result<Dir> {
        self.list_by(by_kernel_or_name, below)
    }

    fn list_by(&self, way: Way, below: &Path) -> io::Result<Dir> {
        Ok(Dir::new(self.open_by(way, below, LIST)?)?)
    }

    /// A file below, opened as `flags` say. Nothing is created.
    pub fn file(&self, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags.difference(OFlags::CREATE) | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open_by(by_kernel_or_name, below, flags)
    }

    fn open_by(&self, way: Way, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        if below.components().count() > DEEPEST {
            return Err(Errno::NAMETOOLONG.into());
        }
        let opened = match below.as_os_str().is_empty() {
            true => rustix::fs::openat(&self.top, ".", flags, Mode::empty())?,
            false => way(&self.top, below, flags)?,
        };
        Ok(opened)
    }
}

fn by_kernel_or_name(top: &OwnedFd, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    match by_kernel(top, below, flags) {
        // Unknown to old kernels, and forbidden by old sandboxes.
        Err(Errno::NOSYS | Errno::PERM) => name_by_name(top, below, flags),
        outcome => outcome,
    }
}

fn by_kernel(top: &OwnedFd, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        outcome = rustix::fs::openat2(top, below, flags, Mode::empty(), how);
        if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    outcome
}

fn name_by_name(top: &OwnedFd, below: &Path, last: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut reached: Option<OwnedFd> = None;
    let mut names = below.components().peekable();
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else {
            return Err(Errno::XDEV);
        };
        // Only the last one is opened as asked. A link before it is opened as itself, and is then no directory.
        let flags = match names.peek() {
            Some(_) => HOLD | OFlags::DIRECTORY,
            None => last,
        };
        let from = reached.as_ref().unwrap_or(top).as_fd();
        reached = Some(rustix::fs::openat(from, name, flags, Mode::empty())?);
    }
    reached.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(dir: io::Result<Dir>) -> Result<Vec<String>, Errno> {
        let dir = dir.map_err(|error| Errno::from_io_error(&error).unwrap())?;
        let mut names: Vec<String> = dir
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort();
        Ok(names)
    }

    /// As new kernels have it, and as old ones.
    const WAYS: [Way; 2] = [by_kernel_or_name, name_by_name];

    #[test]
    fn what_is_below_is_found_and_what_is_not_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = |path: &str| temp.path().join(path);
        std::fs::create_dir_all(path("top/a/b")).unwrap();
        std::fs::create_dir_all(path("outside/b")).unwrap();
        std::fs::write(path("top/a/b/file"), "x").unwrap();
        symlink(path("outside"), path("top/absolute")).unwrap();
        symlink("../outside", path("top/relative")).unwrap();
        symlink("a", path("top/inside")).unwrap();
        symlink("/proc/self/root", path("top/magic")).unwrap();
        let beneath = Beneath::open(&path("top")).unwrap();
        for (number, way) in WAYS.into_iter().enumerate() {
            let list = |below: &str| names(beneath.list_by(way, Path::new(below)));
            assert_eq!(list("a/b").unwrap(), ["file"]);
            assert_eq!(list("").unwrap().len(), 5);
            for refused in [
                "..",
                "a/../../outside",
                "/",
                "absolute",
                "absolute/b",
                "relative/b",
                "inside",
                "inside/b",
                "magic/etc",
                "a/b/file",
                "none",
            ] {
                assert!(list(refused).is_err(), "{refused}, way {number}");
            }
            let deep = "a/".repeat(DEEPEST + 1);
            assert_eq!(list(&deep).unwrap_err(), Errno::NAMETOOLONG);
        }
        symlink(path("top/a/b/file"), path("top/a/link")).unwrap();
        for way in WAYS {
            let open = |below: &str| {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
                beneath.open_by(way, Path::new(below), flags)
            };
            open("a/b/file").unwrap();
            for refused in ["a/link", "inside/b/file", "../top/a/b/file", "none"] {
                open(refused).unwrap_err();
            }
        }
        assert!(
            Beneath::open(&path("top/absolute"))
                .is_ok_and(|link| link.list(Path::new("")).is_err())
        );
    }

    /// Somebody swaps a directory and a link as fast as they can: whatever is listed is never what the link leads to.
    #[test]
    fn a_link_that_is_swapped_in_is_never_followed() {
        let temp = tempfile::tempdir().unwrap();
        let path = |path: &str| temp.path().join(path);
        std::fs::create_dir_all(path("top/a/b")).unwrap();
        std::fs::create_dir_all(path("outside/b")).unwrap();
        std::fs::write(path("top/a/b/ours"), "x").unwrap();
        std::fs::write(path("outside/b/secret"), "x").unwrap();
        symlink(path("outside"), path("top/link")).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let [a, link] = [path("top/a"), path("top/link")];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(CWD, &a, CWD, &link, flags).unwrap();
                }
            });
            let beneath = Beneath::open(&path("top")).unwrap();
            for way in WAYS {
                for _ in 0..2000 {
                    if let Ok(found) = names(beneath.list_by(way, Path::new("a/b"))) {
                        assert_eq!(found, ["ours"]);
                    }
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
