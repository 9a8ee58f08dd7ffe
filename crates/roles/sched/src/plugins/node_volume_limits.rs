//! `NodeVolumeLimits`: a driver attaches only so many volumes to a node.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::NodeId;
use crate::cluster::storage::claim_names;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::Context;
use crate::framework::status::{Refusal, Verdict};
use crate::model::migration::{self, InTree};
use crate::model::{CsiNode, Pod, Volume};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::CsiNode, Action::ADD.or(Action::UPDATE)),
    ClusterEvent::new(Resource::Pod, Action::DELETE),
    ClusterEvent::new(Resource::PersistentVolumeClaim, Action::ADD),
    ClusterEvent::new(Resource::VolumeAttachment, Action::DELETE),
];

/// Driver, and what it calls the volume.
type Attachable = (Box<str>, Box<str>);

pub fn mounts_claims(pod: &Pod) -> bool {
    let volumes = &pod.spec.volumes;
    volumes.iter().any(|volume| {
        let by_claim = matches!(volume, Volume::Claim { .. } | Volume::Ephemeral { .. });
        by_claim || in_pod(volume).is_some()
    })
}

/// Volumes that stand in the pod itself, of kinds that drivers have taken over.
fn in_pod(volume: &Volume) -> Option<(&'static InTree, &str)> {
    match volume {
        Volume::Ebs { id } => Some((&migration::EBS, id)),
        Volume::GcePd { name, .. } => Some((&migration::GCE_PD, name)),
        _ => None,
    }
}

/// What the node's drivers would have to attach for a pod.
fn attachables(context: &Context<'_>, pod: &Pod, node: &CsiNode, into: &mut BTreeSet<Attachable>) {
    let storage = &context.cluster.storage;
    let migrated = |kind: &'static InTree, handle: &str| -> Option<Attachable> {
        migration::is_migrated(Some(node), kind).then(|| (kind.driver.into(), handle.into()))
    };
    for (kind, handle) in pod.spec.volumes.iter().filter_map(in_pod) {
        into.extend(migrated(kind, handle));
    }
    for name in claim_names(pod) {
        let Some(claim) = storage.claim(pod.namespace(), &name) else {
            continue;
        };
        if let Some(volume) = storage.volumes.get(&claim.volume) {
            match &volume.in_tree {
                Some(in_tree) => into.extend(migrated(in_tree.kind, &in_tree.handle)),
                None => into.extend(volume.csi.clone()),
            }
            continue;
        }
        // Not bound yet: the class tells who will provide it.
        let class = claim
            .class
            .as_ref()
            .and_then(|class| storage.classes.get(class));
        if let Some(class) = class {
            let handle = format!("{}/{name}", context.cluster.names.text(pod.namespace()));
            match migration::by_plugin(&class.provisioner) {
                Some(kind) => into.extend(migrated(kind, &handle)),
                None => {
                    into.insert((class.provisioner.clone(), handle.into()));
                }
            }
        }
    }
}

fn limit(node: &CsiNode, driver: &str) -> Option<i64> {
    let found = node.drivers.iter().find(|(name, _)| &**name == driver)?;
    found.1
}

pub fn filter(context: &Context<'_>, node: NodeId) -> Verdict {
    let cluster = context.cluster;
    let Some(csi) = cluster.storage.nodes.get(&cluster.nodes.name(node)) else {
        return Ok(());
    };
    if csi.drivers.iter().all(|(_, limit)| limit.is_none()) {
        return Ok(());
    }
    let mut new = BTreeSet::new();
    attachables(context, context.pod, csi, &mut new);
    if new.is_empty() {
        return Ok(());
    }
    let mut attached = BTreeSet::new();
    for id in cluster.nodes.pods(node) {
        if let Some(record) = cluster.pods.get(*id)
            && !record.pod.spec.volumes.is_empty()
        {
            attachables(context, &record.pod, csi, &mut attached);
        }
    }
    for attachment in cluster.storage.attachments.values() {
        if attachment.node == cluster.nodes.name(node)
            && let Some(volume) = cluster.storage.volumes.get(&attachment.volume)
        {
            attached.extend(volume.csi.clone());
        }
    }
    let mut more: BTreeMap<&str, i64> = BTreeMap::new();
    for (driver, _) in new.iter().filter(|volume| !attached.contains(*volume)) {
        *more.entry(driver).or_default() += 1;
    }
    for (driver, number) in more {
        let there = attached
            .iter()
            .filter(|(other, _)| &**other == driver)
            .count() as i64;
        if limit(csi, driver).is_some_and(|limit| there + number > limit) {
            return Err(Refusal::unschedulable("node(s) exceed max volume count"));
        }
    }
    Ok(())
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::CsiNode(Some(old), Some(new)) => {
            let grew = |(driver, now): &(Box<str>, Option<i64>)| {
                now.unwrap_or(0) > limit(old, driver).unwrap_or(0)
            };
            new.drivers.iter().any(grew)
        }
        Change::Pod(Some(gone), None) => {
            (gone.node.is_some() || gone.nominated.is_some()) && mounts_claims(gone)
        }
        Change::Claim(_, Some(claim)) => super::uses_claim(context, claim),
        Change::Attachment(Some(gone), None) => {
            let mut volumes = context.pod.spec.volumes.iter();
            volumes.any(|volume| {
                let by_claim = matches!(volume, Volume::Claim { .. });
                by_claim || in_pod(volume).is_some_and(|(kind, _)| *kind.driver == *gone.attacher)
            })
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    fn pod(claim: &str) -> String {
        format!(
            r#"{{"metadata":{{"namespace":"d"}},"spec":{{"volumes":[{{"persistentVolumeClaim":{{"claimName":"{claim}"}}}}]}}}}"#
        )
    }

    #[test]
    fn volumes_are_counted_once() {
        let mut kit = Kit::with_nodes(&[r#"{"metadata":{"name":"n"}}"#]);
        for name in ["a", "b"] {
            kit.add_claim(&format!(r#"{{"metadata":{{"name":"{name}","namespace":"d"}},"spec":{{"volumeName":"v{name}"}}}}"#));
            kit.add_volume(&format!(r#"{{"metadata":{{"name":"v{name}"}},"spec":{{"csi":{{"driver":"x","volumeHandle":"{name}"}}}}}}"#));
        }
        kit.add_class(r#"{"metadata":{"name":"s"},"provisioner":"x"}"#);
        kit.add_claim(
            r#"{"metadata":{"name":"later","namespace":"d"},"spec":{"storageClassName":"s"}}"#,
        );
        let full = "Unschedulable: node(s) exceed max volume count";
        let plugin = Plugin::NodeVolumeLimits;
        kit.place(&pod("a"), "n");
        kit.check(plugin, &pod("b"), "n", "fits");
        kit.add_csi_node(r#"{"metadata":{"name":"n"},"spec":{"drivers":[{"name":"x","allocatable":{"count":1}}]}}"#);
        kit.check(plugin, &pod("b"), "n", full);
        kit.check(plugin, &pod("later"), "n", full);
        kit.check(plugin, &pod("a"), "n", "fits");
        kit.add_csi_node(r#"{"metadata":{"name":"n"},"spec":{"drivers":[{"name":"x","allocatable":{"count":2}}]}}"#);
        kit.check(plugin, &pod("b"), "n", "fits");
        kit.add_attachment(r#"{"metadata":{"name":"t"},"spec":{"attacher":"x","nodeName":"n","source":{"persistentVolumeName":"va"}}}"#);
        kit.check(plugin, &pod("b"), "n", "fits");
        kit.add_volume(
            r#"{"metadata":{"name":"vc"},"spec":{"csi":{"driver":"x","volumeHandle":"c"}}}"#,
        );
        kit.add_attachment(r#"{"metadata":{"name":"u"},"spec":{"attacher":"x","nodeName":"n","source":{"persistentVolumeName":"vc"}}}"#);
        kit.check(plugin, &pod("b"), "n", full);
    }
}
