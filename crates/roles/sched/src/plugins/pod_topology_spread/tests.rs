use crate::framework::plugin::Plugin;
use crate::plugins::testing::Kit;

const PLUGIN: Plugin = Plugin::PodTopologySpread;
const SKEWED: &str = "Unschedulable: node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str =
    "Unresolvable: node(s) didn't match pod topology spread constraints (missing required label)";

fn node(name: &str, zone: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"zone":"{zone}","kubernetes.io/hostname":"{name}"}}}}}}"#
    )
}

/// Zones a (two nodes) and b (one), and a node without a zone.
fn kit() -> Kit {
    let nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b")];
    Kit::with_nodes(&[
        &nodes[0],
        &nodes[1],
        &nodes[2],
        r#"{"metadata":{"name":"lost","labels":{"kubernetes.io/hostname":"lost"}}}"#,
    ])
}

fn pod(constraints: &str) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"d","labels":{{"app":"web"}}}},"spec":{{"topologySpreadConstraints":[{constraints}]}}}}"#
    )
}

fn constraint(key: &str, more: &str) -> String {
    format!(
        r#"{{"maxSkew":1,"topologyKey":"{key}","whenUnsatisfiable":"DoNotSchedule","labelSelector":{{"matchLabels":{{"app":"web"}}}}{more}}}"#
    )
}

const WEB: &str = r#"{"metadata":{"namespace":"d","labels":{"app":"web"}}}"#;

#[test]
fn skew_is_kept() {
    let mut kit = kit();
    let spread = pod(&constraint("zone", ""));
    kit.check(PLUGIN, &spread, "a1", "fits");
    kit.check(PLUGIN, &spread, "lost", NO_LABEL);
    kit.place(WEB, "a1");
    kit.check(PLUGIN, &spread, "a1", SKEWED);
    kit.check(PLUGIN, &spread, "a2", SKEWED);
    kit.check(PLUGIN, &spread, "b1", "fits");
    let second = kit.place(WEB, "b1");
    kit.check(PLUGIN, &spread, "a2", "fits");
    kit.cluster.remove_pod(second);
    kit.check(PLUGIN, &spread, "a2", SKEWED);
}

#[test]
fn only_living_pods_of_the_namespace_count() {
    let mut kit = kit();
    let spread = pod(&constraint("zone", ""));
    kit.place(
        r#"{"metadata":{"namespace":"other","labels":{"app":"web"}}}"#,
        "a1",
    );
    kit.place(
        r#"{"metadata":{"namespace":"d","labels":{"app":"db"}}}"#,
        "a1",
    );
    kit.place(r#"{"metadata":{"namespace":"d","labels":{"app":"web"},"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#, "a1");
    kit.check(PLUGIN, &spread, "a1", "fits");
}

#[test]
fn too_few_domains_count_as_an_empty_one() {
    let mut kit = kit();
    kit.place(WEB, "a1");
    kit.place(WEB, "b1");
    kit.check(
        PLUGIN,
        &pod(&constraint("zone", r#","minDomains":2"#)),
        "a1",
        "fits",
    );
    kit.check(
        PLUGIN,
        &pod(&constraint("zone", r#","minDomains":3"#)),
        "a1",
        SKEWED,
    );
}

#[test]
fn nodes_that_the_pod_cannot_use_make_no_domain() {
    let mut kit = kit();
    kit.place(WEB, "a1");
    let pod = |policy: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"d","labels":{{"app":"web"}}}},"spec":{{"nodeSelector":{{"zone":"a"}},
                "topologySpreadConstraints":[{}]}}}}"#,
            constraint("zone", policy)
        )
    };
    kit.check(PLUGIN, &pod(""), "a1", "fits");
    kit.check(
        PLUGIN,
        &pod(r#","nodeAffinityPolicy":"Ignore""#),
        "a1",
        SKEWED,
    );
}

#[test]
fn tainted_nodes_make_a_domain_unless_taints_are_honored() {
    let mut kit = kit();
    kit.place(WEB, "a1");
    kit.add_node(r#"{"metadata":{"name":"b1","labels":{"zone":"b"}},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}"#);
    kit.check(PLUGIN, &pod(&constraint("zone", "")), "a1", SKEWED);
    kit.check(
        PLUGIN,
        &pod(&constraint("zone", r#","nodeTaintsPolicy":"Honor""#)),
        "a1",
        "fits",
    );
}

#[test]
fn all_keys_are_needed_to_count() {
    let mut kit = kit();
    // A pod on a node without a zone does not count for the hostname either.
    kit.place(WEB, "lost");
    let both = pod(&format!(
        "{},{}",
        constraint("zone", ""),
        constraint("kubernetes.io/hostname", "")
    ));
    kit.check(PLUGIN, &both, "a1", "fits");
    kit.place(WEB, "a1");
    kit.check(PLUGIN, &both, "a2", SKEWED);
    kit.check(PLUGIN, &both, "b1", "fits");
}

#[test]
fn a_node_that_changes_zone_takes_its_pods_along() {
    let mut kit = kit();
    let spread = pod(&constraint("zone", ""));
    kit.place(WEB, "a1");
    kit.check(PLUGIN, &spread, "a2", SKEWED);
    kit.add_node(&node("a1", "b"));
    kit.check(PLUGIN, &spread, "a2", "fits");
    kit.check(PLUGIN, &spread, "b1", SKEWED);
    let name = kit.cluster.names.find("a1").unwrap();
    kit.cluster.remove_node(name);
    kit.check(PLUGIN, &spread, "b1", "fits");
}

#[test]
fn an_empty_selector_counts_nobody_and_an_absent_one_not_even_itself() {
    let mut kit = kit();
    kit.place(WEB, "a1");
    let bare = |selector: &str| {
        pod(&format!(
            r#"{{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"{selector}}}"#
        ))
    };
    kit.check(PLUGIN, &bare(r#","labelSelector":{}"#), "a1", "fits");
    kit.check(PLUGIN, &bare(""), "a1", "fits");
}

#[test]
fn soft_constraints_score() {
    let mut kit = kit();
    kit.place(WEB, "a1");
    kit.place(WEB, "a1");
    kit.place(WEB, "b1");
    let soft = pod(&constraint("zone", "").replace("DoNotSchedule", "ScheduleAnyway"));
    // ln(2+2)=1.386: zones have 2.77 -> 3 and 1.39 -> 1; (3+1-raw)/3.
    kit.check_scores(
        PLUGIN,
        &soft,
        &[("a1", 33), ("lost", 0), ("a2", 33), ("b1", 100)],
    );
    let soft =
        pod(&constraint("kubernetes.io/hostname", "").replace("DoNotSchedule", "ScheduleAnyway"));
    // ln(4+2)=1.79: 4, 0, 0, 2.
    kit.check_scores(
        PLUGIN,
        &soft,
        &[("a1", 0), ("lost", 100), ("a2", 100), ("b1", 50)],
    );
}

#[test]
fn system_defaults_come_from_services_and_owners() {
    let mut kit = kit();
    kit.place(WEB, "a1");
    assert_eq!(kit.scores(PLUGIN, WEB), None);
    let service = crate::model::decode::service(
        br#"{"metadata":{"name":"s","namespace":"d"},"spec":{"selector":{"app":"web"}}}"#,
        &mut kit.cluster.names,
    );
    kit.cluster.owners.set_service(service.unwrap());
    // hostname: ln(6)·1 + 2 on a1, 2 elsewhere; no node has the real zone key: one domain (none).
    kit.check_scores(
        PLUGIN,
        WEB,
        &[("a1", 50), ("lost", 100), ("a2", 100), ("b1", 100)],
    );
}

#[test]
fn hints() {
    let mut kit = Kit::default();
    let spread = pod(&constraint("zone", ""));
    let on_node =
        r#"{"metadata":{"namespace":"d","labels":{"app":"web"}},"spec":{"nodeName":"n"}}"#;
    kit.check_pod_gone_hint(PLUGIN, &spread, on_node, true);
    kit.check_pod_gone_hint(PLUGIN, &spread, &on_node.replace("web", "db"), false);
    kit.check_pod_gone_hint(
        PLUGIN,
        &spread,
        &on_node.replace(r#""namespace":"d""#, r#""namespace":"e""#),
        false,
    );
    kit.check_pod_added_hint(PLUGIN, &spread, on_node, true);
    kit.check_node_hint(PLUGIN, &spread, None, &node("n", "a"), true);
    kit.check_node_hint(PLUGIN, &spread, None, r#"{"metadata":{"name":"n"}}"#, false);
    kit.check_node_hint(
        PLUGIN,
        &spread,
        Some(&node("n", "a")),
        &node("n", "b"),
        true,
    );
    kit.check_node_hint(
        PLUGIN,
        &spread,
        Some(&node("n", "a")),
        &node("n", "a"),
        false,
    );
}
