//! Kernel modules for the initramfs: the wanted ones and what they need, in loading order.
//!
//! `modules.dep` would say, but it is made when a kernel is installed, and ours is only unpacked. Each module names
//! its own needs in a `depends=` string, so those are followed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Paths of the wanted modules and their needs; needs come first. A module that is not there is built in.
pub fn load_order(modules: &Path, wanted: &[&str]) -> Result<Vec<PathBuf>> {
    let mut by_name = BTreeMap::new();
    collect(modules, &mut by_name)?;
    let mut order = Vec::new();
    for name in wanted {
        visit(name, &by_name, &mut order)?;
    }
    Ok(order)
}

fn collect(directory: &Path, by_name: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, by_name)?;
        } else if let Some(stem) = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".ko"))
        {
            // Files may have dashes where the module's name has underscores.
            by_name.insert(stem.replace('-', "_"), path);
        }
    }
    Ok(())
}

fn visit(name: &str, by_name: &BTreeMap<String, PathBuf>, order: &mut Vec<PathBuf>) -> Result<()> {
    let Some(path) = by_name.get(name) else {
        return Ok(());
    };
    if order.contains(path) {
        return Ok(());
    }
    let image = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    for need in depends(&image) {
        visit(&need, by_name, order)?;
    }
    order.push(path.clone());
    Ok(())
}

/// The `depends=a,b` string of a module's `.modinfo` section.
fn depends(image: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = image.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = image[start + KEY.len()..].split(|&byte| byte == 0).next();
    String::from_utf8_lossy(value.unwrap_or_default())
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_come_first_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let module = |name: &str, depends: &str| {
            let image = format!("\x7fELF\0license=GPL\0depends={depends}\0retpoline=Y\0");
            fs::write(folder.path().join(name), image).unwrap();
        };
        module("virtio.ko", "");
        module("virtio_ring.ko", "virtio");
        module("virtio-pci.ko", "virtio_ring,virtio");
        module("virtio_blk.ko", "virtio_ring,virtio,built_in");
        module("other.ko", "");
        let order = load_order(folder.path(), &["virtio_pci", "virtio_blk", "ext4"]).unwrap();
        let names: Vec<_> = order
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "virtio.ko",
                "virtio_ring.ko",
                "virtio-pci.ko",
                "virtio_blk.ko"
            ]
        );
    }

    #[test]
    fn no_depends_string() {
        assert!(depends(b"not a module").is_empty());
    }
}
