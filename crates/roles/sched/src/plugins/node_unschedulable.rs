//! `NodeUnschedulable`: cordoned nodes take only pods that tolerate it.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};
use crate::model::{Effect, Node, Taint};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_TAINT)),
    ClusterEvent::new(Resource::Pod, Action::POD_TOLERATION),
];

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    let cordoned = context
        .cluster
        .nodes
        .object(node)
        .is_some_and(|node| node.unschedulable);
    if cordoned && !tolerates(context) {
        return Err(Refusal::unresolvable("node(s) were unschedulable"));
    }
    Ok(())
}

fn tolerates(context: &Context<'_>) -> bool {
    let known = &context.cluster.names.known;
    let taint = Taint {
        key: known.unschedulable,
        value: known.empty,
        effect: Effect::NoSchedule,
    };
    let tolerations = &context.class.spec.local.tolerations;
    tolerations
        .iter()
        .any(|toleration| toleration.tolerates(&taint))
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Node(old, Some(new)) => {
            let was_open = old.is_some_and(|old: &Node| !old.unschedulable);
            !was_open && !new.unschedulable
        }
        Change::Pod(_, Some(new)) => new.uid == context.pod.uid && tolerates(context),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    #[test]
    fn cordoned_nodes() {
        let mut kit = Kit::with_nodes(&[
            r#"{"metadata":{"name":"open"}}"#,
            r#"{"metadata":{"name":"shut"},"spec":{"unschedulable":true}}"#,
        ]);
        let plugin = Plugin::NodeUnschedulable;
        kit.check(plugin, "{}", "open", "fits");
        kit.check(
            plugin,
            "{}",
            "shut",
            "Unresolvable: node(s) were unschedulable",
        );
        let tolerant = r#"{"spec":{"tolerations":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}"#;
        kit.check(plugin, tolerant, "shut", "fits");
        kit.check(
            plugin,
            r#"{"spec":{"tolerations":[{"operator":"Exists"}]}}"#,
            "shut",
            "fits",
        );
    }

    #[test]
    fn uncordoning_helps() {
        let mut kit = Kit::default();
        let shut = r#"{"metadata":{"name":"n"},"spec":{"unschedulable":true}}"#;
        let open = r#"{"metadata":{"name":"n"}}"#;
        let plugin = Plugin::NodeUnschedulable;
        kit.check_node_hint(plugin, "{}", Some(shut), open, true);
        kit.check_node_hint(plugin, "{}", None, open, true);
        kit.check_node_hint(plugin, "{}", None, shut, false);
        kit.check_node_hint(plugin, "{}", Some(open), open, false);
    }
}
