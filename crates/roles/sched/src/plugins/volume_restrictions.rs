//! `VolumeRestrictions`: disks that only one may use, and claims that only one pod may use.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::{Context, CycleState, PreFilter};
use crate::framework::status::{Code, Refusal, Verdict};
use crate::model::{AccessMode, Volume};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::Pod, Action::DELETE),
    ClusterEvent::new(Resource::Node, Action::ADD),
    ClusterEvent::new(Resource::PersistentVolumeClaim, Action::ADD),
];

fn is_disk(volume: &Volume) -> bool {
    let by_driver = matches!(
        volume,
        Volume::Claim { .. } | Volume::Ephemeral { .. } | Volume::Csi { .. }
    );
    !by_driver
}

pub fn pre_filter(context: &Context<'_>, state: &mut CycleState) -> PreFilter {
    let spec = &context.class.spec;
    if spec.volumes.is_empty() {
        return PreFilter::Skip;
    }
    state.exclusive_claims.clear();
    for volume in &spec.volumes {
        let Volume::Claim { name } = volume else {
            continue;
        };
        let Some(claim) = context.cluster.storage.claim(spec.namespace, name) else {
            let text = format!("persistentvolumeclaim {name:?} not found");
            return PreFilter::Reject(Refusal::worded(Code::Unresolvable, text));
        };
        if claim.access_modes.contains(&AccessMode::ReadWriteOncePod) {
            state.exclusive_claims.push(name.clone());
        }
    }
    if !spec.volumes.iter().any(is_disk) && !in_use(context, state) {
        return PreFilter::Skip;
    }
    PreFilter::Pass
}

fn in_use(context: &Context<'_>, state: &CycleState) -> bool {
    let namespace = context.class.spec.namespace;
    let storage = &context.cluster.storage;
    state
        .exclusive_claims
        .iter()
        .any(|name| storage.users(namespace, name) > 0)
}

pub fn filter(context: &Context<'_>, state: &CycleState, node: NodeId) -> Verdict {
    let wanted = &context.class.spec.volumes;
    if wanted.iter().any(is_disk) {
        let pods = context.cluster.nodes.pods(node).iter();
        let mut others = pods.filter_map(|id| context.cluster.pods.get(*id));
        if others.any(|record| conflict(wanted, &record.pod.spec.volumes)) {
            return Err(Refusal::unschedulable("node(s) had no available disk"));
        }
    }
    if in_use(context, state) {
        return Err(Refusal::unschedulable(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
        ));
    }
    Ok(())
}

fn conflict(wanted: &[Volume], used: &[Volume]) -> bool {
    wanted
        .iter()
        .any(|volume| used.iter().any(|other| same_disk(volume, other)))
}

fn same_disk(one: &Volume, other: &Volume) -> bool {
    match (one, other) {
        (
            Volume::GcePd { name, read_only },
            Volume::GcePd {
                name: other,
                read_only: other_read_only,
            },
        ) => name == other && !(*read_only && *other_read_only),
        (Volume::Ebs { id }, Volume::Ebs { id: other }) => id == other,
        (
            Volume::Iscsi { iqn, read_only },
            Volume::Iscsi {
                iqn: other,
                read_only: other_read_only,
            },
        ) => iqn == other && !(*read_only && *other_read_only),
        (
            Volume::Rbd {
                monitors,
                pool,
                image,
                read_only,
            },
            Volume::Rbd {
                monitors: other_monitors,
                pool: other_pool,
                image: other_image,
                read_only: other_read_only,
            },
        ) => {
            monitors
                .iter()
                .any(|monitor| other_monitors.contains(monitor))
                && pool == other_pool
                && image == other_image
                && !(*read_only && *other_read_only)
        }
        _ => false,
    }
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    let spec = &context.class.spec;
    match change {
        Change::Pod(Some(gone), None) => {
            let same_claim = |volume: &Volume| {
                matches!(volume, Volume::Claim { .. }) && gone.spec.volumes.contains(volume)
            };
            // Disks of other namespaces' pods are in the way, too, but the original does not look there.
            gone.spec.namespace == spec.namespace
                && (spec.volumes.iter().any(same_claim)
                    || conflict(&spec.volumes, &gone.spec.volumes))
        }
        Change::Claim(_, Some(claim)) => super::names_claim(context, claim),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    fn pod(volume: &str) -> String {
        format!(r#"{{"metadata":{{"namespace":"d"}},"spec":{{"volumes":[{volume}]}}}}"#)
    }

    #[test]
    fn disks() {
        const TAKEN: &str = "Unschedulable: node(s) had no available disk";
        for (used, wanted, expected) in [
            (
                r#"{"awsElasticBlockStore":{"volumeID":"v"}}"#,
                r#"{"awsElasticBlockStore":{"volumeID":"v"}}"#,
                TAKEN,
            ),
            (
                r#"{"awsElasticBlockStore":{"volumeID":"v"}}"#,
                r#"{"awsElasticBlockStore":{"volumeID":"w"}}"#,
                "fits",
            ),
            (
                r#"{"gcePersistentDisk":{"pdName":"v"}}"#,
                r#"{"gcePersistentDisk":{"pdName":"v"}}"#,
                TAKEN,
            ),
            (
                r#"{"gcePersistentDisk":{"pdName":"v","readOnly":true}}"#,
                r#"{"gcePersistentDisk":{"pdName":"v","readOnly":true}}"#,
                "fits",
            ),
            (
                r#"{"iscsi":{"iqn":"v"}}"#,
                r#"{"iscsi":{"iqn":"v","readOnly":true}}"#,
                TAKEN,
            ),
            (
                r#"{"rbd":{"monitors":["a","b"],"pool":"p","image":"i"}}"#,
                r#"{"rbd":{"monitors":["b"],"pool":"p","image":"i"}}"#,
                TAKEN,
            ),
            (
                r#"{"rbd":{"monitors":["a"],"pool":"p","image":"i"}}"#,
                r#"{"rbd":{"monitors":["b"],"pool":"p","image":"i"}}"#,
                "fits",
            ),
        ] {
            let mut kit = Kit::with_nodes(&[r#"{"metadata":{"name":"n"}}"#]);
            kit.place(&pod(used), "n");
            kit.check(Plugin::VolumeRestrictions, &pod(wanted), "n", expected);
        }
    }

    #[test]
    fn a_claim_for_one_pod() {
        let mut kit = Kit::with_nodes(&[
            r#"{"metadata":{"name":"n"}}"#,
            r#"{"metadata":{"name":"m"}}"#,
        ]);
        kit.add_claim(r#"{"metadata":{"name":"c","namespace":"d"},"spec":{"accessModes":["ReadWriteOncePod"]}}"#);
        let user = pod(r#"{"persistentVolumeClaim":{"claimName":"c"}}"#);
        kit.check(Plugin::VolumeRestrictions, &user, "n", "fits");
        let first = kit.place(&user, "m");
        let taken = "Unschedulable: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
        kit.check(Plugin::VolumeRestrictions, &user, "n", taken);
        kit.cluster.remove_pod(first);
        kit.check(Plugin::VolumeRestrictions, &user, "n", "fits");
        let missing = pod(r#"{"persistentVolumeClaim":{"claimName":"x"}}"#);
        kit.check(
            Plugin::VolumeRestrictions,
            &missing,
            "n",
            "Unresolvable: persistentvolumeclaim \"x\" not found",
        );
    }
}
