//! `TaintToleration`: taints keep pods away, or make a node less liked.

use crate::cluster::{NodeId, tolerated};
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};
use crate::model::Effect;

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_TAINT)),
    ClusterEvent::new(Resource::Pod, Action::POD_TOLERATION),
];

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    let taints = context
        .cluster
        .nodes
        .object(node)
        .map_or(&[][..], |node| &node.taints);
    if tolerated(&context.class.spec.local.tolerations, taints) {
        return Ok(());
    }
    Err(Refusal::unresolvable("node(s) had untolerated taint(s)"))
}

/// How many taints would rather not have the pod.
pub fn untolerated_preferences(context: &Context<'_>, node: NodeId) -> u16 {
    let taints = context
        .cluster
        .nodes
        .object(node)
        .map_or(&[][..], |node| &node.taints);
    let tolerations = &context.class.spec.local.tolerations;
    let untolerated = taints
        .iter()
        .filter(|taint| taint.effect == Effect::PreferNoSchedule)
        .filter(|taint| {
            !tolerations
                .iter()
                .any(|toleration| toleration.tolerates(taint))
        });
    untolerated.count() as u16
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    let tolerations = &context.class.spec.local.tolerations;
    match change {
        Change::Node(old, Some(new)) => {
            let was = old.is_some_and(|old| tolerated(tolerations, &old.taints));
            !was && tolerated(tolerations, &new.taints)
        }
        Change::Pod(_, Some(new)) => new.uid == context.pod.uid,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    const REFUSED: &str = "Unresolvable: node(s) had untolerated taint(s)";

    #[test]
    fn taints_and_tolerations() {
        for (taints, tolerations, expected) in [
            ("[]", "[]", "fits"),
            (
                r#"[{"key":"k","value":"v","effect":"NoSchedule"}]"#,
                "[]",
                REFUSED,
            ),
            (
                r#"[{"key":"k","value":"v","effect":"NoExecute"}]"#,
                "[]",
                REFUSED,
            ),
            (
                r#"[{"key":"k","value":"v","effect":"PreferNoSchedule"}]"#,
                "[]",
                "fits",
            ),
            (
                r#"[{"key":"k","value":"v","effect":"NoSchedule"}]"#,
                r#"[{"key":"k","operator":"Equal","value":"v","effect":"NoSchedule"}]"#,
                "fits",
            ),
            (
                r#"[{"key":"k","value":"v","effect":"NoSchedule"}]"#,
                r#"[{"key":"k","value":"other","effect":"NoSchedule"}]"#,
                REFUSED,
            ),
            (
                r#"[{"key":"k","value":"v","effect":"NoSchedule"}]"#,
                r#"[{"key":"k","operator":"Exists"}]"#,
                "fits",
            ),
            (
                r#"[{"key":"k","value":"v","effect":"NoExecute"}]"#,
                r#"[{"key":"k","operator":"Exists","effect":"NoSchedule"}]"#,
                REFUSED,
            ),
            (
                r#"[{"key":"k","effect":"NoSchedule"},{"key":"l","effect":"NoSchedule"}]"#,
                r#"[{"key":"k","operator":"Exists"}]"#,
                REFUSED,
            ),
            (
                r#"[{"key":"k","effect":"NoSchedule"}]"#,
                r#"[{"operator":"Exists"}]"#,
                "fits",
            ),
        ] {
            let node = format!(r#"{{"metadata":{{"name":"n"}},"spec":{{"taints":{taints}}}}}"#);
            let mut kit = Kit::with_nodes(&[&node]);
            let pod = format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#);
            kit.check(Plugin::TaintToleration, &pod, "n", expected);
        }
    }

    #[test]
    fn fewer_unwelcoming_taints_score_higher() {
        let node = |name: &str, taints: usize| {
            let taints: Vec<_> = (0..taints)
                .map(|key| format!(r#"{{"key":"{key}","effect":"PreferNoSchedule"}}"#))
                .collect();
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"taints":[{}]}}}}"#,
                taints.join(",")
            )
        };
        let nodes = [node("a", 0), node("b", 1), node("c", 3)];
        let mut kit = Kit::with_nodes(&[&nodes[0], &nodes[1], &nodes[2]]);
        kit.check_scores(
            Plugin::TaintToleration,
            "{}",
            &[("a", 100), ("b", 67), ("c", 0)],
        );
        let tolerant = r#"{"spec":{"tolerations":[{"operator":"Exists"}]}}"#;
        kit.check_scores(
            Plugin::TaintToleration,
            tolerant,
            &[("a", 100), ("b", 100), ("c", 100)],
        );
    }

    #[test]
    fn a_taint_taken_off_helps() {
        let mut kit = Kit::default();
        let tainted =
            r#"{"metadata":{"name":"n"},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}"#;
        let free = r#"{"metadata":{"name":"n"}}"#;
        let plugin = Plugin::TaintToleration;
        kit.check_node_hint(plugin, "{}", Some(tainted), free, true);
        kit.check_node_hint(plugin, "{}", Some(free), free, false);
        kit.check_node_hint(plugin, "{}", None, tainted, false);
    }
}
