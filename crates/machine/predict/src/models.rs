//! The models of a node: trained once a minute, forgotten when their subject is gone.

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::priority::PriorityClass;
use rustc_hash::FxHashMap;

use crate::Amount;
use crate::model::{HalfLives, Model, Prediction};
use crate::subject::Subject;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// A model that was not trained for this long is dropped.
    pub forget_after: SignedDuration,
    /// A model is saved at most this often.
    pub save_every: SignedDuration,
    /// How many models are saved in one go.
    pub save_at_most: usize,
    pub half_lives: HalfLives,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            forget_after: SignedDuration::from_mins(30),
            save_every: SignedDuration::from_mins(10),
            save_at_most: 12,
            half_lives: HalfLives::default(),
        }
    }
}

/// What was used during the last minute: the 90th percentile of its samples.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Round<'a> {
    /// `None`: the node's own figures are missing, and with them what is no pod's.
    pub node: Option<Amount>,
    /// UID, class and usage.
    pub pods: Vec<(&'a str, PriorityClass, Amount)>,
}

#[derive(Debug, Clone, Default)]
pub struct Models {
    models: FxHashMap<Subject, Model>,
    config: Config,
}

impl Models {
    pub fn new(config: Config) -> Self {
        Self {
            models: FxHashMap::default(),
            config,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn train(&mut self, round: &Round<'_>, now: Timestamp) {
        let mut classes = PriorityClass::ALL.map(|class| (class, Amount::default()));
        let mut pods = Amount::default();
        for &(uid, class, usage) in &round.pods {
            self.add(Subject::Pod(uid.to_owned()), usage, now);
            pods = pods.plus(usage);
            for (one, sum) in &mut classes {
                if *one == class {
                    *sum = sum.plus(usage);
                }
            }
        }
        // A class without pods uses nothing, and that is worth remembering.
        for (class, usage) in classes {
            self.add(Subject::Class(class), usage, now);
        }
        if let Some(node) = round.node {
            self.add(Subject::Node, node, now);
            self.add(Subject::System, node.minus(pods), now);
        }
    }

    fn add(&mut self, subject: Subject, usage: Amount, now: Timestamp) {
        let model = self.models.entry(subject);
        let half_lives = self.config.half_lives;
        model
            .or_insert_with(|| Model::fading(half_lives, now))
            .add(usage, now);
    }

    /// `None`: nothing is known of it.
    pub fn predict(&self, subject: &Subject) -> Option<Prediction> {
        Some(self.models.get(subject)?.predict())
    }

    pub fn get(&self, subject: &Subject) -> Option<&Model> {
        self.models.get(subject)
    }

    pub fn insert(&mut self, subject: Subject, model: Model) {
        self.models.insert(subject, model);
    }

    pub fn len(&self) -> usize {
        self.models.len()
    }

    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Drops the models whose subjects are gone, and says which.
    pub fn forget(&mut self, now: Timestamp) -> Vec<Subject> {
        let idle = |model: &Model| now.duration_since(model.updated) > self.config.forget_after;
        let mut gone: Vec<Subject> = self
            .models
            .iter()
            .filter(|(_, model)| idle(model))
            .map(|(subject, _)| subject.clone())
            .collect();
        gone.sort();
        for subject in &gone {
            self.models.remove(subject);
        }
        gone
    }

    /// The models to be saved now: those saved longest ago, a few at a time, so that no minute has much to write.
    pub fn to_save(&self, now: Timestamp) -> Vec<&Subject> {
        let due = |model: &Model| {
            model
                .saved
                .is_none_or(|saved| now.duration_since(saved) >= self.config.save_every)
        };
        let mut due: Vec<(&Subject, Option<Timestamp>)> = self
            .models
            .iter()
            .filter(|(_, model)| due(model))
            .map(|(subject, model)| (subject, model.saved))
            .collect();
        due.sort_by(|a, b| (a.1, a.0).cmp(&(b.1, b.0)));
        due.truncate(self.config.save_at_most);
        due.into_iter().map(|(subject, _)| subject).collect()
    }

    pub fn saved(&mut self, subject: &Subject, now: Timestamp) {
        if let Some(model) = self.models.get_mut(subject) {
            model.saved = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(n: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + n * 60).unwrap()
    }

    fn usage(cpu: f64) -> Amount {
        Amount {
            cpu,
            memory: cpu * 1e9,
        }
    }

    #[test]
    fn a_round_trains_pods_classes_and_the_rest() {
        let mut models = Models::default();
        let round = Round {
            node: Some(usage(5.0)),
            pods: vec![
                ("a", PriorityClass::Prod, usage(1.0)),
                ("b", PriorityClass::Prod, usage(2.0)),
                ("c", PriorityClass::None, usage(0.5)),
            ],
        };
        models.train(&round, minute(0));
        let p95 = |subject: Subject| models.predict(&subject).map(|p| p.cpu.p95).unwrap();
        let near = |found: f64, wanted: f64| found > wanted && found <= wanted * 1.05 + 0.03;
        assert!(near(p95(Subject::Pod("b".into())), 2.0));
        assert!(near(p95(Subject::Class(PriorityClass::Prod)), 3.0));
        assert!(near(p95(Subject::Class(PriorityClass::Batch)), 0.0));
        assert!(near(p95(Subject::Node), 5.0));
        assert!(near(p95(Subject::System), 1.5));
        assert_eq!(models.predict(&Subject::Pod("d".into())), None);
    }

    #[test]
    fn more_pods_than_node_is_no_negative_rest() {
        let mut models = Models::default();
        let round = Round {
            node: Some(usage(1.0)),
            pods: vec![("a", PriorityClass::Prod, usage(4.0))],
        };
        models.train(&round, minute(0));
        assert_eq!(models.predict(&Subject::System).unwrap().cpu.max, 0.025);
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut models = Models::default();
        let pods = Round {
            node: Some(usage(1.0)),
            pods: vec![("a", PriorityClass::Prod, usage(1.0))],
        };
        models.train(&pods, minute(0));
        models.train(&Round::default(), minute(30));
        assert_eq!(models.forget(minute(30)), []);
        models.train(
            &Round {
                node: Some(usage(1.0)),
                pods: Vec::new(),
            },
            minute(31),
        );
        assert_eq!(models.forget(minute(31)), [Subject::Pod("a".into())]);
        assert!(models.predict(&Subject::Node).is_some());
    }

    #[test]
    fn a_few_are_saved_at_a_time_and_each_in_turn() {
        let mut models = Models::default();
        let uids: Vec<String> = (0..20).map(|n| format!("pod-{n:02}")).collect();
        let pods = uids
            .iter()
            .map(|uid| (uid.as_str(), PriorityClass::Prod, usage(1.0)))
            .collect();
        models.train(
            &Round {
                node: Some(usage(30.0)),
                pods,
            },
            minute(0),
        );
        let mut saved = Vec::new();
        for n in 0..4 {
            let now: Vec<Subject> = models.to_save(minute(n)).into_iter().cloned().collect();
            for subject in &now {
                models.saved(subject, minute(n));
            }
            saved.push(now.len());
        }
        assert_eq!(saved, [12, 12, 3, 0]);
        // The first ones are due again.
        assert_eq!(models.to_save(minute(10)).len(), 12);
    }
}
