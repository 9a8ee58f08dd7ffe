//! The shapes of cAdvisor's REST interface, versions 1.0 to 2.1, and the questions behind them.
//!
//! Everything here is a function from what the [store](plimsoll_observe::store) holds to text; nothing knows HTTP. Key names,
//! their order, what is left out when empty and how numbers and times are written are those of the original. Values
//! that the original gets wrong are right here, under the same keys.

mod derived;
mod event;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod golden;
pub mod json;
mod machine;
pub mod ps;
mod select;
mod snapshot;
mod spec;
mod stats;
pub mod storage;
pub mod v1;
pub mod v2;

pub use derived::{Summary, summary};
pub use event::{EventShape, list as event_list};
pub use machine::{
    Attributes, Cache, Core, DiskInfo, FilesystemInfo, Hugepages, MachineInfo, MemoryType, NetInfo,
    Node, Nvm, Versions, attributes,
};
pub use select::{By, Missing, by_alias, by_path, by_prefix, select};
pub use snapshot::{Range, RenderContext, Snapshot};
pub use spec::write_v2 as write_spec;
pub use stats::{CpuInst, CpuInstUsage, PsiPair, cpu_inst, psi};
pub use storage::{FsInfo, StorageError};
