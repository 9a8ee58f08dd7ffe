use crate::framework::plugin::Plugin;
use crate::model::decode;
use crate::plugins::testing::Kit;

const PLUGIN: Plugin = Plugin::InterPodAffinity;
const ALONE: &str = "Unresolvable: node(s) didn't match pod affinity rules";
const NEAR_FOE: &str = "Unschedulable: node(s) didn't match pod anti-affinity rules";
const REPELLED: &str = "Unschedulable: node(s) didn't satisfy existing pods anti-affinity rules";

fn node(name: &str, zone: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","labels":{{"zone":"{zone}","host":"{name}"}}}}}}"#)
}

fn kit() -> Kit {
    let nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b")];
    Kit::with_nodes(&[
        &nodes[0],
        &nodes[1],
        &nodes[2],
        r#"{"metadata":{"name":"lost"}}"#,
    ])
}

fn term(key: &str, app: &str, more: &str) -> String {
    format!(
        r#"{{"topologyKey":"{key}","labelSelector":{{"matchLabels":{{"app":"{app}"}}}}{more}}}"#
    )
}

/// A pod of some app with terms of a kind.
fn pod(app: &str, kind: &str, terms: &str) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"d","labels":{{"app":"{app}"}}}},
            "spec":{{"affinity":{{"{kind}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{terms}]}}}}}}}}"#
    )
}

fn preferring(app: &str, kind: &str, weight: i32, term: &str) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"d","labels":{{"app":"{app}"}}}},"spec":{{"affinity":{{"{kind}":
            {{"preferredDuringSchedulingIgnoredDuringExecution":[{{"weight":{weight},"podAffinityTerm":{term}}}]}}}}}}}}"#
    )
}

fn plain(app: &str) -> String {
    format!(r#"{{"metadata":{{"namespace":"d","labels":{{"app":"{app}"}}}}}}"#)
}

#[test]
fn company_is_needed() {
    let mut kit = kit();
    let near_db = pod("web", "podAffinity", &term("zone", "db", ""));
    kit.check(PLUGIN, &near_db, "a1", ALONE);
    let db = kit.place(&plain("db"), "a2");
    kit.check(PLUGIN, &near_db, "a1", "fits");
    kit.check(PLUGIN, &near_db, "b1", ALONE);
    kit.check(PLUGIN, &near_db, "lost", ALONE);
    kit.cluster.remove_pod(db);
    kit.check(PLUGIN, &near_db, "a1", ALONE);
}

#[test]
fn the_first_of_a_group_may_go_anywhere() {
    let mut kit = kit();
    let near_own = pod("web", "podAffinity", &term("zone", "web", ""));
    kit.check(PLUGIN, &near_own, "b1", "fits");
    kit.check(PLUGIN, &near_own, "lost", ALONE);
    kit.place(&near_own, "b1");
    kit.check(PLUGIN, &near_own, "a1", ALONE);
    kit.check(PLUGIN, &near_own, "b1", "fits");
}

#[test]
fn all_terms_must_match_one_pod() {
    let mut kit = kit();
    let both = r#"{"topologyKey":"zone","labelSelector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}}"#;
    let picky = pod(
        "web",
        "podAffinity",
        &format!("{},{both}", term("host", "db", "")),
    );
    kit.place(&plain("cache"), "a1");
    kit.check(PLUGIN, &picky, "a1", ALONE);
    kit.place(&plain("db"), "a1");
    kit.check(PLUGIN, &picky, "a1", "fits");
    kit.check(PLUGIN, &picky, "a2", ALONE);
}

#[test]
fn foes_are_kept_away_both_ways() {
    let mut kit = kit();
    let hates_db = pod("web", "podAntiAffinity", &term("zone", "db", ""));
    kit.place(&plain("db"), "a1");
    kit.check(PLUGIN, &hates_db, "a2", NEAR_FOE);
    kit.check(PLUGIN, &hates_db, "b1", "fits");
    kit.check(PLUGIN, &hates_db, "lost", "fits");
    kit.place(&hates_db, "b1");
    kit.check(PLUGIN, &plain("db"), "b1", REPELLED);
    kit.check(PLUGIN, &plain("db"), "a1", "fits");
    kit.check(PLUGIN, &plain("cache"), "b1", "fits");
}

#[test]
fn namespaces_matter() {
    let mut kit = kit();
    let elsewhere = r#"{"metadata":{"namespace":"e","labels":{"app":"db"}}}"#;
    kit.place(elsewhere, "a1");
    let check = |kit: &mut Kit, more: &str, expected| {
        kit.check(
            PLUGIN,
            &pod("web", "podAntiAffinity", &term("zone", "db", more)),
            "a1",
            expected,
        );
    };
    check(&mut kit, "", "fits");
    check(&mut kit, r#","namespaces":["e"]"#, NEAR_FOE);
    check(&mut kit, r#","namespaceSelector":{}"#, NEAR_FOE);
    let labelled = r#","namespaceSelector":{"matchLabels":{"team":"x"}}"#;
    check(&mut kit, labelled, "fits");
    let namespace = |labels: &str, kit: &mut Kit| {
        let json = format!(r#"{{"metadata":{{"name":"e","labels":{labels}}}}}"#);
        let namespace = decode::namespace(json.as_bytes(), &mut kit.cluster.names).unwrap();
        kit.cluster.set_namespace(namespace);
    };
    // A pod with such a term keeps it in use while the namespace's labels change.
    kit.add_pod(&pod(
        "other",
        "podAntiAffinity",
        &term("zone", "db", labelled),
    ));
    namespace(r#"{"team":"x"}"#, &mut kit);
    check(&mut kit, labelled, NEAR_FOE);
    namespace(r#"{"team":"y"}"#, &mut kit);
    check(&mut kit, labelled, "fits");
}

#[test]
fn pods_that_end_still_count() {
    let mut kit = kit();
    kit.place(r#"{"metadata":{"namespace":"d","labels":{"app":"db"},"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#, "a1");
    kit.check(
        PLUGIN,
        &pod("web", "podAntiAffinity", &term("zone", "db", "")),
        "a1",
        NEAR_FOE,
    );
}

#[test]
fn own_preferences_score() {
    let mut kit = kit();
    kit.place(&plain("db"), "a1");
    let likes = preferring("web", "podAffinity", 10, &term("zone", "db", ""));
    kit.check_scores(
        PLUGIN,
        &likes,
        &[("a1", 100), ("lost", 0), ("a2", 100), ("b1", 0)],
    );
    let dislikes = preferring("web", "podAntiAffinity", 10, &term("host", "db", ""));
    kit.check_scores(
        PLUGIN,
        &dislikes,
        &[("a1", 0), ("lost", 100), ("a2", 100), ("b1", 100)],
    );
}

#[test]
fn preferences_of_placed_pods_score_too() {
    let mut kit = kit();
    kit.place(
        &preferring("web", "podAffinity", 8, &term("host", "db", "")),
        "a1",
    );
    kit.place(&pod("web", "podAffinity", &term("zone", "db", "")), "b1");
    // 8 on a1 against the hard weight 1 on b1.
    kit.check_scores(
        PLUGIN,
        &plain("db"),
        &[("a1", 100), ("lost", 0), ("a2", 0), ("b1", 12)],
    );
    kit.profile.args.affinity.hard_pod_affinity_weight = 4;
    kit.check_scores(
        PLUGIN,
        &plain("db"),
        &[("a1", 100), ("lost", 0), ("a2", 0), ("b1", 50)],
    );
    kit.profile
        .args
        .affinity
        .ignore_preferred_terms_of_existing_pods = true;
    assert_eq!(kit.scores(PLUGIN, &plain("db")), None);
    assert_eq!(kit.scores(PLUGIN, &plain("cache")), None);
}

#[test]
fn hints() {
    let mut kit = Kit::default();
    let on_node = |app: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"d","labels":{{"app":"{app}"}}}},"spec":{{"nodeName":"n"}}}}"#
        )
    };
    let near = pod("web", "podAffinity", &term("zone", "db", ""));
    kit.check_pod_added_hint(PLUGIN, &near, &on_node("db"), true);
    kit.check_pod_added_hint(PLUGIN, &near, &on_node("cache"), false);
    kit.check_pod_added_hint(PLUGIN, &near, &plain("db"), false);
    let away = pod("web", "podAntiAffinity", &term("zone", "db", ""));
    kit.check_pod_gone_hint(PLUGIN, &away, &on_node("db"), true);
    kit.check_pod_gone_hint(PLUGIN, &away, &on_node("cache"), false);
    kit.check_node_hint(PLUGIN, &near, None, &node("n", "a"), true);
    kit.check_node_hint(PLUGIN, &near, None, r#"{"metadata":{"name":"n"}}"#, false);
    kit.check_node_hint(PLUGIN, &near, Some(&node("n", "a")), &node("n", "b"), true);
    kit.check_node_hint(PLUGIN, &away, None, r#"{"metadata":{"name":"n"}}"#, true);
    kit.check_node_hint(
        PLUGIN,
        &away,
        Some(&node("n", "a")),
        r#"{"metadata":{"name":"n"}}"#,
        true,
    );
}
