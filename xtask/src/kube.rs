//! The programs of a real Kubernetes for tests.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

const NEEDED: &[&str] = &["kube-apiserver", "etcd"];

/// A folder with them: the one that `PLIMSOLL_KUBE_BIN` names.
pub fn programs() -> Result<PathBuf> {
    let folder = std::env::var_os("PLIMSOLL_KUBE_BIN").context("PLIMSOLL_KUBE_BIN is not set")?;
    let folder = PathBuf::from(folder);
    for name in NEEDED {
        if !folder.join(name).is_file() {
            bail!(
                "PLIMSOLL_KUBE_BIN: there is no {name} in {}",
                folder.display()
            );
        }
    }
    Ok(folder)
}
