//! Nodes as columns: filters and scores read arrays, a row a node.

use rustc_hash::FxHashMap;

use super::ids::{NodeId, PodId};
use crate::model::{HostPort, Node, ResourceId, Symbol};

/// One number a node.
pub type Column = Vec<i64>;

#[derive(Debug, Default)]
pub struct Nodes {
    by_name: FxHashMap<Symbol, NodeId>,
    names: Vec<Symbol>,
    /// `None`: only pods on it are known so far, or any more.
    objects: Vec<Option<Box<Node>>>,
    free: Vec<NodeId>,
    /// Counts changes of a row. What was derived from a row holds as long as this stays.
    generation: Vec<u32>,
    /// By resource.
    allocatable: Vec<Column>,
    requested: Vec<Column>,
    scored_cpu: Column,
    scored_memory: Column,
    beyond: Beyond,
    pod_limit: Column,
    pods: Vec<Vec<PodId>>,
    ports: Vec<Vec<HostPort>>,
    zones: Vec<(Zone, Vec<NodeId>)>,
    order: Vec<NodeId>,
    order_is_stale: bool,
}

type Zone = (Option<Symbol>, Option<Symbol>);

impl Nodes {
    pub fn find(&self, name: Symbol) -> Option<NodeId> {
        self.by_name.get(&name).copied()
    }

    pub fn name(&self, id: NodeId) -> Symbol {
        self.names[id.index()]
    }

    pub fn object(&self, id: NodeId) -> Option<&Node> {
        self.objects[id.index()].as_deref()
    }

    pub fn generation(&self, id: NodeId) -> u32 {
        self.generation[id.index()]
    }

    /// Takes a row back to a state that it had: every change since has been undone.
    pub fn restore_generation(&mut self, id: NodeId, generation: u32) {
        self.generation[id.index()] = generation;
    }

    pub fn pods(&self, id: NodeId) -> &[PodId] {
        &self.pods[id.index()]
    }

    pub fn ports(&self, id: NodeId) -> &[HostPort] {
        &self.ports[id.index()]
    }

    pub fn pod_limit(&self, id: NodeId) -> i64 {
        self.pod_limit[id.index()]
    }

    pub fn allocatable(&self, resource: ResourceId, id: NodeId) -> i64 {
        cell(&self.allocatable, resource, id)
    }

    pub fn requested(&self, resource: ResourceId, id: NodeId) -> i64 {
        cell(&self.requested, resource, id)
    }

    /// cpu and memory, with a minimum for containers that ask for nothing.
    pub fn scored(&self, id: NodeId) -> [i64; 2] {
        [self.scored_cpu[id.index()], self.scored_memory[id.index()]]
    }

    /// How many rows there are, used or not.
    pub fn rows(&self) -> usize {
        self.names.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.objects.iter().enumerate().filter_map(|(index, node)| {
            let node = node.as_deref()?;
            Some((NodeId::from_index(index), node))
        })
    }

    /// All nodes, alternating between zones, so that any stretch of the list has nodes of all zones.
    pub fn order(&mut self) -> &[NodeId] {
        self.refresh_order();
        &self.order
    }

    /// The order as of the last refresh.
    pub fn current_order(&self) -> &[NodeId] {
        &self.order
    }

    pub fn refresh_order(&mut self) {
        if !self.order_is_stale {
            return;
        }
        self.order_is_stale = false;
        self.order.clear();
        let longest = self
            .zones
            .iter()
            .map(|(_, nodes)| nodes.len())
            .max()
            .unwrap_or(0);
        for turn in 0..longest {
            for (_, nodes) in &self.zones {
                self.order.extend(nodes.get(turn));
            }
        }
    }

    pub(super) fn row(&mut self, name: Symbol) -> NodeId {
        if let Some(id) = self.by_name.get(&name) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| self.grow(name));
        self.names[id.index()] = name;
        self.by_name.insert(name, id);
        id
    }

    fn grow(&mut self, name: Symbol) -> NodeId {
        let id = NodeId::from_index(self.names.len());
        self.names.push(name);
        self.objects.push(None);
        self.generation.push(0);
        self.scored_cpu.push(0);
        self.scored_memory.push(0);
        self.pod_limit.push(0);
        self.pods.push(Vec::new());
        self.ports.push(Vec::new());
        id
    }

    /// Replaces the object, giving back the old one.
    pub(super) fn set_object(
        &mut self,
        id: NodeId,
        node: Option<Box<Node>>,
        zone: impl Fn(&Node) -> Zone,
    ) -> Option<Box<Node>> {
        let index = id.index();
        self.touch(id);
        let old = self.objects[index].take();
        let old_zone = old.as_deref().map(&zone);
        let new_zone = node.as_deref().map(&zone);
        if old_zone != new_zone {
            self.change_zone(id, old_zone, new_zone);
        }
        for column in &mut self.allocatable {
            if let Some(cell) = column.get_mut(index) {
                *cell = 0;
            }
        }
        self.pod_limit[index] = 0;
        if let Some(node) = &node {
            for (resource, amount) in node.allocatable.iter() {
                *cell_mut(&mut self.allocatable, resource, id) = amount;
            }
            self.pod_limit[index] = node.pods;
        }
        self.objects[index] = node;
        old
    }

    fn change_zone(&mut self, id: NodeId, old: Option<Zone>, new: Option<Zone>) {
        self.order_is_stale = true;
        if let Some(old) = old {
            for (_, nodes) in self.zones.iter_mut().filter(|(zone, _)| *zone == old) {
                nodes.retain(|node| *node != id);
            }
            self.zones.retain(|(_, nodes)| !nodes.is_empty());
        }
        let Some(new) = new else {
            return;
        };
        match self.zones.iter_mut().find(|(zone, _)| *zone == new) {
            Some((_, nodes)) => nodes.push(id),
            None => self.zones.push((new, vec![id])),
        }
    }

    /// Gives a row free that has neither an object nor pods.
    pub(super) fn release(&mut self, id: NodeId) {
        if self.objects[id.index()].is_none() && self.pods[id.index()].is_empty() {
            self.by_name.remove(&self.names[id.index()]);
            self.free.push(id);
        }
    }

    pub(super) fn touch(&mut self, id: NodeId) {
        let generation = &mut self.generation[id.index()];
        *generation = generation.wrapping_add(1);
    }

    pub(super) fn add_pod(&mut self, id: NodeId, pod: PodId, load: &Load<'_>) {
        self.charge(id, load, 1);
        self.pods[id.index()].push(pod);
        self.ports[id.index()].extend(load.ports);
    }

    /// After a what-if that took pods off and put them back.
    pub fn restore_order(&mut self, node: NodeId, order: Vec<PodId>) {
        debug_assert_eq!(self.pods[node.index()].len(), order.len());
        self.pods[node.index()] = order;
    }

    pub(super) fn remove_pod(&mut self, id: NodeId, pod: PodId, load: &Load<'_>) {
        self.charge(id, load, -1);
        let pods = &mut self.pods[id.index()];
        if let Some(at) = pods.iter().rposition(|other| *other == pod) {
            pods.swap_remove(at);
        }
        for port in load.ports {
            let ports = &mut self.ports[id.index()];
            if let Some(at) = ports.iter().rposition(|other| other == port) {
                ports.swap_remove(at);
            }
        }
    }

    fn charge(&mut self, id: NodeId, load: &Load<'_>, sign: i64) {
        self.touch(id);
        let sign = i128::from(sign);
        for (resource, amount) in load.charge.requests.iter() {
            let cell = cell_mut(&mut self.requested, resource, id);
            let place = (Sum::Requested(resource), id);
            self.beyond.add(cell, place, sign * i128::from(amount));
        }
        let scored = [
            (&mut self.scored_cpu, Sum::Cpu, load.charge.scored_cpu),
            (
                &mut self.scored_memory,
                Sum::Memory,
                load.charge.scored_memory,
            ),
        ];
        for (column, sum, amount) in scored {
            let cell = &mut column[id.index()];
            self.beyond.add(cell, (sum, id), sign * i128::from(amount));
        }
    }
}

/// Which sum of a node's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sum {
    Requested(ResourceId),
    Cpu,
    Memory,
}

/// Sums that a cell does not hold: of pods that ask for exbibytes. The cell then shows the nearest it can, and what is
/// taken off later is taken off the whole.
#[derive(Debug, Default)]
struct Beyond(FxHashMap<(Sum, NodeId), i128>);

impl Beyond {
    fn add(&mut self, cell: &mut i64, place: (Sum, NodeId), amount: i128) {
        let known = match self.0.is_empty() {
            true => None,
            false => self.0.get(&place).copied(),
        };
        let sum = known.unwrap_or(i128::from(*cell)).saturating_add(amount);
        match i64::try_from(sum) {
            Ok(sum) => {
                *cell = sum;
                if known.is_some() {
                    self.0.remove(&place);
                }
            }
            Err(_) => {
                *cell = if sum > 0 { i64::MAX } else { i64::MIN };
                self.0.insert(place, sum);
            }
        }
    }
}

/// What a pod puts on a node.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub charge: &'a crate::model::Charge,
    pub ports: &'a [HostPort],
}

fn cell(columns: &[Column], resource: ResourceId, id: NodeId) -> i64 {
    columns
        .get(resource.index())
        .and_then(|column| column.get(id.index()))
        .copied()
        .unwrap_or(0)
}

fn cell_mut(columns: &mut Vec<Column>, resource: ResourceId, id: NodeId) -> &mut i64 {
    if resource.index() >= columns.len() {
        columns.resize(resource.index() + 1, Column::new());
    }
    let column = &mut columns[resource.index()];
    if id.index() >= column.len() {
        column.resize(id.index() + 1, 0);
    }
    &mut column[id.index()]
}
