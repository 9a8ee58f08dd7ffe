//! Peak prediction: models of usage are trained, saved, restored and queried.

use std::path::PathBuf;

use jiff::Timestamp;
use plimsoll_predict::reclaim::{self, Reclaimable, by_class, by_pod, capped};
use plimsoll_predict::{Models, Round, checkpoint};
use plimsoll_waiting::Repeated;

use super::config::Forecast;
use super::history::{Counters, count};
use crate::{Pod, Workloads};

#[derive(Debug)]
pub struct PeakPredictor {
    models: Models,
    folder: Option<PathBuf>,
    /// Idle models are dropped only after the first training: until then it is not known which are idle.
    trained: bool,
    trouble: Repeated,
}

/// The results of both predictors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Predictions {
    pub by_pod: Reclaimable,
    pub by_class: Reclaimable,
}

impl Predictions {
    /// The lower amount and the higher peak: koordlet's `minPredictor`.
    pub fn min(&self) -> Reclaimable {
        Reclaimable {
            amount: self.by_pod.amount.map2(self.by_class.amount, f64::min),
            peak: self.by_pod.peak.map2(self.by_class.peak, f64::max),
        }
    }
}

impl PeakPredictor {
    pub fn restore(config: &Forecast) -> Self {
        let mut models = Models::new(config.models);
        let folder = config.checkpoints.clone().filter(|folder| {
            // Idle models are dropped after the first training.
            match checkpoint::restore(folder, &mut models, |_| true) {
                Ok(restored) => {
                    if restored.models > 0 || !restored.removed.is_empty() {
                        tracing::info!(models = restored.models, removed = restored.removed.len(), folder = %folder.display(), "loaded models");
                    }
                    true
                }
                Err(error) => {
                    tracing::warn!(%error, folder = %folder.display(), "cannot use the folder for checkpoints; models are lost with the process");
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
                tracing::warn!(%subject, %error, "cannot remove a checkpoint");
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
            // Retried when it is due again, not each minute: the disk may be full.
            self.models.saved(&subject, now);
        }
        // They mostly fail together, so one error stands for all.
        let folder = folder.display();
        match failures.first() {
            Some(error) => {
                if let Some(said) = self.trouble.failed() {
                    let (failed, times) = (failures.len(), said.times);
                    tracing::warn!(failed, %error, %folder, times, "cannot write checkpoints");
                }
            }
            None if is_due => {
                if let Some(over) = self.trouble.well() {
                    let seconds = over.lasted.as_secs();
                    tracing::info!(%folder, seconds, "checkpoints can be written again");
                }
            }
            None => {}
        }
    }

    /// Pods without recent samples (`has_samples`) are left out.
    pub fn reclaimable(
        &self,
        workloads: &Workloads,
        has_samples: impl Fn(&Pod) -> bool,
        now: Timestamp,
        config: &reclaim::Config,
    ) -> Predictions {
        let pods: Vec<reclaim::Pod<'_>> = workloads
            .pods
            .iter()
            .flat_map(|pods| pods.iter())
            .filter(|pod| has_samples(pod))
            .map(reclaim::Pod::from)
            .collect();
        let allocatable = workloads.allocatable;
        Predictions {
            by_pod: capped(by_pod(&self.models, &pods, now, config), allocatable),
            by_class: capped(by_class(&self.models, &pods, config), allocatable),
        }
    }
}

impl<'a> From<&'a Pod> for reclaim::Pod<'a> {
    fn from(pod: &'a Pod) -> Self {
        Self {
            uid: &pod.uid,
            priority: pod.priority,
            request: pod.request,
            created: pod.created,
            terminating: pod.terminating,
            terminated: pod.ended,
        }
    }
}
