//! Machine id, boot id, system UUID; kernel and OS version.

use crate::parse;
use crate::{HostRoot, ReadBuf, read_file};

pub const MACHINE_ID_FILES: &str = "/etc/machine-id,/var/lib/dbus/machine-id";
pub const BOOT_ID_FILES: &str = "/proc/sys/kernel/random/boot_id";

/// Comma-separated lists of files; the first that can be read counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdFiles {
    pub machine_id: String,
    pub boot_id: String,
}

impl Default for IdFiles {
    fn default() -> Self {
        Self {
            machine_id: MACHINE_ID_FILES.to_owned(),
            boot_id: BOOT_ID_FILES.to_owned(),
        }
    }
}

/// The text of the first readable file of a list, all of them of the observed machine; empty without any.
pub fn first_readable(root: &HostRoot, files: &str, buf: &mut ReadBuf) -> String {
    files
        .split(',')
        .filter(|file| !file.is_empty())
        .find_map(|file| read_id(root, file.trim(), buf))
        .unwrap_or_default()
}

/// The firmware's number for the machine, or the next best thing.
pub fn system_uuid(root: &HostRoot, buf: &mut ReadBuf) -> String {
    let product = root.sys("class/dmi/id/product_uuid");
    if let Ok(Some(text)) = read_file(&product, buf) {
        return clean(text);
    }
    [
        "/proc/device-tree/system-id",
        "/proc/device-tree/vm,uuid",
        "/etc/machine-id",
    ]
    .iter()
    .find_map(|file| read_id(root, file, buf))
    .unwrap_or_default()
}

/// A file that must not be read (product_uuid is root's alone) is as good as none.
fn read_id(root: &HostRoot, file: &str, buf: &mut ReadBuf) -> Option<String> {
    let text = read_file(&root.path(file), buf).ok()??;
    Some(clean(text))
}

/// Device trees end their strings with a zero byte.
fn clean(text: &[u8]) -> String {
    let end = text.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
    String::from_utf8_lossy(parse::trim(&text[..end])).into_owned()
}

/// The kernel's release, `6.1.0-13-amd64`.
pub fn kernel_version(root: &HostRoot, buf: &mut ReadBuf) -> String {
    match read_id(root, "/proc/sys/kernel/osrelease", buf) {
        Some(release) => release,
        None => rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
    }
}

/// The distribution's name for itself.
pub fn os_version(root: &HostRoot, buf: &mut ReadBuf) -> String {
    for file in ["/etc/os-release", "/usr/lib/os-release"] {
        if let Ok(Some(text)) = read_file(&root.path(file), buf) {
            return parse_os_release(text).unwrap_or_else(|| "Linux".to_owned());
        }
    }
    "Unknown".to_owned()
}

/// `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"`, without the quotes.
pub fn parse_os_release(text: &[u8]) -> Option<String> {
    let value = parse::lines(text).find_map(|line| line.strip_prefix(b"PRETTY_NAME="))?;
    let value = String::from_utf8_lossy(parse::trim(value));
    Some(value.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let temp = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = temp.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = HostRoot::new(temp.path());
        (temp, root)
    }

    #[test]
    fn every_file_of_a_list_is_the_observed_machines() {
        let (_temp, root) = tree(&[("var/lib/dbus/machine-id", "abc\n")]);
        let mut buf = ReadBuf::default();
        assert_eq!(first_readable(&root, MACHINE_ID_FILES, &mut buf), "abc");
        assert_eq!(first_readable(&root, BOOT_ID_FILES, &mut buf), "");
        assert_eq!(first_readable(&root, "", &mut buf), "");
    }

    #[test]
    fn sources_of_the_uuid_in_their_order() {
        let mut buf = ReadBuf::default();
        let device_tree = ("proc/device-tree/vm,uuid", "tree-id\0");
        let etc = ("etc/machine-id", "etc-id\n");
        let dmi = ("sys/class/dmi/id/product_uuid", "DMI-ID\n");
        let (_temp, root) = tree(&[]);
        assert_eq!(system_uuid(&root, &mut buf), "");
        let (_temp, root) = tree(&[etc]);
        assert_eq!(system_uuid(&root, &mut buf), "etc-id");
        let (_temp, root) = tree(&[etc, device_tree]);
        assert_eq!(system_uuid(&root, &mut buf), "tree-id");
        let (_temp, root) = tree(&[etc, device_tree, dmi]);
        assert_eq!(system_uuid(&root, &mut buf), "DMI-ID");
    }

    #[test]
    fn versions() {
        let mut buf = ReadBuf::default();
        let (_temp, root) = tree(&[
            (
                "usr/lib/os-release",
                "NAME=x\nPRETTY_NAME=\"Clear Linux\"\n",
            ),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
        ]);
        assert_eq!(os_version(&root, &mut buf), "Clear Linux");
        assert_eq!(kernel_version(&root, &mut buf), "6.1.0");
        let (_temp, root) = tree(&[("etc/os-release", "NAME=x\n")]);
        assert_eq!(os_version(&root, &mut buf), "Linux");
        assert!(!kernel_version(&root, &mut buf).is_empty());
        let (_temp, root) = tree(&[]);
        assert_eq!(os_version(&root, &mut buf), "Unknown");
    }

    proptest! {
        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_os_release(&text);
            let _ = clean(&text);
        }
    }
}
