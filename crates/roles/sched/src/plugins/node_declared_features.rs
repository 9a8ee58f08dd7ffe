//! `NodeDeclaredFeatures`: what a pod's spec needs, its node must have declared.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};
use crate::model::Node;

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_FEATURE)),
    ClusterEvent::new(Resource::Pod, Action::UPDATE),
];

fn has_all(context: &Context<'_>, node: &Node) -> bool {
    let needed = &context.class.spec.local.features;
    needed.iter().all(|feature| node.features.contains(feature))
}

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    match context.cluster.nodes.object(node) {
        Some(node) if !has_all(context, node) => Err(Refusal::unresolvable(
            "node(s) didn't match Pod's required features",
        )),
        _ => Ok(()),
    }
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Node(old, Some(new)) => old.is_none_or(|old| old.features != new.features),
        Change::Pod(Some(old), Some(new)) => {
            new.uid == context.pod.uid && old.spec.local.features != new.spec.local.features
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    #[test]
    fn features_must_be_declared() {
        let mut kit = Kit::with_nodes(&[
            r#"{"metadata":{"name":"old"}}"#,
            r#"{"metadata":{"name":"new"},"status":{"declaredFeatures":["UserNamespacesHostNetworkSupport"]}}"#,
        ]);
        let pod = r#"{"spec":{"hostNetwork":true,"hostUsers":false}}"#;
        let plugin = Plugin::NodeDeclaredFeatures;
        kit.check(plugin, pod, "new", "fits");
        kit.check(
            plugin,
            pod,
            "old",
            "Unresolvable: node(s) didn't match Pod's required features",
        );
        kit.check(plugin, r#"{"spec":{"hostNetwork":true}}"#, "old", "fits");
    }
}
