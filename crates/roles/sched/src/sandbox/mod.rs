//! A cluster in memory that does what the core asks for: for what-ifs and tests.
//!
//! It stands for the API server and for nothing else. What a kubelet or a controller would do is done by whoever owns it,
//! with [`Sandbox::put`] and [`Sandbox::remove`]. Actions are carried out at once and always succeed.

mod carry_out;
mod objects;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

pub use objects::{KINDS, ObjectKey, gone, observed};

use crate::action::{Action, ActionResult, EventRecord};
use crate::features::Features;
use crate::framework::workers::Parallelism;
use crate::model::Names;
use crate::model::decode::DecodeError;
use crate::scheduler::{Config, Cycle, Outcome, Scheduler};
use crate::time::Time;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("an object without kind or name")]
    Nameless,
    #[error("{} {}: it cannot be read", key.kind, key.name)]
    Unreadable {
        key: Box<ObjectKey>,
        #[source]
        source: DecodeError,
    },
}

/// Objects as the API server has them, and the scheduler that watches them.
#[derive(Debug)]
pub struct Sandbox {
    scheduler: Scheduler,
    objects: BTreeMap<ObjectKey, Value>,
    now: Time,
    version: u64,
    /// Everything that was told about pods, in order.
    pub events: Vec<EventRecord>,
    /// Every cycle that tried a pod, without its actions.
    pub cycles: Vec<Cycle>,
}

/// An endless loop would be a fault of the core; it is to be seen as one.
const MOST_CYCLES: usize = 10_000_000;

impl Sandbox {
    /// `names` are those that the profiles were made with.
    pub fn new(config: Config, names: Names, now: Time) -> Self {
        Self {
            scheduler: Scheduler::new(config, names),
            objects: BTreeMap::new(),
            now,
            version: 0,
            events: Vec::new(),
            cycles: Vec::new(),
        }
    }

    /// With some of it switched otherwise than usual.
    pub fn with_features(mut self, features: Features) -> Self {
        self.scheduler = self.scheduler.with_features(features);
        self
    }

    pub fn with_parallelism(mut self, parallelism: Parallelism) -> Self {
        self.scheduler = self.scheduler.with_parallelism(parallelism);
        self
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn advance(&mut self, by: Duration) {
        self.now = self.now.after(by);
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(key)
    }

    pub fn objects(&self) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        self.objects.iter()
    }

    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        self.objects.iter().filter(move |(key, _)| key.kind == kind)
    }

    /// Creates or replaces an object. A UID and a version are given to it.
    pub fn put(&mut self, mut object: Value) -> Result<(), SandboxError> {
        let key = ObjectKey::of(&object).ok_or(SandboxError::Nameless)?;
        make_whole(&mut object);
        if is_to_go(&object) {
            self.remove(&key);
            return Ok(());
        }
        self.version += 1;
        let known = self.objects.get(&key);
        let uid = known
            .and_then(|known| known.pointer("/metadata/uid"))
            .or(object.pointer("/metadata/uid"))
            .cloned()
            .unwrap_or_else(|| json!(format!("{}/{}/{}", key.kind, key.namespace, key.name)));
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object.pointer("/metadata/generation").is_none() {
            object["metadata"]["generation"] = json!(1);
        }
        let told = objects::observed(&object, self.scheduler.names_mut()).map_err(|source| {
            SandboxError::Unreadable {
                key: Box::new(key.clone()),
                source,
            }
        })?;
        let over = object["kind"] == "Pod" && has_ended(&object);
        self.objects.insert(key.clone(), object);
        if over {
            // Pods that have ended are not watched.
            self.tell_gone(&key);
        } else if let Some(observation) = told {
            self.scheduler.observe(observation, self.now);
        }
        Ok(())
    }

    /// Takes an object away at once.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.tell_gone(key);
        self.objects.remove(key);
    }

    fn tell_gone(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get(key) else {
            return;
        };
        let uid = text(object, "/metadata/uid").to_owned();
        if let Some(gone) = objects::gone(key, &uid, self.scheduler.names_mut()) {
            self.scheduler.observe(gone, self.now);
        }
    }

    /// Deletes a pod as the API server does: at once if it has no node or no time to end in, else it is marked.
    pub fn delete_pod(&mut self, key: &ObjectKey, grace: Option<i64>) -> Result<(), SandboxError> {
        let Some(pod) = self.objects.get(key) else {
            return Ok(());
        };
        let own = pod.pointer("/spec/terminationGracePeriodSeconds");
        let own = own.and_then(Value::as_i64).unwrap_or(30);
        let grace = match text(pod, "/spec/nodeName") {
            "" => 0,
            _ => grace.unwrap_or(own),
        };
        let mut pod = pod.clone();
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        self.put(pod)
    }

    /// Schedules until there is nothing left to do at this time.
    pub fn settle(&mut self) -> Result<(), SandboxError> {
        let mut to_do: VecDeque<Action> = VecDeque::new();
        for _ in 0..MOST_CYCLES {
            to_do.extend(self.scheduler.take_actions());
            while let Some(action) = to_do.pop_front() {
                let id = action.id;
                self.carry_out(action.kind)?;
                to_do.extend(self.scheduler.finished(id, ActionResult::Done, self.now));
                to_do.extend(self.scheduler.take_actions());
            }
            let Some(mut cycle) = self.scheduler.step(self.now) else {
                to_do.extend(self.scheduler.take_actions());
                if to_do.is_empty() {
                    break;
                }
                continue;
            };
            to_do.extend(std::mem::take(&mut cycle.actions));
            if cycle.outcome != Outcome::Skipped {
                self.cycles.push(cycle);
            }
        }
        Ok(())
    }
}

/// What is written into later has the shape that an API server would have seen to.
fn make_whole(object: &mut Value) {
    let parts = object.as_object_mut().into_iter().flatten();
    for (name, part) in parts {
        let is_part = matches!(name.as_str(), "spec" | "status");
        if is_part && !part.is_object() {
            *part = json!({});
        }
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations")
        && !annotations.is_object()
    {
        *annotations = json!({});
    }
}

/// It is being deleted, and nobody holds it any more.
fn is_to_go(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let held = metadata["finalizers"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    metadata["deletionGracePeriodSeconds"] == 0 && !held
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// A string inside an object, or an empty one.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer);
    found.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
