use super::*;

const GIB: i64 = 1 << 30;

#[track_caller]
fn sized(spec: &str, status: &str) -> (Pod, Names) {
    let mut names = Names::default();
    let json = format!(
        r#"{{"metadata":{{"name":"p","namespace":"d","uid":"u"}},"spec":{spec},"status":{status}}}"#
    );
    (pod(json.as_bytes(), &mut names).unwrap(), names)
}

#[track_caller]
fn check_requests(spec: &str, cpu: i64, memory: i64) {
    let (pod, _) = sized(spec, "{}");
    let requests = &pod.spec.local.requests;
    assert_eq!(
        (
            requests.get(ResourceId::CPU),
            requests.get(ResourceId::MEMORY)
        ),
        (cpu, memory)
    );
}

const fn container() -> &'static str {
    r#"{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}"#
}

#[test]
fn containers_are_summed() {
    check_requests(
        &format!(r#"{{"containers":[{0},{0}]}}"#, container()),
        2000,
        2 * GIB,
    );
}

#[test]
fn init_containers_run_one_by_one() {
    check_requests(
        &format!(
            r#"{{"containers":[{0}],"initContainers":[{{"resources":{{"requests":{{"cpu":"3"}}}}}},{0}]}}"#,
            container()
        ),
        3000,
        GIB,
    );
}

#[test]
fn sidecars_run_beside_what_follows_them() {
    // The step after the sidecar takes 1 + 3, more than the containers' 1 + 1.
    check_requests(
        &format!(
            r#"{{"containers":[{0}],"initContainers":[
                {{"restartPolicy":"Always","resources":{{"requests":{{"cpu":"1"}}}}}},
                {{"resources":{{"requests":{{"cpu":"3"}}}}}}]}}"#,
            container()
        ),
        4000,
        GIB,
    );
}

#[test]
fn overhead_is_added_and_the_pod_level_replaces() {
    check_requests(
        &format!(
            r#"{{"containers":[{0}],"overhead":{{"cpu":"250m"}},"resources":{{"requests":{{"cpu":"5"}}}}}}"#,
            container()
        ),
        5250,
        GIB,
    );
}

#[test]
fn containers_without_requests_count_when_scored() {
    let (pod, _) = sized(r#"{"containers":[{"name":"a"},{"name":"b"}]}"#, "{}");
    assert!(pod.spec.local.requests.is_empty());
    assert_eq!(pod.spec.local.scored.get(ResourceId::CPU), 200);
    assert_eq!(pod.spec.charge.scored_memory, 2 * 209_715_200);
}

#[test]
fn with_pod_level_requests_only_what_is_missing_there_is_made_up() {
    let (pod, _) = sized(
        r#"{"containers":[{"name":"a"}],"resources":{"requests":{"cpu":"1"}}}"#,
        "{}",
    );
    assert_eq!(pod.spec.charge.scored_cpu, 1000);
    assert_eq!(pod.spec.charge.scored_memory, 209_715_200);
    // The scorer of the incoming pod does not look at the pod level.
    assert_eq!(pod.spec.local.scored.get(ResourceId::CPU), 100);
}

#[test]
fn a_resized_pod_takes_the_greatest_of_asked_allocated_and_actual() {
    let spec = format!(r#"{{"containers":[{}],"nodeName":"n"}}"#, container());
    let status = r#"{"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"2"},
        "resources":{"requests":{"cpu":"1500m","memory":"1Gi"}}}]}"#;
    let (pod, _) = sized(&spec, status);
    assert_eq!(pod.charge().requests.get(ResourceId::CPU), 2000);
    assert_eq!(pod.spec.local.requests.get(ResourceId::CPU), 1000);
    let infeasible = status.replacen(
        '{',
        r#"{"conditions":[{"type":"PodResizePending","reason":"Infeasible"}],"#,
        1,
    );
    let spec = spec.replace(r#""cpu":"1""#, r#""cpu":"9""#);
    assert_eq!(
        sized(&spec, &infeasible)
            .0
            .charge()
            .requests
            .get(ResourceId::CPU),
        2000
    );
    assert_eq!(
        sized(&spec, status)
            .0
            .charge()
            .requests
            .get(ResourceId::CPU),
        9000
    );
}

#[test]
fn an_unresized_pod_shares_its_spec() {
    let (pod, _) = sized(&format!(r#"{{"containers":[{}]}}"#, container()), "{}");
    assert_eq!(pod.resized, None);
}

#[test]
fn ports_images_and_tolerations() {
    let (pod, names) = sized(
        r#"{"containers":[{"image":"reg:5000/a","ports":[{"hostPort":80},{"hostPort":53,"protocol":"UDP","hostIP":"10.0.0.1"},{"containerPort":1}]}],
            "initContainers":[{"image":"b:1","ports":[{"hostPort":99}]}],
            "tolerations":[{"operator":"Exists"},{"key":"k","value":"v","effect":"NoSchedule"}]}"#,
        "{}",
    );
    let local = &pod.spec.local;
    assert_eq!(local.ports.len(), 2);
    let images: Vec<_> = local
        .images
        .iter()
        .map(|image| names.text(*image))
        .collect();
    assert_eq!(images, ["b:1", "reg:5000/a:latest"]);
    assert_eq!(local.tolerations[0].key, None);
    assert_eq!(local.tolerations[0].value, None);
    assert_eq!(names.text(local.tolerations[1].value.unwrap()), "v");
    assert_eq!(local.containers, 2);
}

#[test]
fn terms_default_to_the_pods_namespace() {
    let (pod, names) = sized(
        r#"{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
              {"topologyKey":"h","labelSelector":{"matchLabels":{"a":"b"}}},
              {"topologyKey":"h","namespaceSelector":{}}],
            "preferredDuringSchedulingIgnoredDuringExecution":[{"weight":7,"podAffinityTerm":{"topologyKey":"z"}}]}}}"#,
        "{}",
    );
    let affinity = &pod.spec.affinity;
    let own = &affinity.required_anti[0].pods;
    assert_eq!(
        own.namespaces
            .iter()
            .map(|ns| names.text(*ns))
            .collect::<Vec<_>>(),
        ["d"]
    );
    let all = &affinity.required_anti[1].pods;
    assert!(all.namespaces.is_empty() && all.namespace_selector.is_empty());
    assert_eq!(affinity.preferred[0].0, -7);
}

#[test]
fn match_label_keys_join_the_selector() {
    let mut names = Names::default();
    let json = br#"{"metadata":{"name":"p","labels":{"rev":"7"}},"spec":{"topologySpreadConstraints":[
        {"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule","labelSelector":{},"matchLabelKeys":["rev","none"]}]}}"#;
    let pod = pod(json, &mut names).unwrap();
    let constraint = &pod.spec.spread[0];
    let rev = Requirement::equals(names.intern("rev"), names.intern("7"));
    assert_eq!(
        constraint.selector,
        crate::model::selector::Selector::All([rev].into())
    );
    assert!(constraint.honor_affinity && !constraint.honor_taints && constraint.required);
    assert_eq!(constraint.min_domains, 1);
}
