//! Held against what kube-scheduler 1.36.3 said about the same files.

use serde::Deserialize;

use super::*;

/// Files, and with which words the original refused them, if it did.
const RECORDED: &str = include_str!("../../testdata/configurations.json");

#[derive(Deserialize)]
struct Case {
    name: String,
    yaml: String,
    error: Option<String>,
}

fn said(yaml: &str) -> Option<String> {
    let built = parse(yaml).and_then(|config| config.build(&mut Names::default()));
    built.err().map(|error| error.to_string())
}

#[test]
fn files_are_refused_in_the_originals_words() {
    let cases: Vec<Case> = serde_json::from_str(RECORDED).unwrap();
    assert!(cases.len() > 70);
    let wrong: Vec<String> = cases
        .iter()
        .filter(|case| said(&case.yaml) != case.error)
        .map(|case| {
            format!(
                "{}\n  ours     {:?}\n  original {:?}",
                case.name,
                said(&case.yaml),
                case.error
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn profile(yaml: &str) -> (Profile, Names) {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let config = parse(&format!("{head}{yaml}")).unwrap();
    let mut names = Names::default();
    let (mut profiles, _) = config.build(&mut names).unwrap();
    (profiles.remove(0), names)
}

#[test]
fn without_words_it_is_the_standard_profile() {
    let (profile, mut names) = profile("");
    let standard = Profile::standard(names.intern("default-scheduler"));
    assert_eq!(profile.name, standard.name);
    assert_eq!(profile.filter, standard.filter);
    assert_eq!(profile.pre_filter, standard.pre_filter);
    assert_eq!(profile.post_filter, standard.post_filter);
    assert_eq!(profile.score, standard.score);
    assert_eq!(profile.reserve, standard.reserve);
    assert_eq!(profile.pre_bind, standard.pre_bind);
    assert_eq!(profile.pre_enqueue, standard.pre_enqueue);
}

#[test]
fn plugins_are_merged() {
    use plimsoll_sched::framework::Plugin;
    let (profile, _) = profile(
        "profiles:
- plugins:
    multiPoint:
      enabled: [{name: ImageLocality, weight: 7}, {name: LoadAwareScheduling, weight: 4}]
      disabled: [{name: TaintToleration}]
    score:
      enabled: [{name: NodeResourcesFit, weight: 5}]
      disabled: [{name: InterPodAffinity}]
    filter:
      disabled: [{name: '*'}]
      enabled: [{name: NodePorts}]
  percentageOfNodesToScore: 40
",
    );
    assert_eq!(profile.filter, [Plugin::NodePorts]);
    assert!(!profile.pre_filter.contains(&Plugin::TaintToleration));
    // What is wished for a point comes first, what is added to all last.
    assert_eq!(profile.score.first(), Some(&(Plugin::NodeResourcesFit, 5)));
    assert_eq!(
        profile.score.last(),
        Some(&(Plugin::LoadAwareScheduling, 4))
    );
    assert!(profile.score.contains(&(Plugin::ImageLocality, 7)));
    assert!(
        !profile
            .score
            .iter()
            .any(|(plugin, _)| *plugin == Plugin::InterPodAffinity)
    );
    assert_eq!(profile.percentage_of_nodes_to_score, 40);
}

#[test]
fn arguments_reach_the_core() {
    use plimsoll_sched::framework::profile::{Defaulting, Strategy};
    let (profile, mut names) = profile(
        "extenders: [{urlPrefix: 'http://x', filterVerb: f, managedResources: [{name: example.com/a, ignoredByScheduler: true}]}]
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [example.com/b]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 3}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]
  - name: LoadAwareScheduling
    args: {usageThresholds: {cpu: 50}, nodeMetricExpirationSeconds: 60}
",
    );
    let args = profile.args;
    assert_eq!(
        args.fit.strategy,
        Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 100)])
    );
    assert_eq!(args.fit.ignored, [names.resource("example.com/a")]);
    assert_eq!(args.fit.resources.len(), 1);
    assert!(matches!(args.spread.defaulting, Defaulting::List(list) if list.len() == 1));
    assert_eq!(args.node_affinity.required.unwrap().terms.unwrap().len(), 1);
    assert_eq!(args.load.thresholds, [Some(50), None]);
    assert_eq!(args.load.expiration_seconds, 60);
}

#[test]
fn what_is_written_is_read_again() {
    let written = Configuration::default();
    let mut completed = written.clone();
    completed.check().unwrap();
    let text = completed.to_yaml();
    let mut again = parse(&text).unwrap();
    assert!(
        text.contains("  - name: NodeDeclaredFeatures\n        weight: 0\n")
            || text.contains("NodeDeclaredFeatures")
    );
    again.profiles[0].plugins = completed.profiles[0].plugins.clone();
    assert_eq!(again, completed);
}

/// As the original writes it: what an extender leaves out is left out, but for its time; arguments of plugins that run, by name.
#[test]
fn what_is_written_down() {
    let config = parse(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         extenders: [{urlPrefix: http://x, filterVerb: f}]\n\
         profiles: [{pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 5}}, {name: Foo, args: {a: 1}}]}]\n",
    )
    .unwrap();
    let written = config.completed();
    assert_eq!(
        written["extenders"],
        json!([{"urlPrefix": "http://x", "filterVerb": "f", "httpTimeout": "5s"}])
    );
    let args = written["profiles"][0]["pluginConfig"].as_array().unwrap();
    let names: Vec<_> = args
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(!names.contains(&"Foo"));
    assert_eq!(args.last().unwrap()["args"]["bindTimeoutSeconds"], 5);
}
