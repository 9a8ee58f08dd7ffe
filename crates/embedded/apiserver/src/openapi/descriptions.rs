//! Descriptions of the built-in types. They are Kubernetes' own prose, which a dependency brings along with the types:
//! taken from there when a document is made, so that `kubectl explain` teaches what people know.

use k8s_openapi::schemars::SchemaGenerator;
use serde_json::{Map, Value};

/// Adds a description to every schema and property that has one.
pub fn add(schemas: &mut Map<String, Value>) {
    let known = all();
    // What every kind has: for those that are custom, and for lists.
    let any_kind = known.get("io.k8s.api.core.v1.ConfigMap");
    for (name, schema) in schemas {
        let own = known.get(name);
        if let Some(own) = own {
            copy(own, schema);
        }
        let is_kind = schema.get("x-kubernetes-group-version-kind").is_some();
        let common = any_kind.filter(|_| is_kind);
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (field, property) in properties.into_iter().flatten() {
            if let Some(own) = own {
                copy(&own["properties"][field], property);
                name_values(property);
            } else if let Some(common) = common
                && ["apiVersion", "kind", "metadata"].contains(&field.as_str())
            {
                copy(&common["properties"][field], property);
            }
        }
    }
}

fn copy(from: &Value, to: &mut Value) {
    if let Some(description) = from.get("description") {
        to["description"] = description.clone();
    }
}

/// The values that a field may have are named in its description, too.
fn name_values(property: &mut Value) {
    let Some(values) = property["enum"].as_array() else {
        return;
    };
    let values: Vec<String> = values.iter().map(|value| format!(" - `{value}`")).collect();
    let description = property["description"].as_str().unwrap_or_default();
    if !description.contains(VALUES) {
        let named = format!("{description}\n\n{VALUES}\n{}", values.join("\n"));
        property["description"] = named.into();
    }
}

const VALUES: &str = "Possible enum values:";

/// The schemas of all types that the built-in kinds consist of.
fn all() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    macro_rules! include {
        ($($kind:path),* $(,)?) => {
            $( generator.subschema_for::<$kind>(); )*
        };
    }
    use k8s_openapi::{api, apiextensions_apiserver, apimachinery, kube_aggregator};
    include!(
        api::core::v1::Binding,
        api::core::v1::ComponentStatus,
        api::core::v1::ConfigMap,
        api::core::v1::Endpoints,
        api::core::v1::Event,
        api::core::v1::LimitRange,
        api::core::v1::Namespace,
        api::core::v1::Node,
        api::core::v1::PersistentVolumeClaim,
        api::core::v1::PersistentVolume,
        api::core::v1::Pod,
        api::core::v1::PodTemplate,
        api::core::v1::ReplicationController,
        api::core::v1::ResourceQuota,
        api::core::v1::Secret,
        api::core::v1::ServiceAccount,
        api::core::v1::Service,
        kube_aggregator::pkg::apis::apiregistration::v1::APIService,
        api::apps::v1::ControllerRevision,
        api::apps::v1::DaemonSet,
        api::apps::v1::Deployment,
        api::apps::v1::ReplicaSet,
        api::apps::v1::StatefulSet,
        api::events::v1::Event,
        api::authentication::v1::SelfSubjectReview,
        api::authentication::v1::TokenReview,
        api::authorization::v1::LocalSubjectAccessReview,
        api::authorization::v1::SelfSubjectAccessReview,
        api::authorization::v1::SelfSubjectRulesReview,
        api::authorization::v1::SubjectAccessReview,
        api::autoscaling::v2::HorizontalPodAutoscaler,
        api::autoscaling::v1::HorizontalPodAutoscaler,
        api::batch::v1::CronJob,
        api::batch::v1::Job,
        api::certificates::v1::CertificateSigningRequest,
        api::networking::v1::IngressClass,
        api::networking::v1::Ingress,
        api::networking::v1::IPAddress,
        api::networking::v1::NetworkPolicy,
        api::networking::v1::ServiceCIDR,
        api::policy::v1::PodDisruptionBudget,
        api::rbac::v1::ClusterRoleBinding,
        api::rbac::v1::ClusterRole,
        api::rbac::v1::RoleBinding,
        api::rbac::v1::Role,
        api::storage::v1::CSIDriver,
        api::storage::v1::CSINode,
        api::storage::v1::CSIStorageCapacity,
        api::storage::v1::StorageClass,
        api::storage::v1::VolumeAttachment,
        api::storage::v1::VolumeAttributesClass,
        api::admissionregistration::v1::MutatingAdmissionPolicy,
        api::admissionregistration::v1::MutatingAdmissionPolicyBinding,
        api::admissionregistration::v1::MutatingWebhookConfiguration,
        api::admissionregistration::v1::ValidatingAdmissionPolicy,
        api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        api::admissionregistration::v1::ValidatingWebhookConfiguration,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        api::scheduling::v1::PriorityClass,
        api::coordination::v1::Lease,
        api::node::v1::RuntimeClass,
        api::discovery::v1::EndpointSlice,
        api::resource::v1::DeviceClass,
        api::resource::v1::ResourceClaim,
        api::resource::v1::ResourceClaimTemplate,
        api::resource::v1::ResourceSlice,
        api::flowcontrol::v1::FlowSchema,
        api::flowcontrol::v1::PriorityLevelConfiguration,
        api::policy::v1::Eviction,
        api::authentication::v1::TokenRequest,
        api::autoscaling::v1::Scale,
        apimachinery::pkg::apis::meta::v1::DeleteOptions,
        apimachinery::pkg::apis::meta::v1::Status,
        apimachinery::pkg::apis::meta::v1::APIResourceList,
        apimachinery::pkg::apis::meta::v1::APIGroup,
        apimachinery::pkg::apis::meta::v1::APIGroupList,
        apimachinery::pkg::apis::meta::v1::APIVersions,
    );
    generator.take_definitions(false)
}
