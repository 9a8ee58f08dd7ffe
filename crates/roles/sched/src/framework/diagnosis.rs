//! Why a pod fits nowhere, and how that is told.

use std::collections::BTreeMap;

use super::plugin::PluginSet;
use super::status::{Refusal, Status, StatusId, Statuses};
use crate::model::Names;

/// The findings of a cycle that found no node.
#[derive(Debug, Clone, Default)]
pub struct Diagnosis {
    pub all_nodes: usize,
    /// How many nodes were refused with which status.
    pub counts: Vec<(StatusId, usize)>,
    /// What holds for nodes that were not looked at.
    pub absent: Option<Refusal>,
    /// The pod was refused before any node was looked at.
    pub pre_filter: Option<String>,
    pub post_filter: Option<String>,
    /// Plugins whose refusal is to be overcome before it is worth trying again.
    pub rejectors: PluginSet,
    /// Those among them that wait for somebody.
    pub pending: PluginSet,
}

impl Diagnosis {
    /// The text of the event and of the pod's condition.
    pub fn message(&self, statuses: &Statuses, names: &Names) -> String {
        let mut text = format!("0/{} nodes are available:", self.all_nodes);
        match &self.pre_filter {
            Some(message) => text.push_str(&format!(" {message}.")),
            None => {
                let reasons = self.histogram(statuses, names);
                if !reasons.is_empty() {
                    text.push_str(&format!(" {reasons}."));
                }
            }
        }
        if let Some(message) = self.post_filter.as_deref().filter(|text| !text.is_empty()) {
            text.push_str(&format!(" {message}"));
        }
        text
    }

    fn histogram(&self, statuses: &Statuses, names: &Names) -> String {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut told = 0;
        for (id, nodes) in &self.counts {
            told += nodes;
            let Some(Status { refusal, .. }) = statuses.get(*id) else {
                continue;
            };
            for reason in refusal.reasons.iter() {
                *reasons.entry(reason.text(names)).or_default() += nodes;
            }
        }
        let silent = self.all_nodes.saturating_sub(told);
        if silent > 0 {
            for reason in self
                .absent
                .iter()
                .flat_map(|refusal| refusal.reasons.iter())
            {
                *reasons.entry(reason.text(names)).or_default() += silent;
            }
        }
        // Sorted as texts, the number first: 10 comes before 2.
        let mut entries: Vec<_> = reasons
            .into_iter()
            .map(|(reason, nodes)| format!("{nodes} {reason}"))
            .collect();
        entries.sort_unstable();
        entries.join(", ")
    }
}
