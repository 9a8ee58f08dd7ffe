//! The objects that scheduling reads, reduced to what it reads, with strings as numbers.

pub mod amounts;
pub mod decode;
pub mod device_selector;
pub mod devices;
pub mod encode;
pub mod migration;
pub mod node;
pub mod objects;
pub mod pod;
pub mod selector;
pub mod sizing;
pub mod symbol;

pub use amounts::{Amounts, Ask};
pub use node::Node;
pub use objects::*;
pub use pod::*;
pub use selector::{Labels, NodeSelector, NodeTerm, Operator, Requirement, Selector};
pub use symbol::{Names, ResourceId, Symbol};
