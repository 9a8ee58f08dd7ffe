//! Topology keys: which domain each node lies in.

use rustc_hash::FxHashMap;

use super::ids::{NodeId, TopologyId};
use crate::model::{Labels, Symbol};

pub const NO_DOMAIN: u32 = u32::MAX;

/// A label key that divides nodes into domains; or every node a domain of its own.
#[derive(Debug, Default)]
pub struct Topology {
    /// `None`: the node itself.
    key: Option<Symbol>,
    domain_of: Vec<u32>,
    domains: FxHashMap<Symbol, u32>,
    /// How many nodes lie in each domain; a domain without any is used again.
    population: Vec<u32>,
    free: Vec<u32>,
}

impl Topology {
    pub fn key(&self) -> Option<Symbol> {
        self.key
    }

    pub fn domain(&self, node: NodeId) -> Option<u32> {
        match self.domain_of.get(node.index()) {
            Some(&domain) if domain != NO_DOMAIN => Some(domain),
            _ => None,
        }
    }

    /// The column itself, for loops over nodes.
    pub fn column(&self) -> &[u32] {
        &self.domain_of
    }

    fn enter(&mut self, node: NodeId, labels: &Labels) {
        let index = node.index();
        if index >= self.domain_of.len() {
            self.domain_of.resize(index + 1, NO_DOMAIN);
        }
        let Some(key) = self.key else {
            self.domain_of[index] = node.0;
            return;
        };
        let Some(value) = labels.get(key) else {
            return;
        };
        let domain = match self.domains.get(&value) {
            Some(domain) => *domain,
            None => {
                let domain = self.free.pop().unwrap_or_else(|| {
                    self.population.push(0);
                    (self.population.len() - 1) as u32
                });
                self.domains.insert(value, domain);
                domain
            }
        };
        self.population[domain as usize] += 1;
        self.domain_of[index] = domain;
    }

    fn leave(&mut self, node: NodeId, labels: &Labels) {
        let Some(domain) = self.domain(node) else {
            return;
        };
        self.domain_of[node.index()] = NO_DOMAIN;
        let Some(value) = self.key.and_then(|key| labels.get(key)) else {
            return;
        };
        self.population[domain as usize] -= 1;
        if self.population[domain as usize] == 0 {
            self.domains.remove(&value);
            self.free.push(domain);
        }
    }
}

/// All keys that somebody asked about.
#[derive(Debug, Default)]
pub struct Topologies {
    list: Vec<Topology>,
    by_key: FxHashMap<Option<Symbol>, TopologyId>,
}

impl Topologies {
    /// A key is followed from the first time it is asked for.
    pub fn follow<'a>(
        &mut self,
        key: Option<Symbol>,
        nodes: impl Iterator<Item = (NodeId, &'a Labels)>,
    ) -> TopologyId {
        if let Some(id) = self.by_key.get(&key) {
            return *id;
        }
        let id = TopologyId::from_index(self.list.len());
        let mut topology = Topology {
            key,
            ..Topology::default()
        };
        for (node, labels) in nodes {
            topology.enter(node, labels);
        }
        self.list.push(topology);
        self.by_key.insert(key, id);
        id
    }

    pub fn get(&self, id: TopologyId) -> &Topology {
        &self.list[id.index()]
    }

    pub fn enter(&mut self, node: NodeId, labels: &Labels) {
        for topology in &mut self.list {
            topology.enter(node, labels);
        }
    }

    pub fn leave(&mut self, node: NodeId, labels: &Labels) {
        for topology in &mut self.list {
            topology.leave(node, labels);
        }
    }
}
