//! The Linux machine as plain data: cgroups, procfs, sysfs, the kernel log.
//!
//! Every reader here takes a [`HostRoot`], so it runs on the real machine, on a container's view of it
//! (`/rootfs`, `/host`) and on a fixture tree alike. Nothing in this crate knows Kubernetes, nothing awaits, and
//! nothing changes the machine. (A PSI trigger is armed by a write, which changes nothing but what its writer is told.)
//!
//! Three outcomes everywhere: a value; `None`, meaning this kernel or this cgroup has no such figure; and an error
//! that names the file and, where there is one, the line.

pub mod capabilities;
pub mod cgroup;
mod error;
pub mod fs;
pub mod gpu;
pub mod kidled;
pub mod kmsg;
pub mod machine;
pub mod oom;
pub mod parse;
pub mod perf;
pub mod proc;
pub mod program;
pub mod psi_trigger;
mod read;
pub mod resctrl;
mod root;
mod wake;

pub use error::{HostError, Result};
pub use plimsoll_clock::{Clock, Timestamp};
pub use read::{Descriptors, ReadBuf, Source, list_dir, parse_file, read_file, read_text};
pub use root::HostRoot;
pub use wake::Waker;
