//! `GangScheduling`: pods of a group are bound together or not at all.

use std::time::Duration;

use crate::cluster::{Cluster, PodId};
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::Refusal;
use crate::model::{Pod, PodGroup};

/// How long a pod waits for the rest of its gang, with a node that nobody else can have meanwhile.
pub const PERMIT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::Pod, Action::ADD),
    ClusterEvent::new(Resource::PodGroup, Action::ADD),
];

fn group_of<'a>(cluster: &'a Cluster, pod: &Pod) -> Option<&'a PodGroup> {
    let name = pod.spec.group.clone()?;
    cluster.groups.get(&(pod.namespace(), name))
}

fn members<'a>(
    cluster: &'a Cluster,
    pod: &'a Pod,
) -> impl Iterator<Item = &'a crate::cluster::PodRecord> {
    cluster
        .pods
        .iter()
        .map(|(_, record)| record)
        .filter(|record| {
            record.pod.namespace() == pod.namespace() && record.pod.spec.group == pod.spec.group
        })
        .filter(|record| !record.pod.terminating)
}

pub fn pre_enqueue(context: &Context<'_>) -> Result<(), Refusal> {
    let pod = context.pod;
    if pod.spec.group.is_none() {
        return Ok(());
    }
    let enough = group_of(context.cluster, pod).is_some_and(|group| {
        group
            .min_count
            .is_none_or(|least| members(context.cluster, pod).count() >= least as usize)
    });
    if enough {
        return Ok(());
    }
    Err(Refusal::unresolvable(
        "waiting for minCount pods from a gang to appear in scheduling queue",
    ))
}

/// Too few of the pod's gang have a node.
pub fn lacks_company(cluster: &Cluster, id: PodId) -> bool {
    let Some(record) = cluster.pods.get(id) else {
        return false;
    };
    let least = group_of(cluster, &record.pod).and_then(|group| group.min_count);
    least.is_some_and(|least| {
        let placed = members(cluster, &record.pod).filter(|record| record.place.is_some());
        placed.count() < least as usize
    })
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Pod(_, Some(new)) => {
            new.spec.group == context.pod.spec.group && new.namespace() == context.pod.namespace()
        }
        _ => true,
    }
}
