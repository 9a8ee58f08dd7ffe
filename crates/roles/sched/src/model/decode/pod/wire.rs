//! The fields of a pod that are read, as they are written.

use super::{
    Deserialize, Meta, ResourceList, Strings, WireNodeSelector, WireNodeTerm, WireSelector,
};

macro_rules! wire {
    ($($name:ident { $($field:ident: $type:ty $(= $wire:literal)?),* $(,)? })*) => {
        $(
            #[derive(Debug, Default, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            pub struct $name {
                $($(#[serde(rename = $wire)])? pub $field: $type,)*
            }
        )*
    };
}

wire! {
    WirePod { metadata: Meta, spec: WireSpec, status: WireStatus }

    WireSpec {
        node_name: Option<String>,
        scheduler_name: Option<String>,
        priority: Option<i32>,
        preemption_policy: Option<String>,
        host_network: bool,
        host_users: Option<bool>,
        containers: Vec<WireContainer>,
        init_containers: Option<Vec<WireContainer>>,
        overhead: Option<ResourceList>,
        resources: Option<WireResources>,
        node_selector: Option<Strings>,
        affinity: Option<WireAffinity>,
        tolerations: Option<Vec<WireToleration>>,
        topology_spread_constraints: Option<Vec<WireSpread>>,
        scheduling_gates: Option<Vec<WireNamed>>,
        volumes: Option<Vec<WireVolume>>,
        resource_claims: Option<Vec<WireClaim>>,
        scheduling_group: Option<WireGroup>,
    }

    WireContainer {
        name: String,
        image: String,
        resources: Option<WireResources>,
        ports: Option<Vec<WirePort>>,
        restart_policy: Option<String>,
        restart_policy_rules: Option<Vec<WireRule>>,
    }

    WireRule { action: String }
    WireNamed { name: String }
    WireGroup { pod_group_name: Option<String> }
    WireClaim { name: String, resource_claim_name: Option<String> }
    WireResources { requests: Option<ResourceList>, limits: Option<ResourceList> }
    WirePort { host_port: u16, host_ip: String = "hostIP", protocol: String }
    WireToleration { key: String, operator: String, value: String, effect: String }

    WireSpread {
        max_skew: i32,
        topology_key: String,
        when_unsatisfiable: String,
        label_selector: Option<WireSelector>,
        min_domains: Option<i32>,
        node_affinity_policy: Option<String>,
        node_taints_policy: Option<String>,
        match_label_keys: Option<Vec<String>>,
    }

    WireAffinity {
        node_affinity: Option<WireNodeAffinity>,
        pod_affinity: Option<WireTerms>,
        pod_anti_affinity: Option<WireTerms>,
    }

    WireNodeAffinity {
        required: Option<WireNodeSelector> = "requiredDuringSchedulingIgnoredDuringExecution",
        preferred: Option<Vec<WirePreferredNodes>> = "preferredDuringSchedulingIgnoredDuringExecution",
    }

    WirePreferredNodes { weight: i32, preference: WireNodeTerm }

    WireTerms {
        required: Option<Vec<WireTerm>> = "requiredDuringSchedulingIgnoredDuringExecution",
        preferred: Option<Vec<WireWeightedTerm>> = "preferredDuringSchedulingIgnoredDuringExecution",
    }

    WireWeightedTerm { weight: i32, pod_affinity_term: WireTerm }

    WireTerm {
        label_selector: Option<WireSelector>,
        namespaces: Option<Vec<String>>,
        namespace_selector: Option<WireSelector>,
        topology_key: String,
    }

    WireVolume {
        name: String,
        persistent_volume_claim: Option<WireVolumeClaim>,
        ephemeral: Option<serde::de::IgnoredAny>,
        image: Option<WireImage>,
        gce_persistent_disk: Option<WireGcePd>,
        aws_elastic_block_store: Option<WireEbs>,
        csi: Option<WireCsi>,
        iscsi: Option<WireIscsi>,
        rbd: Option<WireRbd>,
    }

    WireVolumeClaim { claim_name: String }
    WireImage { reference: String }
    WireGcePd { pd_name: String, read_only: bool }
    WireEbs { volume_id: String = "volumeID" }
    WireCsi { driver: String }
    WireIscsi { iqn: String, read_only: bool }
    WireRbd { monitors: Vec<String>, pool: String, image: String, read_only: bool }

    WireStatus {
        nominated_node_name: Option<String>,
        start_time: Option<String>,
        conditions: Option<Vec<WireCondition>>,
        container_statuses: Option<Vec<WireContainerStatus>>,
        init_container_statuses: Option<Vec<WireContainerStatus>>,
        resources: Option<WireResources>,
        allocated_resources: Option<ResourceList>,
        resource_claim_statuses: Option<Vec<WireClaim>>,
    }

    WireCondition {
        r#type: String,
        status: String,
        reason: String,
        message: String,
        observed_generation: i64,
    }

    WireContainerStatus {
        name: String,
        resources: Option<WireResources>,
        allocated_resources: Option<ResourceList>,
    }
}
