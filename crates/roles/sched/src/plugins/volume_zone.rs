//! `VolumeZone`: a pod goes where the zones of its volumes are.

use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::{Context, CycleState, PreFilter};
use crate::framework::status::{Code, Refusal, Verdict};
use crate::model::{Symbol, Volume};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::StorageClass, Action::ADD),
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_LABEL)),
    ClusterEvent::new(
        Resource::PersistentVolumeClaim,
        Action::ADD.or(Action::UPDATE),
    ),
    ClusterEvent::new(Resource::PersistentVolume, Action::ADD.or(Action::UPDATE)),
];

/// A label of a volume and the values that a node's may have.
#[derive(Debug, Clone)]
pub struct ZoneRule {
    key: Symbol,
    values: Vec<Box<str>>,
}

fn keys(context: &Context<'_>) -> [Symbol; 4] {
    let known = &context.cluster.names.known;
    [known.zone_beta, known.region_beta, known.zone, known.region]
}

pub fn pre_filter(context: &Context<'_>, state: &mut CycleState) -> PreFilter {
    if context.class.spec.volumes.is_empty() {
        return PreFilter::Skip;
    }
    match rules(context) {
        Ok(rules) if rules.is_empty() => PreFilter::Skip,
        Ok(rules) => {
            state.zone_rules = rules;
            PreFilter::Pass
        }
        Err(text) => PreFilter::Reject(Refusal::worded(Code::Unresolvable, text)),
    }
}

fn rules(context: &Context<'_>) -> Result<Vec<ZoneRule>, String> {
    let storage = &context.cluster.storage;
    let mut rules = Vec::new();
    let names = context
        .pod
        .spec
        .volumes
        .iter()
        .filter_map(|volume| match volume {
            Volume::Claim { name } => Some(name),
            _ => None,
        });
    for name in names {
        let Some(claim) = storage.claim(context.pod.namespace(), name) else {
            return Err(format!("persistentvolumeclaim {name:?} not found"));
        };
        if claim.volume.is_empty() {
            let class = claim.class.as_deref().unwrap_or_default();
            if class.is_empty() {
                return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
            }
            let Some(found) = storage.classes.get(class) else {
                return Err(format!("storageclass.storage.k8s.io {class:?} not found"));
            };
            match found.wait_for_consumer {
                None => {
                    return Err(format!(
                        "VolumeBindingMode not set for StorageClass {class:?}"
                    ));
                }
                Some(true) => continue,
                Some(false) => return Err("PersistentVolume had no name".to_owned()),
            }
        }
        let Some(volume) = storage.volumes.get(&claim.volume) else {
            return Err(format!("persistentvolume {:?} not found", claim.volume));
        };
        for key in keys(context) {
            if let Some(value) = volume.labels.get(key) {
                let values = context.cluster.names.text(value).split("__");
                rules.push(ZoneRule {
                    key,
                    values: values.map(Into::into).collect(),
                });
            }
        }
    }
    Ok(rules)
}

pub fn filter(context: &Context<'_>, state: &CycleState, node: NodeId) -> Verdict {
    let Some(node) = context.cluster.nodes.object(node) else {
        return Ok(());
    };
    if !keys(context)
        .iter()
        .any(|key| node.labels.get(*key).is_some())
    {
        return Ok(());
    }
    let names = &context.cluster.names;
    let today = |key: Symbol| match key {
        key if key == names.known.zone_beta => names.known.zone,
        key if key == names.known.region_beta => names.known.region,
        key => key,
    };
    let holds = |rule: &ZoneRule| {
        let value = node
            .labels
            .get(rule.key)
            .or_else(|| node.labels.get(today(rule.key)));
        value.is_some_and(|value| {
            rule.values
                .iter()
                .any(|allowed| &**allowed == names.text(value))
        })
    };
    if state.zone_rules.iter().all(holds) {
        return Ok(());
    }
    Err(Refusal::unresolvable(
        "node(s) had no available volume zone",
    ))
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::StorageClass(None, Some(class)) => class.wait_for_consumer == Some(true),
        Change::Claim(_, Some(claim)) => super::names_claim(context, claim),
        Change::Volume(Some(old), Some(new)) => {
            let mut keys = keys(context).into_iter();
            keys.any(|key| old.labels.get(key) != new.labels.get(key))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    const POD: &str = r#"{"metadata":{"namespace":"d"},"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}"#;

    fn kit() -> Kit {
        Kit::with_nodes(&[
            r#"{"metadata":{"name":"a","labels":{"topology.kubernetes.io/zone":"a"}}}"#,
            r#"{"metadata":{"name":"b","labels":{"topology.kubernetes.io/zone":"b"}}}"#,
            r#"{"metadata":{"name":"none"}}"#,
        ])
    }

    #[test]
    fn zones_of_bound_volumes() {
        let mut kit = kit();
        kit.add_claim(r#"{"metadata":{"name":"c","namespace":"d"},"spec":{"volumeName":"v"}}"#);
        kit.check(
            Plugin::VolumeZone,
            POD,
            "a",
            "Unresolvable: persistentvolume \"v\" not found",
        );
        kit.add_volume(r#"{"metadata":{"name":"v","labels":{"failure-domain.beta.kubernetes.io/zone":"a__c"}}}"#);
        kit.check(Plugin::VolumeZone, POD, "a", "fits");
        kit.check(
            Plugin::VolumeZone,
            POD,
            "b",
            "Unresolvable: node(s) had no available volume zone",
        );
        kit.check(Plugin::VolumeZone, POD, "none", "fits");
    }

    #[test]
    fn unbound_claims_are_judged_by_their_class() {
        let mut kit = kit();
        let check = |kit: &mut Kit, text: &str| kit.check(Plugin::VolumeZone, POD, "a", text);
        kit.add_claim(r#"{"metadata":{"name":"c","namespace":"d"}}"#);
        check(
            &mut kit,
            "Unresolvable: PersistentVolumeClaim had no pv name and storageClass name",
        );
        kit.add_claim(
            r#"{"metadata":{"name":"c","namespace":"d"},"spec":{"storageClassName":"s"}}"#,
        );
        check(
            &mut kit,
            "Unresolvable: storageclass.storage.k8s.io \"s\" not found",
        );
        kit.add_class(r#"{"metadata":{"name":"s"}}"#);
        check(
            &mut kit,
            "Unresolvable: VolumeBindingMode not set for StorageClass \"s\"",
        );
        kit.add_class(r#"{"metadata":{"name":"s"},"volumeBindingMode":"Immediate"}"#);
        check(&mut kit, "Unresolvable: PersistentVolume had no name");
        kit.add_class(r#"{"metadata":{"name":"s"},"volumeBindingMode":"WaitForFirstConsumer"}"#);
        check(&mut kit, "fits");
    }
}
