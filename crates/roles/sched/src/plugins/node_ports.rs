//! `NodePorts`: host ports are taken by one pod a node.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};
use crate::model::HostPort;

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::Pod, Action::DELETE),
    ClusterEvent::new(Resource::Node, Action::ADD),
];

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    let wanted = &context.class.spec.local.ports;
    if wanted.is_empty() || !conflict(wanted, context.cluster.nodes.ports(node)) {
        return Ok(());
    }
    Err(Refusal::unschedulable(
        "node(s) didn't have free ports for the requested pod ports",
    ))
}

fn conflict(wanted: &[HostPort], taken: &[HostPort]) -> bool {
    wanted
        .iter()
        .any(|port| taken.iter().any(|other| port.conflicts(other)))
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Pod(Some(gone), None) => {
            let placed = gone.node.is_some() || gone.nominated.is_some();
            placed && conflict(&context.class.spec.local.ports, &gone.spec.local.ports)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    fn pod(ports: &str) -> String {
        format!(r#"{{"spec":{{"containers":[{{"ports":[{ports}]}}]}}}}"#)
    }

    #[test]
    fn ports_in_use() {
        const REFUSED: &str =
            "Unschedulable: node(s) didn't have free ports for the requested pod ports";
        for (used, wanted, expected) in [
            (r#"{"hostPort":80}"#, r#"{"hostPort":81}"#, "fits"),
            (r#"{"hostPort":80}"#, r#"{"containerPort":80}"#, "fits"),
            (r#"{"hostPort":80}"#, r#"{"hostPort":80}"#, REFUSED),
            (
                r#"{"hostPort":80}"#,
                r#"{"hostPort":80,"protocol":"UDP"}"#,
                "fits",
            ),
            (
                r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#,
                r#"{"hostPort":80,"hostIP":"10.0.0.2"}"#,
                "fits",
            ),
            (
                r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#,
                r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#,
                REFUSED,
            ),
            (
                r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#,
                r#"{"hostPort":80,"hostIP":"0.0.0.0"}"#,
                REFUSED,
            ),
            (
                r#"{"hostPort":80,"hostIP":"0.0.0.0"}"#,
                r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#,
                REFUSED,
            ),
        ] {
            let mut kit = Kit::with_nodes(&[r#"{"metadata":{"name":"n"}}"#]);
            kit.place(&pod(used), "n");
            kit.check(Plugin::NodePorts, &pod(wanted), "n", expected);
        }
    }

    #[test]
    fn ports_are_free_again_after_the_pod_has_left() {
        let mut kit = Kit::with_nodes(&[r#"{"metadata":{"name":"n"}}"#]);
        let first = kit.place(&pod(r#"{"hostPort":80}"#), "n");
        kit.cluster.remove_pod(first);
        kit.check(Plugin::NodePorts, &pod(r#"{"hostPort":80}"#), "n", "fits");
    }

    #[test]
    fn a_pod_with_the_port_has_to_go() {
        let mut kit = Kit::default();
        let wanted = pod(r#"{"hostPort":80}"#);
        let on_node = |port: u16| {
            format!(
                r#"{{"spec":{{"nodeName":"n","containers":[{{"ports":[{{"hostPort":{port}}}]}}]}}}}"#
            )
        };
        kit.check_pod_gone_hint(Plugin::NodePorts, &wanted, &on_node(80), true);
        kit.check_pod_gone_hint(Plugin::NodePorts, &wanted, &on_node(81), false);
        kit.check_pod_gone_hint(Plugin::NodePorts, &wanted, &wanted, false);
    }
}
