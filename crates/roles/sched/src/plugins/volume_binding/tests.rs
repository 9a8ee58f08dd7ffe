use crate::framework::plugin::Plugin;
use crate::plugins::testing::Kit;

const PLUGIN: Plugin = Plugin::VolumeBinding;
const POD: &str = r#"{"metadata":{"namespace":"d"},"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}"#;
const NONE_TO_BIND: &str = "Unresolvable: node(s) didn't find available persistent volumes to bind";

fn kit() -> Kit {
    let mut kit = Kit::with_nodes(&[
        r#"{"metadata":{"name":"a","labels":{"zone":"a"}}}"#,
        r#"{"metadata":{"name":"b","labels":{"zone":"b"}}}"#,
    ]);
    kit.add_class(r#"{"metadata":{"name":"late"},"provisioner":"kubernetes.io/no-provisioner","volumeBindingMode":"WaitForFirstConsumer"}"#);
    kit.add_class(
        r#"{"metadata":{"name":"soon"},"provisioner":"x","volumeBindingMode":"Immediate"}"#,
    );
    kit
}

fn claim(spec: &str, meta: &str) -> String {
    format!(r#"{{"metadata":{{"name":"c","namespace":"d","uid":"u"{meta}}},"spec":{spec}}}"#)
}

fn volume(name: &str, size: &str, zone: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"capacity":{{"storage":"{size}"}},"storageClassName":"late","accessModes":["ReadWriteOnce"],
            "nodeAffinity":{{"required":{{"nodeSelectorTerms":[{{"matchExpressions":[{{"key":"zone","operator":"In","values":["{zone}"]}}]}}]}}}}}},
            "status":{{"phase":"Available"}}}}"#
    )
}

const LATE: &str = r#"{"storageClassName":"late","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}"#;

#[test]
fn claims_that_are_not_ready() {
    let mut kit = kit();
    let check = |kit: &mut Kit, text: &str| kit.check(PLUGIN, POD, "a", text);
    check(
        &mut kit,
        "Unresolvable: persistentvolumeclaim \"c\" not found",
    );
    kit.add_claim(&claim(r#"{"storageClassName":"soon"}"#, ""));
    check(
        &mut kit,
        "Unresolvable: pod has unbound immediate PersistentVolumeClaims",
    );
    kit.add_claim(&claim(r#"{"storageClassName":""}"#, ""));
    check(
        &mut kit,
        "Unresolvable: pod has unbound immediate PersistentVolumeClaims",
    );
    kit.add_claim(&claim(
        LATE,
        r#","deletionTimestamp":"2026-01-01T00:00:00Z""#,
    ));
    check(
        &mut kit,
        "Unresolvable: persistentvolumeclaim \"c\" is being deleted",
    );
    let lost =
        claim(r#"{"volumeName":"v"}"#, "").replacen('{', r#"{"status":{"phase":"Lost"},"#, 1);
    kit.add_claim(&lost);
    check(
        &mut kit,
        "Unresolvable: persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"",
    );
    let ephemeral = r#"{"metadata":{"name":"p","uid":"p","namespace":"d"},"spec":{"volumes":[{"name":"e","ephemeral":{}}]}}"#;
    kit.check(
        PLUGIN,
        ephemeral,
        "a",
        "Unresolvable: waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-e\"",
    );
}

#[test]
fn bound_claims_go_where_their_volume_is() {
    let mut kit = kit();
    kit.add_claim(&claim(
        r#"{"volumeName":"v"}"#,
        r#","annotations":{"pv.kubernetes.io/bind-completed":"yes"}"#,
    ));
    kit.check(
        PLUGIN,
        POD,
        "a",
        "Unresolvable: node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    );
    kit.add_volume(&volume("v", "1Gi", "a"));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.check(
        PLUGIN,
        POD,
        "b",
        "Unresolvable: node(s) didn't match PersistentVolume's node affinity",
    );
}

#[test]
fn a_volume_is_found_near_the_node() {
    let mut kit = kit();
    kit.add_claim(&claim(LATE, ""));
    kit.check(PLUGIN, POD, "a", NONE_TO_BIND);
    kit.add_volume(&volume("small", "500Mi", "a"));
    kit.check(PLUGIN, POD, "a", NONE_TO_BIND);
    kit.add_volume(&volume("big", "2Gi", "a"));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.check(PLUGIN, POD, "b", NONE_TO_BIND);
    kit.add_volume(&volume("big", "2Gi", "a").replace("Available", "Released"));
    kit.check(PLUGIN, POD, "a", NONE_TO_BIND);
    let kept = volume("kept", "2Gi", "a").replace(
        r#""capacity""#,
        r#""claimRef":{"namespace":"d","name":"other"},"capacity""#,
    );
    kit.add_volume(&kept);
    kit.check(PLUGIN, POD, "a", NONE_TO_BIND);
    kit.add_volume(&kept.replace("other", "c"));
    kit.check(PLUGIN, POD, "a", "fits");
}

#[test]
fn or_it_is_provided_there() {
    let mut kit = kit();
    let class = |more: &str| {
        format!(
            r#"{{"metadata":{{"name":"late"}},"provisioner":"x","volumeBindingMode":"WaitForFirstConsumer"{more}}}"#
        )
    };
    kit.add_class(&class(""));
    kit.add_claim(&claim(LATE, ""));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.add_claim(&claim(
        LATE,
        r#","annotations":{"volume.kubernetes.io/selected-node":"b"}"#,
    ));
    kit.check(PLUGIN, POD, "a", NONE_TO_BIND);
    kit.check(PLUGIN, POD, "b", "fits");
    kit.add_claim(&claim(LATE, ""));
    kit.add_class(&class(
        r#","allowedTopologies":[{"matchLabelExpressions":[{"key":"zone","values":["b"]}]}]"#,
    ));
    kit.check(PLUGIN, POD, "a", NONE_TO_BIND);
    kit.check(PLUGIN, POD, "b", "fits");
    kit.add_driver(r#"{"metadata":{"name":"x"},"spec":{"storageCapacity":true}}"#);
    kit.check(
        PLUGIN,
        POD,
        "b",
        "Unresolvable: node(s) did not have enough free storage",
    );
    kit.add_capacity(r#"{"metadata":{"name":"k","namespace":"d"},"storageClassName":"late","capacity":"10Gi","maximumVolumeSize":"1Mi","nodeTopology":{"matchLabels":{"zone":"b"}}}"#);
    kit.check(
        PLUGIN,
        POD,
        "b",
        "Unresolvable: node(s) did not have enough free storage",
    );
    kit.add_capacity(r#"{"metadata":{"name":"k","namespace":"d"},"storageClassName":"late","capacity":"10Gi","nodeTopology":{"matchLabels":{"zone":"b"}}}"#);
    kit.check(PLUGIN, POD, "b", "fits");
}
