//! Which nodes hold which images.

use rustc_hash::FxHashMap;

use super::bits::BitSet;
use super::ids::NodeId;
use crate::model::{Node, Symbol};

#[derive(Debug, Default)]
pub struct Images(FxHashMap<Symbol, ImageState>);

#[derive(Debug)]
pub struct ImageState {
    /// As the first node reported it.
    pub size: i64,
    pub number_of_nodes: u32,
    nodes: BitSet,
}

impl ImageState {
    pub fn is_on(&self, node: NodeId) -> bool {
        self.nodes.contains(node.index())
    }
}

impl Images {
    pub fn get(&self, name: Symbol) -> Option<&ImageState> {
        self.0.get(&name)
    }

    pub(super) fn enter(&mut self, id: NodeId, node: &Node) {
        for (name, size) in &node.images {
            let state = self.0.entry(*name).or_insert_with(|| ImageState {
                size: *size,
                number_of_nodes: 0,
                nodes: BitSet::default(),
            });
            if state.nodes.set(id.index(), true) {
                state.number_of_nodes += 1;
            }
        }
    }

    pub(super) fn leave(&mut self, id: NodeId, node: &Node) {
        for (name, _) in &node.images {
            let Some(state) = self.0.get_mut(name) else {
                continue;
            };
            if state.nodes.set(id.index(), false) {
                state.number_of_nodes -= 1;
            }
            if state.number_of_nodes == 0 {
                self.0.remove(name);
            }
        }
    }
}
