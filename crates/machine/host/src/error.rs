//! One error type for the whole crate: it always names the file.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = HostError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The cause is part of the text, not a source: these errors are mostly logged, one field a line.
    #[error("{operation} {path}: {cause}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// The kernel said something this reader does not understand.
    #[error("{path}: line {line}: cannot understand {text:?}")]
    Malformed {
        path: PathBuf,
        line: usize,
        text: Box<str>,
    },
    /// The file is well-formed but truncated.
    #[error("{path}: truncated at line {line}: {text:?}")]
    CutShort {
        path: PathBuf,
        line: usize,
        text: Box<str>,
    },
    #[error("{0}")]
    Unsupported(Box<str>),
}

impl HostError {
    pub fn io(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            cause: cause.into(),
        }
    }

    pub fn malformed(path: &Path, at: crate::parse::Malformed) -> Self {
        let (path, line, text) = (path.to_owned(), at.line, at.text);
        match at.cut_short {
            true => Self::CutShort { path, line, text },
            false => Self::Malformed { path, line, text },
        }
    }

    /// The file it is about, if it is about one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. } | Self::Malformed { path, .. } | Self::CutShort { path, .. } => {
                Some(path)
            }
            Self::Unsupported(_) => None,
        }
    }

    /// The process or cgroup ended while it was being read: expected, not worth a log line.
    pub fn is_gone(&self) -> bool {
        // ENOENT before the open, ENODEV on a file opened before the rmdir, ESRCH on a dead /proc/PID.
        matches!(self, Self::Io { cause, .. } if is_gone(cause))
    }
}

pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::ESRCH)
    )
}

/// The file is there but this kernel will not answer for it (`psi=0`, a controller not enabled for this cgroup).
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)
    )
}
