//! Scenarios played to the core, without a server and without time passing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};
use plimsoll_sched::action::EventType;
use plimsoll_sched::model::Names;
use plimsoll_sched::sandbox::{ObjectKey, Sandbox};
use plimsoll_sched::{Outcome, Parallelism, Time};
use serde_json::Value;

use super::kinds::short_key;
use super::profiles;
use super::scenario::{Operation, Scenario};
use super::seen::{self, Seen, Uids};
use super::stored::{has_status_of_its_own, merge};

/// Back-offs are over by the next step.
const BETWEEN_STEPS: Duration = Duration::from_secs(20);

/// What the core makes of it, step by step. The recording says what the server adds to objects, the seed decides between
/// nodes that are equally good. Several threads are used for everything that they can be used for.
pub fn replay(
    scenario: &Scenario,
    recorded: &[Seen],
    seed: u64,
    parallelism: usize,
) -> Result<Vec<Seen>> {
    let mut names = Names::default();
    let config = profiles::config(&scenario.setup, &mut names, seed)?;
    let features = profiles::features(&scenario.setup)?;
    let mut sandbox = Sandbox::new(config, names, Time::from_secs(1_800_000_000))
        .with_features(features)
        .with_parallelism(Parallelism {
            threads: parallelism,
            everywhere: true,
        });
    sandbox.scheduler_mut().record_scores(true);
    let mut play = Play {
        sandbox,
        uids: Uids::default(),
        events: BTreeSet::new(),
        series: BTreeSet::new(),
        told: 0,
        tried: 0,
    };
    for namespace in ["default", "kube-system"] {
        play.sandbox.put(serde_json::json!({"kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}}}))?;
    }
    let setup = scenario.objects.iter().cloned().map(Operation::Create);
    let setup: Vec<Operation> = setup.collect();
    let mut steps = Vec::new();
    for (index, step) in std::iter::once(&setup).chain(&scenario.steps).enumerate() {
        let empty = BTreeMap::new();
        let stored = recorded.get(index).map_or(&empty, |seen| &seen.stored);
        let seen = play.step(step, stored);
        steps.push(seen.with_context(|| format!("step {index}"))?);
        play.sandbox.advance(BETWEEN_STEPS);
    }
    Ok(steps)
}

struct Play {
    sandbox: Sandbox,
    uids: Uids,
    /// All that there are.
    events: BTreeSet<String>,
    /// What has been said of which version of which pod.
    series: BTreeSet<String>,
    /// How many events and cycles of the sandbox have been looked at.
    told: usize,
    tried: usize,
}

impl Play {
    fn step(&mut self, step: &[Operation], stored: &BTreeMap<String, Value>) -> Result<Seen> {
        for (index, operation) in step.iter().enumerate() {
            self.operate(index, operation, stored)?;
            self.sandbox.settle()?;
        }
        Ok(self.look())
    }

    fn operate(
        &mut self,
        index: usize,
        operation: &Operation,
        stored: &BTreeMap<String, Value>,
    ) -> Result<()> {
        match operation {
            Operation::Create(object) => {
                let key = ObjectKey::of(object).context("an object without a name")?;
                let mut object = with_uids(object, &self.uids);
                if let Some(change) = stored.get(&operation_key(index, &key)) {
                    merge(&mut object, change);
                }
                if has_status_of_its_own(&object) {
                    let mut bare = object.clone();
                    bare["status"] = serde_json::json!({});
                    self.sandbox.put(bare)?;
                    self.sandbox.settle()?;
                }
                self.sandbox.put(object)?;
                let uid = self
                    .sandbox
                    .get(&key)
                    .and_then(|object| object.pointer("/metadata/uid"));
                let uid = uid.and_then(Value::as_str).unwrap_or_default().to_owned();
                self.uids.insert(&uid, &key);
            }
            Operation::Patch { key, patch, .. } => {
                let mut object = self
                    .sandbox
                    .get(key)
                    .with_context(|| format!("there is no {}", short_key(key)))?
                    .clone();
                merge(&mut object, &with_uids(patch, &self.uids));
                if let Some(change) = stored.get(&operation_key(index, key)) {
                    merge(&mut object, change);
                }
                self.sandbox.put(object)?;
            }
            Operation::Delete {
                key, maybe: true, ..
            } if self.sandbox.get(key).is_none() => {}
            Operation::Delete { key, grace, .. } if key.kind == "Pod" => {
                self.sandbox.delete_pod(key, Some(*grace))?;
            }
            Operation::Delete { key, .. } => {
                let held = self.sandbox.get(key).cloned();
                let held = held.filter(|object| object.pointer("/metadata/finalizers").is_some());
                match held {
                    Some(mut object) => {
                        object["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z".into();
                        self.sandbox.put(object)?;
                    }
                    None => self.sandbox.remove(key),
                }
            }
            Operation::Pause(time) => {
                // In small steps, for what is due in between is done then.
                for _ in 0..time.as_secs() {
                    self.sandbox.settle()?;
                    self.sandbox.advance(Duration::from_secs(1));
                }
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Seen {
        let mut seen = Seen::default();
        for (key, object) in self.sandbox.objects() {
            if let Some(digest) = seen::digest(key, object, &self.uids) {
                seen.objects.insert(seen::title(key, object), digest);
            }
        }
        for record in &self.sandbox.events[self.told..] {
            let regarding = &record.regarding;
            let key = ObjectKey::new("Pod", &regarding.namespace, &regarding.name);
            let kind = match record.kind {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            };
            let parts = [
                kind,
                record.reason,
                record.action,
                &record.note,
                &record.controller,
            ];
            // Cycles count when they are over, which may be long after a node was chosen.
            let over = match record.reason {
                "Scheduled" => Some("scheduled"),
                "FailedScheduling" if record.note.starts_with("running ") => Some("error"),
                _ => None,
            };
            if let Some(word) = over {
                count(&mut seen, word);
            }
            // What is said again of a pod that has not changed is only counted, whatever the words are.
            let series = format!(
                "{kind} {} {} {} {} {}",
                record.reason,
                record.action,
                record.controller,
                regarding.uid,
                regarding.resource_version
            );
            if !self.series.insert(series) {
                continue;
            }
            let line = seen::event(&key, parts, &self.uids);
            if self.events.insert(line.clone()) {
                seen.events.insert(line);
            }
        }
        self.told = self.sandbox.events.len();
        let names = &self.sandbox.scheduler().cluster().names;
        for cycle in &self.sandbox.cycles[self.tried..] {
            if matches!(cycle.outcome, Outcome::Unschedulable { .. }) {
                count(&mut seen, "unschedulable");
            }
            if let Some(board) = &cycle.scores {
                let totals = board.nodes.iter().enumerate().map(|(index, node)| {
                    let columns = board.columns.iter();
                    let total = columns
                        .map(|(_, weight, scores)| weight * scores[index])
                        .sum();
                    (names.text(*node).to_owned(), total)
                });
                let key = ObjectKey::new("Pod", &cycle.pod.namespace, &cycle.pod.name);
                seen.scores.insert(short_key(&key), totals.collect());
            }
        }
        self.tried = self.sandbox.cycles.len();
        seen
    }
}

fn count(seen: &mut Seen, word: &str) {
    let count = seen.attempts.entry(word.to_owned()).or_default();
    *count = if word == "error" { 1 } else { *count + 1 };
}

/// Under which key the server's additions to an operation are recorded.
pub fn operation_key(index: usize, key: &ObjectKey) -> String {
    format!("{index} {}", short_key(key))
}

/// `uid-of:pvc/x` is the UID of that claim.
pub fn with_uids(value: &Value, uids: &Uids) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("uid-of:") {
            Some(name) => Value::String(uids.of(name).unwrap_or("none").to_owned()),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| with_uids(item, uids)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            Value::Object(
                fields
                    .map(|(name, inner)| (name.clone(), with_uids(inner, uids)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}
