//! Numbers of things, each good for indexing one kind of table.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(pub u32);

            impl $name {
                pub fn index(self) -> usize {
                    self.0 as usize
                }

                pub(crate) fn from_index(index: usize) -> Self {
                    Self(u32::try_from(index).unwrap_or(u32::MAX))
                }
            }
        )*
    };
}

ids! {
    /// A row of the node columns. Reused after a node has gone.
    NodeId
    PodId
    /// Pods with equal specs.
    ClassId
    /// Pods with equal namespace and labels, ending or not.
    LabelClassId
    /// Pods that nodes by themselves judge alike.
    LocalClassId
    /// A topology key: a label of nodes, or the node itself.
    TopologyId
    /// A count of pods by domain of a topology key.
    TallyId
    MatcherId
    EligibilityId
}
