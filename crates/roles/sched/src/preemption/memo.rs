//! What dry runs found, kept until the node changes.

use std::sync::Arc;

use super::{Candidate, Finding};
use crate::cluster::{ClassId, NodeId};
use crate::framework::judge::Subject;

/// The findings for preemptors of one class and priority, by node.
#[derive(Debug)]
pub struct Memory {
    key: (usize, ClassId, i32),
    epoch: u64,
    findings: Vec<Option<(u32, Finding)>>,
}

impl Memory {
    pub(super) fn get(&self, node: NodeId, generation: u32) -> Option<Finding> {
        match self.findings.get(node.index())? {
            Some((then, finding)) if *then == generation => Some(finding.clone()),
            _ => None,
        }
    }

    pub(super) fn set(
        &mut self,
        node: NodeId,
        generation: u32,
        finding: Result<Arc<Candidate>, crate::framework::status::StatusId>,
    ) {
        if node.index() >= self.findings.len() {
            self.findings.resize(node.index() + 1, None);
        }
        self.findings[node.index()] = Some((generation, finding));
    }
}

/// How many kinds of preemptors are remembered.
const KEPT: usize = 4;

#[derive(Debug, Default)]
pub struct DryRuns(Vec<Memory>);

impl DryRuns {
    /// Takes out what is known; it is put back with [`DryRuns::keep`].
    pub fn recall(&mut self, profile: usize, subject: &Subject, epoch: u64) -> Memory {
        self.0.retain(|memory| memory.epoch == epoch);
        let key = (profile, subject.class(), subject.priority());
        match self.0.iter().position(|memory| memory.key == key) {
            Some(at) => self.0.remove(at),
            None => Memory {
                key,
                epoch,
                findings: Vec::new(),
            },
        }
    }

    pub fn keep(&mut self, memory: Memory) {
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push(memory);
    }
}
