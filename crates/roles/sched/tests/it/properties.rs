//! The fast path against the plain definition, on random clusters that change between decisions.

use std::collections::BTreeMap;

use crate::reference::{Judgement, World};
use plimsoll_sched::action::{ActionKind, ActionResult};
use plimsoll_sched::framework::Profile;
use plimsoll_sched::model::{Labels, Names, Node, Pod, Symbol, decode};
use plimsoll_sched::queue::QueueConfig;
use plimsoll_sched::{Config, Observation, Outcome, Scheduler, Time};
use proptest::prelude::*;

const NOW: Time = Time(1_000_000_000_000);

struct Play {
    random: fastrand::Rng,
    scheduler: Scheduler,
    nodes: BTreeMap<Symbol, Node>,
    pods: BTreeMap<String, (Pod, Symbol)>,
    namespaces: BTreeMap<Symbol, Labels>,
    services: Vec<Labels>,
    next: usize,
    decisions: String,
}

fn pick<'a>(random: &mut fastrand::Rng, choices: &[&'a str]) -> &'a str {
    choices[random.usize(..choices.len())]
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut names = Names::default();
        let mut profile = Profile::standard(names.intern("default-scheduler"));
        profile.percentage_of_nodes_to_score = 100;
        let config = Config {
            profiles: vec![profile],
            queue: QueueConfig::default(),
            seed,
        };
        Self {
            random: fastrand::Rng::with_seed(seed),
            scheduler: Scheduler::new(config, names),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            services: Vec::new(),
            next: 0,
            decisions: String::new(),
        }
    }

    fn set_node(&mut self, index: usize) {
        let random = &mut self.random;
        let mut labels = vec![format!(r#""kubernetes.io/hostname":"n{index}""#)];
        if random.u8(..10) > 0 {
            labels.push(format!(
                r#""topology.kubernetes.io/zone":"z{}""#,
                random.u8(..3)
            ));
        }
        if random.bool() {
            labels.push(format!(r#""disk":"{}""#, pick(random, &["ssd", "hdd"])));
        }
        let taint = match random.u8(..8) {
            0 => r#"{"key":"k","value":"v","effect":"NoSchedule"}"#,
            1 => r#"{"key":"k","value":"v","effect":"PreferNoSchedule"}"#,
            2 => {
                r#"{"key":"l","effect":"PreferNoSchedule"},{"key":"k","effect":"PreferNoSchedule"}"#
            }
            _ => "",
        };
        let json = format!(
            r#"{{"metadata":{{"name":"n{index}","labels":{{{}}}}},"spec":{{"unschedulable":{},"taints":[{taint}]}},
                "status":{{"allocatable":{{"cpu":"{}","memory":"{}Mi","pods":"{}"}}}}}}"#,
            labels.join(","),
            random.u8(..10) == 0,
            random.u8(1..8),
            random.u16(500..4000),
            random.u8(2..9)
        );
        let node = decode::node(json.as_bytes(), self.scheduler.names_mut()).unwrap();
        self.nodes.insert(node.name, node.clone());
        self.scheduler
            .observe(Observation::Node(Box::new(node)), NOW);
    }

    fn term(&mut self) -> String {
        let random = &mut self.random;
        let key = pick(
            random,
            &[
                "kubernetes.io/hostname",
                "topology.kubernetes.io/zone",
                "disk",
            ],
        );
        let app = pick(random, &["a", "b", "c"]);
        let namespaces = pick(
            random,
            &[
                "",
                "",
                r#","namespaces":["other"]"#,
                r#","namespaceSelector":{}"#,
                r#","namespaceSelector":{"matchLabels":{"team":"x"}}"#,
            ],
        );
        format!(
            r#"{{"topologyKey":"{key}","labelSelector":{{"matchLabels":{{"app":"{app}"}}}}{namespaces}}}"#
        )
    }

    fn affinity(&mut self) -> String {
        let mut sides = Vec::new();
        for side in ["podAffinity", "podAntiAffinity"] {
            let mut rules = Vec::new();
            if self.random.u8(..6) == 0 {
                let terms: Vec<_> = (0..self.random.u8(1..3)).map(|_| self.term()).collect();
                rules.push(format!(
                    r#""requiredDuringSchedulingIgnoredDuringExecution":[{}]"#,
                    terms.join(",")
                ));
            }
            if self.random.u8(..5) == 0 {
                let (weight, term) = (self.random.u8(1..100), self.term());
                rules.push(format!(
                    r#""preferredDuringSchedulingIgnoredDuringExecution":[{{"weight":{weight},"podAffinityTerm":{term}}}]"#
                ));
            }
            sides.push(format!(r#""{side}":{{{}}}"#, rules.join(",")));
        }
        if self.random.u8(..5) == 0 {
            sides.push(
                r#""nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"preference":
                    {"matchExpressions":[{"key":"disk","operator":"In","values":["ssd"]}]}}]}"#
                    .to_owned(),
            );
        }
        format!("{{{}}}", sides.join(","))
    }

    fn spread(&mut self) -> String {
        let random = &mut self.random;
        let constraints: Vec<_> = (0..random.u8(..3))
            .map(|_| {
                let key = pick(random, &["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
                let action = pick(random, &["DoNotSchedule", "ScheduleAnyway"]);
                let selector = pick(random, &[r#"{"matchLabels":{"app":"a"}}"#, r#"{"matchLabels":{"app":"b"}}"#, "{}"]);
                let more = pick(
                    random,
                    &["", r#","minDomains":3"#, r#","nodeTaintsPolicy":"Honor""#, r#","nodeAffinityPolicy":"Ignore""#, r#","matchLabelKeys":["app"]"#],
                );
                format!(
                    r#"{{"maxSkew":{},"topologyKey":"{key}","whenUnsatisfiable":"{action}","labelSelector":{selector}{more}}}"#,
                    random.u8(1..3)
                )
            })
            .collect();
        format!("[{}]", constraints.join(","))
    }

    fn new_pod(&mut self) -> Pod {
        self.next += 1;
        let name = format!("p{}", self.next);
        let affinity = self.affinity();
        let spread = if self.random.u8(..3) == 0 {
            self.spread()
        } else {
            "[]".to_owned()
        };
        let random = &mut self.random;
        let selector = pick(random, &["{}", "{}", "{}", r#"{"disk":"ssd"}"#]);
        let tolerations = pick(
            random,
            &[
                "[]",
                "[]",
                r#"[{"key":"k","operator":"Exists"}]"#,
                r#"[{"operator":"Exists"}]"#,
            ],
        );
        let ports = pick(random, &["[]", "[]", "[]", r#"[{"hostPort":80}]"#]);
        let requests = match random.u8(..4) {
            0 => "{}".to_owned(),
            _ => format!(
                r#"{{"cpu":"{}m","memory":"{}Mi"}}"#,
                random.u16(..1500),
                random.u16(..700)
            ),
        };
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","namespace":"{}","labels":{{"app":"{}"}}}},
                "spec":{{"affinity":{affinity},"topologySpreadConstraints":{spread},"nodeSelector":{selector},"tolerations":{tolerations},
                "preemptionPolicy":"Never","containers":[{{"ports":{ports},"resources":{{"requests":{requests}}}}}]}}}}"#,
            pick(random, &["d", "d", "other"]),
            pick(random, &["a", "b", "c"]),
        );
        decode::pod(json.as_bytes(), self.scheduler.names_mut()).unwrap()
    }

    /// One pod through the core, and through the definition.
    fn schedule(&mut self, check: bool) -> Result<(), TestCaseError> {
        let pod = self.new_pod();
        let expected = check.then(|| {
            let namespace = self.scheduler.cluster().names.find("d");
            let services: &[Labels] = if Some(pod.spec.namespace) == namespace {
                &self.services
            } else {
                &[]
            };
            let world = World {
                names: &self.scheduler.cluster().names,
                nodes: self.nodes.values().collect(),
                pods: self.pods.values().map(|(pod, node)| (pod, *node)).collect(),
                namespaces: &self.namespaces,
                services,
            };
            world.judge(&pod)
        });
        let uid = pod.uid.clone();
        self.scheduler
            .observe(Observation::Pod(Box::new(pod.clone())), NOW);
        let Some(cycle) = self.scheduler.step(NOW) else {
            return Err(TestCaseError::fail("nobody was ready"));
        };
        prop_assert_eq!(&cycle.pod.uid, &uid);
        match (&cycle.outcome, expected) {
            (Outcome::Scheduled { node }, expected) => {
                let node = self.scheduler.names_mut().intern(node);
                match expected {
                    Some(Judgement::Best(winners)) => prop_assert!(
                        winners.contains(&node),
                        "{} is not among the best",
                        pod.name
                    ),
                    Some(Judgement::Nowhere(reasons)) => {
                        prop_assert!(false, "{} fits nowhere: {:?}", pod.name, reasons)
                    }
                    None => {}
                }
                let mut bound = pod.clone();
                bound.node = Some(node);
                self.decisions
                    .push_str(&format!("{} {:?}\n", pod.name, node));
                self.pods.insert(uid.to_string(), (bound.clone(), node));
                for action in cycle.actions {
                    self.scheduler.finished(action.id, ActionResult::Done, NOW);
                    if matches!(action.kind, ActionKind::Bind { .. }) {
                        self.scheduler
                            .observe(Observation::Pod(Box::new(bound.clone())), NOW);
                    }
                }
            }
            (Outcome::Unschedulable { message }, expected) => {
                match expected {
                    Some(Judgement::Nowhere(reasons)) => {
                        let mut entries: Vec<_> = reasons
                            .iter()
                            .map(|(text, nodes)| format!("{nodes} {text}"))
                            .collect();
                        entries.sort();
                        let text = format!(
                            "0/{} nodes are available: {}.",
                            self.nodes.len(),
                            entries.join(", ")
                        );
                        prop_assert!(
                            message.starts_with(&text),
                            "{} instead of {}",
                            message,
                            text
                        );
                    }
                    Some(Judgement::Best(winners)) => {
                        prop_assert!(false, "{:?} would do: {}", winners, message)
                    }
                    None => {}
                }
                self.decisions
                    .push_str(&format!("{} {message}\n", pod.name));
                self.scheduler
                    .observe(Observation::PodGone((&*uid).into()), NOW);
            }
            (other, _) => prop_assert!(false, "{:?}", other),
        }
        Ok(())
    }

    fn change_something(&mut self) {
        match self.random.u8(..6) {
            0 => {
                let index = self.random.usize(..12);
                self.set_node(index);
            }
            1 if self.nodes.len() > 2 => {
                let names: Vec<_> = self.nodes.keys().copied().collect();
                let name = names[self.random.usize(..names.len())];
                self.nodes.remove(&name);
                self.scheduler.observe(Observation::NodeGone(name), NOW);
            }
            2 => {
                let labels = pick(
                    &mut self.random,
                    &[r#"{"team":"x"}"#, r#"{"team":"y"}"#, "{}"],
                );
                let name = pick(&mut self.random, &["d", "other"]);
                let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{labels}}}}}"#);
                let namespace =
                    decode::namespace(json.as_bytes(), self.scheduler.names_mut()).unwrap();
                self.namespaces
                    .insert(namespace.name, namespace.labels.clone());
                self.scheduler
                    .observe(Observation::Namespace(namespace), NOW);
            }
            3 => {
                let app = pick(&mut self.random, &["a", "b"]);
                let json = format!(
                    r#"{{"metadata":{{"name":"s","namespace":"d"}},"spec":{{"selector":{{"app":"{app}"}}}}}}"#
                );
                let service = decode::service(json.as_bytes(), self.scheduler.names_mut()).unwrap();
                self.services = service.selector.clone().into_iter().collect();
                self.scheduler.observe(Observation::Service(service), NOW);
            }
            4 => {
                // A pod begins to end.
                let uids: Vec<_> = self.pods.keys().cloned().collect();
                if let Some(uid) = uids.get(self.random.usize(..uids.len().max(1)))
                    && let Some((pod, _)) = self.pods.get_mut(uid)
                {
                    pod.terminating = true;
                    let pod = pod.clone();
                    self.scheduler.observe(Observation::Pod(Box::new(pod)), NOW);
                }
            }
            _ => {
                let uids: Vec<_> = self.pods.keys().cloned().collect();
                if let Some(uid) = uids.get(self.random.usize(..uids.len().max(1))) {
                    self.pods.remove(uid);
                    self.scheduler
                        .observe(Observation::PodGone(uid.as_str().into()), NOW);
                }
            }
        }
    }
}

fn play(seed: u64, check: bool) -> Result<String, TestCaseError> {
    let mut play = Play::new(seed);
    for index in 0..8 {
        play.set_node(index);
    }
    for _ in 0..60 {
        play.schedule(check)?;
        if play.random.u8(..3) == 0 {
            play.change_something();
        }
    }
    Ok(play.decisions)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn decisions_follow_the_definition(seed: u64) {
        play(seed, true)?;
    }

    #[test]
    fn the_same_events_give_the_same_decisions(seed: u64) {
        prop_assert_eq!(play(seed, false)?, play(seed, false)?);
    }
}
