//! Storage: classes, volumes, claims, drivers and what they can hold.

use serde::Deserialize;

use super::in_tree::{self, WireDisk};
use super::meta::{Amount, Meta, Place, ResourceList, labels};
use super::selectors::{WireNodeSelector, WireSelector, node_terms, selector};
use super::{Result, parse};
use crate::model::migration::{self, InTree};
use crate::model::objects::{
    AccessMode, ClaimBinding, CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume,
    StorageClass, VolumeAttachment, VolumeClaim,
};
use crate::model::selector::{NodeSelector, NodeTerm, Operator, Requirement};
use crate::model::symbol::Names;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClass {
    metadata: Meta,
    provisioner: String,
    volume_binding_mode: Option<String>,
    allowed_topologies: Option<Vec<WireTopologyTerm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTopologyTerm {
    match_label_expressions: Option<Vec<WireTopologyRequirement>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireTopologyRequirement {
    key: String,
    values: Vec<String>,
}

pub fn storage_class(json: &[u8], names: &mut Names) -> Result<StorageClass> {
    let wire: WireClass = parse("StorageClass", json)?;
    let mut topologies = Vec::new();
    for term in wire.allowed_topologies.iter().flatten() {
        let mut expressions = Vec::new();
        for requirement in term.match_label_expressions.iter().flatten() {
            expressions.push(Requirement {
                key: names.intern(&requirement.key),
                operator: Operator::In,
                values: requirement
                    .values
                    .iter()
                    .map(|value| names.intern(value))
                    .collect(),
            });
        }
        topologies.push(NodeTerm {
            expressions: expressions.into(),
            fields: Box::default(),
        });
    }
    Ok(StorageClass {
        name: wire.metadata.name.into(),
        provisioner: wire.provisioner.into(),
        wait_for_consumer: wire
            .volume_binding_mode
            .map(|mode| mode == "WaitForFirstConsumer"),
        allowed_topologies: topologies.into(),
    })
}

fn access_modes(list: Option<&Vec<String>>, place: Place<'_>) -> Result<Box<[AccessMode]>> {
    list.into_iter()
        .flatten()
        .map(|mode| {
            Ok(match mode.as_str() {
                "ReadWriteOnce" => AccessMode::ReadWriteOnce,
                "ReadOnlyMany" => AccessMode::ReadOnlyMany,
                "ReadWriteMany" => AccessMode::ReadWriteMany,
                "ReadWriteOncePod" => AccessMode::ReadWriteOncePod,
                other => return Err(place.unknown("accessModes", other)),
            })
        })
        .collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireVolume {
    metadata: Meta,
    spec: WireVolumeSpec,
    status: WirePhase,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WirePhase {
    phase: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolumeSpec {
    capacity: Option<ResourceList>,
    access_modes: Option<Vec<String>>,
    storage_class_name: String,
    volume_mode: Option<String>,
    volume_attributes_class_name: Option<String>,
    claim_ref: Option<WireClaimRef>,
    node_affinity: Option<WireVolumeAffinity>,
    csi: Option<WireCsi>,
    aws_elastic_block_store: Option<WireDisk>,
    gce_persistent_disk: Option<WireDisk>,
    azure_disk: Option<WireDisk>,
    azure_file: Option<WireDisk>,
    cinder: Option<WireDisk>,
    vsphere_volume: Option<WireDisk>,
    portworx_volume: Option<WireDisk>,
}

impl WireVolumeSpec {
    fn in_tree(&self) -> Option<(&'static InTree, &WireDisk)> {
        let disks = [
            (&migration::EBS, &self.aws_elastic_block_store),
            (&migration::GCE_PD, &self.gce_persistent_disk),
            (&migration::AZURE_DISK, &self.azure_disk),
            (&migration::AZURE_FILE, &self.azure_file),
            (&migration::CINDER, &self.cinder),
            (&migration::VSPHERE, &self.vsphere_volume),
            (&migration::PORTWORX, &self.portworx_volume),
        ];
        let mut disks = disks.into_iter();
        disks.find_map(|(kind, disk)| Some((kind, disk.as_ref()?)))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireClaimRef {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireVolumeAffinity {
    required: Option<WireNodeSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCsi {
    driver: String,
    volume_handle: String,
}

fn storage(list: Option<&ResourceList>, place: Place<'_>) -> Result<i64> {
    match list.and_then(|list| list.get("storage")) {
        Some(amount) => Ok(place.quantity("storage", amount)?.value()),
        None => Ok(0),
    }
}

pub fn persistent_volume(json: &[u8], names: &mut Names) -> Result<PersistentVolume> {
    let wire: WireVolume = parse("PersistentVolume", json)?;
    let place = Place {
        kind: "PersistentVolume",
        object: &wire.metadata.name,
    };
    let affinity = wire.spec.node_affinity.as_ref();
    let terms = affinity
        .and_then(|affinity| affinity.required.as_ref())
        .map(|required| node_terms(required, place, names))
        .transpose()?;
    let in_tree = wire.spec.in_tree().map(|(kind, disk)| {
        let labels = wire.metadata.labels.as_ref();
        Box::new(in_tree::volume(kind, disk, terms.as_deref(), labels, names))
    });
    Ok(PersistentVolume {
        in_tree,
        labels: labels(wire.metadata.labels.as_ref(), names),
        capacity: storage(wire.spec.capacity.as_ref(), place)?,
        access_modes: access_modes(wire.spec.access_modes.as_ref(), place)?,
        class: wire.spec.storage_class_name.into(),
        block: wire.spec.volume_mode.as_deref() == Some("Block"),
        attributes_class: wire
            .spec
            .volume_attributes_class_name
            .unwrap_or_default()
            .into(),
        available: wire.status.phase == "Available",
        terminating: wire.metadata.deletion_timestamp.is_some(),
        nodes: NodeSelector {
            labels: Box::default(),
            terms,
        },
        claim: wire.spec.claim_ref.map(|claim| ClaimBinding {
            namespace: names.intern(&claim.namespace),
            name: claim.name.into(),
            uid: claim.uid.into(),
        }),
        csi: wire
            .spec
            .csi
            .map(|csi| (csi.driver.into(), csi.volume_handle.into())),
        resource_version: wire.metadata.resource_version.into(),
        name: wire.metadata.name.into(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireClaim {
    metadata: Meta,
    spec: WireClaimSpec,
    status: WirePhase,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaimSpec {
    volume_name: String,
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
    access_modes: Option<Vec<String>>,
    volume_mode: Option<String>,
    resources: Option<WireResources>,
    selector: Option<WireSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireResources {
    requests: Option<ResourceList>,
}

pub fn volume_claim(json: &[u8], names: &mut Names) -> Result<VolumeClaim> {
    let wire: WireClaim = parse("PersistentVolumeClaim", json)?;
    let place = Place {
        kind: "PersistentVolumeClaim",
        object: &wire.metadata.name,
    };
    let requests = wire.spec.resources.and_then(|resources| resources.requests);
    let selected = wire
        .metadata
        .annotation("volume.kubernetes.io/selected-node");
    let selector = match &wire.spec.selector {
        Some(_) => Some(selector(wire.spec.selector.as_ref(), place, names)?),
        None => None,
    };
    let class = wire
        .metadata
        .annotation("volume.beta.kubernetes.io/storage-class")
        .map(str::to_owned)
        .or(wire.spec.storage_class_name);
    Ok(VolumeClaim {
        namespace: names.intern(&wire.metadata.namespace),
        uid: wire.metadata.uid.as_str().into(),
        resource_version: wire.metadata.resource_version.as_str().into(),
        class: class.map(Into::into),
        attributes_class: wire
            .spec
            .volume_attributes_class_name
            .unwrap_or_default()
            .into(),
        request: storage(requests.as_ref(), place)?,
        access_modes: access_modes(wire.spec.access_modes.as_ref(), place)?,
        block: wire.spec.volume_mode.as_deref() == Some("Block"),
        selector,
        bind_completed: wire
            .metadata
            .annotation("pv.kubernetes.io/bind-completed")
            .is_some(),
        lost: wire.status.phase == "Lost",
        terminating: wire.metadata.deletion_timestamp.is_some(),
        selected_node: selected.map(|node| names.intern(node)),
        is_annotated: wire
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|all| !all.is_empty()),
        owner: wire
            .metadata
            .controller()
            .map(|owner| owner.uid.as_str().into()),
        volume: wire.spec.volume_name.into(),
        name: wire.metadata.name.into(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCsiNode {
    metadata: Meta,
    spec: WireCsiNodeSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCsiNodeSpec {
    drivers: Option<Vec<WireNodeDriver>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireNodeDriver {
    name: String,
    allocatable: Option<WireCount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCount {
    count: Option<i64>,
}

pub fn csi_node(json: &[u8], names: &mut Names) -> Result<CsiNode> {
    let wire: WireCsiNode = parse("CSINode", json)?;
    Ok(CsiNode {
        name: names.intern(&wire.metadata.name),
        migrated: wire
            .metadata
            .annotation("storage.alpha.kubernetes.io/migrated-plugins")
            .unwrap_or_default()
            .into(),
        drivers: wire
            .spec
            .drivers
            .into_iter()
            .flatten()
            .map(|driver| {
                let limit = driver.allocatable.and_then(|allocatable| allocatable.count);
                (driver.name.into(), limit)
            })
            .collect(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireDriver {
    metadata: Meta,
    spec: WireDriverSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireDriverSpec {
    storage_capacity: bool,
}

pub fn csi_driver(json: &[u8]) -> Result<CsiDriver> {
    let wire: WireDriver = parse("CSIDriver", json)?;
    Ok(CsiDriver {
        name: wire.metadata.name.into(),
        storage_capacity: wire.spec.storage_capacity,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCapacity {
    metadata: Meta,
    storage_class_name: String,
    node_topology: Option<WireSelector>,
    capacity: Option<Amount>,
    maximum_volume_size: Option<Amount>,
}

pub fn csi_storage_capacity(json: &[u8], names: &mut Names) -> Result<CsiStorageCapacity> {
    let wire: WireCapacity = parse("CSIStorageCapacity", json)?;
    let place = Place {
        kind: "CSIStorageCapacity",
        object: &wire.metadata.name,
    };
    let size = |field: &str, amount: &Option<Amount>| -> Result<Option<i64>> {
        amount
            .as_ref()
            .map(|amount| Ok(place.quantity(field, amount)?.value()))
            .transpose()
    };
    let nodes = match &wire.node_topology {
        Some(_) => Some(selector(wire.node_topology.as_ref(), place, names)?),
        None => None,
    };
    Ok(CsiStorageCapacity {
        namespace: names.intern(&wire.metadata.namespace),
        nodes,
        capacity: size("capacity", &wire.capacity)?,
        maximum_volume_size: size("maximumVolumeSize", &wire.maximum_volume_size)?,
        class: wire.storage_class_name.into(),
        name: wire.metadata.name.into(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireAttachment {
    metadata: Meta,
    spec: WireAttachmentSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireAttachmentSpec {
    attacher: String,
    node_name: String,
    source: WireSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSource {
    persistent_volume_name: Option<String>,
}

pub fn volume_attachment(json: &[u8], names: &mut Names) -> Result<VolumeAttachment> {
    let wire: WireAttachment = parse("VolumeAttachment", json)?;
    Ok(VolumeAttachment {
        name: wire.metadata.name.into(),
        attacher: wire.spec.attacher.into(),
        node: names.intern(&wire.spec.node_name),
        volume: wire
            .spec
            .source
            .persistent_volume_name
            .unwrap_or_default()
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_and_its_claim() {
        let mut names = Names::default();
        let json = br#"{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],
            "storageClassName":"s","csi":{"driver":"d","volumeHandle":"h"},"claimRef":{"namespace":"n","name":"c"},
            "nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}}},
            "status":{"phase":"Available"}}"#;
        let volume = persistent_volume(json, &mut names).unwrap();
        assert_eq!((volume.capacity, volume.available), (1 << 30, true));
        assert_eq!(
            volume.nodes.terms.as_ref().map(|terms| terms.len()),
            Some(1)
        );
        let json = br#"{"metadata":{"name":"c","namespace":"n","annotations":{"pv.kubernetes.io/bind-completed":"yes"}},
            "spec":{"volumeName":"v","storageClassName":"","resources":{"requests":{"storage":"500Mi"}}},"status":{"phase":"Lost"}}"#;
        let claim = volume_claim(json, &mut names).unwrap();
        assert!(claim.bind_completed && claim.lost);
        assert_eq!(claim.class.as_deref(), Some(""));
        let json = br#"{"metadata":{"name":"v"},"spec":{"accessModes":["Odd"]}}"#;
        let error = persistent_volume(json, &mut names).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PersistentVolume v: accessModes: unknown value \"Odd\""
        );
    }
}
