//! From a kubelet's page to points.

use std::borrow::Cow;

use crate::points::Point;

/// What one page says of a node and its containers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page<'a> {
    /// `None`: the page does not say all that is needed.
    pub node: Option<Point>,
    /// Sorted by namespace, pod and container; only whole ones.
    pub containers: Vec<ContainerPoint<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerPoint<'a> {
    pub namespace: Cow<'a, str>,
    pub pod: Cow<'a, str>,
    pub container: Cow<'a, str>,
    pub point: Point,
}

impl<'a> Page<'a> {
    /// The containers of one pod after another.
    pub fn pods(&self) -> impl Iterator<Item = &[ContainerPoint<'a>]> {
        self.containers
            .chunk_by(|a, b| a.namespace == b.namespace && a.pod == b.pod)
    }
}
