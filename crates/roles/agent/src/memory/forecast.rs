//! Models of what pods use: trained, saved, restored, asked.

use std::path::PathBuf;

use jiff::Timestamp;
use plimsoll_api::quantity::Quantity;
use plimsoll_predict::reclaim::{self, Reclaimable, by_class, by_pod, capped};
use plimsoll_predict::{Amount, Models, Round, checkpoint};
use plimsoll_waiting::Repeated;

use super::config::Forecast;
use super::remember::{Counters, count};
use crate::states::{Known, Node, Pod};

/// What the node's pods could be given, had others not changed that: the original of `allocatable`.
const RAW_ALLOCATABLE: &str = "node.koordinator.sh/raw-allocatable";

#[derive(Debug)]
pub struct Forecasts {
    models: Models,
    folder: Option<PathBuf>,
    /// Subjects may be forgotten once those that are left had a chance to be trained.
    trained: bool,
    trouble: Repeated,
}

/// The answers of both ways to look at it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Forecasted {
    pub by_pod: Reclaimable,
    pub by_class: Reclaimable,
}

impl Forecasted {
    /// The more careful one of each figure.
    pub fn smaller(&self) -> Reclaimable {
        Reclaimable {
            amount: self.by_pod.amount.map2(self.by_class.amount, f64::min),
            peak: self.by_pod.peak.map2(self.by_class.peak, f64::max),
        }
    }
}

impl Forecasts {
    pub fn restore(config: &Forecast) -> Self {
        let mut models = Models::new(config.models);
        let folder = config.checkpoints.clone().filter(|folder| {
            // Whose models are of no use any more is known after the first training, which comes before forgetting.
            match checkpoint::restore(folder, &mut models, |_| true) {
                Ok(restored) => {
                    if restored.models > 0 || !restored.removed.is_empty() {
                        tracing::info!(models = restored.models, removed = restored.removed.len(), folder = %folder.display(), "models of before are at hand");
                    }
                    true
                }
                Err(error) => {
                    tracing::warn!(%error, folder = %folder.display(), "models cannot be kept there; forecasts begin anew with every start");
                    false
                }
            }
        });
        Self {
            models,
            folder,
            trained: false,
            trouble: Repeated::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.models.len()
    }

    pub fn train(&mut self, round: &Round<'_>, now: Timestamp, counters: &Counters) {
        self.models.train(round, now);
        self.trained = true;
        count(&counters.trained, 1);
    }

    /// Drops what is idle and saves what is due.
    pub fn maintain(&mut self, now: Timestamp, counters: &Counters) {
        if !self.trained {
            return;
        }
        let gone = self.models.forget(now);
        let Some(folder) = &self.folder else {
            return;
        };
        for subject in &gone {
            if let Err(error) = checkpoint::remove(folder, subject) {
                tracing::warn!(%subject, %error, "a checkpoint cannot be removed");
            }
        }
        let due: Vec<_> = self.models.to_save(now).into_iter().cloned().collect();
        let is_due = !due.is_empty();
        let mut failures = Vec::new();
        for subject in due {
            let Some(model) = self.models.get(&subject) else {
                continue;
            };
            match checkpoint::write(folder, &subject, model) {
                Ok(()) => count(&counters.checkpoints, 1),
                Err(error) => {
                    count(&counters.checkpoint_failures, 1);
                    failures.push(error);
                }
            }
            // Tried again when it is due again: a full disk is not written to every minute.
            self.models.saved(&subject, now);
        }
        // What befalls one befalls them all, as a rule.
        let folder = folder.display();
        match failures.first() {
            Some(error) => {
                if let Some(said) = self.trouble.failed() {
                    let (failed, times) = (failures.len(), said.times);
                    tracing::warn!(failed, %error, %folder, times, "checkpoints cannot be written");
                }
            }
            None if is_due => {
                if let Some(over) = self.trouble.well() {
                    let seconds = over.lasted.as_secs();
                    tracing::info!(%folder, seconds, "checkpoints are written again");
                }
            }
            None => {}
        }
    }

    /// `noted` says of which pods there were figures of late; the others are not counted on.
    pub fn reclaimable(
        &self,
        known: &Known,
        noted: impl Fn(&Pod) -> bool,
        now: Timestamp,
        config: &reclaim::Config,
    ) -> Forecasted {
        let pods: Vec<reclaim::Pod<'_>> = known
            .pods
            .iter()
            .flat_map(|pods| pods.iter())
            .filter(|pod| noted(pod))
            .map(as_predictors_see_it)
            .collect();
        let allocatable = known.node.as_deref().and_then(allocatable);
        Forecasted {
            by_pod: capped(by_pod(&self.models, &pods, now, config), allocatable),
            by_class: capped(by_class(&self.models, &pods, config), allocatable),
        }
    }
}

fn as_predictors_see_it(pod: &Pod) -> reclaim::Pod<'_> {
    let request = |name: &str| pod.requests.get(name);
    reclaim::Pod {
        uid: &pod.uid,
        priority: pod.classes.effective_priority(),
        request: Amount {
            cpu: request("cpu").map_or(0.0, units),
            memory: request("memory").map_or(0.0, units),
        },
        created: pod.created,
        terminating: pod.terminating,
        terminated: pod.has_ended(),
    }
}

fn units(quantity: &Quantity) -> f64 {
    quantity.nanos() as f64 / 1e9
}

/// What pods can be given: by the annotation that keeps the original where somebody amplified it.
fn allocatable(node: &Node) -> Option<Amount> {
    let raw: Option<serde_json::Map<String, serde_json::Value>> = node
        .annotations
        .get(RAW_ALLOCATABLE)
        .and_then(|text| serde_json::from_str(text).ok());
    let of = |name: &str| {
        let said = raw.as_ref().and_then(|raw| match raw.get(name)? {
            serde_json::Value::String(text) => text.parse::<Quantity>().ok(),
            number => number.to_string().parse().ok(),
        });
        said.as_ref()
            .or_else(|| node.allocatable.get(name))
            .map(units)
    };
    Some(Amount {
        cpu: of("cpu")?,
        memory: of("memory")?,
    })
}
