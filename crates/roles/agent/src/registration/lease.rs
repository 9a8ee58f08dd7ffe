//! The node's heartbeat.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

pub const NAMESPACE: &str = "kube-node-lease";
/// Without a heartbeat for this long, a node counts as lost.
const DURATION_SECONDS: i32 = 40;

/// The lease with a fresh heartbeat. It belongs to the node and goes with it.
pub fn renewed(current: Option<Lease>, node: &Node, now: Timestamp) -> Lease {
    let name = node.metadata.name.clone();
    let mut lease = current.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: name.clone(),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    });
    lease.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = name;
    spec.lease_duration_seconds = Some(DURATION_SECONDS);
    spec.renew_time = Some(MicroTime(now));
    lease
}
