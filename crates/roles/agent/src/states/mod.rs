//! What the cluster says about this node: its pods, its object, its policy. Whoever learns something puts it on the
//! [`Board`]; whoever acts looks there. Nothing waits for it: what nobody has told yet has a usable default.

mod board;
mod counters;
pub(crate) mod known;
mod kubelet;
mod live;
mod lookout;
mod objects;
mod pods;
mod policy;
mod reduce;
mod volumes;

pub use board::Board;
pub use counters::{Counter, Counters};
pub use known::{
    Claim, Container, CpuPool, CpuShares, HostApplication, Known, KubeletSettings, Node, NodeSlo,
    Phase, Pod,
};
pub use kubelet::{Access, AddressType, READ_ONLY_PORT};
pub use live::{Config, PodSource, Running, States, without_manager};
pub use lookout::Lookout;
pub(crate) use objects::Topology;
pub use pods::Doorbell;
