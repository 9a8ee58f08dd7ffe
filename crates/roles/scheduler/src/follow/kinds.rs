//! The kinds that scheduling looks at, where they are and how they are read.

use plimsoll_sched::framework::{Plugin, Profile};
use plimsoll_sched::model::decode::{self, DecodeError};
use plimsoll_sched::model::{ControllerKind, Key, Names, Symbol};
use plimsoll_sched::{Features, Observation};
use serde::Deserialize;

macro_rules! kinds {
    ($($kind:ident $object:literal $name:literal $($path:literal)+;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $($kind),*
        }

        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The `kind` of its objects.
            pub fn object_kind(self) -> &'static str {
                match self {
                    $(Self::$kind => $object),*
                }
            }

            /// The resource's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name),*
                }
            }

            /// Where collections of it are, the newest API first.
            pub fn paths(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => &[$($path),+]),*
                }
            }
        }
    };
}

// Nodes and what pods refer to come first: pods should find them there.
kinds! {
    Node "Node" "nodes" "/api/v1/nodes";
    Namespace "Namespace" "namespaces" "/api/v1/namespaces";
    Service "Service" "services" "/api/v1/services";
    ReplicationController "ReplicationController" "replicationcontrollers" "/api/v1/replicationcontrollers";
    ReplicaSet "ReplicaSet" "replicasets" "/apis/apps/v1/replicasets";
    StatefulSet "StatefulSet" "statefulsets" "/apis/apps/v1/statefulsets";
    Budget "PodDisruptionBudget" "poddisruptionbudgets" "/apis/policy/v1/poddisruptionbudgets";
    Volume "PersistentVolume" "persistentvolumes" "/api/v1/persistentvolumes";
    Claim "PersistentVolumeClaim" "persistentvolumeclaims" "/api/v1/persistentvolumeclaims";
    StorageClass "StorageClass" "storageclasses" "/apis/storage.k8s.io/v1/storageclasses";
    CsiNode "CSINode" "csinodes" "/apis/storage.k8s.io/v1/csinodes";
    CsiDriver "CSIDriver" "csidrivers" "/apis/storage.k8s.io/v1/csidrivers";
    CsiCapacity "CSIStorageCapacity" "csistoragecapacities" "/apis/storage.k8s.io/v1/csistoragecapacities";
    Attachment "VolumeAttachment" "volumeattachments" "/apis/storage.k8s.io/v1/volumeattachments";
    ResourceClaim "ResourceClaim" "resourceclaims" "/apis/resource.k8s.io/v1/resourceclaims";
    ResourceSlice "ResourceSlice" "resourceslices" "/apis/resource.k8s.io/v1/resourceslices";
    DeviceClass "DeviceClass" "deviceclasses" "/apis/resource.k8s.io/v1/deviceclasses";
    TaintRule "DeviceTaintRule" "devicetaintrules" "/apis/resource.k8s.io/v1beta2/devicetaintrules" "/apis/resource.k8s.io/v1alpha3/devicetaintrules";
    PodGroup "PodGroup" "podgroups" "/apis/scheduling.k8s.io/v1beta1/podgroups" "/apis/scheduling.k8s.io/v1alpha2/podgroups";
    NodeMetric "NodeMetric" "nodemetrics" "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
    Pod "Pod" "pods" "/api/v1/pods";
}

impl Kind {
    /// Most are looked at by the standard plugins; the rest only where a profile asks for it.
    pub fn is_needed_by(self, profiles: &[Profile], features: &Features) -> bool {
        let plugin = match self {
            // Who does not look at them need not be allowed to.
            Self::TaintRule if !features.taint_rules => return false,
            Self::PodGroup => Plugin::GangScheduling,
            Self::NodeMetric => Plugin::LoadAwareScheduling,
            Self::ResourceClaim | Self::ResourceSlice | Self::DeviceClass | Self::TaintRule => {
                Plugin::DynamicResources
            }
            _ => return true,
        };
        profiles.iter().any(|profile| super::runs(profile, plugin))
    }

    pub fn observation(self, json: &[u8], names: &mut Names) -> Result<Observation, DecodeError> {
        Ok(match self {
            Self::Pod => Observation::Pod(Box::new(decode::pod(json, names)?)),
            Self::Node => Observation::Node(Box::new(decode::node(json, names)?)),
            Self::Namespace => Observation::Namespace(decode::namespace(json, names)?),
            Self::Service => Observation::Service(decode::service(json, names)?),
            Self::ReplicationController | Self::ReplicaSet | Self::StatefulSet => {
                Observation::Workload(decode::workload(self.controller(), json, names)?)
            }
            Self::Budget => Observation::Budget(decode::disruption_budget(json, names)?),
            Self::Volume => Observation::Volume(Box::new(decode::persistent_volume(json, names)?)),
            Self::Claim => Observation::Claim(Box::new(decode::volume_claim(json, names)?)),
            Self::StorageClass => Observation::StorageClass(decode::storage_class(json, names)?),
            Self::CsiNode => Observation::CsiNode(decode::csi_node(json, names)?),
            Self::CsiDriver => Observation::CsiDriver(decode::csi_driver(json)?),
            Self::CsiCapacity => {
                Observation::CsiCapacity(decode::csi_storage_capacity(json, names)?)
            }
            Self::Attachment => Observation::Attachment(decode::volume_attachment(json, names)?),
            Self::ResourceClaim => {
                Observation::ResourceClaim(Box::new(decode::resource_claim(json, names)?))
            }
            Self::ResourceSlice => {
                Observation::ResourceSlice(Box::new(decode::resource_slice(json, names)?))
            }
            Self::DeviceClass => Observation::DeviceClass(decode::device_class(json)?),
            Self::TaintRule => Observation::TaintRule(Box::new(decode::taint_rule(json)?)),
            Self::PodGroup => Observation::Group(decode::pod_group(json, names)?),
            Self::NodeMetric => {
                Observation::NodeMetric(Box::new(decode::node_metric(json, names)?))
            }
        })
    }

    fn controller(self) -> ControllerKind {
        match self {
            Self::ReplicationController => ControllerKind::ReplicationController,
            Self::ReplicaSet => ControllerKind::ReplicaSet,
            _ => ControllerKind::StatefulSet,
        }
    }
}

/// What tells objects of a kind apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Of the whole cluster.
    Symbol(Symbol),
    Name(Box<str>),
    Key(Key),
    /// A controller's namespace and name.
    Pair(Symbol, Symbol),
    /// Pods of the same name may follow each other.
    Uid(Box<str>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
}

impl Identity {
    /// `None`: it is no object.
    pub fn of(observation: &Observation) -> Option<Self> {
        let key = |namespace: Symbol, name: &str| Self::Key((namespace, name.into()));
        Some(match observation {
            Observation::Pod(pod) => Self::Uid((&*pod.uid).into()),
            Observation::Node(node) => Self::Symbol(node.name),
            Observation::Namespace(namespace) => Self::Symbol(namespace.name),
            Observation::Service(service) => key(service.namespace, &service.name),
            Observation::Workload(workload) => Self::Pair(workload.namespace, workload.name),
            Observation::Budget(budget) => key(budget.namespace, &budget.name),
            Observation::Group(group) => key(group.namespace, &group.name),
            Observation::Volume(volume) => Self::Name(volume.name.clone()),
            Observation::Claim(claim) => key(claim.namespace, &claim.name),
            Observation::StorageClass(class) => Self::Name(class.name.clone()),
            Observation::CsiNode(node) => Self::Symbol(node.name),
            Observation::CsiDriver(driver) => Self::Name(driver.name.clone()),
            Observation::CsiCapacity(capacity) => key(capacity.namespace, &capacity.name),
            Observation::Attachment(attachment) => Self::Name(attachment.name.clone()),
            Observation::ResourceClaim(claim) => key(claim.namespace, &claim.name),
            Observation::ResourceSlice(slice) => Self::Name(slice.name.clone()),
            Observation::DeviceClass(class) => Self::Name(class.name.clone()),
            Observation::TaintRule(rule) => Self::Name(rule.name.clone()),
            Observation::NodeMetric(metric) => Self::Symbol(metric.node),
            _ => return None,
        })
    }

    /// From the object's metadata alone.
    pub fn read(kind: Kind, json: &[u8], names: &mut Names) -> Result<Self, serde_json::Error> {
        let Named { metadata } = serde_json::from_slice(json)?;
        Ok(match kind {
            Kind::Pod => Self::Uid(metadata.uid.into()),
            Kind::Node | Kind::Namespace | Kind::CsiNode | Kind::NodeMetric => {
                Self::Symbol(names.intern(&metadata.name))
            }
            Kind::Volume
            | Kind::StorageClass
            | Kind::CsiDriver
            | Kind::Attachment
            | Kind::ResourceSlice
            | Kind::DeviceClass
            | Kind::TaintRule => Self::Name(metadata.name.into()),
            Kind::ReplicationController | Kind::ReplicaSet | Kind::StatefulSet => Self::Pair(
                names.intern(&metadata.namespace),
                names.intern(&metadata.name),
            ),
            Kind::Service
            | Kind::Budget
            | Kind::Claim
            | Kind::CsiCapacity
            | Kind::ResourceClaim
            | Kind::PodGroup => {
                Self::Key((names.intern(&metadata.namespace), metadata.name.into()))
            }
        })
    }

    /// That it is not there any more.
    pub fn gone(self, kind: Kind) -> Observation {
        match (self, kind) {
            (Self::Uid(uid), _) => Observation::PodGone(uid),
            (Self::Symbol(name), Kind::Node) => Observation::NodeGone(name),
            (Self::Symbol(name), Kind::CsiNode) => Observation::CsiNodeGone(name),
            (Self::Symbol(name), Kind::NodeMetric) => Observation::NodeMetricGone(name),
            (Self::Symbol(name), _) => Observation::NamespaceGone(name),
            (Self::Pair(namespace, name), kind) => {
                Observation::WorkloadGone(kind.controller(), namespace, name)
            }
            (Self::Name(name), Kind::Volume) => Observation::VolumeGone(name),
            (Self::Name(name), Kind::StorageClass) => Observation::StorageClassGone(name),
            (Self::Name(name), Kind::CsiDriver) => Observation::CsiDriverGone(name),
            (Self::Name(name), Kind::Attachment) => Observation::AttachmentGone(name),
            (Self::Name(name), Kind::ResourceSlice) => Observation::ResourceSliceGone(name),
            (Self::Name(name), Kind::TaintRule) => Observation::TaintRuleGone(name),
            (Self::Name(name), _) => Observation::DeviceClassGone(name),
            (Self::Key(key), Kind::Service) => Observation::ServiceGone(key),
            (Self::Key(key), Kind::Budget) => Observation::BudgetGone(key),
            (Self::Key(key), Kind::Claim) => Observation::ClaimGone(key),
            (Self::Key(key), Kind::CsiCapacity) => Observation::CsiCapacityGone(key),
            (Self::Key(key), Kind::ResourceClaim) => Observation::ResourceClaimGone(key),
            (Self::Key(key), _) => Observation::GroupGone(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: Kind) -> String {
        let spec = match kind {
            Kind::ResourceSlice => r#""spec":{"driver":"d","pool":{"name":"p"},"nodeName":"n"}"#,
            _ => r#""spec":{"containers":[],"driver":"d"}"#,
        };
        format!(
            r#"{{"metadata":{{"name":"n","namespace":"s","uid":"u"}},{spec},"provisioner":"p","storageClassName":"c"}}"#
        )
    }

    /// What an object is told by when it comes and when it goes must be the same.
    #[test]
    fn identities_agree() {
        let mut names = Names::default();
        for kind in Kind::ALL {
            let json = sample(*kind);
            let observation = kind.observation(json.as_bytes(), &mut names);
            let observation = observation.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            let coming = Identity::of(&observation).unwrap();
            let going = Identity::read(*kind, json.as_bytes(), &mut names).unwrap();
            assert_eq!(coming, going, "{kind:?}");
        }
    }

    /// The sandbox stands for the API server: it must know every kind that is watched there, and no other.
    #[test]
    fn the_sandbox_knows_the_same_kinds() {
        let mut watched: Vec<_> = Kind::ALL.iter().map(|kind| kind.object_kind()).collect();
        let mut known = plimsoll_sched::sandbox::KINDS.to_vec();
        watched.sort_unstable();
        known.sort_unstable();
        assert_eq!(watched, known);
    }
}
