//! Volumes of kinds that were once built in, and the drivers that look after them now.

use super::objects::CsiNode;

/// A kind of volume that a driver has taken over.
#[derive(Debug, PartialEq, Eq)]
pub struct InTree {
    pub plugin: &'static str,
    pub driver: &'static str,
    /// The label of nodes by which the driver tells zones.
    pub zone_label: Option<&'static str>,
}

pub static EBS: InTree = InTree {
    plugin: "kubernetes.io/aws-ebs",
    driver: "ebs.csi.aws.com",
    zone_label: Some("topology.ebs.csi.aws.com/zone"),
};
pub static GCE_PD: InTree = InTree {
    plugin: "kubernetes.io/gce-pd",
    driver: "pd.csi.storage.gke.io",
    zone_label: Some("topology.gke.io/zone"),
};
pub static AZURE_DISK: InTree = InTree {
    plugin: "kubernetes.io/azure-disk",
    driver: "disk.csi.azure.com",
    zone_label: Some("topology.disk.csi.azure.com/zone"),
};
pub static AZURE_FILE: InTree = InTree {
    plugin: "kubernetes.io/azure-file",
    driver: "file.csi.azure.com",
    zone_label: None,
};
pub static CINDER: InTree = InTree {
    plugin: "kubernetes.io/cinder",
    driver: "cinder.csi.openstack.org",
    zone_label: Some("topology.cinder.csi.openstack.org/zone"),
};
pub static VSPHERE: InTree = InTree {
    plugin: "kubernetes.io/vsphere-volume",
    driver: "csi.vsphere.vmware.com",
    zone_label: Some("topology.csi.vmware.com/zone"),
};
pub static PORTWORX: InTree = InTree {
    plugin: "kubernetes.io/portworx-volume",
    driver: "pxd.portworx.com",
    zone_label: None,
};

/// By the name that storage classes give.
pub fn by_plugin(plugin: &str) -> Option<&'static InTree> {
    let all = [
        &EBS,
        &GCE_PD,
        &AZURE_DISK,
        &AZURE_FILE,
        &CINDER,
        &VSPHERE,
        &PORTWORX,
    ];
    all.into_iter().find(|kind| kind.plugin == plugin)
}

/// Whether a node leaves a kind of volumes to its driver.
pub fn is_migrated(node: Option<&CsiNode>, kind: &InTree) -> bool {
    node.is_some_and(|node| node.migrated.split(',').any(|one| one == kind.plugin))
}
