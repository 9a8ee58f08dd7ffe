//! One `up` a folder: a lock that tells who holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

const FILE: &str = "up.lock";

/// Held as long as this lives, however the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    /// When it was taken.
    since: String,
    /// Unknown until the API server listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl Lock {
    /// Makes the folder if there is none, and takes its lock.
    pub fn take(dir: &Path) -> Result<Self> {
        make_private(dir)
            .with_context(|| format!("cannot make {}: {}", dir.display(), WHAT_TO_DO))?;
        let path = dir.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot write to {}: {}", dir.display(), WHAT_TO_DO))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{}", taken(dir, &mut file)),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot lock {}: choose a folder on a local disk with --data-dir",
                        path.display()
                    )
                });
            }
        }
        let mut lock = Self { file, path };
        lock.write(None)?;
        Ok(lock)
    }

    /// Tells those who find the folder taken where they can go instead.
    pub fn tell(&mut self, address: &str) -> Result<()> {
        self.write(Some(address.to_owned()))
    }

    fn write(&mut self, address: Option<String>) -> Result<()> {
        let holder = Holder {
            pid: std::process::id(),
            since: jiff::Timestamp::now()
                .strftime("%Y-%m-%d %H:%M:%S UTC")
                .to_string(),
            address,
        };
        let text = serde_json::to_vec(&holder)?;
        let mut attempt = || {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(&text)
        };
        attempt().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

const WHAT_TO_DO: &str = "make it writable, or choose another folder with --data-dir";

/// Keys are kept there.
fn make_private(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

fn taken(dir: &Path, file: &mut File) -> String {
    let mut text = String::new();
    // It may be between two lines of writing: then it is not known who it is.
    let holder: Option<Holder> = match file.read_to_string(&mut text) {
        Ok(_) => serde_json::from_str(&text).ok(),
        Err(_) => None,
    };
    let dir = dir.display();
    let other = "or choose another folder with --data-dir";
    let Some(holder) = holder else {
        return format!("{dir} is in use by another plimsoll up; stop that one, {other}");
    };
    let Holder {
        pid,
        since,
        address,
    } = holder;
    let serves = address.map_or_else(String::new, |address| format!(", which serves {address}"));
    format!(
        "{dir} is in use by process {pid}{serves} since {since}; use that one (kubectl --kubeconfig {dir}/kubeconfig), \
         stop it (kill {pid}), {other}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_was_first() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("new/folder");
        let mut lock = Lock::take(&dir).unwrap();
        let refused = Lock::take(&dir).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("kill {}", std::process::id())),
            "{refused}"
        );
        lock.tell("https://127.0.0.1:6443").unwrap();
        let refused = Lock::take(&dir).unwrap_err().to_string();
        assert!(
            refused.contains("which serves https://127.0.0.1:6443 since 2"),
            "{refused}"
        );
        drop(lock);
        Lock::take(&dir).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = format!("{:#}", Lock::take(&file.join("sub")).unwrap_err());
        assert!(
            refused.contains("choose another folder with --data-dir"),
            "{refused}"
        );
    }
}
