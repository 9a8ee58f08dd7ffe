//! What the API shows of a node or a pod, lent out by the store for as long as it takes to write it.

use crate::labels::Labels;
use crate::points::Usage;

#[derive(Debug, Clone, Copy)]
pub struct NodeRow<'a> {
    pub name: &'a str,
    pub labels: &'a Labels,
    pub usage: Usage,
}

#[derive(Debug, Clone, Copy)]
pub struct PodRow<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub labels: &'a Labels,
    /// Sorted by name.
    pub containers: &'a [(&'a str, Usage)],
}

impl PodRow<'_> {
    /// The time and window of the pod as a whole: those of its oldest figure. `None`: it has no figures.
    pub fn taken(&self) -> Option<(i64, i64)> {
        self.containers
            .iter()
            .map(|(_, usage)| (usage.at, usage.window))
            .min_by_key(|(at, _)| *at)
    }
}
