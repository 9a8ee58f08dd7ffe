//! What can go wrong before anything is changed. What goes wrong with single files is in the journal and in the status.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{operation} {path}: {cause}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// Two programs must not keep one journal.
    #[error("{path} is in use by another process; ask that one, or end it first")]
    InUse { path: PathBuf },
}

/// Why a value must not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("a value of the wrong kind")]
    Kind,
    #[error("a value out of range")]
    Range,
}
