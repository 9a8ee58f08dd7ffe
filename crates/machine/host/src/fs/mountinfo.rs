//! The mount table, `/proc/PID/mountinfo`.

use std::path::{Path, PathBuf};

use crate::cgroup::hierarchy::unescape;
use crate::parse::{self, Malformed};
use crate::{HostError, HostRoot, ReadBuf, Result, read_file};

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub major: u32,
    pub minor: u32,
    /// The directory of the file system that is mounted: not `/` for bind mounts and subvolumes.
    pub root: String,
    pub point: String,
    pub kind: String,
    pub source: String,
}

pub fn parse_mountinfo(text: &[u8]) -> Result<Vec<Mount>, Malformed> {
    let text = parse::whole_lines(text)?;
    parse::numbered(text)
        .map(|(index, line)| parse_line(line).ok_or_else(|| Malformed::at(index, line)))
        .collect()
}

/// `36 35 98:0 /root /point options [tag…] - kind source super-options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let line = String::from_utf8_lossy(line);
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ').skip(2);
    let (major, minor) = head.next()?.split_once(':')?;
    let mut tail = tail.split(' ');
    Some(Mount {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root: unescape(head.next()?),
        point: unescape(head.next()?),
        kind: unescape(tail.next()?),
        // A source may be empty: then two blanks follow each other and the field is still there.
        source: unescape(tail.next()?),
    })
}

/// The writable layer of a container, from its first process's mount table: the upper directory of the overlay that is
/// its `/`. `None`: its root is no overlay.
pub fn overlay_upper_dir(mountinfo: &[u8]) -> Option<PathBuf> {
    parse::lines(mountinfo).find_map(|line| {
        parse_line(line).filter(|m| m.point == "/" && m.kind == "overlay")?;
        let line = String::from_utf8_lossy(line);
        let options = line.rsplit(' ').next()?;
        let upper = options
            .split(',')
            .find_map(|o| o.strip_prefix("upperdir="))?;
        Some(PathBuf::from(unescape(upper)))
    })
}

/// The directory that a container of Docker's or Podman's `vfs` driver has as its `/`: a whole copy of its image, in a
/// directory `vfs/dir/ID` of a file system that is mounted somewhere on the machine, too. `None`: its root is no such
/// thing.
pub fn vfs_directory(mountinfo: &[u8], machine: &[Mount]) -> Option<PathBuf> {
    let of_container = parse::lines(mountinfo)
        .filter_map(parse_line)
        .find(|mount| mount.point == "/")?;
    let directory = Path::new(&of_container.root);
    directory.parent().filter(|all| all.ends_with("vfs/dir"))?;
    machine.iter().find_map(|mount| {
        let same = (mount.major, mount.minor) == (of_container.major, of_container.minor);
        let below = directory.strip_prefix(&mount.root).ok()?;
        same.then(|| Path::new(&mount.point).join(below))
    })
}

/// Where the machine's table may be, best first.
pub(super) fn table_files(root: &HostRoot) -> impl Iterator<Item = PathBuf> {
    // Below another root the machine's table is that of its first process; our own shows the container's mounts.
    let files: &[&str] = match root.is_own() {
        true => &["self/mountinfo"],
        false => &["1/mountinfo", "self/mountinfo"],
    };
    files.iter().map(|file| root.proc(file))
}

/// The mounts of the observed machine, as of now. Who asks again and again uses [`super::MountTable`].
pub fn read_mounts(root: &HostRoot, buf: &mut ReadBuf) -> Result<Vec<Mount>> {
    for path in table_files(root) {
        if let Some(text) = read_file(&path, buf)? {
            return parse_mountinfo(text).map_err(|at| HostError::malformed(&path, at));
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_upper_directory_of_the_root() {
        let table = b"51 27 0:42 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/up\\040per/fs,workdir=/w\n\
              60 51 0:50 / /proc rw - proc proc rw\n";
        assert_eq!(overlay_upper_dir(table), Some(PathBuf::from("/up per/fs")));
        assert_eq!(
            overlay_upper_dir(b"27 1 254:0 / / rw - ext4 /dev/vda rw\n"),
            None
        );
    }

    #[test]
    fn directories_of_copied_images() {
        let machine = parse_mountinfo(
            b"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 8:1 /srv /data rw - ext4 /dev/sda1 rw\n",
        )
        .unwrap();
        let at = |line: &str| vfs_directory(line.as_bytes(), &machine);
        assert_eq!(
            at("131 63 254:0 /var/lib/docker/vfs/dir/ab / rw - ext4 /dev/vda rw\n"),
            Some(PathBuf::from("/var/lib/docker/vfs/dir/ab"))
        );
        assert_eq!(
            at("131 63 8:1 /srv/docker/vfs/dir/ab / rw - ext4 /dev/sda1 rw\n"),
            Some(PathBuf::from("/data/docker/vfs/dir/ab"))
        );
        for other in [
            "27 1 254:0 / / rw - ext4 /dev/vda rw\n",
            "27 1 254:0 /snapshots/2/fs / rw - ext4 /dev/vda rw\n",
            "27 1 8:2 /var/lib/docker/vfs/dir/ab / rw - ext4 /dev/sda2 rw\n",
        ] {
            assert_eq!(at(other), None, "{other}");
        }
    }

    #[test]
    fn lines_of_all_shapes() {
        let mounts = parse_mountinfo(
            b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
              42 27 254:0 /srv/k /srv/k rw shared:1 master:2 - ext4 /dev/vda rw\n\
              51 27 0:42 / /a\\040b rw,relatime - overlay overlay rw,lowerdir=/l\n\
              60 27 0:50 / /mnt rw - tmpfs  rw\n",
        )
        .unwrap();
        assert_eq!(mounts.len(), 4);
        assert_eq!((mounts[0].major, mounts[0].minor), (254, 0));
        assert_eq!((&*mounts[1].root, &*mounts[1].kind), ("/srv/k", "ext4"));
        assert_eq!((&*mounts[2].point, &*mounts[2].source), ("/a b", "overlay"));
        assert_eq!((&*mounts[3].kind, &*mounts[3].source), ("tmpfs", ""));
    }

    #[test]
    fn bad_lines_are_named() {
        let error =
            parse_mountinfo(b"27 1 254:0 / / rw - ext4 /dev/vda rw\n27 1 254 / / rw - x y z\n")
                .unwrap_err();
        assert_eq!(error.line, 2);
        assert!(parse_mountinfo(b"27 1 254:0 / / rw\n").is_err());
    }

    #[test]
    fn this_machine() {
        let mounts = read_mounts(&HostRoot::new("/"), &mut ReadBuf::default()).unwrap();
        assert!(mounts.iter().any(|mount| mount.point == "/"));
    }

    #[test]
    fn a_container_sees_the_table_of_the_first_process() {
        let temp = tempfile::tempdir().unwrap();
        for (pid, point) in [("1", "/host"), ("self", "/own")] {
            let dir = temp.path().join("proc").join(pid);
            std::fs::create_dir_all(&dir).unwrap();
            let line = format!("1 0 8:1 / {point} rw - ext4 /dev/sda1 rw\n");
            std::fs::write(dir.join("mountinfo"), line).unwrap();
        }
        let root = HostRoot::new(temp.path());
        let mounts = read_mounts(&root, &mut ReadBuf::default()).unwrap();
        assert_eq!(mounts[0].point, "/host");
    }

    proptest! {
        #[test]
        fn any_mount_survives(major: u32, minor: u32, point in "/[a-z]{0,9}", source in "[a-z/]{1,9}") {
            let line = format!("1 2 {major}:{minor} / {point} rw shared:3 - xfs {source} rw\n");
            let mounts = parse_mountinfo(line.as_bytes()).unwrap();
            let expected = Mount {
                major, minor, root: "/".into(), point, kind: "xfs".into(), source,
            };
            prop_assert_eq!(mounts, [expected]);
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_mountinfo(&text);
        }
    }
}
