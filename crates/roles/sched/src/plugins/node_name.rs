//! `NodeName`: a pod that names its node goes nowhere else.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};

pub const EVENTS: &[ClusterEvent] = &[ClusterEvent::new(Resource::Node, Action::ADD)];

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    match context.pod.node {
        Some(name) if name != context.cluster.nodes.name(node) => Err(Refusal::unresolvable(
            "node(s) didn't match the requested node name",
        )),
        _ => Ok(()),
    }
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Node(_, Some(node)) => context.pod.node.is_none_or(|name| name == node.name),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    #[test]
    fn only_the_named_node() {
        let mut kit = Kit::with_nodes(&[
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"b"}}"#,
        ]);
        kit.check(
            Plugin::NodeName,
            r#"{"spec":{"nodeName":"a"}}"#,
            "a",
            "fits",
        );
        kit.check(Plugin::NodeName, r#"{}"#, "b", "fits");
        kit.check(
            Plugin::NodeName,
            r#"{"spec":{"nodeName":"a"}}"#,
            "b",
            "Unresolvable: node(s) didn't match the requested node name",
        );
    }
}
