//! `SchedulingGates`: a pod with gates is not queued.

use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::{Code, Refusal};
use crate::model::Pod;

pub const EVENTS: &[ClusterEvent] = &[ClusterEvent::new(
    Resource::Pod,
    Action::POD_GATES_ELIMINATED,
)];

pub fn pre_enqueue(pod: &Pod) -> Result<(), Refusal> {
    if pod.gates.is_empty() {
        return Ok(());
    }
    let text = format!("waiting for scheduling gates: [{}]", pod.gates.join(" "));
    Err(Refusal::worded(Code::Unresolvable, text))
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    matches!(change, Change::Pod(_, Some(new)) if new.uid == context.pod.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::Kit;

    #[test]
    fn gates_hold_a_pod_back() {
        let mut kit = Kit::default();
        let gated = kit.decode_pod(r#"{"metadata":{"name":"p","uid":"p"},"spec":{"schedulingGates":[{"name":"a"},{"name":"b"}]}}"#);
        let refusal = pre_enqueue(&gated).unwrap_err();
        assert_eq!(
            refusal.message(&kit.cluster.names),
            "waiting for scheduling gates: [a b]"
        );
        assert_eq!(refusal.code, Code::Unresolvable);
        let free = kit.decode_pod(r#"{"metadata":{"name":"p","uid":"p"}}"#);
        assert_eq!(pre_enqueue(&free), Ok(()));
    }
}
