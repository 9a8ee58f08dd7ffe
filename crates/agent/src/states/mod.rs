//! What the cluster says about this node: its pods, its object, its policy. Whoever learns something puts it on the
//! [`Board`]; whoever acts looks there. Nothing waits for it: what nobody has told yet has a usable default.

mod board;
mod known;

pub use board::Board;
pub use known::{Container, HostApplication, Known, Node, NodeSlo, Phase, Pod};
