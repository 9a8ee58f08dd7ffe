//! `NodeAffinity`: node selectors, required and preferred node affinity, and what the profile adds.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::{Context, PreFilter};
use crate::framework::status::{Refusal, Verdict};
use crate::model::{Node, Operator, Symbol};

pub const EVENTS: &[ClusterEvent] = &[ClusterEvent::new(
    Resource::Node,
    Action::ADD.or(Action::NODE_LABEL),
)];

/// A pod whose every alternative names nodes needs to be tried on these only.
pub fn pre_filter(context: &Context<'_>) -> PreFilter {
    let nodes = &context.class.spec.local.nodes;
    if nodes.is_empty() && context.profile.args.node_affinity.required.is_none() {
        return PreFilter::Skip;
    }
    let Some(terms) = nodes.terms.as_ref().filter(|terms| !terms.is_empty()) else {
        return PreFilter::Pass;
    };
    let mut all: Vec<Symbol> = Vec::new();
    for term in terms {
        let named = term
            .fields
            .iter()
            .filter(|field| field.operator == Operator::In);
        let mut names: Option<Vec<Symbol>> = None;
        for field in named {
            match &mut names {
                Some(names) => names.retain(|name| field.values.contains(name)),
                None => names = Some(field.values.to_vec()),
            }
        }
        let Some(names) = names else {
            return PreFilter::Pass;
        };
        all.extend(names);
    }
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return PreFilter::Reject(Refusal::unresolvable("pod affinity terms conflict"));
    }
    PreFilter::Nodes(all)
}

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    let Some(node) = context.cluster.nodes.object(node) else {
        return Ok(());
    };
    if !added_allows(context, node) {
        return Err(Refusal::unresolvable(
            "node(s) didn't match scheduler-enforced node affinity",
        ));
    }
    if !pod_allows(context, node) {
        return Err(Refusal::unresolvable(
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    Ok(())
}

fn added_allows(context: &Context<'_>, node: &Node) -> bool {
    let added = context.profile.args.node_affinity.required.as_ref();
    added.is_none_or(|added| added.matches(node.name, &node.labels, &context.cluster.names))
}

fn pod_allows(context: &Context<'_>, node: &Node) -> bool {
    let nodes = &context.class.spec.local.nodes;
    nodes.is_empty() || nodes.matches(node.name, &node.labels, &context.cluster.names)
}

pub fn prefers(context: &Context<'_>) -> bool {
    !context.class.spec.local.preferred_nodes.is_empty()
        || !context.profile.args.node_affinity.preferred.is_empty()
}

/// The sum of the weights of the terms that match.
pub fn preference(context: &Context<'_>, node: NodeId) -> i32 {
    let Some(node) = context.cluster.nodes.object(node) else {
        return 0;
    };
    let own = context.class.spec.local.preferred_nodes.iter();
    own.chain(&context.profile.args.node_affinity.preferred)
        .filter(|(_, term)| term.matches(node.name, &node.labels, &context.cluster.names))
        .map(|(weight, _)| weight)
        .sum()
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Node(old, Some(new)) => {
            let was = old.is_some_and(|old| pod_allows(context, old));
            added_allows(context, new) && pod_allows(context, new) && !was
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    const REFUSED: &str = "Unresolvable: node(s) didn't match Pod's node affinity/selector";

    fn kit() -> Kit {
        Kit::with_nodes(&[r#"{"metadata":{"name":"n","labels":{"zone":"a","cores":"8"}}}"#])
    }

    fn required(terms: &str) -> String {
        format!(
            r#"{{"spec":{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{terms}]}}}}}}}}}}"#
        )
    }

    #[test]
    fn selectors_and_terms() {
        let term = |body: &str| required(&format!(r#"{{"matchExpressions":[{body}]}}"#));
        for (pod, expected) in [
            ("{}".to_owned(), "fits"),
            (
                r#"{"spec":{"nodeSelector":{"zone":"a"}}}"#.to_owned(),
                "fits",
            ),
            (
                r#"{"spec":{"nodeSelector":{"zone":"b"}}}"#.to_owned(),
                REFUSED,
            ),
            (
                term(r#"{"key":"zone","operator":"In","values":["b","a"]}"#),
                "fits",
            ),
            (
                term(r#"{"key":"zone","operator":"NotIn","values":["a"]}"#),
                REFUSED,
            ),
            (
                term(r#"{"key":"disk","operator":"NotIn","values":["a"]}"#),
                "fits",
            ),
            (
                term(r#"{"key":"cores","operator":"Gt","values":["7"]}"#),
                "fits",
            ),
            (
                term(r#"{"key":"cores","operator":"Lt","values":["8"]}"#),
                REFUSED,
            ),
            (
                term(r#"{"key":"zone","operator":"Exists"},{"key":"disk","operator":"Exists"}"#),
                REFUSED,
            ),
            (
                required(
                    r#"{"matchExpressions":[{"key":"disk","operator":"Exists"}]},{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#,
                ),
                "fits",
            ),
            (required("{}"), REFUSED),
            (
                required(
                    r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}"#,
                ),
                "fits",
            ),
            (
                required(
                    r#"{"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n"]}]}"#,
                ),
                REFUSED,
            ),
        ] {
            kit().check(Plugin::NodeAffinity, &pod, "n", expected);
        }
    }

    #[test]
    fn named_nodes_are_the_only_ones_tried() {
        let field = |name: &str| {
            format!(r#"{{"key":"metadata.name","operator":"In","values":["{name}"]}}"#)
        };
        let mut kit = kit();
        let pod = required(&format!(
            r#"{{"matchFields":[{}]}},{{"matchFields":[{}]}}"#,
            field("n"),
            field("m")
        ));
        let names = kit.with_context(&pod, |context| match pre_filter(context) {
            PreFilter::Nodes(nodes) => nodes
                .iter()
                .map(|name| context.cluster.names.text(*name).to_owned())
                .collect(),
            other => vec![format!("{other:?}")],
        });
        assert_eq!(names, ["n", "m"]);
        let pod = required(&format!(
            r#"{{"matchFields":[{},{}]}}"#,
            field("n"),
            field("m")
        ));
        let text = kit.with_context(&pod, |context| match pre_filter(context) {
            PreFilter::Reject(refusal) => refusal.message(&context.cluster.names),
            other => format!("{other:?}"),
        });
        assert_eq!(text, "pod affinity terms conflict");
    }

    #[test]
    fn preferences_are_weighed() {
        let mut kit = Kit::with_nodes(&[
            r#"{"metadata":{"name":"both","labels":{"x":"1","y":"1"}}}"#,
            r#"{"metadata":{"name":"one","labels":{"x":"1"}}}"#,
            r#"{"metadata":{"name":"none"}}"#,
        ]);
        let term = |weight, key| {
            format!(
                r#"{{"weight":{weight},"preference":{{"matchExpressions":[{{"key":"{key}","operator":"Exists"}}]}}}}"#
            )
        };
        let pod = format!(
            r#"{{"spec":{{"affinity":{{"nodeAffinity":{{"preferredDuringSchedulingIgnoredDuringExecution":[{},{}]}}}}}}}}"#,
            term(2, "x"),
            term(6, "y")
        );
        kit.check_scores(
            Plugin::NodeAffinity,
            &pod,
            &[("both", 100), ("one", 25), ("none", 0)],
        );
    }

    #[test]
    fn only_a_node_that_begins_to_match_helps() {
        let mut kit = Kit::default();
        let pod = r#"{"spec":{"nodeSelector":{"zone":"a"}}}"#;
        let here = r#"{"metadata":{"name":"n","labels":{"zone":"a"}}}"#;
        let there = r#"{"metadata":{"name":"n","labels":{"zone":"b"}}}"#;
        let plugin = Plugin::NodeAffinity;
        kit.check_node_hint(plugin, pod, None, here, true);
        kit.check_node_hint(plugin, pod, None, there, false);
        kit.check_node_hint(plugin, pod, Some(there), here, true);
        kit.check_node_hint(plugin, pod, Some(here), here, false);
    }
}
