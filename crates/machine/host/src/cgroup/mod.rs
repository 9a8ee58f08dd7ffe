//! Control groups: v1, v2 and hybrid.
//!
//! A cgroup is named by its path below the hierarchy root (`/`, `/system.slice/ssh.service`): the same name in every
//! v1 hierarchy, so a container is one thing although v1 keeps its files in many directories.

pub(crate) mod hierarchy;
mod reader;
mod spec;
mod stats;
mod text;
mod v1;
mod v2;

pub use hierarchy::{Controller, Hierarchies, Mode, unescape};
pub use reader::{CgroupReader, Wanted, procs_file};
pub use spec::SpecReader;
pub use stats::{
    Cfs, Cpu, Hugetlb, Io, IoOp, IoRow, Lru, Memory, MemoryEvents, NumaNode, NumaPages, Pids,
    Pressure, Psi, Spec,
};
